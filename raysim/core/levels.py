"""Levels and quantiles of raysim's intervals and tests."""

from __future__ import annotations

LEVEL = 0.95
"""Coverage of every interval."""

ALPHA = 0.05
"""Level of every test: the largest probability of a false alarm."""

POWER = 0.8
"""Power at which a difference counts as visible."""

Z = 1.959963984540054
"""The normal quantile of a two-sided interval at :data:`LEVEL`."""
