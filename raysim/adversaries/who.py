"""The choice of Byzantine hospitals, and what they know."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import stream

Knowledge = Literal["own", "colluders", "all"]
"""What a Byzantine hospital knows: its own rows and update (``own``), the updates that all Byzantine hospitals would
have sent honestly (``colluders``), or the updates of all honest hospitals (``all``)."""

Deviation = Literal["sd", "unit", "sign"]
"""The direction in which an attack moves the mean of updates. ``sd``: minus the standard deviation of each coordinate.
``unit``: minus the mean, scaled to length 1. ``sign``: minus the sign of each coordinate of the mean."""

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
"""What Byzantine hospitals can know in each attack (see :data:`Knowledge`). The first value is the default."""

ON_ROWS = ("label_flip", "units", "backdoor")
"""The attacks that change a Byzantine hospital's training rows."""

ON_UPDATES = ("sign_flip", "scale", "gaussian", "zero")
"""The attacks that change a Byzantine hospital's update without knowledge of other updates."""

TOGETHER = ("mimic", "alie", "ipm", "min_max", "min_sum", "adaptive")
"""The attacks that compute a Byzantine hospital's update from the updates of other hospitals."""


def bad_hospitals(seed: int, hospitals: int, share: float) -> NDArray[np.int64]:
    """Return the ids of ``floor(share * hospitals)`` Byzantine hospitals, ascending.

    The hospitals are the same in all rounds of a run. With the same seed, a larger share keeps these hospitals and adds
    others.
    """
    count = int(np.floor(share * hospitals + 1e-9))
    return np.sort(stream(seed, "byzantine").permutation(hospitals)[:count])
