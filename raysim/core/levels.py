"""Levels and quantiles of all of raysim's intervals and tests."""

from __future__ import annotations

LEVEL = 0.95
"""The coverage of every interval."""

ALPHA = 0.05
"""The level of every test: the largest probability of a false alarm."""

POWER = 0.8
"""The power with which a difference counts as detectable."""

Z = 1.959963984540054
"""The normal quantile of a two-sided interval at :data:`LEVEL`."""
