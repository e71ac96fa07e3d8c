"""Whether what a strategy returns can be used: each check raises :class:`Invalid` naming the field and the remedy.

The engine calls them on every answer of a strategy, once, before it acts on it. They cost some ten numpy calls a round.
Shapes are those of :mod:`raysim.strategies.problem`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from raysim.strategies.base import Asynchrony, Division, FederationView, State
from raysim.strategies.fields import Invalid
from raysim.strategies.problem import (
    LAST,
    MIXTURE,
    OWN,
    POOLED,
    Contrast,
    Ids,
    LocalProblem,
    Objective,
    Pull,
    RowGroups,
    RowSentinel,
    Upload,
    Variates,
    Visit,
)

INTEGERS, NUMBERS, TRUTHS = "iu", "iuf", "b"
"""Kinds of numpy types."""

WORDS = {INTEGERS: "whole numbers", NUMBERS: "numbers", TRUTHS: "truth values"}


@dataclass(frozen=True)
class Frame:
    """What the rows, sums and entries of a problem have to fit."""

    hospitals: int
    """N."""
    size: int
    """P."""
    models: int
    """M."""
    mixes: bool = False
    """Whether the strategy has mixtures."""
    keeps: bool = False
    """Whether hospitals keep private parameters."""
    groups: int | None = None
    """How many groups rows are divided into, or None."""


def check_state(state: Any, view: FederationView) -> None:
    """Raise :class:`Invalid` for a state whose models or clusters do not fit the federation."""
    if not isinstance(state, State):
        raise Invalid(f"state: {_shown(state)} is no State; return one")
    bank, size = state.bank, len(view.initial)
    if not isinstance(bank, np.ndarray) or bank.dtype.kind != "f" or bank.ndim != 2:
        raise Invalid(f"bank: {_shown(bank)} is no float array [M, {size}]; give a row for each model")
    if not len(bank):
        raise Invalid("bank: no model; row 0 is the global one")
    if bank.shape[1] != size:
        raise Invalid(f"bank: rows of {bank.shape[1]} parameters; a model has {size}")
    if not np.isfinite(bank).all():
        row = int(np.flatnonzero(~np.isfinite(bank).all(axis=1))[0])
        raise Invalid(f"bank: row {row} is not finite; take smaller steps at the server")
    if state.cluster is not None:
        _check_array("cluster", state.cluster, INTEGERS, len(view.sizes), "hospitals")
        _check_rows("cluster", state.cluster, len(bank))


def check_cohort(ids: Any, hospitals: int) -> None:
    """Raise :class:`Invalid` for a cohort that is not ascending ids of hospitals, or ``[POOLED]``."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in INTEGERS:
        raise Invalid(f"select: {_shown(ids)} is no array of ids; return ascending ids, or [POOLED]")
    if not len(ids) or (len(ids) == 1 and ids[0] == POOLED):
        return
    outside = ids[(ids < 0) | (ids >= hospitals)]
    if len(outside):
        raise Invalid(f"select: {outside[0]} is no hospital's id; there are 0 to {hospitals - 1}")
    if (ids[1:] <= ids[:-1]).any():
        raise Invalid("select: ids are not ascending, or name one twice; sort them, each once")


def check_problem(problem: Any, ids: Ids, frame: Frame) -> None:
    """Raise :class:`Invalid` for a problem that the cohort ``ids [H]`` cannot minimise."""
    if not isinstance(problem, LocalProblem):
        raise Invalid(f"problem: {_shown(problem)} is no LocalProblem; return one")
    if problem.groups is not None:
        _check_groups(problem.groups, ids, frame)
        if frame.keeps or problem.keeps:
            raise Invalid("groups: a hospital trains on groups of its rows, but what it keeps is of all its rows")
    entries, of = len(problem.entries(ids)), "hospitals" if problem.groups is None else "groups of rows"
    before: LocalProblem | None = None
    phase: LocalProblem | None = problem
    path = ""
    while phase is not None:
        _check_phase(phase, before, path, entries, of, frame)
        before, phase, path = phase, phase.then, f"{path}then."
    if sum(step.visit.carry for step in problem.chain) > 1:
        raise Invalid("visit.carry: two problems of a chain carry the optimiser of the one hospital; let one do so")
    _check_traces(problem, frame)


