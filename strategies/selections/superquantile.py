"""Superquantile: of a uniform sample, the hospitals with losses in the upper tail take part.

Y. Laguel, K. Pillutla, J. Malick, Z. Harchaoui: *A Superquantile Approach to Federated Learning with Heterogeneous
Devices*, CISS 2021, Algorithm 1; the quantile as in the authors' code.

In each round, the hospitals of a uniform sample send their mean training losses. A hospital takes part if its loss is
at least the θ-quantile of the sample's losses. The quantile weights each loss by its hospital's number of rows. With θ
= 0 the whole sample takes part, and no losses are sent.

Traffic, in addition to the traffic of training: each hospital of the sample receives the model's P parameters and sends
one loss. Participants are not sent the same model again for training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import BelowOne, Draw, Floats, Ids, PositiveInt, Selection, ShareOfOne
from raysim.strategies.selections.sampling import Uniform


@dataclass(frozen=True)
class Superquantile(Selection):
    """Client sampling of the hospitals with losses in the upper tail (Superquantile)."""

    level: BelowOne = 0.5
    """θ: the order of the quantile; hospitals with losses below the quantile do not take part."""
    fraction: ShareOfOne = 0.1
    """The share of hospitals in the uniform sample of a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals in the uniform sample of a round."""

    def pick(self, draw: Draw) -> Ids:
        sample = Uniform(self.fraction, self.minimum).pick(draw)
        if self.level == 0:
            return sample
        losses = draw.losses(sample)
        sizes = draw.sizes[np.searchsorted(draw.candidates, sample)]
        return sample[losses >= weighted_quantile(losses, sizes, self.level)]


def weighted_quantile(losses: Floats, sizes: Ids, level: float) -> float:
    """Return the quantile of order ``level`` of hospitals' ``losses [H]``. Each loss has the weight ``sizes [H]``.

    It is the smallest loss for which this holds: hospitals with at most this loss have at least the share ``level`` of
    all rows.
    """
    order = np.argsort(losses, kind="stable")
    ends = np.cumsum(sizes[order])
    # The small subtrahend undoes rounding such as .1 * 30 = 3.0000000000000004.
    entry = max(int(np.ceil(level * ends[-1] - 1e-9)) - 1, 0)
    return float(losses[order[np.searchsorted(ends, entry, side="right")]])
