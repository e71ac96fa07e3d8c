"""Checks of a :class:`LocalProblem`. Each raises :class:`Invalid` naming the field and the remedy.

Shapes are as in :mod:`raysim.strategies.problem`.
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
    short_form,
)
from raysim.strategies.fields import Invalid
from raysim.strategies.problem import (
    DELTA,
    LAST,
    MIXTURE,
    OWN,
    Ids,
    LocalProblem,
    LocalTraining,
    Objective,
    Proximal,
    RowGroups,
    Upload,
)
from raysim.strategies.programs import Program


@dataclass(frozen=True)
class Frame:
    """What a :class:`LocalProblem` is checked against: numbers of scalars, models and groups, and the optional methods
    that the strategy defines."""

    size: int
    """The number of scalars of a model, P."""
    models: int
    """The number of the server's models, M."""
    mixes: bool = False
    """Whether the strategy's ``mixture`` returns weights."""
    keeps: bool = False
    """Whether the strategy has parameters that never leave the hospital (:meth:`Strategy.private`)."""
    groups: int | None = None
    """The number of groups of the strategy's ``division``; None without a division."""


def check_problem(problem: Any, ids: Ids, frame: Frame) -> None:
    """Raise :class:`Invalid` for a problem that the hospitals ``ids [H]`` of the cohort cannot minimise."""
    if not isinstance(problem, LocalProblem):
        raise Invalid(f"problem: {short_form(problem)} is not a LocalProblem; return one")
    if problem.groups is not None:
        _check_groups(problem.groups, ids, frame)
    entries, of = len(problem.entries(ids)), "hospitals" if problem.groups is None else "groups of rows"
    before: LocalProblem | None = None
    phase: LocalProblem | None = problem
    path = ""
    while phase is not None:
        _check_phase(phase, before, path, entries, of, frame)
        before, phase, path = phase, phase.then, f"{path}then."
    if sum(step.training.carry for step in problem.chain) > 1:
        raise Invalid(
            "training.carry: two problems of a chain keep the same hospital's optimiser; set carry in one only"
        )
    if problem.groups is not None and (frame.keeps or problem.keeps):
        raise Invalid(
            "groups: a hospital that trains on groups of its rows cannot also store one result for all of them; leave "
            "groups out, or keep, carry and private"
        )
    _check_traces(problem, frame)


def check_personal(problem: LocalProblem) -> None:
    """Raise :class:`Invalid` if hospitals would send something in the problem that ``personalize`` returns."""
    if problem.sent is not None:
        raise Invalid("upload: nothing is aggregated after the last round; leave upload out")


def _check_phase(
    phase: LocalProblem, before: LocalProblem | None, path: str, entries: int, of: str, frame: Frame
) -> None:
    """Check one problem in a chain.

    ``before`` is the preceding problem. ``path`` is the prefix of fields' names in messages, such as ``then.``.
    """
    check_kind(path.rstrip("."), phase, LocalProblem)
    check_kind(f"{path}objective", phase.objective, Objective)
    check_kind(f"{path}training", phase.training, LocalTraining)
    if before is not None and phase.groups is not None:
        raise Invalid(f"{path}groups: the first problem's groups apply to the whole chain; leave them out here")
    field = f"{path}start"
    check_array(field, phase.start, INTEGERS, entries, of)
    if before is None and (phase.start == LAST).any():
        raise Invalid(f"{field}: is LAST, but no problem precedes this one; name a row of state.models")
    if not frame.mixes and (phase.start == MIXTURE).any():
        raise Invalid(f"{field}: is MIXTURE, but mixture returns None; define mixture, or name a row of state.models")
    first = before is None
    check_rows(field, phase.start, frame.models, OWN, *[MIXTURE] * frame.mixes, *[LAST] * (not first))
    _check_objective(phase.objective, f"{path}objective", entries, of, frame)
    _check_training(phase.training, f"{path}training", entries, of)
    if phase.upload is not None:
        _check_upload(phase.upload, f"{path}upload", entries, of)
    if phase.program is not None:
        _check_program(phase, before, f"{path}program", frame)


