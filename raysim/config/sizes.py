"""Selections that pick more or fewer hospitals than they are configured to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raysim.core.errors import ConfigError
from raysim.strategies.base import Selection

SIZE_KEYS = {"fraction", "minimum"}
"""What a selection that has a size calls it."""


def enlarged(selection: Selection, share: float) -> Selection:
    """The selection picking that share more. Raises ``ConfigError`` for one that has no size."""
    if not share:
        return selection
    if not (size := sized(selection)):
        raise ConfigError(
            f"system.rounds.over_selection: {share:g}, but the selection {type(selection).__name__} has no fraction "
            "and minimum that could be raised; choose another selection"
        )
    fraction, minimum = min(1.0, size["fraction"] * (1 + share)), int(size["minimum"] * (1 + share) + 1e-9)
    enlarged: Selection = replace(selection, fraction=fraction, minimum=minimum)  # type: ignore[type-var]
    return enlarged


def resized(selection: Selection, count: int) -> Selection:
    """The selection picking ``count`` hospitals, if it has a size."""
    changes = {"fraction": 1e-12, "minimum": count} if sized(selection) else {}
    resized: Selection = replace(selection, **changes) if changes else selection  # type: ignore[type-var]
    return resized


def sized(selection: Selection) -> dict[str, Any]:
    """The ``fraction`` and ``minimum`` of a selection that has them, else nothing."""
    attributes = vars(selection)
    return {key: attributes[key] for key in SIZE_KEYS} if attributes.keys() >= SIZE_KEYS else {}
