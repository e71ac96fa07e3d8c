"""Differences between patient groups within hospitals, and differences because groups go to different hospitals."""
