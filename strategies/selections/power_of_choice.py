"""Power-of-Choice: of a random sample of hospitals, the hospitals with the largest losses take part.

Y. J. Cho, J. Wang, G. Joshi: *Towards Understanding Biased Client Selection in Federated Learning*, AISTATS 2022,
section 4, strategy pow-d.

In each round, d candidate hospitals are sampled without replacement, with probabilities in proportion to their training
rows. Candidates send their mean training loss under the model from which they would start training. The m candidates
with the largest losses take part, where m is the size of the cohort. If m is at least d, all candidates take part, and
no losses are sent. The paper averages a cohort uniformly: for this, use the strategy
``{name: fedavg, weights: uniform}``.

Traffic, in addition to the traffic of training: each of the d candidates receives the model's P parameters and sends
one loss. Participants are not sent the same model again for training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Draw, Ids, PositiveInt, Selection, ShareOfOne
from raysim.strategies.selections.sampling import cohort_size, weighted_sample


@dataclass(frozen=True)
class PowerOfChoice(Selection):
    """Client sampling of the hospitals with the largest losses among candidates (Power-of-Choice).

    Of ``candidates`` sampled hospitals, the ``max(minimum, floor(fraction * M))`` with the largest losses take part.
    ``M`` is the number of hospitals that can take part.
    """

    candidates: PositiveInt = 8
    """d: the number of sampled candidates that send their loss."""
    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 1
    """The smallest number of hospitals that take part in a round."""

    def pick(self, draw: Draw) -> Ids:
        count = cohort_size(len(draw.candidates), self.fraction, self.minimum)
        candidates = weighted_sample(draw.candidates, np.log(draw.sizes), self.candidates, draw.rng)
        if count >= len(candidates):
            return candidates
        by_loss = np.argsort(-draw.losses(candidates), kind="stable")
        return np.sort(candidates[by_loss[:count]])
