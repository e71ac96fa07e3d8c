"""Attacks on the privacy of a run: the audit command, canaries, and runs on shadow federations."""
