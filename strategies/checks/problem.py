"""Whether a cohort can minimise a problem: each check raises :class:`Invalid` naming the field and the remedy.

Shapes are those of :mod:`raysim.strategies.problem`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raysim.strategies.checks.values import (
    INTEGERS,
    NUMBERS,
    TRUTHS,
    check_array,
    check_choice,
    check_count,
    check_kind,
    check_number,
    check_rows,
    shown,
)
from raysim.strategies.fields import Invalid
from raysim.strategies.problem import (
    LAST,
    MIXTURE,
    NEAREST,
    OWN,
    Contrast,
    Ids,
    LocalProblem,
    Objective,
    Pull,
    RowGroups,
    Upload,
    Variates,
    Visit,
)


@dataclass(frozen=True)
class Frame:
    """The sizes that a problem has to fit, and what else its strategy defines."""

    size: int
    """P, the scalars of a model."""
    models: int
    """M, the server's models."""
    mixes: bool = False
    """Whether the strategy defines ``mixture``."""
    keeps: bool = False
    """Whether hospitals keep private parameters."""
    groups: int | None = None
    """How many groups rows are divided into; None where the strategy defines no ``division``."""


def check_problem(problem: Any, ids: Ids, frame: Frame) -> None:
    """Raise :class:`Invalid` for a problem that the cohort ``ids [H]`` cannot minimise."""
    if not isinstance(problem, LocalProblem):
        raise Invalid(f"problem: {shown(problem)} is no LocalProblem; return one")
    if problem.groups is not None:
        _check_groups(problem.groups, ids, frame)
    entries, of = len(problem.entries(ids)), "hospitals" if problem.groups is None else "groups of rows"
    before: LocalProblem | None = None
    phase: LocalProblem | None = problem
    path = ""
    while phase is not None:
        _check_phase(phase, before, path, entries, of, frame)
        before, phase, path = phase, phase.then, f"{path}then."
    if sum(step.visit.carry for step in problem.chain) > 1:
        raise Invalid("visit.carry: two problems of a chain carry the optimiser of the one hospital; let one do so")
    if problem.groups is not None and (frame.keeps or problem.keeps):
        raise Invalid("groups: a hospital trains on groups of its rows, but what it keeps is of all its rows")
    _check_traces(problem, frame)


def check_personal(problem: LocalProblem) -> None:
    """Raise :class:`Invalid` for a problem of ``personalize`` that uploads."""
    if problem.sent is not None:
        raise Invalid("upload: nothing is aggregated after the last round; leave it out")


def _check_phase(
    phase: LocalProblem, before: LocalProblem | None, path: str, entries: int, of: str, frame: Frame
) -> None:
    """Check one problem of a chain, after the one ``before``; ``path`` is the prefix of its fields: ``then.``, say."""
    check_kind(path.rstrip("."), phase, LocalProblem)
    check_kind(f"{path}objective", phase.objective, Objective)
    check_kind(f"{path}visit", phase.visit, Visit)
    if before is not None and phase.groups is not None:
        raise Invalid(f"{path}groups: those of the first problem hold for the whole chain; leave them out here")
    field = f"{path}start"
    check_array(field, phase.start, INTEGERS, entries, of)
    if before is None and (phase.start == LAST).any():
        raise Invalid(f"{field}: LAST, but no problem is before this one; name a row of state.models")
    if not frame.mixes and (phase.start == MIXTURE).any():
        raise Invalid(f"{field}: MIXTURE, but mixture gives None; define it, or name a row of state.models")
    first = before is None
    check_rows(
        field, phase.start, frame.models, OWN, *[MIXTURE] * frame.mixes, *[NEAREST] * first, *[LAST] * (not first)
    )
    if phase.chosen:
        _check_choice(phase, field, frame)
    _check_objective(phase.objective, f"{path}objective", entries, of, frame)
    _check_visit(phase.visit, f"{path}visit", entries, of)
    if phase.upload is not None:
        _check_upload(phase.upload, f"{path}upload", entries, of)
    if phase.objective.variates is not None and (before is not None or phase.upload is None):
        raise Invalid(
            f"{path}objective.variates: they travel with an upload, in the problem that a visit begins with; put them "
            "there"
        )


def _check_choice(phase: LocalProblem, field: str, frame: Frame) -> None:
    """Check a problem whose hospitals choose their model: each model has a sum, and no ``into`` names the choice."""
    sent = phase.upload
    if (phase.start != NEAREST).any():
        raise Invalid(f"{field}: NEAREST for some; let all hospitals choose, or none")
    weight = None if sent is None else sent.weight
    fits = weight is not None and weight.ndim == 1
    if sent is None or not fits or sent.into is not None or sent.sums != frame.models - 1:
        raise Invalid(
            f"{field}: NEAREST needs an upload with a weight for each hospital, no into and {frame.models - 1} sums, "
            "one for each model but the first"
        )


