"""Attacks of Byzantine hospitals on rows and updates."""
