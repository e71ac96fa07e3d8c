"""Compressed updates, and the bits of each message."""
