"""A client program at the hospitals of one process: what it reads, what leaves, what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import StrategyError
from raysim.core.streams import stream
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.client.failure_context import named
from raysim.engine.client.program_model import HospitalModel
from raysim.engine.messages.memory import KEPT, MODEL, HospitalStates
from raysim.engine.messages.plan import PartialResult, ProgramCall, RoundPlan
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.privacy.bounding import bounded
from raysim.engine.privacy.contributions import Contributions
from raysim.strategies.base import POOLED, Invalid, Program, Reply, Rows
from raysim.strategies.checks.calls import check_memory, check_reply
from raysim.training.base import Model
from raysim.training.class_weights import row_weights

TOGETHER = 64
"""Hospitals in one call of a program that computes for many at once."""


class HospitalContext:
    """What a program sees at one hospital; see :class:`raysim.strategies.programs.Context`."""

    def __init__(
        self,
        plan: RoundPlan,
        call: ProgramCall,
        j: int,
        federation: Federation,
        model: Callable[[], Model],
        kept: Any,
        contributions: Contributions,
    ) -> None:
        """``j``: which of the plan's entries. ``kept``: what the hospital remembers, by the engine's names."""
        self.hospital, self.round, self.turn = int(plan.ids[j]), plan.round, call.turn
        self._work, self._program, self._model = plan.work, call.program.name, model
        rows = _rows(federation, self.hospital)
        self.people: Callable[[], NDArray[Any]] = partial(_people, federation, rows)
        """The patient of each row, ``[n]``."""
        release = call.release
        if release is not None and release.unit != "hospital":
            some = contributions.of(federation, self.hospital, release.unit, release.rows, plan.work.seed)
            rows, self.people = rows.start + some.rows, lambda: some.patient
        y = federation.y[rows]
        self.rows = Rows(
            X=_read_only(federation.X[rows]),
            y=_read_only(y),
            observed=_read_only(federation.observed[rows]),
            weights=row_weights(plan.work.class_weights, y),
            patients=partial(_patients, federation, rows),
        )
        names = {_kept_name(name): name for name in call.program.keeps}
        self.memory: Mapping[str, NDArray[Any]] = {
            name: _read_only(kept[what]) for what, name in names.items() if what in kept
        }
        own = {name: values[j] for name, values in call.each_of.items()}
        self.received: Mapping[str, NDArray[Any]] = {
            name: _read_only(value) for name, value in (call.received | own).items()
        }

    @cached_property
    def model(self) -> HospitalModel:
        """The run's model on these rows."""
        return HospitalModel(self._model(), self._work, self.rows, self.hospital, self.round, self.turn)

    def rng(self, purpose: str, *key: int) -> np.random.Generator:
        """See :class:`raysim.strategies.programs.Context`."""
        return stream(self._work.seed, f"{self._program}: {purpose}", self.round, self.turn, self.hospital, *key)


def run(
    plan: RoundPlan,
    call: ProgramCall,
    mine: Sequence[int],
    open: Callable[[bool], Federation],
    model: Callable[[], Model],
    kept: HospitalStates,
    contributions: Contributions,
    result: PartialResult,
) -> HospitalStates:
    """Run ``call``'s program at the entries ``mine`` of the ``plan``; enters the ``result`` and returns what hospitals
    now remember.

    Raises :class:`StrategyError` or :class:`HospitalFailed` naming strategy, round, program and hospital.
    """
    program, layout, later = call.program, SumLayout(call.program), dict(kept)
    # A hospital that is lost in this round neither sends nor remembers anything of it, and nobody does whose sum is
    # given up.
    if (secure := call.secure) is not None:
        mine = [j for j in mine if secure.opens and int(plan.ids[j]) in secure.in_sum]
    sums, each = np.zeros(layout.size, np.int64), {name: list[NDArray[Any]]() for name in layout.each}
    fused = type(program).run_many is not Program.run_many
    for first in range(0, len(mine), TOGETHER):
        some = mine[first : first + TOGETHER]
        contexts, federations = [], []
        for j in some:
            hospital = int(plan.ids[j])
            federation = open(hospital == POOLED)
            federations.append(federation)
            context = HospitalContext(plan, call, j, federation, model, kept.get(hospital, {}), contributions)
            _said(call, federation, hospital, partial(check_memory, context.memory, program))
            contexts.append(context)
        together = program.run_many(contexts) if fused else [None] * len(some)
        for context, federation, made in zip(contexts, federations, together, strict=True):
            hospital = context.hospital
            with named(federation, hospital, f"running {call.name}"):
                reply = program.run(context) if made is None else made
            _said(call, federation, hospital, partial(check_reply, reply, program, len(context.rows.y), call.terms))
            release = call.release
            units = layout.units(bounded(reply, program, context.people, None if release is None else release.unit))
            if release is not None:
                units += release.units(program, layout, plan.work.seed, plan.round, hospital)
            if call.secure is not None and call.masked:
                units = call.secure.masked(hospital, units).view(np.int64)
            sums += units
            for name, values in each.items():
                values.append(np.asarray(reply.sent[name], np.float64))
            if reply.memory:
                later[hospital] = later.get(hospital, {}) | _remembered(reply, program, plan.models.dtype)
    result.ids, result.sums = plan.ids[mine], sums
    result.each = {name: np.stack(values) for name, values in each.items() if values}
    return later


def _people(federation: Federation, rows: Any) -> NDArray[Any]:
    people: NDArray[Any] = federation.people[rows]
    return people


def _rows(federation: Federation, hospital: int) -> Any:
    return pooled_rows(federation) if hospital == POOLED else federation.rows(hospital, "train")


def _remembered(reply: Reply, program: Program, precision: Any) -> dict[str, NDArray[Any]]:
    """What a hospital remembers, by the engine's names."""
    return {
        _kept_name(name): np.array(value, dtype=precision if name == MODEL else program.keeps[name].dtype)
        for name, value in reply.memory.items()
    }


def _kept_name(name: str) -> str:
    return name if name == MODEL else KEPT + name


def _said(call: ProgramCall, federation: Federation, hospital: int, check: Callable[[], None]) -> None:
    """Run a ``check``; its error also says whose program it is about, and where that ran."""
    try:
        check()
    except Invalid as error:
        where = "pooled rows" if hospital == POOLED else f"hospital '{federation.hospitals[hospital]}'"
        raise StrategyError(f"{call.name}, {where}: {error}") from None


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _patients(federation: Federation, rows: Any) -> dict[str, NDArray[Any]]:
    return {name: values[rows] for name, values in federation.patients.items()}
