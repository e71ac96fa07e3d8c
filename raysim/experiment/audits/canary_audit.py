"""Canary audit of a privacy guarantee: a lower bound of epsilon against the adversary whom the guarantee assumes.

Canaries are artificial hospitals or patients. A fair coin decides whether each canary is in the data. Each canary has
model parameters that no other row changes. The update of a canary hospital, and the gradient of a canary patient, have
norms far above the clipping norm. The strategy and the rounds are those of the audited run. For each canary, the
auditor adds up the noisy updates of its parameters over all rounds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.audit import one_run
from raysim.config.sections.privacy import Adversary, PrivacySection
from raysim.core.streams import stream
from raysim.data.derived.canaries import with_hospitals, with_patients
from raysim.data.federation import Federation
from raysim.engine.attacks.canaries import Canaries
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.privacy.calibration import multipliers, parameters_of
from raysim.experiment.audits.auditor import Opened
from raysim.experiment.session import Session
from raysim.strategies.base import Floats, Ids
from raysim.training.base import Layout
from raysim.training.canaries import WithCanaries
from raysim.training.kernels.clipped import Traceable

LENGTH = 100.0
"""Norm of a canary's update or gradient, as a multiple of the clipping norm: large, to detect missing clipping."""


def can_hold_canaries(job: Job, federation: Federation) -> bool:
    """Return whether canaries can be added: hospitals must send updates, and the model's first layer must be dense with
    one input per feature.
    """
    if job.strategy.uses_programs():
        return False
    model = job.work.model.bind(federation, "cpu", job.work.precision)
    return isinstance(model, Traceable) and model.layout.shapes[0][1:] == federation.X.shape[1:]


def canary_bound(job: Job, federation: Federation, opened: Opened, folder: Path, count: int) -> dict[str, Any]:
    """Run ``job``, which has a privacy guarantee, with ``count`` canaries; return a lower bound of its epsilon.

    The data with canaries are written to ``folder``, which must exist.
    """
    section = job.privacy
    if section is None:
        raise ValueError("privacy: the run has no such section; an audit with canaries needs a guarantee")
    rng = stream(job.work.seed, "canary")
    inside = rng.random(count) < 0.5
    with_rows = np.flatnonzero(federation.sizes("train"))
    length = LENGTH * (section.clip if np.isfinite(section.clip) else 1.0)
    homes = np.resize(with_rows, count).astype(np.int64)
    if section.unit == "hospital":
        with_hospitals(federation, homes, section.cap or 1, count, folder)
        homes = len(federation.hospitals) + np.arange(count)
    else:
        rows = section.rows_per_patient if section.unit == "patient" else 1
        with_patients(federation, homes[inside], np.flatnonzero(inside), count, length, rows, folder)
    with_canaries = Federation.open(folder)
    single = section.effective_mode == "local"
    with opened(with_canaries) as session:
        outcome = _trained(job, with_canaries, session, homes, inside, length, single)
    if outcome.canary_components is None or outcome.privacy is None:
        raise AssertionError("a run with canaries lacks their measurements or its guarantee")
    scores = outcome.canary_components.sum(axis=0)
    if section.unit != "hospital":
        scores = -scores / _relative_noise(job, section, with_canaries)[homes]  # gradients are descended
    against: Adversary = "server" if single else "outsider"
    guesses = one_run.guessed(scores, inside)
    return {
        "sees": f"each {'update' if single else 'sum'} of every round",
        "against": against,
        "unit": section.unit,
        **one_run.figures(guesses, section.delta),
        "epsilon_claimed": outcome.privacy.covered[against],
    }


def _trained(
    job: Job,
    with_canaries: Federation,
    session: Session,
    homes: Ids,
    inside: NDArray[np.bool_],
    length: float,
    single: bool,
) -> Outcome:
    work, columns = job.work, len(inside)
    patients = job.privacy is not None and job.privacy.unit != "hospital"
    if patients:
        inner = work.model
        path = f"{WithCanaries.__module__}.{WithCanaries.__qualname__}"
        options = {"family": inner.class_path or inner.name, "columns": columns, "options": inner.options}
        work = replace(work, model=ModelSpec(None, path, options, inner.init))
    layout = work.model.bind(with_canaries, "cpu", work.precision).layout
    canaries = Canaries(homes, inside, _canary_parameters(layout, columns), None if patients else length, single)
    evaluation = job.evaluation.model_copy(update={"every": 0, "predictions": False, "groups": ()})
    # A guarantee by local noise also holds against a server that receives each update, so no sums are hidden here.
    secure = None if single else job.secure
    work = replace(work, federation=str(with_canaries.folder))
    *_, outcome = session.run(replace(job, work=work, evaluation=evaluation, canaries=canaries, secure=secure))
    if not isinstance(outcome, Outcome):
        raise AssertionError("the audit's job returned no outcome")
    return outcome


def _canary_parameters(layout: Layout, columns: int) -> Ids:
    """Return the indices of the first layer's parameters for each of the last ``columns`` features.

    The result has the shape ``[columns, outputs]``.
    """
    outputs, features = layout.shapes[0]
    column = features - columns + np.arange(columns)
    return column[:, None] + features * np.arange(outputs)


def _relative_noise(job: Job, section: PrivacySection, federation: Federation) -> Floats:
    """Return the standard deviation of the noise in each hospital's update, ``[N]``, up to a common factor.

    All are 1 unless hospitals add noise in each of their training steps.
    """
    if not section.own_steps:
        return np.ones(len(federation.hospitals))
    parameters = parameters_of(job, federation)
    counts, rates = np.array(parameters.patients, dtype=np.float64), np.array(parameters.rates)
    sampled = np.maximum(counts * rates, 1.0)
    noise = multipliers(section, parameters) * np.sqrt(np.array(parameters.steps, dtype=np.float64)) / sampled
    return np.where(noise > 0, noise, 1.0)
