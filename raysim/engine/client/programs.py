"""Client programs at the hospitals of one process: their input, messages and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import RaysimError, StrategyError
from raysim.data.federation import Federation
from raysim.engine.client.failure_context import named
from raysim.engine.client.program_context import (
    HospitalContext,
    MadeOfRows,
    ProgramRun,
    checked_at,
    contexts_of,
    memory_key,
)
from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.engine.messages.plan import PartialResult, ProgramCall, RoundPlan
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.steps import Adding, LeavingSums
from raysim.strategies.base import POOLED, Added, Context, Program, Reply
from raysim.strategies.checks.calls import check_added, check_reply, check_stored
from raysim.training.base import Model

T = TypeVar("T")

TOGETHER = 64
"""The largest number of hospitals in one call of ``Program.run_many``."""


def run(
    plan: RoundPlan,
    call: ProgramCall,
    mine: Sequence[int],
    open: Callable[[bool], Federation],
    model: Callable[[], Model],
    states: HospitalStates,
    result: PartialResult,
    made: MadeOfRows,
) -> HospitalStates:
    """Run a client program at hospitals of this process; ``mine`` has the hospitals' positions in ``plan.ids``. Add
    what hospitals send to ``result``, and return what they store until the next round.

    Raises :class:`StrategyError` or :class:`HospitalFailed`.
    """
    program, layout, later = call.program, SumLayout(call.program), dict(states)
    # A hospital that is lost in this round sends and stores nothing. The same holds for all hospitals of a discarded
    # sum.
    adding = plan.steps[-1] if plan.steps else None
    if isinstance(adding, Adding):
        mine = [j for j in mine if adding.admits(0, int(plan.ids[j]))]
    sums, each = np.zeros(layout.size, np.int64), {name: list[NDArray[Any]]() for name in layout.each}
    here = ProgramRun(plan, call, open, model, made)
    if _adds(program, plan):
        result.ids, result.sums = plan.ids[mine], sums
        if mine:
            _run_added(here, layout, contexts_of(here, mine, states), sums, later)
        return later
    fused = type(program).run_many is not Program.run_many
    for first in range(0, len(mine), TOGETHER):
        some = mine[first : first + TOGETHER]
        contexts = contexts_of(here, some, states)
        federations = [here.open(context.hospital == POOLED) for context in contexts]
        together = _run_many(here, contexts) if fused else [None] * len(some)
        for context, federation, answer in zip(contexts, federations, together, strict=True):
            hospital = context.hospital
            with named(federation, hospital, f"running {call.name}"):
                reply = program.run(context) if answer is None else answer
            checked_at(here, hospital, partial(check_reply, reply, program, context.count, call.terms))
            leaving = LeavingSums(hospital, program, layout, reply, context.people)
            for step in plan.steps:
                step.forward_sums(leaving)
            sums += leaving.units
            for name, values in each.items():
                values.append(layout.single(leaving.reply, name))
            if reply.memory:
                later[hospital] = later.get(hospital, {}) | remembered(reply.memory, program, plan.models.dtype)
    result.ids, result.sums = plan.ids[mine], sums
    result.each = {name: np.stack(values) for name, values in each.items() if values}
    return later


def _adds(program: Program, plan: RoundPlan) -> bool:
    """Return whether the program may add up what hospitals send. The engine does so itself if a step of the round hides
    or clips single hospitals' sums, or if the program sends arrays that are not summed.
    """
    fused = type(program).run_added is not Program.run_added
    as_they_are = not any(step.changes for step in plan.steps)
    return fused and as_they_are and all(send.how == "summed" for send in program.sends.values())


def _run_added(
    here: ProgramRun,
    layout: SumLayout,
    contexts: Sequence[HospitalContext],
    sums: NDArray[np.int64],
    later: HospitalStates,
) -> None:
    call, program, precision = here.call, here.call.program, here.plan.models.dtype
    added, memories = _together(here, contexts, "run_added", partial(_added, program, contexts))
    for part in added:
        checked_at(here, contexts[0].hospital, partial(check_added, part, program, len(contexts), call.terms))
        units = layout.units(Reply(part.sums, group=part.group))
        units[layout.size - layout.groups + part.group] = part.hospitals
        sums += units
    _check_count(here, "run_added", memories, contexts)
    for context, memory in zip(contexts, memories, strict=True):
        if memory:
            checked_at(here, context.hospital, partial(check_stored, memory, program, context.count))
            later[context.hospital] = later.get(context.hospital, {}) | remembered(memory, program, precision)


def _added(program: Program, contexts: Sequence[Context]) -> tuple[list[Added], list[Mapping[str, Any]]]:
    added, memories = program.run_added(contexts)
    return list(added), list(memories)


def _run_many(here: ProgramRun, contexts: Sequence[HospitalContext]) -> list[Reply]:
    program = here.call.program
    replies = _together(here, contexts, "run_many", lambda: list(program.run_many(contexts)))
    _check_count(here, "run_many", replies, contexts)
    return replies


def _check_count(here: ProgramRun, method: str, results: Sequence[Any], contexts: Sequence[Context]) -> None:
    if len(results) != len(contexts):
        raise StrategyError(
            f"{here.call.name}: {method}: returns {len(results)} results for {len(contexts)} hospitals; return one for "
            "each"
        )


def _together(here: ProgramRun, contexts: Sequence[HospitalContext], method: str, compute: Callable[[], T]) -> T:
    """Return the result of ``compute``, which runs a client program for several hospitals in one call. If the call
    fails, the hospitals are run one at a time, so that the error names the hospital.
    """
    try:
        return compute()
    except Exception as error:
        for context in contexts:  # one of these calls raises the error with its hospital's name
            with named(here.open(context.hospital == POOLED), context.hospital, f"running {here.call.name}"):
                here.call.program.run(context)
        if isinstance(error, RaysimError):
            raise
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise StrategyError(f"{here.call.name}: {method}: {text}") from error


def remembered(memory: Mapping[str, Any], program: Program, precision: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays that a ``program`` stores at a hospital, under the engine's names instead of the program's."""
    states = {}
    for name, value in memory.items():
        states[memory_key(name)] = array = np.array(
            value, dtype=precision if name == MODEL else program.keeps[name].dtype
        )
        array.flags.writeable = False
    return states
