"""A check that rejects a model that is too large for this machine, before its parameters are allocated."""

from __future__ import annotations

from typing import Any

from raysim.core import memory

COPIES = 4
"""The number of parameter vectors in memory: the server's model, the sum of updates, a model in training, and its
gradient."""


def check_size(parameters: int, options: dict[str, Any]) -> None:
    """Raise ``ResourceError`` if this machine has too little memory to train a model of ``parameters`` scalars.

    The error names the model option with the largest value.
    """
    field, value = max(options.items(), key=lambda option: _largest(option[1]), default=("name", "it"))
    memory.check(
        COPIES * 8 * parameters,
        f"model.{field}: {value} makes a model of {parameters:,} parameters, and a run with {COPIES} copies of it",
        "make the model smaller",
    )


def _largest(value: Any) -> float:
    if isinstance(value, list | tuple):
        return max(map(_largest, value), default=-1.0)
    return value if isinstance(value, int | float) else -1.0
