"""Imports of user modules, exits, and compute threads."""