def check_personal(problem: LocalProblem) -> None:
    """Raise :class:`Invalid` for one that uploads after the last round."""
    if problem.sent is not None:
        raise Invalid("upload: nothing is aggregated after the last round; leave it out")


def check_serve(serve: Any, view: FederationView, models: int, groups: int | None) -> None:
    """Raise :class:`Invalid` for models served that do not exist, or not for everybody."""
    if not isinstance(serve, Mapping) or not serve:
        raise Invalid(f"serve: {_shown(serve)} names no model; return {{name: a bank row, or OWN, for each hospital}}")
    hospitals = len(view.sizes)
    for name, rows in serve.items():
        field = f"serve.{name}"
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            if groups is None:
                raise Invalid(f"{field}: a model for each group of rows, but division gives None")
            _check_array(field, rows, INTEGERS, hospitals, "hospitals", columns=groups)
        else:
            _check_array(field, rows, INTEGERS, hospitals, "hospitals")
        _check_rows(field, rows, models, OWN)


def check_mixture(mixture: Any, hospitals: int, models: int) -> None:
    """Raise :class:`Invalid` for weights that are not one for each hospital and model."""
    if mixture is not None:
        _check_array("mixture", mixture, NUMBERS, hospitals, "hospitals", columns=models)


def check_private(private: Any, size: int) -> None:
    """Raise :class:`Invalid` for anything but a truth value for each parameter."""
    if private is not None:
        _check_array("private", private, TRUTHS, size, "parameters")


def check_asynchrony(asynchrony: Any) -> None:
    """Raise :class:`Invalid` for numbers of hospitals and updates below one."""
    if asynchrony is not None:
        _check_kind("asynchrony", asynchrony, Asynchrony)
        _check_count("asynchrony.concurrency", asynchrony.concurrency, least=1)
        _check_count("asynchrony.buffer", asynchrony.buffer, least=1)


def check_facts(facts: Any) -> None:
    """Raise :class:`Invalid` for anything but numbers by name: they are written down when all has been computed."""
    if not isinstance(facts, Mapping) or not all(isinstance(name, str) for name in facts):
        raise Invalid(f"facts: {_shown(facts)} is no mapping of names to numbers; return one, or {{}}")
    for name, value in facts.items():
        if not isinstance(value, Real):
            raise Invalid(f"facts.{name}: {_shown(value)} is no number")


def check_division(division: Division | None) -> int | None:
    """The number of its groups, or None. Raises :class:`Invalid` where that is not at least one."""
    if division is None:
        return None
    count = getattr(division, "count", None)
    if not isinstance(count, Integral) or count < 1:
        raise Invalid(f"division.count: {_shown(count)} is no number of groups; give at least 1")
    return int(count)


def _check_phase(
    phase: LocalProblem, before: LocalProblem | None, path: str, entries: int, of: str, frame: Frame
) -> None:
    """One problem of a chain, which comes after the one ``before``; ``path`` is where it stands in it."""
    _check_kind(path.rstrip("."), phase, LocalProblem)
    _check_kind(f"{path}objective", phase.objective, Objective)
    _check_kind(f"{path}visit", phase.visit, Visit)
    if before is not None and phase.groups is not None:
        raise Invalid(f"{path}groups: those of the first problem hold for the whole chain; leave them out here")
    field = f"{path}start"
    _check_array(field, phase.start, INTEGERS, entries, of)
    if before is None and (phase.start == LAST).any():
        raise Invalid(f"{field}: LAST, but no problem is before this one; name a row of the bank")
    if not frame.mixes and (phase.start == MIXTURE).any():
        raise Invalid(f"{field}: MIXTURE, but mixture gives None; define it, or name a row of the bank")
    _check_rows(field, phase.start, frame.models, OWN, *[MIXTURE] * frame.mixes, *[LAST] * (before is not None))
    _check_objective(phase.objective, f"{path}objective", entries, of, frame)
    _check_visit(phase.visit, f"{path}visit", entries, of)
    if phase.upload is not None:
        _check_upload(phase.upload, f"{path}upload", entries, of)
    if phase.objective.variates is not None and (before is not None or phase.upload is None):
        raise Invalid(
            f"{path}objective.variates: they travel with an upload, in the problem that a visit begins with; put them "
            "there"
        )


