"""Hospitals' memory between rounds: each hospital may store named vectors, such as its own model."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

HospitalStates = dict[int, dict[str, NDArray[Any]]]
"""The type of what hospitals store between rounds: arrays by hospital id and by name, such as :data:`MODEL`."""

MODEL = "model"
"""The name under which a hospital stores its own model."""

FIRST, SECOND, STEPS = "first moment", "second moment", "steps"
"""The names under which a hospital stores the state of its optimiser; see :class:`raysim.training.base.Moments`."""

STORED = "kept "
"""The prefix of the names under which hospitals store the arrays of client programs; :data:`MODEL` has no prefix."""

HELD, HELD_LOSS = "update", "loss"
"""The names under which a hospital stores its trained update, and its loss before training, if it sends the update
several times in a round."""
