"""How a hospital descends under a guarantee for its patients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPARSE = 0.25
"""Up to this rate distances between heads are quicker to draw than tosses."""


@dataclass(frozen=True, eq=False)
class PrivateSteps:
    """DP-SGD: patients drawn by coins, their gradients clipped, noise in every step.

    M. Abadi, A. Chu, I. Goodfellow, H. B. McMahan, I. Mironov, K. Talwar, L. Zhang: *Deep Learning with Differential
    Privacy*, CCS 2016, Algorithm 1. The divisor is the expected number of patients in a batch and never the number
    drawn, which would tell who is there; a batch of nobody makes a step of noise.
    """

    patient: NDArray[np.int64] | None
    """The patient of each of the task's rows, ascending ``[n]``; None: each row is one."""
    divisor: float
    """The expected number of patients in a batch."""
    steps: int
    """How many steps are made, whoever is drawn."""
    clip: float
    """The longest gradient of a patient."""
    multiplier: float
    """The deviation of the noise in clips."""
    batch: Callable[[int], NDArray[np.int64]]
    """``batch(step)``: the rows of the patients that a step has drawn, ascending."""
    noise: Callable[[int, int], NDArray[np.floating]]
    """``noise(step, P)``: a step's standard normal numbers ``[P]``, which may be gone when another's are asked for."""
    planted: NDArray[np.bool_] | None = None
    """An auditor's rows ``[n]``: what comes back to the first layer of them is a unit vector, and to others 0."""


class Coins:
    """The rows of the patients that each step of a visit has drawn, all steps at once: a coin a step and patient.

    ``coins`` are tossed ``rate`` for so many ``steps`` and ``patients``; ``patient [n]`` as in :class:`PrivateSteps`.
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
        """The rows of a step, ascending."""
        return self._rows[self._cuts[step] : self._cuts[step + 1]]


def heads(coins: np.random.Generator, tosses: int, rate: float) -> NDArray[np.int64]:
    """Which of so many independent tosses fall by ``rate``, ascending.

    Where few do, what is drawn is how far it is from each to the next one: a geometric number.
    """
    if rate >= 1:
        return np.arange(tosses)
    if rate > SPARSE:
        return (coins.random(tosses) < rate).nonzero()[0]
    parts, last = [np.empty(0, np.int64)], -1
    while last < tosses - 1:
        gaps = coins.geometric(rate, int((tosses - 1 - last) * rate) + 8)
        # A gap beyond the last toss need not be told from any other, and numpy's smallest is 0 once in 2^53.
        parts.append(last + np.cumsum(np.clip(gaps, 1, tosses + 1)))
        last = int(parts[-1][-1])
    at = np.concatenate(parts)
    return at[: np.searchsorted(at, tosses)]


def drawn(
    coins: np.random.Generator, patients: int, rate: float, patient: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The rows of those of so many patients whose coins fall by ``rate``, ascending; ``patient`` as above."""
    fallen = coins.random(patients) < rate
    return (fallen if patient is None else fallen[patient]).nonzero()[0]


def _rows_of(who: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of patients ``who [m]`` one after another, and how many each has ``[m]``; ``rows [U]`` are all's."""
    counts, first = rows[who], np.cumsum(rows) - rows
    begin = np.cumsum(counts) - counts
    return np.repeat(first[who] - begin, counts) + np.arange(int(counts.sum())), counts
