"""Whether the state that a run is resumed from fits it: a changed checkpoint is refused before anything is trained.

Shapes, counts and finite numbers are checked. So is what could be removed without anybody noticing: the residuals that
hospitals keep under compression, and the ledger from which the privacy of a run is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import UPDATES
from raysim.engine.job import History
from raysim.engine.messages.memory import FIRST, KEPT, MODEL, SECOND, STEPS, HospitalStates
from raysim.strategies.base import POOLED, Ids
from raysim.traffic.ledger import UPDATE, Ledger

RESIDUAL = re.compile(r"residual of \d{1,9}")
"""The name of what compression has left out of a hospital's updates, for a group of its rows."""


def check_remembered(kept: HospitalStates, hospitals: int, size: int, travels: int) -> None:
    """Raise ``ValueError`` for vectors in ``kept`` that models of ``size`` scalars, of which ``travels`` leave, do not
    have.
    """
    for hospital, vectors in kept.items():
        if not (hospital == POOLED or 0 <= hospital < hospitals):
            raise ValueError(f"it holds what hospital {hospital} remembers, and there are {hospitals}")
        for what, vector in vectors.items():
            if what == MODEL:
                due: tuple[int, ...] = (size,)
            elif RESIDUAL.fullmatch(what):
                due = (travels,)
            elif what == STEPS:
                due = (1,)
            elif what.startswith(KEPT):
                due = vector.shape  # a program that reads it says which shape it has
            elif what in (FIRST, SECOND):
                due = vector.shape if vector.ndim == 1 and len(vector) <= size else (size,)
            else:
                raise ValueError(f"hospital {hospital} remembers {what!r:.50}, which is nothing of raysim's")
            if vector.shape != due or not np.isfinite(vector).all():
                raise ValueError(
                    f"the {what} of hospital {hospital} has shape {list(vector.shape)} and {list(due)} finite numbers "
                    "are due"
                )


def check_residuals(kept: HospitalStates | None, history: History, *, all_trained: bool) -> None:
    """Raise ``ValueError`` unless the hospitals with residuals are those that have sent compressed updates.

    ``all_trained``: whether every update that was sent has been used, so that whoever sent it has trained.
    """
    # Pooled rows send nothing: what compression leaves out there is in no ledger.
    owing = {
        hospital
        for hospital, vectors in (kept or {}).items()
        if hospital != POOLED and any(RESIDUAL.fullmatch(what) for what in vectors)
    }
    sent = {hospital for _, kind, ids, _ in history.ledger.entries if kind == UPDATE for hospital in ids.tolist()}
    wrong = owing - sent if owing - sent or not all_trained else sent - owing
    if wrong:
        raise ValueError(
            f"hospital {min(wrong)} has {'sent no update' if min(wrong) in owing else 'sent updates'} and "
            f"{'owes' if min(wrong) in owing else 'owes nothing'} of what compression left out"
        )


def check_guarantee(history: History, setup: Ledger, due: Callable[[int], Sequence[Ids]], *, always: bool) -> None:
    """Raise ``ValueError`` for a ledger of a private run from which entries have been removed.

    ``setup`` is the ledger of what hospitals send before the first round, made again. ``due`` gives the hospitals that
    send an update in a round, as often as that is known. ``always``: whether every round has an entry in which
    hospitals were asked for updates.
    """
    kept = {(kind, _key(ids), _key(sent)) for t, kind, ids, sent in history.ledger.entries if t == 0}
    for _, kind, ids, sent in setup.entries:
        if (kind, _key(ids), _key(sent)) not in kept:
            raise ValueError(f"its ledger lacks '{kind}', which hospitals sent before the first round")
    senders: dict[int, set[int]] = {}
    for t, kind, ids, _ in history.ledger.entries:
        if kind in UPDATES:
            senders.setdefault(t, set()).update(ids.tolist())
    if len(history.cohorts) != len(history.rounds):
        raise ValueError(f"it has cohorts of {len(history.cohorts)} rounds, and {len(history.rounds)} were played")
    for row, cohort in zip(history.rounds, history.cohorts, strict=True):
        if always and cohort is not None and row.round not in senders:
            raise ValueError(f"its ledger has no updates of round {row.round}")
        if any(senders.get(row.round, set()) != set(ids.tolist()) for ids in due(row.round)):
            raise ValueError(f"its ledger has updates of round {row.round} from others than took part")


def _key(values: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(values, dtype=np.int64).tobytes()
