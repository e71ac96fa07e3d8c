"""Federations drawn at given counts: hospitals' figures as chance alone, or chance and a true spread, would show them.

For AUROC, scores are normal with one shape for all hospitals. The same normal draws serve every spread, so that what
differs between two spreads is due to the spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 1 << 21
"""Scores, or AUROCs, that are held at a time: 16 MB."""

GAP = 64.0
"""Between the scores of one hospital and those of the next in one sorted array; normal scores are within half of it."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class Drawn(NamedTuple):
    """Figures of ``b`` federations at ``T`` true spreads, ``[T, b, H]`` each: ``observed`` on rows, and ``true``."""

    observed: Floats
    true: Floats


def centres(common: float, taus: ArrayLike) -> Floats:
    """``mu [T]`` at which ``expit(mu + tau z)``, z standard normal, has the mean ``common``, for ``taus [T]``."""
    spreads = np.asarray(taus, dtype=np.float64)
    weights = WEIGHTS / WEIGHTS.sum()
    # The mean falls short of expit(mu) towards 1/2, by a factor of the logit that is at most sqrt(1 + tau^2).
    bound = np.abs(logit(common)) * np.sqrt(1 + spreads**2) + 1e-9
    low, high = -bound, bound
    for _ in range(60):
        middle = (low + high) / 2
        short = expit(middle[:, None] + spreads[:, None] * NODES) @ weights < common
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.asarray((low + high) / 2)


def federations(
    events: ArrayLike,
    non_events: ArrayLike,
    common: float,
    event_sd: float,
    taus: ArrayLike,
    draws: int,
    rng: np.random.Generator | Chance,
) -> Iterator[Drawn]:
    """``draws`` federations in blocks, of ``H`` hospitals with ``events [H]`` and ``non_events [H]``, all above 0.

    At each of ``taus [T]`` a hospital's true AUROC is ``expit(mu + tau z)`` with mean ``common``; non-events' scores
    are standard normal, events' have the standard deviation ``event_sd``. A tau of 0 is equal service. Models that are
    drawn with one :class:`Chance` share what it has drawn.
    """
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    m, n = np.asarray(events, dtype=np.int64), np.asarray(non_events, dtype=np.int64)
    spreads = np.asarray(taus, dtype=np.float64)
    mu = centres(common, spreads)
    # Each row of the rarer class is looked up among the sorted rows of the other: few searches in many scores.
    event_is_rarer = m <= n
    rarer, commoner = np.minimum(m, n), np.maximum(m, n)
    of_rarer, of_commoner = np.repeat(np.arange(len(m)), rarer), np.repeat(np.arange(len(m)), commoner)
    first_rarer = np.cumsum(rarer) - rarer
    first_commoner = np.cumsum(commoner) - commoner
    size = max(1, min(draws, BLOCK // int(commoner.sum()), BLOCK // (len(m) * len(spreads))))
    sd = np.where(event_is_rarer[of_rarer], event_sd, 1 / event_sd)
    home = GAP * of_rarer
    for pool, sought, z in chance.scores(of_commoner, of_rarer, len(m), draws, size):
        true = expit(mu[:, None, None] + spreads[:, None, None] * z)
        shift = np.sqrt(1 + event_sd**2) * ndtri(true)
        # An event beats non-events u < shift + sd e; a non-event u is beaten by all events but e < (u - shift) / sd.
        offset = np.where(event_is_rarer, shift, -shift / event_sd)
        observed = np.empty_like(true)
        for b in range(len(pool)):
            x = offset[:, b].take(of_rarer, axis=1)
            x += sd * sought[b]
            np.clip(x, -GAP / 2, GAP / 2, out=x)
            x += home
            below = np.searchsorted(pool[b], x.ravel()).reshape(x.shape) - first_commoner[of_rarer]
            observed[:, b] = np.add.reduceat(below, first_rarer, axis=1)
        observed /= m * n
        yield Drawn(np.where(event_is_rarer, observed, 1 - observed), true)


class Scores(NamedTuple):
    """Normal scores of ``b`` federations, sorted within each hospital.

    ``commoner [b, C]`` of the class with more rows, hospitals :data:`GAP` apart; ``rarer [b, R]`` of the other;
    ``hospital [b, H]``: where each hospital stands among all.
    """

    commoner: Floats
    rarer: Floats
    hospital: Floats


class Chance:
    """Where normal scores come from: ``generator`` starts their stream anew each time.

    What one block holds is kept for the next model at the same counts: models differ by their figures alone, and
    drawing and sorting is most of the work.
    """

    def __init__(self, generator: Callable[[], np.random.Generator]) -> None:
        self._generator = generator
        self._counts: tuple[bytes, bytes, int, int] | None = None
        self._kept: list[Scores] = []

    def scores(self, of_commoner: Ints, of_rarer: Ints, hospitals: int, draws: int, size: int) -> Iterator[Scores]:
        """Those of ``draws`` federations, ``size`` at a time, whose rows are of these hospitals."""
        counts = of_commoner.tobytes(), of_rarer.tobytes(), hospitals, draws
        if counts == self._counts:
            yield from self._kept
            return
        rng = self._generator()
        for start in range(0, draws, size):
            block = min(size, draws - start)
            commoner, rarer = (_ascending(rng.standard_normal((block, len(of))), of) for of in (of_commoner, of_rarer))
            commoner += GAP * of_commoner
            scores = Scores(commoner, rarer, rng.standard_normal((block, hospitals)))
            if block == draws:
                self._counts, self._kept = counts, [scores]
            yield scores


def shares(rows: ArrayLike, common: float, taus: ArrayLike, draws: int, rng: np.random.Generator) -> Iterator[Drawn]:
    """As :func:`federations`, of a share of each hospital's ``rows [H]``: a binomial draw at its true share."""
    n = np.asarray(rows, dtype=np.int64)
    spreads = np.asarray(taus, dtype=np.float64)
    mu = centres(common, spreads)
    size = max(1, min(draws, BLOCK // max(len(n) * len(spreads), 1)))
    for start in range(0, draws, size):
        z = rng.standard_normal((min(size, draws - start), len(n)))
        true = expit(mu[:, None, None] + spreads[:, None, None] * z)
        yield Drawn(rng.binomial(n, true) / n, true)


def errors(
    rows: ArrayLike, common: float, shape: float, taus: ArrayLike, draws: int, rng: np.random.Generator
) -> Iterator[Drawn]:
    """As :func:`federations`, of the mean absolute error over each hospital's ``rows [H]``.

    At each of ``taus [T]`` a hospital's true error is log-normal with mean ``common`` and the standard deviation tau of
    its logarithm. A row's error is a gamma variable of that ``shape`` (1 is exponential), so that a mean of them is.
    """
    n = np.asarray(rows, dtype=np.int64)
    spreads = np.asarray(taus, dtype=np.float64)[:, None, None]
    size = max(1, min(draws, BLOCK // max(len(n) * len(spreads), 1)))
    for start in range(0, draws, size):
        block = min(size, draws - start)
        z = rng.standard_normal((block, len(n)))
        true = common * np.exp(spreads * z - spreads**2 / 2)
        # The same chance at every spread.
        yield Drawn(true * rng.gamma(shape * n, 1 / (shape * n), (block, len(n))), true)


def _ascending(scores: Floats, hospital: NDArray[np.int64]) -> Floats:
    """``scores [b, n]`` sorted within each hospital: looked up in order, they find what they need in the cache."""
    scores += GAP * hospital
    scores.sort(axis=1)
    scores -= GAP * hospital
    return scores
