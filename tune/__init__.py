"""Sweeps on Ray Tune, and the selection of a trial."""
