"""How sure the project's intervals and tests are."""

from __future__ import annotations

LEVEL = 0.95
"""Of every interval."""

ALPHA = 0.05
"""Of every test: how often it may call equals unequal."""

POWER = 0.8
"""With which a difference should be seen to be called visible."""

Z = 1.959963984540054
"""The normal quantile of a two-sided interval at :data:`LEVEL`."""
