"""Levels and quantiles of all of raysim's intervals and tests."""

from __future__ import annotations

LEVEL = 0.95
"""The default coverage of confidence intervals."""

ALPHA = 0.05
"""The significance level of tests: the largest probability of a false alarm."""

POWER = 0.8
"""The power at which a difference counts as detectable: the probability that a test demonstrates it."""

Z = 1.959963984540054
"""The normal quantile of a two-sided interval at :data:`LEVEL`."""
