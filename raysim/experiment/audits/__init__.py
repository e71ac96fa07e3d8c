"""Attacks on the privacy of a run: the command, canaries, and the runs of shadow federations."""
