"""Checks of numbers and vectors from files that may have been modified. Errors name the value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def whole_number(value: Any, name: str, most: float) -> int:
    """Return ``value``, which must be a whole number from 0 to ``most``; else raise ``ValueError`` or ``TypeError``."""
    if isinstance(value, bool | str) or not 0 <= value <= most or value != math.floor(value):
        raise ValueError(f"its {name} is {value!r:.50}, not a whole number from 0 to {most:,}")
    return int(value)


def check_vectors(values: Iterable[Any], size: int, name: str) -> None:
    """Raise ``ValueError`` unless all ``values`` are vectors of ``size`` finite numbers."""
    for value in values:
        if not isinstance(value, np.ndarray) or value.shape != (size,) or not np.isfinite(value).all():
            raise ValueError(f"its {name} is not a vector of {size} finite numbers")
