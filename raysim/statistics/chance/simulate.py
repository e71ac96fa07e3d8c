"""Simulate federations with given numbers of rows: hospitals' figures under chance alone, or with a true spread.

For AUROC, scores are normal, with one ROC shape for all hospitals. The simulations of all true spreads use the
same normal numbers, so that their results differ only because of the spread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtri

from raysim.core.arrays import Floats, Ints

T = TypeVar("T")

BLOCK = 1 << 21
"""The largest number of elements in one array of :class:`Scores`, :class:`Deals` or :class:`SimulatedFederations`
(16 MB), unless a single federation has more."""

MOST_SPREADS = 13
"""The number of federations in a block is computed as if there were at least this many true spreads. With up to this
many, the number is therefore the same, and the results at one spread do not depend on the other spreads."""

GAP = 64.0
"""The distance by which the scores of neighbouring hospitals are moved apart in one sorted array. Normal scores lie
within half of this distance around 0.
"""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


class SimulatedFederations(NamedTuple):
    """Figures, such as AUROC, of hospitals in simulated federations. ``observed`` is measured on simulated rows,
    ``true`` is without noise. Both have the shape ``[T, b, H]``, for ``T`` true spreads (standard deviations between
    hospitals), ``b`` federations and ``H`` hospitals.
    """

    observed: Floats
    true: Floats


def centres(common: float, taus: ArrayLike) -> Floats:
    """Return ``mu [T]``, one for each of the spreads ``taus [T]``, such that ``expit(mu + tau z)`` has the mean
    ``common``; ``z`` is standard normal.
    """
    spreads = np.asarray(taus, dtype=np.float64)
    weights = WEIGHTS / WEIGHTS.sum()
    # The mean is closer to 1/2 than expit(mu): its logit is smaller by a factor of at most sqrt(1 + tau^2).
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
    middles: ArrayLike,
    event_sd: float,
    taus: ArrayLike,
    draws: int,
    rng: np.random.Generator | Chance,
) -> Iterator[SimulatedFederations]:
    """Simulate the AUROC of ``H`` hospitals in ``draws`` federations, yielded in blocks. Each hospital has ``events
    [H]`` rows with the event and ``non_events [H]`` without; all these numbers are above 0.

    At each of the true spreads ``taus [T]``, a hospital's true AUROC is ``expit(mu + tau z)`` with ``z`` standard
    normal. The values of ``mu`` are ``middles [T]``, from :func:`centres`. Scores of non-events are standard normal;
    scores of events are normal with the standard deviation ``event_sd``.
    """
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    m, n = np.asarray(events, dtype=np.int64), np.asarray(non_events, dtype=np.int64)
    spreads = np.asarray(taus, dtype=np.float64)
    mu = np.asarray(middles, dtype=np.float64)
    # Each row of the rarer class is searched among the sorted rows of the other class, which needs few searches.
    event_is_rarer = m <= n
    rarer, commoner = np.minimum(m, n), np.maximum(m, n)
    of_rarer, of_commoner = np.repeat(np.arange(len(m)), rarer), np.repeat(np.arange(len(m)), commoner)
    first_rarer, first_commoner = np.cumsum(rarer) - rarer, (np.cumsum(commoner) - commoner)[of_rarer]
    size = max(1, min(draws, BLOCK // int(commoner.sum()), BLOCK // (len(m) * max(len(spreads), MOST_SPREADS))))
    sd = np.where(event_is_rarer[of_rarer], event_sd, 1 / event_sd)
    home = GAP * of_rarer
    for pool, sought, z in chance.scores(of_commoner, of_rarer, len(m), draws, size):
        true = expit(mu[:, None, None] + spreads[:, None, None] * z)
        shift = np.sqrt(1 + event_sd**2) * ndtri(true)
        # An event e ranks above non-events u < shift + sd e; a non-event u below events e > (u - shift) / sd.
        offset = np.where(event_is_rarer, shift, -shift / event_sd)
        observed = np.empty_like(true)
        for b, scores in enumerate(pool):
            x = offset[:, b].take(of_rarer, axis=1)
            x += sd * sought[b]
            np.clip(x, -GAP / 2, GAP / 2, out=x)
            below = np.searchsorted(scores, x + home) - first_commoner
            observed[:, b] = np.add.reduceat(below, first_rarer, axis=1)
        observed /= m * n
        yield SimulatedFederations(np.where(event_is_rarer, observed, 1 - observed), true)


class Scores(NamedTuple):
    """Standard normal scores of the rows of ``b`` simulated federations with ``H`` hospitals, sorted within each
    hospital.

    ``commoner [b, C]`` are the scores of the larger class of every hospital, and ``rarer [b, R]`` those of the smaller
    class. ``C`` and ``R`` are the total numbers of these rows over all hospitals. :data:`GAP` times the index of the
    hospital is added to ``commoner``, so that its scores are sorted over all hospitals.
    """

    commoner: Floats
    rarer: Floats
    hospital: Floats


class Deals(NamedTuple):
    """Permutations of ``N`` rows over ``H`` hospitals in ``b`` simulated federations.

    ``order [b, N]`` is the permutation of all rows. ``hospital [b, H]`` is a normal number for each hospital, from
    which its true error is computed.
    """

    order: Ints
    hospital: Floats


class Chance:
    """A source of random numbers; models with the same row counts get the same numbers.

    If one block holds all federations, its numbers are kept for the next model with the same row counts.
    """

    def __init__(self, generator: Callable[[], np.random.Generator]) -> None:
        self._generator = generator
        self._counts: tuple[bytes | int, ...] | None = None
        self._stored: list[Any] = []

    def scores(self, of_commoner: Ints, of_rarer: Ints, hospitals: int, draws: int, size: int) -> Iterator[Scores]:
        """Yield normal scores for ``draws`` federations, ``size`` federations at a time. ``of_commoner [C]`` and
        ``of_rarer [R]`` are the index of each row's hospital, for the two classes of :class:`Scores`.
        """

        def block(rng: np.random.Generator, federations: int) -> Scores:
            commoner, rarer = (
                _ascending(rng.standard_normal((federations, len(of))), of) for of in (of_commoner, of_rarer)
            )
            commoner += GAP * of_commoner
            return Scores(commoner, rarer, rng.standard_normal((federations, hospitals)))

        counts = of_commoner.tobytes(), of_rarer.tobytes(), hospitals, draws
        yield from self._blocks(counts, block, draws, size)

    def deals(self, rows: int, hospitals: int, draws: int, size: int) -> Iterator[Deals]:
        """Yield random permutations of ``rows`` rows over ``hospitals`` for ``draws`` federations, ``size`` federations
        at a time.
        """

        def block(rng: np.random.Generator, federations: int) -> Deals:
            order = rng.permuted(np.broadcast_to(np.arange(rows), (federations, rows)), axis=1)
            return Deals(order, rng.standard_normal((federations, hospitals)))

        yield from self._blocks((rows, hospitals, draws), block, draws, size)

    def _blocks(
        self, counts: tuple[bytes | int, ...], block: Callable[[np.random.Generator, int], T], draws: int, size: int
    ) -> Iterator[T]:
        if counts == self._counts:
            yield from self._stored
            return
        rng = self._generator()
        for start in range(0, draws, size):
            simulated = block(rng, min(size, draws - start))
            if size >= draws:
                self._counts, self._stored = counts, [simulated]
            yield simulated


def errors(
    rows: ArrayLike, pooled: ArrayLike, within: float, taus: ArrayLike, draws: int, rng: np.random.Generator | Chance
) -> Iterator[SimulatedFederations]:
    """Simulate the mean absolute errors of hospitals with ``rows [H]`` rows.

    ``pooled [N]`` are the absolute errors of all rows; at least one is above 0. At a spread of 0, these errors are
    permuted over hospitals.

    At every other spread ``tau`` in ``taus [T]``, a hospital's true error is sampled from a log-normal distribution.
    This distribution has the mean of all errors, and ``tau`` as the standard deviation of the logarithm. A row's error
    is this true error times a factor. The factors have the distribution of ``pooled``, rescaled to a mean of 1 and a
    standard deviation of at most ``within``.
    """
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    n, every = np.asarray(rows, dtype=np.int64), np.asarray(pooled, dtype=np.float64)
    if n.sum() != len(every):
        raise ValueError(f"pooled: {len(every)} errors were given for {n.sum()} rows; give one for each row")
    spreads = np.asarray(taus, dtype=np.float64)[:, None, None]
    common = float(every.mean())
    relative = every / common
    together = float(relative.std())
    narrower = np.where(spreads > 0, min(within / together, 1.0) if together > 0 else 1.0, 1.0)
    first = np.cumsum(n) - n
    size = max(1, min(draws, BLOCK // len(every), BLOCK // (len(n) * max(len(spreads), MOST_SPREADS))))
    for order, z in chance.deals(len(every), len(n), draws, size):
        means = np.add.reduceat(relative[order], first, axis=1) / n
        true = common * np.exp(spreads * z - spreads**2 / 2)
        yield SimulatedFederations(true * (1.0 + narrower * (means - 1.0)), true)


def _ascending(scores: Floats, hospital: Ints) -> Floats:
    scores += GAP * hospital
    scores.sort(axis=1)
    scores -= GAP * hospital
    return scores
