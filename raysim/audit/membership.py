"""Membership inference: attacks that infer from a model's confidence which rows it was trained on, and their accuracy.

- Loss threshold (Yeom 2018): rows with a loss below a threshold are classified as training rows (members).
- LiRA (Carlini 2022): shadow models, trained with and without a row, give two normal distributions of the confidence in
  this row. The score is the logarithm of the ratio of their densities.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats

FALSE_POSITIVES = (0.01, 0.001)
"""False positive rates of a membership attack at which its true positive rate is reported."""


def confidence(margins: ArrayLike, y: ArrayLike) -> Floats:
    """Return for each row ``log(p_y / (1 - p_y))``, where ``p_y`` is the predicted probability of its true class ``y
    [n]``.

    For two classes, ``margins [n]`` are logits of class 1. For more classes they are logits ``[n, C]``, and the result
    is the logit of the true class minus the log-sum-exp of the other logits.
    """
    z, labels = np.asarray(margins, dtype=np.float64), np.asarray(y, dtype=np.int64)
    if z.ndim == 1:
        return np.where(labels == 1, z, -z)
    rows = np.arange(len(labels))
    others = z.copy()
    others[rows, labels] = -np.inf
    return np.asarray(z[rows, labels] - np.logaddexp.reduce(others, axis=1))


def lira(confidences: ArrayLike, members: ArrayLike, target: int) -> Floats:
    """Compute the LiRA score of each row, ``[n]``, for the model with the index ``target``. A score above 0 means that
    the model was more likely trained on the row than not.

    ``confidences [J, n]`` are each row's confidences under all ``J`` models, and ``members [J, n]`` says which models
    were trained on the row. A row's score is NaN if all models other than ``target`` were trained on it, or none of
    them. All scores are NaN if there are too few models to estimate variances.
    """
    c, inside = np.asarray(confidences, dtype=np.float64), np.asarray(members, dtype=bool)
    others = np.arange(len(c)) != target
    c_others, m = c[others], inside[others]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_in = np.where(m, c_others, 0.0).sum(axis=0) / m.sum(axis=0)
        mean_out = np.where(m, 0.0, c_others).sum(axis=0) / (~m).sum(axis=0)
        residuals = c_others - np.where(m, mean_in, mean_out)
        variance_in = _variance(residuals[m], m)
        variance_out = _variance(residuals[~m], ~m)
        score: Floats = (
            np.square(c[target] - mean_out) / variance_out - np.square(c[target] - mean_in) / variance_in
        ) / 2.0 + np.log(variance_out / variance_in) / 2.0
    return score


def _variance(residuals: Floats, defined: NDArray[np.bool_]) -> float:
    freedom = len(residuals) - int(defined.any(axis=0).sum())
    return float(np.square(residuals).sum() / freedom) if freedom > 0 else float("nan")


@dataclass(frozen=True)
class Detection:
    """How well scores separate members (training rows) from non-members.

    - ``auroc``: the AUROC; .5 is chance.
    - ``at``: maps each false positive rate to the true positive rate.
    """

    auroc: float
    at: dict[float, float]


def detection(scores: ArrayLike, members: ArrayLike) -> Detection:
    """Evaluate how well ``scores [n]`` separate training rows, which are marked in ``members [n]``, from other rows.
    All results are NaN if there are no training rows, or no other rows.
    """
    s, inside = np.asarray(scores, dtype=np.float64), np.asarray(members, dtype=bool)
    positive, negative = np.sort(s[inside]), np.sort(s[~inside])
    if not len(positive) or not len(negative):
        return Detection(float("nan"), dict.fromkeys(FALSE_POSITIVES, float("nan")))
    below = np.searchsorted(negative, positive, "left") + np.searchsorted(negative, positive, "right")
    auroc = float(below.sum() / (2.0 * len(positive) * len(negative)))
    at = {}
    for share in FALSE_POSITIVES:
        allowed = int(share * len(negative))
        threshold = negative[len(negative) - 1 - allowed]  # at most `allowed` non-members are strictly above it
        at[share] = float((positive > threshold).mean())
    return Detection(auroc, at)
