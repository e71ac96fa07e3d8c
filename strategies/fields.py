"""Checks of fields. Each error message begins with the field's name, so that the author of the value can correct it."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Unfit(ValueError):
    """Raised by ``setup`` when hospitals' answers reveal that the strategy is not defined for the federation.

    The message begins with the field: ``features: ...``.
    """


class Invalid(ValueError):
    """Raised when a strategy or selection returns a value that cannot be used, which is a mistake in its code.

    The message begins with the field: ``upload.weight: ...``.
    """


def at_least(field: str, value: float, bound: float, *, finite: bool = True) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value >= bound``, or if ``finite`` and the value is infinite."""
    if not value >= bound:
        raise ValueError(f"{field}: {value} is not at least {bound}")
    if finite and math.isinf(value):
        raise ValueError(f"{field}: {value} is not finite; it must be at least {bound}")


def above(field: str, value: float, bound: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``bound < value < infinity``."""
    if not value > bound:
        raise ValueError(f"{field}: {value} is not greater than {bound}")
    if math.isinf(value):
        raise ValueError(f"{field}: {value} is not finite; it must be greater than {bound}")


def within(field: str, value: float, low: float, high: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``low <= value <= high``."""
    if not low <= value <= high:
        raise ValueError(f"{field}: {value} is not between {low} and {high}")


def below_one(field: str, value: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``0 <= value < 1``."""
    if not 0 <= value < 1:
        raise ValueError(f"{field}: {value} is not in [0, 1)")


def share_of_one(field: str, value: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``0 < value <= 1``."""
    if not 0 < value <= 1:
        raise ValueError(f"{field}: {value} is not in (0, 1]")


def one_of(field: str, value: str, choices: Sequence[str]) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value`` is among the ``choices``."""
    if value not in choices:
        raise ValueError(f"{field}: '{value}' is not one of {', '.join(choices)}")
