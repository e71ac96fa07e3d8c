"""The sums of a local problem: hospitals' updates are added in one weighted sum or several, such as one for each
cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from raysim.strategies.base import Floats, LocalProblem, Upload


def sum_count(problem: LocalProblem, size: int) -> int:
    """Return the number of vectors of length ``size`` that the server receives: the sums of updates, and the sums of
    further numbers sent with updates.
    """
    sent = problem.sent
    return 0 if sent is None else sent.sums + number_rows(problem, size)


def number_rows(problem: LocalProblem, size: int) -> int:
    """Return how many rows of ``size`` scalars are needed for the further numbers sent with each update."""
    return -(-problem.extra_numbers // size)


def heaviest(problem: LocalProblem) -> float:
    """Add up the absolute weights in each of the problem's sums, and return the largest total.

    Totals are over all hospitals of the round, so that rounding does not depend on how hospitals are divided among
    processes.
    """
    totals = [0.0]
    sent = problem.sent
    if sent is not None and sent.weight is not None:
        weight = np.abs(sent.weight)
        if problem.extra_numbers:
            # Further numbers are added over all entries, independently of the sums of updates.
            totals.append(float(np.abs(extra_weights(sent)).sum()))
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if sent.sum_index is None else sent.sum_index
            weight = np.bincount(into, weights=weight)
        else:
            weight = weight.sum(axis=0)
        totals.append(float(weight.max()))
    return max(totals)


def extra_weights(sent: Upload) -> Floats:
    """Return the weights ``[H]`` of hospitals in the sum of the further numbers that they send with their updates."""
    if sent.extra_weight is not None:
        return sent.extra_weight
    weight = weight_of(sent)
    return weight if weight.ndim == 1 else weight.max(axis=1)


def weight_of(sent: Upload | None) -> Floats:
    """Return the weights of updates, ``[H]`` or ``[H, G]``. Raises ``ValueError`` if there are no weights."""
    if sent is None or sent.weight is None:
        raise ValueError("upload.weight: is None, but sums of updates need a weight for each hospital")
    return sent.weight


def weighed(problem: LocalProblem, weight: Floats) -> LocalProblem:
    """Return the problem with ``weight [H]`` as the weights of hospitals' updates in their sums."""
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, weight=weight))
    return problem if problem.then is None else replace(problem, then=weighed(problem.then, weight))


def uploading(problem: LocalProblem, *, single: bool) -> LocalProblem:
    """Return the problem with ``single`` set in its upload. If it is true, the server receives each hospital's update;
    if false, only sums.
    """
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, single=single))
    return problem if problem.then is None else replace(problem, then=uploading(problem.then, single=single))


def by_sum(sent: Upload) -> Floats:
    """Return the weight of each of the ``H`` local updates in each of the ``G`` sums, ``[H, G]``."""
    weight = weight_of(sent)
    if weight.ndim == 2:
        return weight
    spread = np.zeros((len(weight), sent.sums))
    spread[np.arange(len(weight)), 0 if sent.sum_index is None else sent.sum_index] = weight
    return spread


def of_entry(value: Any, j: int) -> Any:
    """Return the value for local update ``j``. ``value`` is an array ``[H]`` with one value per update, or one value
    for all updates.
    """
    return value[j] if isinstance(value, np.ndarray) else value