def _check_groups(groups: RowGroups, ids: Ids, frame: Frame) -> None:
    check_kind("groups", groups, RowGroups)
    if frame.groups is None:
        raise Invalid("groups: the problem is about groups of rows, but division gives None; define it")
    hospital = groups.hospital
    entries = len(hospital) if isinstance(hospital, np.ndarray) and hospital.ndim else 0
    for name in ("hospital", "group", "rows"):
        check_array(f"groups.{name}", getattr(groups, name), INTEGERS, entries, "groups of rows")
    if not entries:
        raise Invalid("groups.hospital: there is none; give an entry for each group of rows that is trained on")
    if not np.isin(hospital, ids).all() or (hospital[1:] < hospital[:-1]).any():
        raise Invalid("groups.hospital: not ascending ids of the cohort; sort the entries by hospital")
    wrong = groups.group[(groups.group < 0) | (groups.group >= frame.groups)]
    if len(wrong):
        raise Invalid(f"groups.group: {wrong[0]} is not among the division's {frame.groups}, 0 to {frame.groups - 1}")
    if (groups.rows < 0).any():
        raise Invalid(f"groups.rows: {groups.rows.min()} is no number of rows")


def _check_objective(objective: Objective, field: str, entries: int, of: str, frame: Frame) -> None:
    if not isinstance(objective.pulls, tuple | list):
        raise Invalid(f"{field}.pulls: {shown(objective.pulls)} is no tuple of Pull; write (pull,)")
    for i, pull in enumerate(objective.pulls):
        where = f"{field}.pulls.{i}"
        check_kind(where, pull, Pull)
        if isinstance(pull.weight, np.ndarray):
            check_array(f"{where}.weight", pull.weight, NUMBERS, entries, of)
            if (pull.weight < 0).any():
                raise Invalid(f"{where}.weight: {pull.weight.min()} is not at least 0")
        else:
            check_number(f"{where}.weight", pull.weight)
        check_array(f"{where}.towards", pull.towards, INTEGERS, entries, of)
        check_rows(f"{where}.towards", pull.towards, frame.models)
    if objective.variates is not None:
        _check_variates(objective.variates, f"{field}.variates", entries, of, frame.size)
    if objective.contrast is not None:
        check_kind(f"{field}.contrast", objective.contrast, Contrast)
        check_number(f"{field}.contrast.weight", objective.contrast.weight)
        check_number(f"{field}.contrast.temperature", objective.contrast.temperature, above=True)
    if objective.frozen is not None:
        check_array(f"{field}.frozen", objective.frozen, TRUTHS, frame.size, "parameters")


def _check_variates(variates: Variates, field: str, entries: int, of: str, size: int) -> None:
    check_kind(field, variates, Variates)
    check_array(f"{field}.server", variates.server, NUMBERS, size, "parameters")
    check_array(f"{field}.weight", variates.weight, NUMBERS, entries, of)
    check_choice(f"{field}.renew", variates.renew, ("steps", "gradient"))


def _check_visit(visit: Visit, field: str, entries: int, of: str) -> None:
    if isinstance(visit.epochs, np.ndarray):
        check_array(f"{field}.epochs", visit.epochs, INTEGERS, entries, of)
        if (visit.epochs < 0).any():
            raise Invalid(f"{field}.epochs: {visit.epochs.min()} is not at least 0")
    elif visit.epochs is not None:
        check_count(f"{field}.epochs", visit.epochs)
    if visit.batch_size is not None:
        check_count(f"{field}.batch_size", visit.batch_size)
    if visit.learning_rate is not None:
        check_number(f"{field}.learning_rate", visit.learning_rate)
    if visit.optimizer is not None:
        check_choice(f"{field}.optimizer", visit.optimizer, ("sgd", "momentum", "adam"))


def _check_upload(upload: Upload, field: str, entries: int, of: str) -> None:
    check_kind(field, upload, Upload)
    check_choice(f"{field}.what", upload.what, ("delta", "parameters"))
    check_count(f"{field}.sums", upload.sums, least=1)
    if upload.weight is None:
        if not upload.single:
            raise Invalid(
                f"{field}.weight: none, so that what hospitals send would be lost; give one for each, or single=True"
            )
        if upload.into is not None:
            raise Invalid(f"{field}.into: nothing goes into a sum without a weight; give weights, or leave it out")
        return
    if isinstance(upload.weight, np.ndarray) and upload.weight.ndim == 2:
        check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of, columns=int(upload.sums))
        if upload.into is not None:
            raise Invalid(f"{field}.into: there is a weight for each sum already; leave it out")
        return
    check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of)
    if upload.into is not None:
        check_array(f"{field}.into", upload.into, INTEGERS, entries, of)
        outside = upload.into[(upload.into < 0) | (upload.into >= upload.sums)]
        if len(outside):
            raise Invalid(f"{field}.into: {outside[0]} is no sum; there are 0 to {upload.sums - 1}, so raise sums")


def _check_traces(problem: LocalProblem, frame: Frame) -> None:
    """Check that every result is used, and that a hospital sends one vector at most."""
    chain = problem.chain
    if sum(phase.upload is not None for phase in chain) > 1:
        raise Invalid("then.upload: two problems of one visit upload; let one of them")
    for i, phase in enumerate(chain):
        # Under a guarantee there is a problem for a cohort of nobody, too.
        goes_on = phase.then is not None and (not len(phase.then.start) or (phase.then.start == LAST).any())
        stays = phase.visit.keep or (frame.keeps and phase.then is None)
        if phase.upload is None and not stays and not goes_on:
            raise Invalid(
                f"{'then.' * i}upload: nothing, and the result is not kept either, so that it is lost; give "
                "Upload(weight), or Visit(keep=True)"
            )
