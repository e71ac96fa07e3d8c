"""The choice of Byzantine hospitals, and what they know."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import stream

Knowledge = Literal["own", "colluders", "all"]
"""The knowledge of a Byzantine hospital. ``own``: its own rows and update. ``colluders``: the updates that all
Byzantine hospitals would have sent honestly. ``all``: the updates of all honest hospitals."""

Deviation = Literal["sd", "unit", "sign"]
"""The direction in which an attack moves the mean: minus the standard deviations, minus the mean's direction, or minus
the mean's signs."""

LEVELS: dict[str, tuple[Knowledge, ...]] = {
    "label_flip": ("own",),
    "units": ("own",),
    "backdoor": ("own",),
    "sign_flip": ("own",),
    "scale": ("own",),
    "gaussian": ("own",),
    "zero": ("own",),
    "mimic": ("all",),
    "alie": ("colluders", "all"),
    "ipm": ("colluders", "all"),
    "min_max": ("all", "colluders"),
    "min_sum": ("all", "colluders"),
    "adaptive": ("all", "colluders"),
    "signature_lie": ("all",),
}
"""The possible knowledge of each attack. The first entry is the default."""

ON_ROWS = ("label_flip", "units", "backdoor")
"""Attacks on the training rows of a Byzantine hospital."""

ON_UPDATES = ("sign_flip", "scale", "gaussian", "zero")
"""Attacks that change only the hospital's own update."""

TOGETHER = ("mimic", "alie", "ipm", "min_max", "min_sum", "adaptive")
"""Attacks that need the updates of other hospitals."""


def bad_hospitals(seed: int, hospitals: int, share: float) -> NDArray[np.int64]:
    """Return the ids of ``floor(share * hospitals)`` Byzantine hospitals, ascending.

    The hospitals are the same in all rounds of a run. With the same seed, a larger share keeps these hospitals and adds
    others.
    """
    count = int(np.floor(share * hospitals + 1e-9))
    return np.sort(stream(seed, "byzantine").permutation(hospitals)[:count])