def _check_groups(groups: RowGroups, ids: Ids, frame: Frame) -> None:
    _check_kind("groups", groups, RowGroups)
    if frame.groups is None:
        raise Invalid("groups: the problem is about groups of rows, but division gives None; define it")
    hospital = groups.hospital
    entries = len(hospital) if isinstance(hospital, np.ndarray) and hospital.ndim else 0
    for name in ("hospital", "group", "rows"):
        _check_array(f"groups.{name}", getattr(groups, name), INTEGERS, entries, "groups of rows")
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
        raise Invalid(f"{field}.pulls: {_shown(objective.pulls)} is no tuple of Pull; write (pull,)")
    for i, pull in enumerate(objective.pulls):
        where = f"{field}.pulls.{i}"
        _check_kind(where, pull, Pull)
        if isinstance(pull.weight, np.ndarray):
            _check_array(f"{where}.weight", pull.weight, NUMBERS, entries, of)
            if (pull.weight < 0).any():
                raise Invalid(f"{where}.weight: {pull.weight.min()} is not at least 0")
        else:
            _check_number(f"{where}.weight", pull.weight)
        _check_array(f"{where}.towards", pull.towards, INTEGERS, entries, of)
        _check_rows(f"{where}.towards", pull.towards, frame.models)
    if objective.variates is not None:
        _check_variates(objective.variates, f"{field}.variates", entries, of, frame.size)
    if objective.contrast is not None:
        _check_kind(f"{field}.contrast", objective.contrast, Contrast)
        _check_number(f"{field}.contrast.weight", objective.contrast.weight)
        _check_number(f"{field}.contrast.temperature", objective.contrast.temperature, above=True)
    if objective.frozen is not None:
        _check_array(f"{field}.frozen", objective.frozen, TRUTHS, frame.size, "parameters")


def _check_variates(variates: Variates, field: str, entries: int, of: str, size: int) -> None:
    _check_kind(field, variates, Variates)
    _check_array(f"{field}.server", variates.server, NUMBERS, size, "parameters")
    _check_array(f"{field}.weight", variates.weight, NUMBERS, entries, of)
    _check_choice(f"{field}.renew", variates.renew, ("steps", "gradient"))


def _check_visit(visit: Visit, field: str, entries: int, of: str) -> None:
    if isinstance(visit.epochs, np.ndarray):
        _check_array(f"{field}.epochs", visit.epochs, INTEGERS, entries, of)
        if (visit.epochs < 0).any():
            raise Invalid(f"{field}.epochs: {visit.epochs.min()} is not at least 0")
    elif visit.epochs is not None:
        _check_count(f"{field}.epochs", visit.epochs)
    if visit.batch_size is not None:
        _check_count(f"{field}.batch_size", visit.batch_size)
    if visit.learning_rate is not None:
        _check_number(f"{field}.learning_rate", visit.learning_rate)
    if visit.optimizer is not None:
        _check_choice(f"{field}.optimizer", visit.optimizer, ("sgd", "momentum", "adam"))


