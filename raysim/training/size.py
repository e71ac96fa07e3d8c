"""Models that are too large are refused before their parameters are allocated."""

from __future__ import annotations

from typing import Any

from raysim.core import memory

COPIES = 4
"""Vectors of parameters that any run holds at once: the server's, the sum of what comes back, one in training and its
gradient."""


def check_size(parameters: int, options: dict[str, Any]) -> None:
    """Raise ``ResourceError`` where a model of so many parameters, made with ``options``, cannot be trained here."""
    field, value = max(options.items(), key=lambda option: _largest(option[1]), default=("name", "it"))
    memory.check(
        COPIES * 8 * parameters,
        f"model.{field}: {value} makes a model of {parameters:,} parameters, and a run, which holds {COPIES} of them,",
        "make the model smaller",
    )


def _largest(value: Any) -> float:
    """The largest number in the value of an option."""
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=-1.0)
    return value if isinstance(value, int | float) else -1.0
