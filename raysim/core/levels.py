"""Levels and quantiles of all of raysim's intervals and tests."""

from __future__ import annotations

LEVEL = 0.95
"""The default coverage of confidence intervals."""

ALPHA = 0.05
"""The significance level of tests: the largest probability of a false alarm."""

POWER = 0.8
"""A difference counts as detectable if it would be demonstrated with at least this probability (the power)."""

Z = 1.959963984540054
"""The normal quantile of a two-sided interval at :data:`LEVEL`."""
