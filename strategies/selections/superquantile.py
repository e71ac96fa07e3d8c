"""Superquantile: of a uniform sample, the hospitals with losses in the upper tail take part.

Y. Laguel, K. Pillutla, J. Malick, Z. Harchaoui: *A Superquantile Approach to Federated Learning with Heterogeneous
Devices*, CISS 2021, Algorithm 1; the quantile as in the authors' code.

In each round, the hospitals of a uniform sample send their mean training losses. Each loss is weighted by its
hospital's number of rows. A hospital takes part if its loss is at least the quantile of order θ of these losses. θ = 0
is uniform sampling, and no losses are sent.

Traffic in addition to the strategy's: P down and one scalar up for each hospital of the sample; participants then
already have the model, and train from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import BelowOne, Draw, Floats, Ids, PositiveInt, Selection, ShareOfOne
from raysim.strategies.selections.sampling import Uniform


@dataclass(frozen=True)
class Superquantile(Selection):
    """Client sampling of the hospitals with losses in the upper tail (Superquantile).

    The hospitals that send losses are sampled as by :class:`raysim.strategies.selections.sampling.Uniform`.
    """

    level: BelowOne = 0.5
    """θ: the order of the quantile. Hospitals of the sample with smaller losses do not take part."""
    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def pick(self, draw: Draw) -> Ids:
        sample = Uniform(self.fraction, self.minimum).pick(draw)
        if self.level == 0:
            return sample
        losses = draw.losses(sample)
        sizes = draw.sizes[np.searchsorted(draw.candidates, sample)]
        return sample[losses >= weighted_quantile(losses, sizes, self.level)]


def weighted_quantile(losses: Floats, sizes: Ids, level: float) -> float:
    """Return entry ``ceil(level * n) - 1`` (at least 0) of the n sorted losses, where each of ``losses [H]`` is
    repeated ``sizes`` times."""
    order = np.argsort(losses, kind="stable")
    ends = np.cumsum(sizes[order])
    # The small subtrahend undoes rounding such as .1 * 30 = 3.0000000000000004.
    entry = max(int(np.ceil(level * ends[-1] - 1e-9)) - 1, 0)
    return float(losses[order[np.searchsorted(ends, entry, side="right")]])
