"""The privacy cost of a search: every trial has seen the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.reception.promises import Terms, settled
from raysim.privacy.statement import SHARED
from raysim.tune.plan import SweepPlan
from raysim.tune.spaces import Params


def cost(
    plan: SweepPlan, trials: Iterable[Params], federations: Sequence[Federation], finals: Sequence[Outcome]
) -> dict[str, Any] | None:
    """For ``summary.json``: the epsilon of all ``trials`` and the ``finals`` after them; None without ``privacy``.

    A bound: epsilons add up, and deltas, as if every trial had been played to its end.
    """
    sections = [
        settled(job.privacy, Terms.of(job, federation))
        for params in trials
        for job, federation in zip(plan.jobs(params, "validation"), federations, strict=True)
        if job.privacy is not None
    ]
    statements = [outcome.privacy for outcome in finals if outcome.privacy is not None]
    if not sections and not statements:
        return None
    exact = sorted({kind for each in statements for kind in each.not_private})
    epsilons = [math.inf if section.epsilon is None else section.epsilon for section in sections]
    epsilon = math.inf if exact else sum(epsilons) + sum(each.epsilon for each in statements)
    delta = sum(section.delta for section in sections) + sum(each.delta for each in statements)
    shown = "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}"
    runs = len(sections) + len(statements)
    text = f"whoever sees all {runs} runs of this sweep: epsilon at most {shown}, delta {delta:.3g}"
    if exact:
        text += f"; not private: {', '.join(exact)}"
    if runs > 1 and any(section.noise == "seeded" for section in sections):
        text += f"; this {SHARED}"
    return {
        "runs": runs,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": delta,
        "not_private": exact,
        "statement": text,
    }