def _check_program(phase: LocalProblem, before: LocalProblem | None, field: str, frame: Frame) -> None:
    program, sent = phase.program, phase.upload
    if not isinstance(program, Program):
        raise Invalid(f"{field}: {short_form(program)} is not a Program; derive its class from raysim.Program")
    where = f"{field} '{program.name}'"
    objective, training = phase.objective, phase.training
    alone = before is None and phase.then is None and phase.groups is None and not frame.keeps
    terms = objective.proximal or objective.contrast or objective.frozen is not None
    settings = training.keep or training.carry or training.learning_rate or training.batch_size or training.optimizer
    if not alone or terms or settings:
        raise Invalid(
            f"{where}: a program replaces local training; leave out objective, then, groups, private, and every "
            "key of training except epochs"
        )
    sends = dict(program.sends)
    if any(send.how != "summed" or send.by != "hospital" or send.groups > 1 for send in sends.values()):
        raise Invalid(
            f"{where}: its answers are always weighted and summed over hospitals; remove how=, by=, groups= from Send"
        )
    due = [(frame.size,), (0 if sent is None else sent.sums, frame.size)]
    if DELTA not in sends or sends[DELTA].shape not in due:
        raise Invalid(
            f"{where}: must send an array 'delta' of shape {list(due[0])}, or of shape {list(due[1])} for all sums "
            "together; declare one of the two in sends"
        )
    if sent is None or sent.what != "delta" or (phase.spread and (sent.sum_index is not None or sent.single)):
        raise Invalid(
            f"{where}: needs Upload(what='delta'); if the program's 'delta' has a row for each sum, remove sum_index= "
            "and single= from Upload"
        )
    if sent.weight is None or sent.weight.ndim > 1:
        raise Invalid(f"{where}: needs one weight for each hospital; give Upload(weight)")


def _check_groups(groups: RowGroups, ids: Ids, frame: Frame) -> None:
    check_kind("groups", groups, RowGroups)
    if frame.groups is None:
        raise Invalid("groups: the problem trains on groups of rows, but division returns None; define division")
    hospital = groups.hospital
    entries = len(hospital) if isinstance(hospital, np.ndarray) and hospital.ndim else 0
    for name in ("hospital", "group", "rows"):
        check_array(f"groups.{name}", getattr(groups, name), INTEGERS, entries, "groups of rows")
    if not entries:
        raise Invalid("groups.hospital: is empty; give an entry for each group of rows that is trained on")
    if not np.isin(hospital, ids).all() or (hospital[1:] < hospital[:-1]).any():
        raise Invalid(
            "groups.hospital: is not ascending, or names hospitals that were not sampled; give sampled ids in order"
        )
    wrong = groups.group[(groups.group < 0) | (groups.group >= frame.groups)]
    if len(wrong):
        raise Invalid(
            f"groups.group: {wrong[0]} is not a group of the division; give the numbers of groups, 0 to "
            f"{frame.groups - 1}"
        )
    if (groups.rows < 0).any():
        raise Invalid(f"groups.rows: {groups.rows.min()} is not a number of rows; give at least 0")


