"""Hospitals' memory between rounds, and the names of its entries.

Each hospital may store named vectors from one round to the next, such as its own model.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

HospitalStates = dict[int, dict[str, NDArray[Any]]]
"""The type of hospitals' memory between rounds: vectors ``[P]`` by hospital id and by name (:data:`MODEL`, ...)."""

MODEL = "model"
"""The name of a hospital's own model."""

FIRST, SECOND, STEPS = "first moment", "second moment", "steps"
"""The names of the state of a hospital's optimiser; see :class:`raysim.training.base.Moments`."""

KEPT = "kept "
"""The prefix of the names under which hospitals store the memory of client programs. The name :data:`MODEL` has no
prefix.
"""

HELD, HELD_LOSS = "update", "loss"
"""The names of a hospital's update of this round and of its loss before training. They are stored only if the round has
further passes."""
