"""Steps after the last round of any strategy: fine-tuning and recalibration of the main model.

The main model is the last of the models that hospitals use under the strategy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.strategies.base import OWN, Ids
from raysim.training.base import Model

PERSONAL = "personal"
"""The name of the models that hospitals fine-tune."""

PRIOR_SCALARS = 2
"""The number of scalars of the prior under method ``eb`` (empirical Bayes): the mean and variance of hospitals'
recalibration intercepts."""


def headline(serve: Mapping[str, Ids]) -> tuple[str, Ids]:
    """Return the name of the main model, which is the last in ``serve``, and the index of the model that each hospital
    uses.
    """
    return list(serve.items())[-1]


def with_fine_tuned(serve: dict[str, Ids], job: Job) -> dict[str, Ids]:
    """Return ``serve`` with the fine-tuned models added, if the ``job`` has fine-tuning."""
    if job.last.fine_tuning is None:
        return serve
    return serve | {PERSONAL: np.full(len(headline(serve)[1]), OWN)}


def check_fine_tuned(job: Job, serve: Mapping[str, Ids], *, private: bool) -> None:
    """Raise ``ConfigError`` if fine-tuning is configured, but some hospital does not use a single, complete model that
    the server stores.
    """
    if job.last.fine_tuning is None:
        return
    rows = headline(serve)[1]
    if private or rows.ndim != 1 or (rows < 0).any():
        whose = "groups of patients" if rows.ndim != 1 else "hospitals themselves"
        raise ConfigError(
            f"strategy.personalization: the models of strategy '{job.name}' belong to {whose}, but fine-tuning "
            "needs one model at the server for each hospital; leave it out, or choose another strategy"
        )


def check_recalibration(job: Job, federation: Federation, model: Model, where: str) -> None:
    """Raise ``ConfigError`` if recalibration is configured, but the model, the federation or another section of the job
    does not allow it. ``where`` is the configuration field of the job's strategy.
    """
    asked, field = job.last.recalibration, f"{where}.personalization"
    if asked is None:
        return
    one_margin = model.logits(model.initial(np.random.default_rng(0)), federation.X[:1]).ndim == 1
    if len(federation.classes) != 2 or not one_margin:
        what = f"{len(federation.classes)} classes" if federation.classes else "a real-valued label"
        raise ConfigError(
            f"{field}: recalibrate needs one risk per patient (two classes), but this model predicts "
            f"{'two scores' if len(federation.classes) == 2 else what}; leave it out"
        )
    if job.privacy is not None:
        raise ConfigError(
            f"{field}: recalibrate fits validation rows without noise, which privacy.unit: '{job.privacy.unit}' does "
            "not cover; leave one of the two out"
        )
    # Regressions hide their sums without being configured to; hospitals still send the counts of scores behind figures.
    if job.secure is not None and not job.strategy.hides_sums() and asked.method == "eb":
        raise ConfigError(
            f"{field}.method: 'eb' reads each hospital's counts of scores, which secure.mode: '{job.secure.mode}' "
            "hides; use intercept, logistic or closed, which send nothing"
        )
    if job.evaluation.part == asked.rows:
        raise ConfigError(
            f"evaluation.part: {asked.rows} rows cannot evaluate the recalibration that is fitted on them; use test, "
            f"or leave {field} out"
        )
    if not federation.sizes(asked.rows).any():
        raise ConfigError(
            f"{field}: no hospital has validation rows, on which recalibrate is fitted; give data.split.validation a "
            "share, such as 0.1, or leave recalibrate out"
        )


def existing(serve: dict[str, Ids], remembered: object | None) -> dict[str, Ids]:
    """Return the models of ``serve`` that exist at present. If ``remembered`` is None, hospitals have stored nothing
    yet, and models that only hospitals store are left out.
    """
    return {name: rows for name, rows in serve.items() if remembered is not None or not (rows == OWN).all()}