def _check_objective(objective: Objective, field: str, entries: int, of: str, frame: Frame) -> None:
    if not isinstance(objective.proximal, tuple | list):
        raise Invalid(f"{field}.proximal: {short_form(objective.proximal)} is not a tuple of Proximal; write (term,)")
    for i, term in enumerate(objective.proximal):
        where = f"{field}.proximal.{i}"
        check_kind(where, term, Proximal)
        if isinstance(term.weight, np.ndarray):
            check_array(f"{where}.weight", term.weight, NUMBERS, entries, of)
            if (term.weight < 0).any():
                raise Invalid(f"{where}.weight: {term.weight.min()} is not at least 0")
        else:
            check_number(f"{where}.weight", term.weight)
        check_array(f"{where}.towards", term.towards, INTEGERS, entries, of)
        check_rows(f"{where}.towards", term.towards, frame.models)
    if objective.contrast is not None:
        if not isinstance(objective.contrast, tuple) or len(objective.contrast) != 2:
            raise Invalid(
                f"{field}.contrast: {short_form(objective.contrast)} is not a pair of a weight and a temperature"
            )
        check_number(f"{field}.contrast.weight", objective.contrast[0])
        check_number(f"{field}.contrast.temperature", objective.contrast[1], above=True)
    if objective.frozen is not None:
        check_array(f"{field}.frozen", objective.frozen, TRUTHS, frame.size, "parameters")


def _check_training(training: LocalTraining, field: str, entries: int, of: str) -> None:
    if isinstance(training.epochs, np.ndarray):
        check_array(f"{field}.epochs", training.epochs, INTEGERS, entries, of)
        if (training.epochs < 0).any():
            raise Invalid(f"{field}.epochs: {training.epochs.min()} is not at least 0")
    elif training.epochs is not None:
        check_count(f"{field}.epochs", training.epochs)
    if training.batch_size is not None:
        check_count(f"{field}.batch_size", training.batch_size)
    if training.learning_rate is not None:
        check_number(f"{field}.learning_rate", training.learning_rate)
    if training.optimizer is not None:
        check_choice(f"{field}.optimizer", training.optimizer, ("sgd", "momentum", "adam"))


def _check_upload(upload: Upload, field: str, entries: int, of: str) -> None:
    check_kind(field, upload, Upload)
    check_choice(f"{field}.what", upload.what, ("delta", "parameters"))
    check_count(f"{field}.sums", upload.sums, least=1)
    if upload.extra_weight is not None:
        check_array(f"{field}.extra_weight", upload.extra_weight, NUMBERS, entries, of)
    if upload.weight is None:
        if not upload.single:
            raise Invalid(
                f"{field}.weight: is None, so updates would be lost; give each hospital a weight, or set single=True"
            )
        if upload.sum_index is not None:
            raise Invalid(f"{field}.sum_index: an update without a weight is not summed; give weights, or no sum_index")
        return
    if isinstance(upload.weight, np.ndarray) and upload.weight.ndim == 2:
        check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of, columns=int(upload.sums))
        if upload.sum_index is not None:
            raise Invalid(f"{field}.sum_index: weight already has a column for each sum; leave sum_index out")
        return
    check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of)
    if upload.sum_index is not None:
        check_array(f"{field}.sum_index", upload.sum_index, INTEGERS, entries, of)
        outside = upload.sum_index[(upload.sum_index < 0) | (upload.sum_index >= upload.sums)]
        if len(outside):
            raise Invalid(
                f"{field}.sum_index: {outside[0]} is not the number of a sum; give numbers from 0 to "
                f"{upload.sums - 1}, or raise sums"
            )


def _check_traces(problem: LocalProblem, frame: Frame) -> None:
    """Check that the result of each problem in a chain is sent, stored, or used as a start of the next problem, and
    that at most one result is sent."""
    chain = problem.chain
    if sum(phase.upload is not None for phase in chain) > 1:
        raise Invalid("then.upload: only one problem of a local update may have an upload; leave the other uploads out")
    for i, phase in enumerate(chain):
        # Under a guarantee there is a problem for an empty cohort, too.
        goes_on = phase.then is not None and (not len(phase.then.start) or (phase.then.start == LAST).any())
        stays = phase.training.keep or (frame.keeps and phase.then is None)
        if phase.upload is None and not stays and not goes_on:
            raise Invalid(
                f"{'then.' * i}upload: is None, and the result is not kept, so it would be lost; give "
                "Upload(weight), or LocalTraining(keep=True)"
            )
