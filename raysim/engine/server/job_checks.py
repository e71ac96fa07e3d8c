"""Checks whether a job can run on a federation. Every error here is raised before anything starts."""

from __future__ import annotations

import dataclasses
from typing import Any

from raysim.adversaries.who import TOGETHER
from raysim.config.sections.evaluation import ClinicalSection, EvaluationSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.core.installed import loaded_if_sound
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.engine.attacks.checks import check_attacks
from raysim.engine.job import Job
from raysim.engine.measuring.subgroups import grouping
from raysim.engine.privacy.checks import check_privacy
from raysim.engine.server.last_steps import check_recalibration
from raysim.engine.server.program_calls import check_programs
from raysim.strategies.base import Strategy, Training
from raysim.training import class_weights
from raysim.trees.settings import check_levels
from raysim.virtual_time.unreliable import check_system


def _acts_together(job: Job) -> bool:
    return job.adversary is not None and job.adversary.attack in TOGETHER


def check_together(job: Job) -> None:
    """Raise ``ConfigError`` for configuration sections that exclude each other."""
    rule = job.aggregation if job.aggregation is not None and job.aggregation.of_single else None
    if job.privacy is not None and (rule is not None or _acts_together(job)):
        attack = "" if job.adversary is None else f"adversary.attack: '{job.adversary.attack}'"
        one = attack if rule is None else f"aggregation.name: '{rule.name}'"
        raise ConfigError(
            f"{one} needs single updates, but the guarantee of privacy.unit: '{job.privacy.unit}' covers only sums of "
            "updates; leave one of the two out"
        )
    if job.secure is None:
        return
    if rule is not None and not rule.by_secure_sums:
        raise ConfigError(
            f"secure.mode: '{job.secure.mode}' hides single updates, which aggregation.name: '{rule.name}' "
            "needs; leave one of the two out"
        )
    if job.adversary is not None and _acts_together(job):
        raise ConfigError(
            f"secure.mode: '{job.secure.mode}' hides single updates, from which adversary.attack: "
            f"'{job.adversary.attack}' is computed; choose an attack of single hospitals or leave secure out"
        )
    if job.compression is not None and not job.compression.linear:
        raise ConfigError(
            f"secure.mode: '{job.secure.mode}' adds messages of hospitals, and compression.name: "
            f"'{job.compression.name}' makes messages that cannot be added; set compression.name to grid, or to "
            "random_k with indices: common, and do not set feedback: ef21"
        )
    if job.strategy.asynchrony() is not None:
        raise ConfigError(
            f"secure.mode: '{job.secure.mode}' needs rounds, which strategy '{job.name}' does not have; choose "
            "another strategy or leave secure out"
        )
    if job.secure.mode == "execute":
        from raysim.secure.masks import check_installed

        check_installed()


def check_trees(job: Job, training: Training, federation: Federation) -> None:
    """Raise ``ConfigError`` if only one of the job's model and strategy is for boosted trees, or if the data's features
    do not suit the trees.
    """
    if training.trees is None:
        if job.strategy.takes_trees:
            raise ConfigError(f"model.name: strategy '{job.name}' grows trees; write model.name: boosted_trees")
        return
    if not job.strategy.takes_trees:
        takes = [name for name, entry in registry.entries("strategies").items() if _takes_trees(loaded_if_sound(entry))]
        raise ConfigError(
            f"strategy.name: '{job.name}' cannot grow boosted trees; choose one of {', '.join(sorted(takes))}, or "
            "another model.name"
        )
    try:
        check_levels(federation.features, training.trees.levels)
    except ValueError as error:
        raise ConfigError(f"data: {error}") from None


def _takes_trees(cls: Any) -> bool:
    of_strategy = isinstance(cls, type) and issubclass(cls, Strategy)
    return of_strategy and (cls.takes_trees or cls.with_trees is not Strategy.with_trees)


def check_declared(job: Job, where: str, label: str) -> None:
    """Raise ``ConfigError`` if a field of the strategy and a setting of local training have the same name but different
    values.

    A field whose default is None may differ from the setting, because it applies only to the strategy's own steps.
    """
    used = {**dataclasses.asdict(job.work.optimizer), "optimizer": job.work.optimizer.name}
    used["local_epochs"] = job.work.epochs
    for field in getattr(job.strategy, "__dataclass_fields__", {}).values():
        value = getattr(job.strategy, field.name)
        if field.name in used and field.default is not None and value != used[field.name]:
            raise ConfigError(
                f"{where}.{field.name}: {value!r}, but hospitals train with training.{field.name}: "
                f"{used[field.name]!r}; set both to the same value{label}"
            )


