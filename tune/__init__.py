"""Search spaces, sweeps on Ray Tune, and the choice among their trials."""
