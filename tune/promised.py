"""The privacy cost of a search: every trial has seen the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from raysim.core import bounded
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.reception.privacy_ledger import promised
from raysim.engine.reception.promises import Terms, settled
from raysim.privacy.statement import SHARED, Statement
from raysim.tune.plan import SweepPlan
from raysim.tune.spaces import Params

LOST = "lost.json"
"""The file that counts trials which a stopped sweep may have played and does not know of."""


def read_lost(folder: Path) -> int:
    """How many trials may have been under way whenever the sweep in ``folder`` was stopped."""
    path = folder / LOST
    if not path.exists():
        return 0
    count = bounded.read_json(path).get("trials")
    if type(count) is not int or count < 0:
        raise ConfigError(f"{path}: holds no number of trials; start a new sweep")
    return count


def read_statement(path: Path) -> Statement | None:
    """The guarantee in the ``summary.json`` of a run, as far as a joint cost needs it; None where there is none."""
    told = bounded.read_json(path).get("privacy") if path.exists() else None
    if told is None:
        return None
    epsilon = {told["against"]: float(told["epsilon"])}
    exact = tuple(told["not_private"])
    return Statement(
        told["unit"], told["mode"], told["against"], float(told["delta"]), epsilon, epsilon, not_private=exact
    )


def cost(
    plan: SweepPlan,
    trials: Iterable[Params],
    federations: Sequence[Federation],
    finals: Sequence[Statement],
    lost: int = 0,
) -> dict[str, Any] | None:
    """For ``summary.json``: the epsilon of all ``trials`` and the ``finals`` after them; None without ``privacy``.

    A bound: epsilons add up, and deltas, as if every trial had been played to its end. So many trials were ``lost``
    when the sweep was stopped, and count as the dearest one.
    """
    listed = list(trials)
    sections = [
        settled(job.privacy, Terms.of(job, federation))
        for params in listed
        for job, federation in zip(plan.jobs(params, "validation"), federations, strict=True)
        if job.privacy is not None
    ]
    statements = [play for each in finals for play in each.plays]
    if not sections and not statements:
        return None
    if lost and sections:
        dearest = max(sections, key=lambda section: math.inf if section.epsilon is None else section.epsilon)
        sections += [dearest] * (lost * len(federations))
    told = statements
    # No run on test rows says what is not private: that of the first trial does.
    if not told and (first := promised(plan.jobs(listed[0], "validation")[0], federations[0])) is not None:
        told = [first]
    exact = sorted({kind for each in told for kind in each.not_private})
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
