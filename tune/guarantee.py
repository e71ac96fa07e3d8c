"""The privacy cost of a search, in which every trial uses the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from raysim.core import bounded
from raysim.core.errors import ConfigError
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.engine.privacy.privacy_ledger import guaranteed
from raysim.privacy.statement import SHARED, Statement, together
from raysim.tune.plan import SweepPlan
from raysim.tune.spaces import Params

LOST = "lost.json"
"""The file with the number of trials that may have run without a record in the journal."""


def read_lost(folder: Path) -> int:
    """Return how many trials may have run without a record when the sweep in ``folder`` was stopped; the numbers of
    several stops are added up.
    """
    path = folder / LOST
    if not path.exists():
        return 0
    count = bounded.read_json(path).get("trials")
    if type(count) is not int or count < 0:
        raise ConfigError(f"{path}: 'trials' is not a whole number of at least 0; start a new sweep")
    return count


def read_cost(path: Path) -> dict[str, Any] | None:
    """Read the privacy cost of an ended sweep from ``summary.json`` at ``path``; None without a guarantee."""
    privacy = bounded.read_json(path).get("privacy")
    if privacy is None:
        return None
    if not isinstance(privacy, dict) or not isinstance(privacy.get("statement"), str):
        raise ConfigError(f"{path}: 'privacy' has no text 'statement'; start a new sweep")
    return privacy


def cost(
    plan: SweepPlan,
    trials: Iterable[Params],
    federations: Sequence[Federation],
    finals: Sequence[Statement],
    lost: int = 0,
) -> dict[str, Any] | None:
    """Compute the joint privacy guarantee (epsilon, delta) of all runs of a sweep; None without ``privacy``.

    ``trials`` are the trials' hyper-parameters, and ``finals`` the guarantees of the runs on test rows. The epsilon is
    an upper bound: every trial counts as if it had run to its end. ``lost`` is the number of trials that may have run
    without a record; each counts as the trial with the largest epsilon.
    """
    tried = [
        guaranteed(job, federation)
        for params in trials
        for job, federation in zip(plan.jobs(params, "validation"), federations, strict=True)
    ]
    completed = [each for each in tried if each is not None]
    finals = [run for each in finals for run in each.all_runs]
    if not completed and not finals:
        return None
    exact, without = (
        sorted({kind for each in (*completed, *finals) for kind in each.not_private}),
        len(tried) - len(completed),
    )
    if lost and completed:
        completed += [max(completed, key=lambda each: each.covered[each.against])] * (lost * len(federations))
    # The statement lists the kinds that are not private separately.
    covered = [replace(each, epsilons=each.covered) for each in (*completed, *finals)]
    epsilon, delta, _ = together(covered)
    epsilon, several = math.inf if exact or without else epsilon, len(covered) + without
    epsilon_text = "infinite" if math.isinf(epsilon) else f"{epsilon:.4g}"
    text = f"against an adversary who sees all {several} runs of this sweep: epsilon at most {epsilon_text}, "
    text += f"delta {delta:.3g}"
    if exact:
        text += f"; not private: {', '.join(exact)}"
    if without:
        text += f"; {counted(without, 'run')} without any noise"
    if several > 1 and any(each.noise == "seeded" for each in covered):
        text += f"; this {SHARED}"
    return {
        "runs": several,
        "epsilon": "inf" if math.isinf(epsilon) else epsilon,
        "delta": delta,
        "not_private": exact,
        "statement": text,
    }
