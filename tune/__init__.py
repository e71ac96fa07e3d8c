"""Sweeps on Ray Tune, and the choice among trials."""
