"""The sums that come back of a problem: how many there are, and how much weight is in the heaviest."""

from __future__ import annotations

import numpy as np

from raysim.strategies.base import LocalProblem


def sum_count(problem: LocalProblem) -> int:
    """How many sums come back of a problem: those of its upload, and behind them one of control variates."""
    sent = problem.sent
    return 0 if sent is None else sent.sums + (problem.objective.variates is not None)


def heaviest(problem: LocalProblem) -> float:
    """The magnitudes of all weights in the sum where these come to most.

    They are the whole cohort's, so that what is refused does not depend on which process serves whom.
    """
    totals = [0.0]
    sent, variates = problem.sent, problem.objective.variates
    if sent is not None and sent.weight is not None:
        weight = np.abs(sent.weight)
        if weight.ndim == 1:
            into = np.zeros(len(weight), dtype=np.int64) if sent.into is None else sent.into
            weight = np.bincount(into, weights=weight)
        else:
            weight = weight.sum(axis=0)
        totals.append(float(weight.max()))
    if variates is not None:
        totals.append(float(np.abs(variates.weight).sum()))
    return max(totals)
