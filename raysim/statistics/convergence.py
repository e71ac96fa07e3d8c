"""Classify a run's training loss as converged, still falling, or diverged.

``L_0 .. L_K`` are the losses at the points of a curve, ``L_0`` before training. A loss is the mean over the training
rows of all hospitals.

- A window has ``w = max(3, min(10, K // 4))`` points. ``m1`` is the mean of the last window, and ``m0`` the mean of the
  window before it (for a curve of five points, the mean of the first two).
- The standard deviation of a point's noise is ``s = MAD / .6745 / sqrt 2``. MAD is the median absolute deviation of the
  differences between neighbouring points of both windows. The standard error of ``m0 - m1`` is ``se = s sqrt(2 / w)``.
- ``best`` is the least mean of any window, and ``gain = L_0 - best``.
- ``ref`` is the larger of ``L_0`` and the loss of the best constant prediction.

The verdict is

- *diverged* if a loss is not finite;
- otherwise *falling* if there are fewer than five points;
- otherwise *diverged* if ``m1 > ref + 2 sqrt(se^2 + s^2) + .01 L_0``; if ``m1 - best`` is more than ``max(.1 gain, .02
  L_0) + 2 se`` and ``m1 > m0``; or if the last window has a loss above ``L_0`` and its range is more than ``max(gain,
  .2 L_0)``;
- otherwise *falling* if ``m0 - m1 > max(.01 gain, 2 se, 1e-4 L_0)``;
- otherwise *converged*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["converged", "falling", "diverged"]

LEAST_POINTS = 5
"""The smallest number of points that a curve of losses must have to count as converged."""

SMALL_FALL = 0.02
"""A falling run counts as trained if :attr:`Convergence.fall` is less than this share."""


@dataclass(frozen=True)
class Convergence:
    """Whether a curve of training losses has converged, is still falling, or has diverged."""

    verdict: Verdict
    notes: tuple[str, ...]
    """Remarks on the curve.

    - ``few_points``: it has fewer than five points.
    - ``no_progress``: the mean loss of every window of points is above .999 times ``before``.
    - ``oscillating``: the last losses oscillate without falling.
    """
    before: float
    last: float
    fall: float
    """The fall of the mean loss from the second last window of points to the last, divided by the loss before training.
    NaN if undefined."""

    @property
    def trained(self) -> bool:
        """Whether the loss has converged, or falls by less than :data:`SMALL_FALL` of the initial loss."""
        return self.verdict == "converged" or (self.verdict == "falling" and self.fall < SMALL_FALL)


def convergence(losses: Sequence[float], constant: float = float("nan")) -> Convergence:
    """Classify a curve of training ``losses`` as converged, falling or diverged; the first loss is before training.

    ``constant`` is the loss of the best constant prediction. Raises ``ValueError`` if there are no losses.
    """
    curve = np.asarray(losses, dtype=np.float64)
    if not len(curve):
        raise ValueError("losses: the list is empty; give at least the loss before training")
    before, last = float(curve[0]), float(curve[-1])
    if not np.isfinite(curve).all():
        return Convergence("diverged", (), before, last, float("nan"))
    if len(curve) < LEAST_POINTS:
        return Convergence("falling", ("few_points",), before, last, float("nan"))
    w = max(3, min(10, (len(curve) - 1) // 4))
    end, earlier = curve[-w:], curve[-2 * w : -w]
    m1, m0 = end.mean(), earlier.mean()
    noise = _noise(np.diff(curve[-2 * w :]))
    error = noise * np.sqrt(2 / w)
    best = np.convolve(curve, np.full(w, 1 / w), "valid").min()
    gain, swing = before - best, end.max() - end.min()
    reference = max(before, constant) if np.isfinite(constant) else before
    verdict: Verdict = "converged"
    if (
        m1 > reference + 2 * np.hypot(error, noise) + 0.01 * before
        or (m1 - best > max(0.1 * gain, 0.02 * before) + 2 * error and m1 > m0)
        or (end.max() > before and swing > max(gain, 0.2 * before))
    ):
        verdict = "diverged"
    elif m0 - m1 > max(0.01 * gain, 2 * error, 1e-4 * before):
        verdict = "falling"
    notes = []
    if gain < 0.001 * before:
        notes.append("no_progress")
    elif verdict != "falling" and (noise > 0.05 * gain or swing > 0.1 * gain):
        notes.append("oscillating")
    return Convergence(verdict, tuple(notes), before, last, float((m0 - m1) / before) if before else float("nan"))


def _noise(differences: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(differences - np.median(differences))) / 0.6745 / np.sqrt(2))