def _check_classes(evaluation: EvaluationSection, classes: int) -> None:
    """Raise ``ConfigError`` if the settings of ``evaluation`` request metrics that are not defined for the label.
    ``classes`` is the label's number of classes; 0 for a real number.
    """
    kind = f"the label has {classes} classes" if classes else "the label is a number"
    if classes != 2 and evaluation.clinical not in (None, ClinicalSection()):
        raise ConfigError(f"evaluation.clinical: its figures are for two classes, but {kind}; remove the section")
    if not classes and evaluation.minimum_events != EvaluationSection().minimum_events:
        raise ConfigError(
            f"evaluation.minimum_events: {evaluation.minimum_events} counts rows of the rarer class, but {kind}; "
            "remove the key"
        )


def check_job(job: Job, federation: Federation, where: str = "strategy") -> Job:
    """Return the job with its privacy guarantee, whose noise has been computed. Raises ``ConfigError`` if the job
    cannot run on this federation.

    ``where`` is the configuration field of the job's strategy.
    """
    label = "" if where == "strategy" else f" (strategy '{job.name}')"
    try:
        job.strategy.check(federation.hospitals, federation.sizes("train"))
    except ValueError as error:
        raise ConfigError(f"{where}.{error}{label}") from None
    model = job.work.model.bind(federation, "cpu", job.work.precision)
    layout, classes = model.layout, len(federation.classes)
    class_weights.check(job.work.class_weights, classes)
    weighted = job.work.class_weights != "none"
    link = getattr(model, "link", "identity")
    training = Training(
        parameters=layout.slices,
        optimizer=job.work.optimizer.name,
        classes=classes,
        link=link,
        weighted=weighted,
        noisy=job.privacy is not None,
        patients=lambda: federation.patients,
        trees=getattr(model, "trees", None),
        ranges=federation.limits,
    )
    check_trees(job, training, federation)
    if link == "log" and training.trees is None and not job.strategy.uses_programs():
        raise ConfigError(
            f"strategy.name: '{job.name}' takes steps of gradient descent, and model.name: '{job.work.model.name}' is "
            "fitted without steps; choose one of the regressions in 'raysim list strategies'"
        )
    try:
        job.strategy.check_training(training)
        job.selection.check_training(training)
    except ValueError as error:
        raise ConfigError(f"{error}{label}") from None
    check_declared(job, where, label)
    check_programs(job)
    check_together(job)
    check_recalibration(job, federation, model, where)
    trained = int((federation.sizes("train") > 0).sum())
    hospitals = f"{counted(trained, 'hospital')} with training rows"
    if job.secure is not None and job.secure.minimum > trained:
        raise ConfigError(
            f"secure.minimum: {job.secure.minimum} is more than the {hospitals}, so no sum could be read; lower "
            "secure.minimum"
            f"{', or write strategy.sums: clear' if job.strategy.hides_sums() else ''}"
        )
    if job.secure is not None and job.secure.threshold != "auto" and int(job.secure.threshold) > trained:
        raise ConfigError(
            f"secure.threshold: {job.secure.threshold} is more than the {hospitals}, so no secret could be recovered; "
            "lower secure.threshold, or write auto"
        )
    if job.secure is not None and isinstance(count := job.secure.neighbours, int) and count >= max(trained, 3):
        raise ConfigError(
            f"secure.neighbours: {count} is more than the number of other hospitals with training rows "
            f"({trained - 1}); lower it, or write all"
        )
    check_attacks(job.adversary, job.aggregation, federation, job.work.seed)
    _check_classes(job.evaluation, classes)
    grouping(federation, job.evaluation.groups, job.evaluation.age_bands)
    if job.system is not None:
        check_system(job.system, job.selection, federation.hospitals, federation.sizes("train"), job.work.seed)
    guarantee = check_privacy(job, federation)
    if job.stop is not None and not federation.sizes("validation").any():
        raise ConfigError(
            "training.stop: no hospital has validation rows, which early stopping needs; give data.split.validation a "
            "share, such as 0.1, or leave training.stop out"
        )
    if not federation.sizes(job.evaluation.part).any():
        raise ConfigError(
            f"evaluation.part: no hospital has {job.evaluation.part} rows; "
            f"give data.split.{job.evaluation.part} a share"
        )
    return job.guaranteed(guarantee)
