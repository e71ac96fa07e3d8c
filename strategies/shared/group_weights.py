"""How much each hospital's delta counts where several averages are taken at once."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import Floats, Ids
from raysim.strategies.shared.weights import Weighting, hospital_weights


def group_weights(sizes: Ids, group: Ids, weighting: Weighting, minimum: float) -> Floats:
    """:func:`raysim.strategies.shared.weights.hospital_weights` inside each group: ``[H]``, from ``sizes [H]`` and
    ``group [H]``."""
    weights = np.empty(len(sizes))
    for label in np.unique(group):
        weights[group == label] = hospital_weights(sizes[group == label], weighting, minimum)
    return weights
