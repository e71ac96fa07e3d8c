"""The egress ledger, which lists everything that left a hospital, and the bytes of local updates in both directions.

A scalar counts 4 bytes. Messages to the experimenter are listed too, but do not count as traffic.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import MIXTURE, OWN, POOLED, Ids, LocalProblem

SCALAR_BYTES = 4

UPDATE = "update"

MEASURED = "metrics"
"""The kind of messages with metrics of models and counts of rows by score, for the experimenter."""

VALIDATION = "validation_loss"
"""The kind of messages with validation losses, which decide about early stopping."""

RECALIBRATION = "recalibration"
"""The kind of messages with histograms of a model's outputs on validation rows, for recalibration."""

LOSS_SCALARS = 4
"""The size of a model's validation loss in scalars of 4 bytes: a float64 sum and an int64 number of rows."""

PREDICTIONS = "predictions"

IMPORTANCE = "importance"
"""The kind of messages for feature importances, such as metrics after one column was permuted."""

TO_EXPERIMENTER = (MEASURED, PREDICTIONS, IMPORTANCE)
"""The kinds of messages to the experimenter, which do not count as traffic."""


@dataclass(frozen=True)
class Bytes:
    """Numbers of bytes that hospitals received (``down``) and sent (``up``)."""

    down: int = 0
    up: int = 0

    @property
    def both(self) -> int:
        """The number of bytes in both directions together."""
        return self.down + self.up


class Entry(NamedTuple):
    """The messages of one kind that hospitals sent in one round; round 0 is the time before training."""

    round: int
    kind: str
    hospitals: Ids
    """The ids of the hospitals that sent the message, ``[h]``."""
    sent: NDArray[np.int64]
    """The bytes that each hospital sent, ``[h]``."""
    program: str = ""
    """The name of the client program that sent the message; empty if there is none."""


@dataclass(eq=False)
class Ledger:
    """The record of everything that left hospitals, in the order in which it was sent."""

    entries: list[Entry] = field(default_factory=list)

    def add(self, round: int, kind: str, hospitals: Ids, scalars: int | NDArray[Any], program: str = "") -> int:
        """Record that each of the ``hospitals [h]`` sent ``scalars`` (an integer or an array ``[h]``) numbers of 4
        bytes.

        Return the bytes of all hospitals together.
        """
        sent = np.broadcast_to(np.asarray(scalars, dtype=np.int64) * SCALAR_BYTES, hospitals.shape)
        return self.add_bytes(round, kind, hospitals, sent, program)

    def add_bytes(self, round: int, kind: str, hospitals: Ids, sent: NDArray[np.int64], program: str = "") -> int:
        """Record that the ``hospitals [h]`` sent ``sent [h]`` bytes. Return the bytes of all hospitals together."""
        self.entries.append(Entry(round, kind, hospitals, sent, program))
        return int(sent.sum())

    def times(self, kind: str) -> int:
        """Return the largest number of times that any hospital has sent messages of this ``kind``."""
        hospitals = [np.unique(entry.hospitals) for entry in self.entries if entry.kind == kind]
        return int(np.unique(np.concatenate(hospitals), return_counts=True)[1].max(initial=0)) if hospitals else 0

    def rounds_with(self, kinds: Container[str], hospitals: int, rounds: Container[int] | None = None) -> Ids:
        """Return, for each of N hospitals, the number of rounds in which it sent messages of these ``kinds``, ``[N]``.

        N is the argument ``hospitals``. Only the given ``rounds`` count; None: all.
        """
        by_round: dict[int, list[Ids]] = {}
        for entry in self.entries:
            if entry.kind in kinds and (rounds is None or entry.round in rounds):
                by_round.setdefault(entry.round, []).append(entry.hospitals)
        counts = np.zeros(hospitals, dtype=np.int64)
        for of_round in by_round.values():
            counts[np.unique(np.concatenate(of_round))] += 1
        return counts

    def sent(self, round: int) -> int:
        """Return the bytes that left all hospitals in a round, without messages to the experimenter."""
        return self.sent_by_round().get(round, 0)

    def sent_by_round(self) -> dict[int, int]:
        """Return the bytes that left all hospitals, by round, without messages to the experimenter."""
        sums: dict[int, int] = {}
        for entry in self.entries:
            if entry.kind not in TO_EXPERIMENTER:
                sums[entry.round] = sums.get(entry.round, 0) + int(entry.sent.sum())
        return sums


