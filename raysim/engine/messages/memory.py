"""What hospitals remember between rounds, and under which names."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

HospitalStates = dict[int, dict[str, NDArray[Any]]]
"""What hospitals remember between rounds: vectors ``[P]`` by hospital id and by name (:data:`MODEL`, ...)."""

MODEL = "model"
"""A hospital's own model."""

FIRST, SECOND, STEPS = "first moment", "second moment", "steps"
"""The state of its optimiser; see :class:`raysim.training.base.Moments`."""

KEPT = "kept "
"""What the names begin with that client programs give to what a hospital remembers, all but :data:`MODEL`."""

HELD, HELD_LOSS = "update", "loss"
"""Its update of this round and its loss before training, kept while the round makes further passes over updates."""
