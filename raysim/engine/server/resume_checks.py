"""Checks that a checkpoint fits the run: a changed checkpoint is rejected before any training.

Shapes and counts must fit, and numbers must be finite. The traffic ledger, and the vectors that hospitals store for
error feedback, are also checked for removed entries, which would cause no error later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import UPDATES
from raysim.engine.messages.memory import FIRST, MODEL, SECOND, STEPS, STORED, HospitalStates
from raysim.engine.run_state import History, RunState
from raysim.engine.server.job_server import JobServer
from raysim.strategies.base import POOLED, Answers, Call, Ids, Strategy
from raysim.strategies.checks.answers import check_state
from raysim.traffic.ledger import UPDATE, Ledger
from raysim.virtual_time.clock import NOBODY

RESIDUAL = re.compile(r"residual of \d{1,9}")
"""The pattern of the names under which hospitals store compression residuals. The number is the index of a group of the
hospital's rows."""


def check_resumed(server: JobServer, since: RunState) -> None:
    """Raise ``ValueError`` if the saved state ``since`` is incomplete or belongs to another job."""
    check_state(since.state, server.view)
    job, hospitals, history = server.job, len(server.everyone), since.history
    for states in (since.states, None if since.best is None else since.best.states):
        check_remembered(states or {}, hospitals, server.layout.size, server.travels)
    if history is None:
        return
    if history.models_held.shape != (hospitals,):
        raise ValueError(f"it has {len(history.models_held)} hospitals, and the run has {hospitals}")
    in_rounds = job.system is None and server.strategy.asynchrony() is None
    if server.pipeline.keeps_residuals:
        check_residuals(since.states, history, all_trained=in_rounds)
    if job.privacy is None:
        return
    if since.round >= job.rounds:
        raise ValueError("it was written after the last round, so its ledger cannot be checked")
    due = partial(_due, server, since) if in_rounds else lambda round: ()
    always = job.privacy.unit == "hospital" or job.privacy.effective_mode == "pooled"
    check_guarantee(history, _setup_again(server), due, always=always)


def _due(server: JobServer, since: RunState, round: int) -> list[Ids]:
    """Return one or two lists of the hospitals that had to send an update in ``round``. The first list is the one in
    the checkpoint. The second list is that of a repeated client selection, if the selection can be repeated.
    """
    stored = None if since.history is None else since.history.cohorts[round - 1]
    due = [NOBODY if stored is None else stored]
    if since.memory is None and type(server.job.strategy).select is Strategy.select:
        with suppress(_Asked):
            view = replace(server.view, round=round, call=_unasked)
            due.append(server.strategy.select(view, since.state, round))
    return due


def _setup_again(server: JobServer) -> Ledger:
    """Repeat the set-up before the first round, and return the ledger of its messages. The job's own ledger is empty
    afterwards.
    """

    def call(call: Call) -> Answers:
        server.traffic.answered(call)
        return server.pipeline.answers(server.measure(call))

    server.register()
    view = replace(server.view, call=call)
    if server.strategy.uses_selection():
        view = replace(view, memory=server.job.selection.setup(view))
    server.pipeline.setup(server.strategy, view, server.rehearsed)
    ledger, server.traffic.ledger = server.traffic.ledger, Ledger()
    return ledger


class _Asked(Exception):
    """A client selection, repeated for this check, has called hospitals, which cannot answer here."""


def _unasked(call: Call) -> Answers:
    raise _Asked


def check_remembered(states: HospitalStates, hospitals: int, size: int, travels: int) -> None:
    """Raise ``ValueError`` for impossible ``states`` of hospitals. A model has ``size`` parameters, of which
    ``travels`` are sent.
    """
    for hospital, vectors in states.items():
        if not (hospital == POOLED or 0 <= hospital < hospitals):
            raise ValueError(f"it has stored state of hospital {hospital}, but there are {hospitals} hospitals")
        for what, vector in vectors.items():
            if what == MODEL:
                due: tuple[int, ...] = (size,)
            elif RESIDUAL.fullmatch(what):
                due = (travels,)
            elif what == STEPS:
                due = (1,)
            elif what.startswith(STORED):
                due = vector.shape  # the program that reads it checks its shape
            elif what in (FIRST, SECOND):
                due = vector.shape if vector.ndim == 1 and len(vector) <= size else (size,)
            else:
                raise ValueError(f"the state of hospital {hospital} contains {what!r:.50}, which raysim never stores")
            if vector.shape != due or not np.isfinite(vector).all():
                raise ValueError(
                    f"the {what} of hospital {hospital} has shape {list(vector.shape)}; it needs shape "
                    f"{list(due)} and finite numbers"
                )


def check_residuals(states: HospitalStates | None, history: History, *, all_trained: bool) -> None:
    """Raise ``ValueError`` if a hospital has stored a vector for error feedback but has sent no update.

    ``all_trained``: whether a hospital that has sent updates must also have stored such a vector.
    """
    # Training on pooled rows sends no updates, so its residuals have no entry in the ledger.
    owing = {
        hospital
        for hospital, vectors in (states or {}).items()
        if hospital != POOLED and any(RESIDUAL.fullmatch(what) for what in vectors)
    }
    updates = (entry.hospitals for entry in history.ledger.entries if entry.kind == UPDATE)
    sent = {hospital for ids in updates for hospital in ids.tolist()}
    wrong = owing - sent if owing - sent or not all_trained else sent - owing
    if wrong:
        raise ValueError(
            f"hospital {min(wrong)} has {'sent no update' if min(wrong) in owing else 'sent updates'} but has "
            f"{'a' if min(wrong) in owing else 'no'} compression residual"
        )


def check_guarantee(history: History, setup: Ledger, due: Callable[[int], Sequence[Ids]], *, always: bool) -> None:
    """Raise ``ValueError`` if the traffic ledger of a run with a privacy guarantee lacks messages or names wrong
    senders.

    - ``setup``: the ledger of messages before the first round, computed again.
    - ``due``: a function that returns, for a round, zero or more lists of hospitals. Each list must equal the senders
      of the round's updates.
    - ``always``: whether the ledger must have an entry for every round in which updates were requested.
    """
    known = {(kind, _key(ids), _key(sent)) for t, kind, ids, sent, _ in history.ledger.entries if t == 0}
    for _, kind, ids, sent, _ in setup.entries:
        if (kind, _key(ids), _key(sent)) not in known:
            raise ValueError(f"its ledger lacks '{kind}', which hospitals sent before the first round")
    senders: dict[int, set[int]] = {}
    for t, kind, ids, _, _ in history.ledger.entries:
        if kind in UPDATES:
            senders.setdefault(t, set()).update(ids.tolist())
    if len(history.cohorts) != len(history.rounds):
        raise ValueError(f"it has cohorts of {len(history.cohorts)} rounds, but {len(history.rounds)} rounds were run")
    for row, cohort in zip(history.rounds, history.cohorts, strict=True):
        if always and cohort is not None and row.round not in senders:
            raise ValueError(f"its ledger has no updates of round {row.round}")
        if any(senders.get(row.round, set()) != set(ids.tolist()) for ids in due(row.round)):
            raise ValueError(f"its ledger has updates of round {row.round} from hospitals that did not take part")


def _key(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype=np.int64).tobytes()