def named_rows(problem: LocalProblem) -> Ids:
    """Return the indices of the server's models that each local update of ``problem`` uses.

    The result has one row for each local update. Its columns are the start model of each training phase, and the target
    of each proximal term. Negative values do not refer to a model of the server.
    """
    columns = []
    for phase in problem.chain:
        columns.append(phase.start)
        for term in phase.objective.proximal:
            # A proximal term without weight is not computed, so its target is not sent.
            columns.append(np.where(np.asarray(term.weight) > 0, term.towards, OWN))
    return np.stack(columns, axis=1)


def downlink(problem: LocalProblem, size: int, models: int) -> NDArray[np.int64]:
    """Return the number of scalars that hospitals receive for each of the ``H`` local updates of ``problem``, ``[H]``.

    ``size`` is the number of a model's scalars, without private parameters. A hospital receives the same model only
    once. A hospital that starts from a mixture receives all models that mixtures use; their number is ``models``.
    Arrays for a client program are included.
    """
    rows = named_rows(problem)
    fresh = np.ones(rows.shape, dtype=np.bool_)
    if rows.shape[1] > 1 or problem.groups is not None:  # else each hospital has one entry, which names one row
        owners = problem.entries(np.arange(len(rows)))
        low, high = rows.min(initial=0), rows.max(initial=0)
        _, first = np.unique(owners[:, None] * (high - low + 1) + rows - low, return_index=True)
        fresh[:] = False
        fresh.ravel()[first] = True
    distinct: NDArray[np.int64] = (fresh & (rows >= 0)).sum(axis=1)
    named = np.where(problem.start == MIXTURE, models, distinct)
    return named * size + sum(int(np.size(array)) for array in problem.received.values())


def record_training(
    ledger: Ledger,
    round: int,
    ids: Ids,
    problem: LocalProblem,
    size: int,
    models: int,
    losses: bool,
    vector_bytes: NDArray[np.int64] | None = None,
) -> tuple[int, int]:
    """Record the messages of a round's local updates. Return the bytes that hospitals received and sent.

    ``size`` is the number of a model's scalars, without private parameters. A hospital sends one update and its number
    of rows. If it trains on groups of rows, it sends an update for each group, without numbers of rows. With ``losses``
    it also sends its training loss. Further answers of its client program are recorded too. ``vector_bytes [H]`` is the
    size in bytes of each compressed or masked update; None for other updates. Training on pooled rows adds no bytes.
    """
    if POOLED in ids:
        return 0, 0
    down = int(downlink(problem, size, models).sum()) * SCALAR_BYTES
    up, program = 0, "" if problem.program is None else problem.program.name
    senders, entries = np.unique(ids, return_counts=True)
    if problem.sent is not None and vector_bytes is not None:
        single_scalars = entries * ((problem.groups is None) + losses) * SCALAR_BYTES
        vectors = np.bincount(np.searchsorted(senders, ids), weights=vector_bytes, minlength=len(senders))
        up += ledger.add_bytes(round, UPDATE, senders, vectors.astype(np.int64) + single_scalars, program)
    elif problem.sent is not None:
        vector = size * (problem.sent.sums if problem.spread else 1) + update_numbers(problem)
        up += ledger.add(round, UPDATE, senders, entries * (vector + (problem.groups is None) + losses), program)
    for kind, scalars in _extras(problem).items():
        if kind != UPDATE:
            up += ledger.add(round, kind, senders, entries * scalars, program)
    return down, up


def update_numbers(problem: LocalProblem) -> int:
    """Return how many numbers each message of the kind ``update`` contains besides the update's vectors, such as
    FedNova's numbers of steps.
    """
    return (0 if problem.sent is None else problem.sent.extra_numbers) + _extras(problem).get(UPDATE, 0)


def _extras(problem: LocalProblem) -> dict[str, int]:
    scalars: dict[str, int] = {}
    for kind, shape in problem.extras.values():
        scalars[kind] = scalars.get(kind, 0) + math.prod(shape)
    return scalars
