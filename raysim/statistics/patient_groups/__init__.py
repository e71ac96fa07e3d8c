"""Differences between patient groups within hospitals, and the part from the groups' different hospitals."""
