"""The sums of a problem: how many there are, their order and weights; and problems with other uploads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from raysim.strategies.base import Floats, LocalProblem, Upload


def sum_count(problem: LocalProblem, size: int) -> int:
    """How many sums of ``size`` scalars a problem has.

    First those of its upload, then those that hold the numbers of its message, then one of control variates.
    """
    sent = problem.sent
    if sent is None:
        return 0
    return sent.sums + number_rows(problem, size) + (problem.objective.variates is not None)


def number_rows(problem: LocalProblem, size: int) -> int:
    """How many sums of ``size`` scalars hold the numbers of a problem's message, one after another."""
    sent = problem.sent
    return 0 if sent is None or sent.message is None else -(-sent.message.numbers // size)


def heaviest(problem: LocalProblem) -> float:
    """The largest total magnitude of weights in a sum.

    Over the whole cohort, so that what is refused does not depend on which process serves whom.
    """
    totals = [0.0]
    sent, variates = problem.sent, problem.objective.variates
    if sent is not None and sent.weight is not None:
        weight = np.abs(sent.weight)
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if sent.sum_index is None else sent.sum_index
            # Numbers are added over all entries, whichever sum their vectors go into.
            weight = np.bincount(into, weights=weight) if sent.message is None else weight.sum(keepdims=True)
        else:
            weight = weight.sum(axis=0)
        totals.append(float(weight.max()))
    if variates is not None:
        totals.append(float(np.abs(variates.weight).sum()))
    return max(totals)


def weighed(problem: LocalProblem, weight: Floats) -> LocalProblem:
    """The problem with the weights ``[H]`` in place of those of its upload."""
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, weight=weight))
    return problem if problem.then is None else replace(problem, then=weighed(problem.then, weight))


def uploading(problem: LocalProblem, *, single: bool) -> LocalProblem:
    """The problem with an upload that sends each update by itself."""
    if problem.upload is not None:
        return replace(problem, upload=replace(problem.upload, single=single))
    return problem if problem.then is None else replace(problem, then=uploading(problem.then, single=single))


def by_sum(sent: Upload) -> Floats:
    """The weights of each entry in each sum, ``[H, G]``."""
    weight = sent.weight
    if weight is None:
        raise ValueError("nothing is summed")
    if weight.ndim == 2:
        return weight
    spread = np.zeros((len(weight), sent.sums))
    spread[np.arange(len(weight)), 0 if sent.sum_index is None else sent.sum_index] = weight
    return spread


def of_entry(value: Any, j: int) -> Any:
    """The value of entry ``j``; ``value`` is one for all entries or an array ``[H]``."""
    return value[j] if isinstance(value, np.ndarray) else value
