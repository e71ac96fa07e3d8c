"""A client program at the hospitals of one process: what it reads, what leaves, what is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import StrategyError
from raysim.core.streams import stream
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.client.failure_context import named
from raysim.engine.client.program_model import HospitalModel
from raysim.engine.messages.memory import KEPT, MODEL, HospitalStates
from raysim.engine.messages.plan import PartialResult, ProgramCall, RoundPlan
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.steps import Adding, LeavingSums
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.program_release import ProgramRelease
from raysim.strategies.base import POOLED, Invalid, Program, Reply, Rows
from raysim.strategies.checks.calls import check_added, check_kept, check_memory, check_reply
from raysim.training.base import Model
from raysim.training.class_weights import row_weights

TOGETHER = 64
"""Hospitals in one call of a program that computes for many at once."""

MADE_BYTES = 2**30
"""Bytes of what programs have made of rows that a process keeps."""


class HospitalContext:
    """What a program sees at one hospital; see :class:`raysim.strategies.programs.Context`."""

    def __init__(
        self,
        plan: RoundPlan,
        call: ProgramCall,
        j: int,
        federation: Federation,
        model: Callable[[], Model],
        received: dict[str, NDArray[Any]],
        kept: Mapping[str, NDArray[Any]],
        made: MadeOfRows,
    ) -> None:
        """``j``: which of the plan's entries. ``kept``: what the hospital remembers, by the program's names."""
        self.hospital, self.round, self.turn = int(plan.ids[j]), plan.round, call.turn
        self._work, self._program, self._model = plan.work, call.program.name, model
        self._federation, self._made, self._steps = federation, made, plan.steps
        self._release = next((step for step in plan.steps if isinstance(step, ProgramRelease)), None)
        self.memory: Mapping[str, NDArray[Any]] = {name: _read_only(value) for name, value in kept.items()}
        own = {name: _read_only(values[j]) for name, values in call.each_of.items()} if call.each_of else None
        self.received: Mapping[str, NDArray[Any]] = {**received, **own} if own else received

    @property
    def count(self) -> int:
        """How many rows it has."""
        if self._release is not None and (some := self._contribution) is not None:
            return len(some.rows)
        if self.hospital == POOLED:
            return int(self._federation.sizes("train").sum())
        bounds = self._federation.bounds
        return int(bounds[self.hospital, 1] - bounds[self.hospital, 0])

    @cached_property
    def _contribution(self) -> Contribution | None:
        """Its rows that stand for its units, where these are hidden; else None, and all rows take part."""
        release = self._release
        if release is None or release.unit == "hospital":
            return None
        taken = self._made.contributions
        return taken.of(self._federation, self.hospital, release.unit, release.most_rows, self._work.seed)

    @property
    def _taken(self) -> Any:
        rows, some = _rows(self._federation, self.hospital), self._contribution
        return rows if some is None else rows.start + some.rows

    def people(self) -> NDArray[Any]:
        """The patient of each row, ``[n]``; where rows are hidden, each is one."""
        if self._contribution is not None:
            return self._contribution.patient
        people: NDArray[Any] = self._federation.people[self._taken]
        return people

    @cached_property
    def rows(self) -> Rows:
        """Its training rows; under a guarantee for patients those that stand for them."""
        federation, rows = self._federation, self._taken
        X, y = federation.X[rows], federation.y[rows]
        for step in self._steps:
            X, y = step.rows(self.hospital, X, y)
        return Rows(
            X=_read_only(X),
            y=_read_only(y),
            observed=_read_only(federation.observed[rows]),
            weights=row_weights(self._work.class_weights, y),
            patients=partial(_patients, federation, rows),
        )

    @cached_property
    def model(self) -> HospitalModel:
        """The run's model on these rows."""
        return HospitalModel(self._model(), self._work, self.rows, self.hospital, self.round, self.turn)

    def rng(self, purpose: str, *key: int) -> np.random.Generator:
        """See :class:`raysim.strategies.programs.Context`."""
        return stream(self._work.seed, f"{self._program}: {purpose}", self.round, self.turn, self.hospital, *key)

    def cache(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """See :class:`raysim.strategies.programs.Context`."""
        if any(
            step.changes_rows for step in self._steps
        ):  # rows may be others than those of the same hospital in another run
            return _read_only(np.asarray(make()))
        release = self._release
        drawn = None if release is None else (release.unit, release.most_rows, self._work.seed)
        key = (self._work.federation, self._program, self.hospital, name, drawn)
        return _read_only(self._made.of(key, make))


class MadeOfRows:
    """What client programs have made of rows, as long as there is room: at least what was used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], NDArray[Any]] = OrderedDict()
        self._bytes = 0
        self.contributions = Contributions()
        """Which rows stand for hospitals' units."""

    def of(self, key: tuple[Any, ...], make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """What is kept under the ``key``, or else is made now."""
        if key not in self._kept:
            self._kept[key] = made = np.asarray(make())
            self._bytes += made.nbytes
            while self._bytes > MADE_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes
        self._kept.move_to_end(key)
        return self._kept[key]


def run(
    plan: RoundPlan,
    call: ProgramCall,
    mine: Sequence[int],
    open: Callable[[bool], Federation],
    model: Callable[[], Model],
    kept: HospitalStates,
    result: PartialResult,
    made: MadeOfRows,
) -> HospitalStates:
    """Run ``call``'s program at the entries ``mine`` of the ``plan``; enters the ``result`` and returns what hospitals
    now remember.

    Raises :class:`StrategyError` or :class:`HospitalFailed` naming strategy, round, program and hospital.
    """
    program, layout, later = call.program, SumLayout(call.program), dict(kept)
    # A hospital that is lost in this round neither sends nor remembers anything of it, and nobody does whose sum is
    # given up.
    adding = plan.steps[-1] if plan.steps else None
    if isinstance(adding, Adding):
        mine = [j for j in mine if adding.admits(0, int(plan.ids[j]))]
    sums, each = np.zeros(layout.size, np.int64), {name: list[NDArray[Any]]() for name in layout.each}
    received = {name: _read_only(value) for name, value in call.received.items()}
    if _adds(program, plan):
        result.ids, result.sums = plan.ids[mine], sums
        if mine:
            contexts = contexts_of(plan, call, mine, open, model, received, kept, made)
            _run_added(call, layout, contexts, open, sums, later, plan.models.dtype)
        return later
    fused = type(program).run_many is not Program.run_many
    for first in range(0, len(mine), TOGETHER):
        some = mine[first : first + TOGETHER]
        contexts = contexts_of(plan, call, some, open, model, received, kept, made)
        federations = [open(context.hospital == POOLED) for context in contexts]
        together = program.run_many(contexts) if fused else [None] * len(some)
        for context, federation, answer in zip(contexts, federations, together, strict=True):
            hospital = context.hospital
            with named(federation, hospital, f"running {call.name}"):
                reply = program.run(context) if answer is None else answer
            said(call, federation, hospital, partial(check_reply, reply, program, context.count, call.terms))
            leaving = LeavingSums(hospital, program, layout, reply, context.people)
            for step in plan.steps:
                step.forward_sums(leaving)
            sums += leaving.units
            for name, values in each.items():
                values.append(np.asarray(reply.sent[name], np.float64))
            if reply.memory:
                later[hospital] = later.get(hospital, {}) | remembered(reply.memory, program, plan.models.dtype)
    result.ids, result.sums = plan.ids[mine], sums
    result.each = {name: np.stack(values) for name, values in each.items() if values}
    return later


def _adds(program: Program, plan: RoundPlan) -> bool:
    """Whether hospitals' sums are added as they are made: nothing hides, bounds or keeps apart those of one."""
    fused = type(program).run_added is not Program.run_added
    as_they_are = not any(step.changes for step in plan.steps)
    return fused and as_they_are and all(send.how == "summed" for send in program.sends.values())


def contexts_of(
    plan: RoundPlan,
    call: ProgramCall,
    mine: Sequence[int],
    open: Callable[[bool], Federation],
    model: Callable[[], Model],
    received: dict[str, NDArray[Any]],
    kept: HospitalStates,
    made: MadeOfRows,
) -> list[HospitalContext]:
    """What the program sees at the plan's entries ``mine``."""
    # This runs at every hospital in every call: what is alike at all of them is made once.
    names = {_kept_name(name): name for name in call.program.keeps}
    federations = {pooled: open(pooled) for pooled in {int(plan.ids[j]) == POOLED for j in mine}}
    contexts = []
    for j in mine:
        hospital = int(plan.ids[j])
        federation = federations[hospital == POOLED]
        remembered = kept.get(hospital, {})
        own = {name: remembered[what] for what, name in names.items() if what in remembered}
        context = HospitalContext(plan, call, j, federation, model, received, own, made)
        if own:
            said(call, federation, hospital, partial(check_memory, own, call.program, context.count))
        contexts.append(context)
    return contexts


def _run_added(
    call: ProgramCall,
    layout: SumLayout,
    contexts: Sequence[HospitalContext],
    open: Callable[[bool], Federation],
    sums: NDArray[np.int64],
    later: HospitalStates,
    precision: Any,
) -> None:
    """Add to ``sums`` what a program that adds comes to, and to what hospitals remember ``later``."""
    program = call.program
    try:
        added, memories = program.run_added(contexts)
    except Exception:
        for context in contexts:  # one of them says whose rows it fails at
            with named(open(context.hospital == POOLED), context.hospital, f"running {call.name}"):
                program.run(context)
        raise
    for part in added:
        first = contexts[0].hospital
        checked = partial(check_added, part, program, len(contexts), call.terms)
        said(call, open(first == POOLED), first, checked)
        units = layout.units(Reply(part.sums, group=part.group))
        units[layout.size - layout.groups + part.group] = part.hospitals
        sums += units
    for context, memory in zip(contexts, memories, strict=True):
        if memory:
            federation = open(context.hospital == POOLED)
            said(call, federation, context.hospital, partial(check_kept, memory, program, context.count))
            later[context.hospital] = later.get(context.hospital, {}) | remembered(memory, program, precision)


def _rows(federation: Federation, hospital: int) -> Any:
    return pooled_rows(federation) if hospital == POOLED else federation.rows(hospital, "train")


def remembered(memory: Mapping[str, Any], program: Program, precision: Any) -> dict[str, NDArray[Any]]:
    """What a hospital remembers, by the engine's names."""
    return {
        _kept_name(name): np.array(value, dtype=precision if name == MODEL else program.keeps[name].dtype)
        for name, value in memory.items()
    }


def _kept_name(name: str) -> str:
    return name if name == MODEL else KEPT + name


def said(call: ProgramCall, federation: Federation, hospital: int, check: Callable[[], None]) -> None:
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
