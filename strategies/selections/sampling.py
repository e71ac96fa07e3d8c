"""Client sampling: all hospitals, Poisson and uniform samples, and samples that favour large or small hospitals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Draw, Ids, PositiveInt, Selection, ShareOfOne

MANY = 2**17
"""Above this number of hospitals, a uniform sample avoids permuting all of them, which would take as long as training.
"""


@dataclass(frozen=True)
class All(Selection):
    """All hospitals with training rows take part in every round."""

    def rate(self) -> float:
        return 1.0

    def pick(self, draw: Draw) -> Ids:
        return draw.candidates


@dataclass(frozen=True)
class Poisson(Selection):
    """Each hospital takes part independently with probability ``fraction`` (Poisson sampling); a cohort may be empty.

    This is the only client sampling that strengthens a privacy guarantee for hospitals.
    """

    fraction: ShareOfOne = 0.1
    """The probability with which each hospital takes part in a round."""

    def rate(self) -> float:
        return self.fraction

    def pick(self, draw: Draw) -> Ids:
        return draw.candidates[draw.rng.random(len(draw.candidates)) < self.fraction]


@dataclass(frozen=True)
class Uniform(Selection):
    """A uniform sample without replacement of :func:`cohort_size` hospitals."""

    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def pick(self, draw: Draw) -> Ids:
        hospitals = len(draw.candidates)
        count = cohort_size(hospitals, self.fraction, self.minimum)
        if hospitals > MANY:
            return draw.candidates[np.sort(draw.rng.choice(hospitals, count, replace=False, shuffle=False))]
        return np.sort(draw.rng.permutation(draw.candidates)[:count])


@dataclass(frozen=True)
class ByRows(Selection):
    """A sample without replacement, with weights proportional to training rows (FedProx, Algorithm 2).

    Combine it with a strategy whose setting is ``weights: uniform``. If participants were also weighted by rows, large
    hospitals would count twice.
    """

    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def pick(self, draw: Draw) -> Ids:
        count = cohort_size(len(draw.candidates), self.fraction, self.minimum)
        return weighted_sample(draw.candidates, np.log(draw.sizes), count, draw.rng)


@dataclass(frozen=True)
class InverseSqrt(Selection):
    """A sample without replacement that favours small hospitals, with weights ``n_i^(-1/2)`` (CHiP-FL, section 4).

    ``n_i`` is the number of training rows of hospital i. Federated averaging is then biased towards small hospitals.
    """

    fraction: ShareOfOne = 0.1
    """The share of hospitals that take part in a round."""
    minimum: PositiveInt = 10
    """The smallest number of hospitals that take part in a round."""

    def pick(self, draw: Draw) -> Ids:
        count = cohort_size(len(draw.candidates), self.fraction, self.minimum)
        return weighted_sample(draw.candidates, -0.5 * np.log(draw.sizes), count, draw.rng)


def cohort_size(available: int, fraction: float, minimum: int) -> int:
    """Return how many hospitals take part: ``min(M, max(minimum, floor(fraction * M)))`` with ``M = available``."""
    return min(available, max(minimum, int(fraction * available + 1e-9)))


def weighted_sample(ids: Ids, log_weights: np.ndarray, count: int, rng: np.random.Generator) -> Ids:
    """Return ``count`` of the ``ids`` in ascending order, sampled without replacement with weights
    ``exp(log_weights)``."""
    keys = log_weights + rng.gumbel(size=len(ids))
    return np.sort(ids[np.argsort(-keys, kind="stable")[:count]])