def _check_upload(upload: Upload, field: str, entries: int, of: str) -> None:
    _check_kind(field, upload, Upload)
    _check_choice(f"{field}.what", upload.what, ("delta", "parameters"))
    _check_count(f"{field}.sums", upload.sums, least=1)
    if upload.weight is None:
        if not upload.single:
            raise Invalid(
                f"{field}.weight: none, so that what hospitals send would be lost; give one for each, or single=True"
            )
        if upload.into is not None:
            raise Invalid(f"{field}.into: nothing goes into a sum without a weight; give weights, or leave it out")
        return
    if isinstance(upload.weight, np.ndarray) and upload.weight.ndim == 2:
        _check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of, columns=int(upload.sums))
        if upload.into is not None:
            raise Invalid(f"{field}.into: there is a weight for each sum already; leave it out")
        return
    _check_array(f"{field}.weight", upload.weight, NUMBERS, entries, of)
    if upload.into is not None:
        _check_array(f"{field}.into", upload.into, INTEGERS, entries, of)
        outside = upload.into[(upload.into < 0) | (upload.into >= upload.sums)]
        if len(outside):
            raise Invalid(f"{field}.into: {outside[0]} is no sum; there are 0 to {upload.sums - 1}, so raise sums")


def _check_traces(problem: LocalProblem, frame: Frame) -> None:
    """What is trained has to go somewhere, and one vector at most leaves a hospital."""
    chain = problem.chain
    if sum(phase.upload is not None for phase in chain) > 1:
        raise Invalid("then.upload: two problems of one visit upload; let one of them")
    for i, phase in enumerate(chain):
        goes_on = phase.then is not None and (phase.then.start == LAST).any()
        stays = phase.visit.keep or (frame.keeps and phase.then is None)
        if phase.upload is None and not stays and not goes_on:
            raise Invalid(
                f"{'then.' * i}upload: nothing, and the result is not kept either, so that it is lost; give "
                "Upload(weight), or Visit(keep=True)"
            )


def _check_array(field: str, value: Any, kinds: str, length: int, of: str, columns: int | None = None) -> None:
    """Raise :class:`Invalid` unless ``value`` is a finite array ``[length]``, or ``[length, columns]``."""
    shape = (length,) if columns is None else (length, columns)
    wanted = f"give an array of {WORDS[kinds]}, one for each" + (f" and column of {columns}" if columns else "")
    if not isinstance(value, np.ndarray):
        raise Invalid(f"{field}: {_shown(value)} for {length} {of}; {wanted}")
    if value.dtype.kind not in kinds:
        raise Invalid(f"{field}: holds {value.dtype}; {wanted}")
    if value.shape != shape:
        count = f"{len(value)} value{'s' * (len(value) != 1)}" if value.ndim == 1 else f"shape {list(value.shape)}"
        raise Invalid(f"{field}: {count} for {length} {of}; give one for each" + (f" of {columns}" if columns else ""))
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        at = int(np.flatnonzero(~np.isfinite(value).reshape(length, -1).all(axis=1))[0])
        raise Invalid(f"{field}: not finite at place {at}; give numbers")


def _check_rows(field: str, rows: Ids, models: int, *sentinels: RowSentinel) -> None:
    """Raise :class:`Invalid` unless all are rows of the bank, or one of the ``sentinels``."""
    if not rows.size or (rows.min() >= 0 and rows.max() < models):
        return
    allowed = (rows >= 0) & (rows < models)
    for sentinel in sentinels:
        allowed |= rows == sentinel
    if not allowed.all():
        names = "".join(f", or {sentinel.name}" for sentinel in sentinels)
        raise Invalid(f"{field}: {rows[~allowed][0]} is no row of the bank; there are 0 to {models - 1}{names}")


def _check_kind(field: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise Invalid(f"{field}: {_shown(value)} is no {kind.__name__}; give one, or leave it out")


def _check_number(field: str, value: Any, *, above: bool = False) -> None:
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0 or (above and value == 0):
        raise Invalid(f"{field}: {_shown(value)} is no number {'above' if above else 'of at least'} 0")


def _check_count(field: str, value: Any, *, least: int = 0) -> None:
    if not isinstance(value, Integral) or value < least:
        raise Invalid(f"{field}: {_shown(value)} is no whole number of at least {least}")


def _check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise Invalid(f"{field}: {_shown(value)} is not one of {', '.join(choices)}")


def _shown(value: Any) -> str:
    """A value in a message: short, and in one line."""
    if isinstance(value, np.ndarray):
        return f"an array {list(value.shape)} of {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"a {type(value).__name__}"
