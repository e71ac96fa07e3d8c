"""Differences between groups of patients within hospitals, and the part that comes from the groups' different
hospitals."""
