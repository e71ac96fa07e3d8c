"""Local training by DP-SGD: its steps, and the sampling of the patients of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPARSE = 0.25
"""Up to this sampling probability, drawing the gaps between successes is faster than drawing every trial."""


@dataclass(frozen=True, eq=False)
class PrivateSteps:
    """DP-SGD: each step samples every patient independently, clips each sampled patient's gradient, and adds noise.

    M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang: *Deep Learning with Differential
    Privacy*, CCS 2016, Algorithm 1. The sum of gradients is divided by the expected number of patients in a batch,
    because the actual number would reveal the participants.
    """

    patient: NDArray[np.int64] | None
    """The patient of each row, ``[n]``, ascending; None means that each row is a separate patient."""
    divisor: float
    """The expected number of patients in a batch."""
    steps: int
    clip: float
    """The 2-norm to which each patient's gradient is clipped."""
    multiplier: float
    """The standard deviation of the noise, in multiples of ``clip``."""
    batch: Callable[[int], NDArray[np.int64]]
    """A function that returns the rows of the patients who are sampled in a step, ascending."""
    noise: Callable[[int, int], NDArray[np.floating]]
    """A function ``noise(step, P)`` that returns ``P`` standard normal numbers, which a later call may overwrite."""
    planted: NDArray[np.bool_] | None = None
    """A mask ``[n]`` of the rows that a privacy auditor has planted; None without an auditor. In these rows, the
    gradient with respect to the first layer's outputs is set to a unit vector, and gradients with respect to later
    layers' outputs to 0."""


class Coins:
    """The batches of all steps of a local update with DP-SGD, sampled when the object is created.

    ``patient [n]`` has the patient of each row, ascending; None means that each row is a separate patient.
    """

    def __init__(
        self, coins: np.random.Generator, patients: int, rate: float, steps: int, patient: NDArray[np.int64] | None
    ) -> None:
        at = heads(coins, steps * patients, rate)
        cuts = np.searchsorted(at, np.arange(steps + 1) * patients)
        who = at % patients if patients else at
        if patient is not None:
            who, counts = _rows_of(who, np.bincount(patient, minlength=patients))
            cuts = np.concatenate([[0], np.cumsum(counts)])[cuts]
        self._rows, self._cuts = who, cuts.tolist()

    def __call__(self, step: int) -> NDArray[np.int64]:
        """Return the rows of the patients that are sampled in ``step``, ascending."""
        return self._rows[self._cuts[step] : self._cuts[step + 1]]


def heads(coins: np.random.Generator, tosses: int, rate: float) -> NDArray[np.int64]:
    """Return which of ``tosses`` independent trials with probability ``rate`` succeed, as ascending indices."""
    if rate >= 1:
        return np.arange(tosses)
    if rate > SPARSE:
        return (coins.random(tosses) < rate).nonzero()[0]
    parts, last = [np.empty(0, np.int64)], -1
    while last < tosses - 1:
        gaps = coins.geometric(rate, int((tosses - 1 - last) * rate) + 8)
        # All gaps beyond the last trial are equivalent. The least gap is 1, but numpy returns 0 once in 2^53
        # draws.
        parts.append(last + np.cumsum(np.clip(gaps, 1, tosses + 1)))
        last = int(parts[-1][-1])
    at = np.concatenate(parts)
    return at[: np.searchsorted(at, tosses)]


def sampled(
    coins: np.random.Generator, patients: int, rate: float, patient: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Sample each patient with probability ``rate``; return the rows of the sampled patients, ascending.

    ``patient [n]`` has the patient of each row; None means that each row is a separate patient.
    """
    fallen = coins.random(patients) < rate
    return (fallen if patient is None else fallen[patient]).nonzero()[0]


def _rows_of(who: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the patients ``who [m]``, patient after patient, and the number of rows of each, ``[m]``.

    ``rows[p]`` is the number of rows of patient ``p``. The hospital's rows must be sorted by patient.
    """
    counts, first = rows[who], np.cumsum(rows) - rows
    begin = np.cumsum(counts) - counts
    return np.repeat(first[who] - begin, counts) + np.arange(int(counts.sum())), counts
