"""The virtual clock: the time that hospitals need, which replies arrive in time, and which hospitals are training.

Nothing is trained here, because the time of a reply follows from the sizes of messages and the number of training rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from raysim.core.streams import stream
from raysim.strategies.base import FederationView, Floats, Ids, LocalProblem, Mask, State
from raysim.virtual_time.hospitals import System

NOBODY: Ids = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Clock:
    """The state of the virtual clock in plain values, as a checkpoint stores it. ``F`` hospitals are training."""

    now: float
    """Virtual seconds since the beginning. NaN after training on pooled rows, which no real federation could do."""
    waits: int
    """The number of times in a row that the server has waited and received no update."""
    hospital: Ids
    """The ids of the hospitals in training, ``[F]``, in the order in which they started."""
    version: Ids
    """The round that produced the global model from which each hospital in training started, ``[F]``; 0: the initial
    model."""
    ends: Floats
    """The virtual time at which each local update arrives or is lost, ``[F]``."""
    lost: Mask
    """Whether each local update is lost, ``[F]``."""
    kept: Ids
    """The rounds that produced the ``V`` global models from which the hospitals in training started, ``[V]``."""
    models: Floats
    """The global models of the rounds in ``kept``, ``[V, P]``."""

    @staticmethod
    def zero(parameters: int) -> Clock:
        """Return the clock at the beginning, when no hospital is training. A model has ``parameters`` parameters."""
        none = np.empty(0)
        return Clock(0.0, 0, NOBODY, NOBODY, none, none.astype(bool), NOBODY, np.empty((0, parameters)))

    def at(self, now: float, waits: int = 0) -> Clock:
        """Return this clock with another time and another number of consecutive waits."""
        return replace(self, now=now, waits=waits)

    def started(self, ids: Ids, version: int, model: Floats, ends: Floats, lost: Mask) -> Clock:
        """Return the clock after the hospitals ``ids [h]`` started to train from ``model [P]`` of round ``version``.

        ``ends [h]`` are the times at which the updates arrive or are lost, and ``lost [h]`` marks the updates that are
        lost.
        """
        if not len(ids):
            return self
        has_model = version in self.kept
        return replace(
            self,
            hospital=np.append(self.hospital, ids),
            version=np.append(self.version, np.full_like(ids, version)),
            ends=np.append(self.ends, ends),
            lost=np.append(self.lost, lost),
            kept=self.kept if has_model else np.append(self.kept, version),
            models=self.models if has_model else np.concatenate([self.models, model[None, :]]),
        )

    def without(self, done: Mask) -> Clock:
        """Return the clock without the hospitals marked in ``done [F]``. Global models are not removed."""
        return replace(
            self,
            hospital=self.hospital[~done],
            version=self.version[~done],
            ends=self.ends[~done],
            lost=self.lost[~done],
        )

    def tidied(self) -> Clock:
        """Return the clock with only those global models from which hospitals that are still training have started."""
        used = np.isin(self.kept, self.version)
        return replace(self, kept=self.kept[used], models=self.models[used])

    def resumed(self, versions: Ids, round: int, state: State, problem: LocalProblem) -> tuple[State, LocalProblem]:
        """Return the state with older global models added, and the problem that refers to these models.

        ``versions [H]`` is the round that produced the model which each hospital received. In ``start`` and proximal
        terms, row 0 becomes the row of this model. The model produced by ``round`` is the newest and stays in row 0.
        """
        old = np.unique(versions[versions != round])
        if not len(old):
            return state, problem
        models = self.models[[int(np.flatnonzero(self.kept == version)[0]) for version in old]]
        row = np.where(versions == round, 0, len(state.models) + np.searchsorted(old, versions))
        proximal = tuple(
            replace(term, towards=np.where(term.towards == 0, row, term.towards)) for term in problem.objective.proximal
        )
        moved = replace(
            problem,
            start=np.where(problem.start == 0, row, problem.start),
            objective=replace(problem.objective, proximal=proximal),
        )
        return replace(state, models=np.concatenate([state.models, models])), moved


def checked(clock: Any) -> Clock | None:
    """Return ``clock``, which was read from a file. Raises ``ValueError`` if the time or the number of waits is
    invalid, if lengths do not agree, or if a model is missing or not finite."""
    if clock is None:
        return None
    if not isinstance(clock, Clock) or not isinstance(clock.now, float):
        raise ValueError("its virtual clock has no valid time")
    if type(clock.waits) is not int or clock.waits < 0:
        raise ValueError(
            f"its virtual clock has waited {clock.waits!r:.50} times; this must be a whole number of at least 0"
        )
    running = (clock.hospital, clock.version, clock.ends, clock.lost)
    if any(each.shape != (len(clock.hospital),) for each in running) or len(clock.models) != len(clock.kept):
        raise ValueError("its virtual clock lacks end times or models of some hospitals")
    if not np.isin(clock.version, clock.kept).all() or not np.isfinite(clock.models).all():
        raise ValueError("of its virtual clock, the model from which a hospital has started is missing or not finite")
    return clock


def trained_rows(view: FederationView, ids: Ids, problem: LocalProblem) -> Floats:
    """Return how many rows each of the hospitals ``ids [H]`` processes in all phases of ``problem``.

    A phase processes each training row once in each epoch.
    """
    rows, groups = np.zeros(len(ids)), problem.groups
    for phase in problem.chain:
        epochs = np.asarray(view.local_epochs if phase.training.epochs is None else phase.training.epochs, dtype=float)
        if groups is not None:
            # The entries are groups of a hospital's rows: each row is in one of them.
            entries = np.searchsorted(groups.hospital, ids)
            epochs = np.broadcast_to(epochs, groups.hospital.shape)[np.minimum(entries, len(groups.hospital) - 1)]
        rows += epochs * view.sizes[ids]
    return rows


@dataclass(frozen=True, eq=False)
class Answers:
    """The times at which the local updates of ``H`` hospitals end, and which of them are lost."""

    ends: Floats
    """The virtual time at which each local update arrives or is lost, ``[H]``."""
    lost: Mask
    """Whether each local update is lost, ``[H]``."""

    def taken(self, wanted: int, deadline: float, ids: Ids) -> tuple[Mask, float]:
        """Return a mask ``[H]`` of the updates that are used, and the time at which the server continues.

        The server continues when ``wanted`` updates have arrived, when every hospital has replied or is lost, or at the
        ``deadline``, whichever is first. Updates that arrive simultaneously are used in the order of hospital ids.
        """
        order = np.lexsort((ids, self.ends))
        order = order[~self.lost[order]]
        enough = len(order) >= wanted > 0
        close = self.ends[order[wanted - 1]] if enough else self.ends.max(initial=-np.inf)
        close = min(float(close), deadline)
        taken = np.zeros(len(ids), dtype=np.bool_)
        taken[order[:wanted]] = True
        return taken & (self.ends <= close), close


def answers(
    system: System, seed: int, ids: Ids, began: float, seconds: Floats, until: Floats | None, *key: int
) -> Answers:
    """Return when the local updates of the hospitals ``ids [H]`` end, and which of them are lost.

    The updates start at ``began`` and take ``seconds [H]``. ``until [H]`` is the time at which each hospital becomes
    unavailable (None: never). The moment of a dropout is uniform over the update's duration, and drawn from the random
    stream ``key``.
    """
    ends, lost = began + seconds, np.zeros(len(ids), dtype=np.bool_)
    if system.dropout.any():
        rng = stream(seed, "dropout", *key)
        chance, moment = rng.random((2, len(system.dropout)))[:, ids]
        lost = chance < system.dropout[ids]
        ends = np.where(lost, began + moment * seconds, ends)
    if until is not None:
        leaves = until < ends
        lost, ends = lost | leaves, np.where(leaves, np.maximum(until, began), ends)
    return Answers(ends, lost)
