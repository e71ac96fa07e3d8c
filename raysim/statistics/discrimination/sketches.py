"""Joint variation of several models' AUROCs over a hospital's patients, without any row leaving the hospital.

The variance of a difference needs the covariance of two AUROCs. A hospital samples ``B`` normal numbers for each of its
patients, once for all models and training seeds, and does not send them. For every model it sends ``B`` sums over test
rows: each term is the row's influence on the AUROC times one of its patient's numbers. The mean product of two models'
sums estimates DeLong's covariance of their AUROCs. If a patient has several rows, their influences are added to one
influence. This is a random projection (W. B. Johnson, J. Lindenstrauss: *Extensions of Lipschitz Mappings into a
Hilbert Space*, 1984). The distribution of the sums depends only on these covariances, so the sums reveal nothing else
about the rows.

As a patient's numbers are the same in all seeds, sums averaged over seeds estimate the covariance of averaged AUROCs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.core.streams import normals
from raysim.statistics.discrimination.auroc import Placements

SUMS = 100
"""Number of randomly weighted sums that a hospital sends for each model. The variance that is estimated at one
hospital then has a relative standard error of 14 %."""

ROWS = 1024
"""Number of rows whose random numbers are generated at a time."""

HOSPITALS = 4096
"""Number of hospitals whose sums are processed at a time."""


def sketches(placed: Placements, hospitals: ArrayLike, patients: ArrayLike) -> NDArray[np.float32]:
    """Compute the sums that each of ``H`` hospitals sends for one model, ``[H, SUMS]``. They are NaN if the AUROC is
    undefined.

    ``placed`` has the influence of each row on the AUROC under the model. ``hospitals [H]`` are the ids of the
    hospitals. ``patients [n]`` has a number for the patient of each row, the same in every seed. Raises ``ValueError``
    if ``patients`` does not have one number for each row.
    """
    ids, who = np.asarray(hospitals, dtype=np.int64), np.asarray(patients, dtype=np.int64)
    if who.shape != placed.event.shape:
        raise ValueError(f"patients: {len(who)} numbers were given for {len(placed.event)} rows; give one for each row")
    lengths = np.diff(placed.offsets)
    home = np.repeat(np.arange(len(ids)), lengths)
    of_class = np.where(placed.event, placed.events[home], placed.non_events[home])
    influence = placed.influence[0] * np.sqrt(of_class / np.maximum(of_class - 1, 1))
    influence = influence.astype(np.float32)
    sums = np.zeros((len(ids), SUMS), dtype=np.float32)
    for rows, starts, of in _pieces(placed.offsets, lengths):
        random = normals(0, "sketches", np.stack([ids[home[rows]], who[rows]], axis=1), SUMS)
        random *= influence[rows, None]
        np.add.at(sums, of, np.add.reduceat(random, starts - rows.start, axis=0))
    sums[np.isnan(placed.auroc[0])] = np.nan
    return sums


def _pieces(
    offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[slice, NDArray[np.int64], NDArray[np.int64]]]:
    """Divide the rows of all hospitals into pieces of at most :data:`ROWS` rows of one hospital.

    Yields, for the pieces processed together, the slice of their rows, the first row of each piece, and the hospital of
    each piece. Pieces begin at multiples of :data:`ROWS` from a hospital's first row, so that results do not depend on
    other hospitals.
    """
    count = -(-lengths // ROWS)
    of = np.repeat(np.arange(len(lengths)), count)
    within = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    starts = offsets[of] + within * ROWS
    stops = np.minimum(starts + ROWS, offsets[of + 1])
    first = 0
    while first < len(of):
        last = max(first + 1, int(np.searchsorted(stops, starts[first] + ROWS, side="right")))
        yield slice(int(starts[first]), int(stops[last - 1])), starts[first:last], of[first:last]
        first = last


def patient_part(first: Sequence[ArrayLike], second: Sequence[ArrayLike], rows: ArrayLike) -> Floats:
    """Return the variance of a sum at each hospital, ``[H]``, as far as it is due to patients. The terms of the sum
    are, for each of ``S`` seeds, the hospital's number of test rows times the difference in AUROC of two models.

    ``first`` and ``second`` are each model's results of :func:`sketches` in each seed: ``S`` arrays ``[H, B]``. ``rows
    [S, H]`` are the numbers of test rows.
    """
    weights = np.asarray(rows, dtype=np.float64)
    part = np.empty(weights.shape[1])
    for start in range(0, len(part), HOSPITALS):
        some = slice(start, start + HOSPITALS)
        total = np.zeros(np.asarray(first[0])[some].shape)
        for one, other, of_seed in zip(first, second, weights, strict=True):
            difference = np.asarray(one)[some].astype(np.float64) - np.asarray(other)[some]
            total += np.nan_to_num(difference, nan=0.0) * of_seed[some, None]
        part[some] = np.square(total).mean(axis=1)
    return part
