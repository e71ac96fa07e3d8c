"""The effect of an attack on honest hospitals, compared with the same run without the attack.

Harm is how much worse a hospital's main metric is under the attack than without it: positive values mean worse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.adversaries.attack_effect import AttackFigures
from raysim.adversaries.rows import triggered
from raysim.engine.client.initial_model import parameters
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.memory import MODEL
from raysim.strategies.base import Floats

NAN = float("nan")


def attack_figures(
    job: Job, outcome: Outcome, clean: Outcome | None, data: Any, averaged: Outcome | None = None
) -> AttackFigures:
    """Return how the attack affected a run of ``job`` on the federation ``data``.

    ``outcome`` is the run with the attack, and ``clean`` the same run without it. ``averaged`` is a run without attack
    and without robust rule; strategies with the setting ``weights`` then use equal weights. None means that there was
    no such run.
    """
    section, task = job.adversary, data.task
    if section is None:
        raise ValueError("the run has no section adversary")
    count = len(data.hospitals)
    bad = np.zeros(count, dtype=np.bool_)
    bad[outcome.bad] = True
    model = list(outcome.figures)[-1]
    column = task.figures.index(task.headline)
    names = (task.headline, "worst_decile", "gini")

    def honest(of: Outcome) -> dict[str, float]:
        summary = task.summarise(of.figures[model][~bad], of.stays(data, model)[~bad])
        return {name: float(summary[name]) for name in names}

    attacked = honest(outcome)
    without = dict.fromkeys(names, NAN) if clean is None else honest(clean)
    usual = {} if averaged is None else honest(averaged)
    harm = np.full(count, NAN)
    if clean is not None:
        harm = clean.figures[model][:, column] - outcome.figures[model][:, column]
        harm = harm if task.larger else -harm
    cluster = np.zeros(count, dtype=np.int64) if outcome.cluster is None else outcome.cluster
    shares = {row: float(bad[cluster == row].mean()) for row in np.unique(cluster).tolist()}
    inside = np.array([shares[row] > 0 for row in cluster.tolist()])
    success = NAN
    if section.attack == "backdoor":
        success = trigger_rate(job, outcome, data, ~bad)
        success -= NAN if clean is None else trigger_rate(job, clean, data, ~bad)
    return AttackFigures(
        attack=section.attack,
        knowledge=section.effective_knowledge,
        bad=tuple(data.hospitals[i] for i in outcome.bad.tolist()),
        honest=attacked,
        change={name: attacked[name] - without[name] for name in names},
        harm_in=_mean(harm[~bad & inside]),
        harm_out=_mean(harm[~bad & ~inside]),
        largest_bad_share=max(shares.values()),
        success=success,
        per_hospital=tuple(harm.tolist()),
        price={name: without[name] - usual[name] for name in usual},
    )


def trigger_rate(job: Job, outcome: Outcome, data: Any, hospitals: NDArray[np.bool_]) -> float:
    """Return the success rate of a backdoor at the hospitals marked in ``hospitals [N]``; NaN if undefined. The rate is
    the share of rows outside the attack's target class that the model assigns to this class once they contain the
    trigger.
    """
    section = job.adversary
    if section is None or section.feature is None:
        return NAN
    rows_of = list(outcome.serve.values())[-1]
    if rows_of.ndim != 1:
        return NAN  # a hospital is served by several models
    model, feature = job.work.model.bind(data, "cpu", job.work.precision), data.features.index(section.feature)
    states = {hospital: {MODEL: theta} for hospital, theta in outcome.own_models.items()}
    sent = all_rows = 0
    for hospital in np.flatnonzero(hospitals).tolist():
        rows = data.rows(hospital, job.evaluation.part)
        others = data.y[rows] != section.label
        if not others.any():
            continue
        theta = parameters(outcome, int(rows_of[hospital]), hospital, states).astype(job.work.precision)
        outputs = model.logits(theta, triggered(data.X[rows][others], feature, section.value))
        classes = (outputs > 0).astype(np.int64) if outputs.ndim == 1 else outputs.argmax(axis=1)
        sent += int((classes == section.label).sum())
        all_rows += len(classes)
    return sent / all_rows if all_rows else NAN


def _mean(values: Floats) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else NAN
