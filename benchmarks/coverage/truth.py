"""Federations with known truth: hospitals' rows, events and scores, and strategies' effects on them.

Test rows are log-normal: 208 small hospitals (median 17 rows, 9 % events), 20 (60, 20 %) or 4 larger ones (100, 30 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri

from raysim.statistics.chance.simulate import centres
from raysim.statistics.clinical.calibration import Groups
from raysim.statistics.discrimination.auroc import PairSums, Placements, pair_sums, placements

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MEAN = 0.8
"""The mean true AUROC."""

SHAPES = {208: (17, 1.2, 0.09), 20: (60, 1.2, 0.2), 4: (100, 0.6, 0.3)}
"""Median test rows, standard deviation of their logarithm, and prevalence, by the number of hospitals."""


def shape(hospitals: int) -> tuple[float, float, float]:
    """That of the known federation nearest in size."""
    return SHAPES[min(SHAPES, key=lambda size: abs(np.log(size / hospitals)))]


def test_rows(hospitals: int, rng: np.random.Generator) -> Ints:
    """Test rows of each hospital, ``[H]``."""
    median, sd, _ = shape(hospitals)
    return np.maximum(2, np.exp(rng.normal(np.log(median), sd, hospitals))).astype(np.int64)


def ungrouped(risks: Floats, y: NDArray[np.bool_]) -> Groups:
    """Return rows with predicted ``risks [n]`` and events ``y [n]`` as groups of one."""
    return Groups(logit(risks), np.ones(len(y)), y.astype(np.float64))


class Served(NamedTuple):
    """A federation under one model: what hospitals send, all their rows, and their true AUROC."""

    sums: PairSums
    placed: Placements
    sizes: Ints
    true: Floats


class Design(NamedTuple):
    """Hospitals' test ``rows [H]``, which of all rows are events (``y [n]``), and ``offsets [H + 1]`` of hospitals."""

    rows: Ints
    y: NDArray[np.bool_]
    offsets: Ints


def designed(hospitals: int, rng: np.random.Generator) -> Design:
    """Sizes and events of ``hospitals``."""
    rows = test_rows(hospitals, rng)
    return Design(rows, rng.random(rows.sum()) < shape(hospitals)[2], np.concatenate([[0], np.cumsum(rows)]))


def served(design: Design, law: str, tau: float, rng: np.random.Generator) -> Served:
    """One model's scores: ``law`` of scores ``equal`` or ``unequal`` (events 1.5 times as spread) normal ones, or
    ``exponential``; true AUROCs with the spread ``tau`` on the logit scale and mean :data:`MEAN`."""
    rows, y, offsets = design
    true = expit(middle(tau) + tau * rng.standard_normal(len(rows)))
    scores = scored(law, true[np.repeat(np.arange(len(rows)), rows)], y, rng).astype(np.float32)
    return Served(pair_sums(scores, y, offsets), placements(scores, y, offsets), 5 * rows, true)


@cache
def middle(tau: float) -> float:
    """The middle of the logits of true AUROCs with mean :data:`MEAN` and this spread."""
    return float(centres(MEAN, [tau])[0])


def scored(law: str, auroc: Floats, y: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """A score for each row whose AUROC is ``auroc`` there."""
    if law == "exponential":
        return rng.exponential(size=y.shape) * np.where(y, auroc / (1 - auroc), 1.0)
    sd = {"equal": 1.0, "unequal": 1.5}[law]
    noise = rng.standard_normal(y.shape)
    return np.where(y, ndtri(auroc) * np.sqrt(1 + sd**2) + sd * noise, noise)


@dataclass(frozen=True)
class Effects:
    """What makes strategies differ: the standard deviation over training seeds and over hospitals of the distance of
    events from non-events (in standard deviations of a score), and the true ``advantage`` of the last strategy."""

    seed: float
    hospital: float
    advantage: float = 0.0

    def auroc(self, advantage: float, fixed: Floats | float | None = None) -> Floats:
        """The true AUROC, averaged over seeds, and over hospitals unless their ``fixed`` effects are given."""
        hospital = self.hospital**2 if fixed is None else 0.0
        distance = DISTANCE + advantage + (0.0 if fixed is None else fixed)
        return np.asarray(ndtr(distance / np.sqrt(2 + self.seed**2 + hospital)))


DISTANCE = float(np.sqrt(2) * ndtri(MEAN))
"""Of events from non-events, in standard deviations of a score."""

TESTED = 0.2
"""Share of a hospital's rows that a seed tests."""

PERSISTENT = 0.95
"""Share of the variance of a row's scores that models and seeds have in common, .9 between models of one seed."""


class Compared(NamedTuple):
    """``K`` strategies at ``H`` hospitals with ``S`` seeds.

    Placements and row numbers of each seed; ``auroc [K, S, H]`` with ``rows [S, H]``; ``fixed [K, H]``: the hospitals'
    effects on each strategy.
    """

    placed: list[Placements]
    ids: list[Ints]
    auroc: Floats
    rows: Floats
    fixed: Floats


def compared(hospitals: int, seeds: int, models: int, effects: Effects, rng: np.random.Generator) -> Compared:
    """Strategies on the same rows: a seed trains each again and tests a fifth of each hospital's rows drawn again."""
    rows = test_rows(hospitals, rng)
    pool = np.repeat(np.arange(hospitals), np.round(rows / TESTED).astype(np.int64))
    y = rng.random(len(pool)) < shape(hospitals)[2]
    patient = rng.standard_normal(len(pool), np.float32)
    of_model = rng.standard_normal((models, len(pool)), np.float32)
    fixed = effects.hospital * rng.standard_normal((models, hospitals))
    advantage = np.append(np.zeros(models - 1), effects.advantage)
    placed, ids = [], []
    for _ in range(seeds):
        tested = np.flatnonzero(rng.random(len(pool)) < TESTED)
        of, event = pool[tested], y[tested]
        distance = (DISTANCE + advantage + effects.seed * rng.standard_normal(models))[:, None] + fixed
        noise = np.sqrt(0.9) * patient[tested] + np.sqrt(PERSISTENT - 0.9) * of_model[:, tested]
        noise += np.sqrt(1 - PERSISTENT) * rng.standard_normal((models, len(tested)), np.float32)
        scores = (noise + event * distance[:, of]).astype(np.float32)
        offsets = np.searchsorted(of, np.arange(hospitals + 1))
        placed.append(placements(scores, event, offsets))
        ids.append(tested)
    auroc = np.stack([p.auroc for p in placed], axis=1)
    counts = np.array([np.diff(p.offsets) for p in placed], dtype=np.float64)
    return Compared(placed, ids, auroc, counts, fixed)
