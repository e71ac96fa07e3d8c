"""The variation of models' AUROC over a hospital's patients, as sums that may leave the hospital.

A model's AUROC is nearly a sum of its rows' influences. A row that is tested in several seeds has an influence in each.
These are added before squaring, because seeds with the same patients are not independent evidence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.statistics.discrimination.auroc import Placements

Floats = NDArray[np.float64]


def patient_covariance(seeds: Sequence[Placements], rows: Sequence[ArrayLike]) -> Floats:
    """Compute the covariance of ``K`` models' influences at each hospital over all seeds, ``[H, K, K]``.

    ``seeds`` are the placements of the same models at the same hospitals on each seed's test rows, and ``rows``
    identifies the patient of each row (``[n_s]`` whole numbers, equal for a patient in all seeds). Influences are
    weighted by the hospital's test rows in the seed. Those of a class with several rows are corrected as in a sample
    variance; a single event adds nothing. A seed in which a hospital has one class adds nothing there. A model with a
    NaN score makes its row and column NaN.
    """
    models, hospitals = seeds[0].auroc.shape
    patients, position = np.unique(np.concatenate([np.asarray(r) for r in rows]), return_inverse=True)
    total = np.zeros((models, len(patients)))
    hospital = np.empty(len(patients), dtype=np.int64)
    first = 0
    for placed in seeds:
        ids = np.repeat(np.arange(hospitals), np.diff(placed.offsets))
        here = position[first : first + len(ids)]
        first += len(ids)
        judged = np.asarray((~np.isnan(placed.auroc)).any(axis=0))[ids]
        rows_of_class = np.where(placed.event, placed.events[ids], placed.non_events[ids])
        corrected = np.sqrt(rows_of_class / np.maximum(rows_of_class - 1, 1)) * np.diff(placed.offsets)[ids]
        hospital[here] = ids
        # A patient is tested once in a seed, so that no index repeats.
        total[:, here[judged]] += (placed.influence * corrected)[:, judged]
    covariance = np.empty((hospitals, models, models))
    for k in range(models):
        for other in range(k, models):
            sums = np.bincount(hospital, total[k] * total[other], hospitals)
            covariance[:, k, other] = covariance[:, other, k] = sums
    return covariance


def patient_sums(covariance: Floats, first: int, second: int) -> Floats:
    """Return the patients' part of the difference ``first - second`` at each hospital, ``[H]``, before averaging."""
    c = covariance
    parts = c[:, first, first] + c[:, second, second] - 2.0 * c[:, first, second]
    return np.asarray(np.maximum(parts, 0.0))
