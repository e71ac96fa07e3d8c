"""Changes of the number of hospitals that a selection samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raysim.core.errors import ConfigError
from raysim.strategies.base import Selection

SIZE_KEYS = {"fraction", "minimum"}
"""The fields of a selection that decide how many hospitals it samples."""


def enlarged(selection: Selection, share: float) -> Selection:
    """Return a selection that samples ``1 + share`` times as many hospitals as ``selection``, but at most all.

    Raises ``ConfigError`` if ``share`` is not 0 and the selection has no fields ``fraction`` and ``minimum``.
    """
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
    """Return a selection that samples ``count`` hospitals, or ``selection`` itself if it lacks the fields ``fraction``
    and ``minimum``.
    """
    changes = {"fraction": 1e-12, "minimum": count} if sized(selection) else {}
    resized: Selection = replace(selection, **changes) if changes else selection  # type: ignore[type-var]
    return resized


def sized(selection: Selection) -> dict[str, Any]:
    """Return the values of a selection's fields ``fraction`` and ``minimum``; empty if it lacks one of them."""
    attributes = vars(selection)
    return {key: attributes[key] for key in SIZE_KEYS} if attributes.keys() >= SIZE_KEYS else {}
