"""Power-of-Choice: of a random sample of hospitals, the hospitals with the largest losses take part.

Y. J. Cho, J. Wang, G. Joshi: *Towards Understanding Biased Client Selection in Federated Learning*, AISTATS 2022,
section 4, strategy pow-d.

In each round, d candidates are sampled without replacement, with probabilities in proportion to their rows. They send
their mean training loss under the model that they would start from. The m candidates with the largest losses take part,
ties to the smaller id. If m is at least d, all candidates take part, as in public implementations (``rounds.csv`` has
their number), and no losses are sent. The paper averages a cohort uniformly: combine with
``{name: fedavg, weights: uniform}``.

Traffic in addition to the strategy's: P down and one scalar up for each of the d candidates; participants then already
have the model, and train from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Draw, Ids, PositiveInt, Selection, ShareOfOne
from raysim.strategies.selections.sampling import cohort_size, weighted_sample


@dataclass(frozen=True)
class PowerOfChoice(Selection):
    """Client sampling of the hospitals with the largest losses among candidates (Power-of-Choice).

    ``candidates`` is d; m is ``max(minimum, floor(fraction * M))`` for ``M`` hospitals.
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
