"""The hospitals of each round, and the models from which they start.

If hospitals are unreliable, local training is computed only for hospitals whose updates are used. Other hospitals
store nothing in this round. What a hospital stores between rounds, such as a control variate, therefore always agrees
with what the server has received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.system import SystemSection
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.strategies.base import Caller, FederationView, Floats, Ids, LocalProblem, State, Strategy
from raysim.virtual_time.clock import Answers, Clock, answers, trained_rows
from raysim.virtual_time.hospitals import System

WAITS = 1000
"""The largest number of consecutive waits without an update. With an availability trace, :attr:`Trace.moments` is added
to this number.
"""

Exchanged = Callable[[Ids, LocalProblem, State], tuple[Floats, Floats]]
"""A function that returns the bytes that each hospital of a cohort receives, ``[H]``, and the bytes that each hospital
sends, ``[H]``.
"""


@dataclass(frozen=True, eq=False)
class ScheduledCohort:
    """The hospitals that take part in a round (its cohort), and the local problem that they minimise."""

    ids: Ids
    """The hospitals that take part, ``[H]``."""
    problem: LocalProblem | None
    """The local problem of these hospitals; None if no hospital takes part."""
    state: State
    """The strategy's state. Its ``models`` also include the older global models from which some of these hospitals
    started."""
    asked: int = 0
    """The number of calls of hospitals in all attempts of this round; 0 without a virtual clock, and for training on
    pooled rows."""
    unused: tuple[tuple[Ids, LocalProblem], ...] = ()
    """For each attempt in which too few updates arrived: the hospitals that sent updates, and their local problem.
    Attempts without any update are left out."""
    in_vain: int = 0
    """The bytes received by hospitals whose updates were lost, or were dropped because they came too late."""
    staleness: float = 0.0
    """The mean staleness of the updates: the number of global models newer than the one from which a hospital
    started."""


class CohortScheduler(Protocol):
    """Decides which hospitals take part in each round of a run, and when."""

    @property
    def clock(self) -> Clock | None:
        """Return the current state of the virtual clock; None if the run has no virtual clock."""

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        """Return the hospitals of the given ``round`` and their local problem."""

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        """Record that the hospitals ``ids [H]`` have replied to a request that needs no training.

        ``down [H]`` and ``up [H]`` are the bytes that each received and sent.
        """


class PerfectScheduler:
    """The scheduler of reliable hospitals: every sampled hospital takes part. There is no virtual clock."""

    clock: Clock | None = None

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        ids = self._strategy.select(view, state, round)
        return ScheduledCohort(ids, self._strategy.problem(view, state, ids) if len(ids) else None, state)

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        pass


class ClockedScheduler:
    """The common base class of schedulers on a virtual clock.

    ``measure`` repeats a call of a client program without counting traffic or time.
    """

    def __init__(
        self,
        strategy: Strategy,
        section: SystemSection,
        system: System,
        seed: int,
        exchanged: Exchanged,
        measure: Caller,
        clock: Clock,
    ) -> None:
        self._strategy = strategy
        self._section = section
        self._system = system
        self._seed = seed
        self._exchanged = exchanged
        self._measure = measure
        self.clock: Clock = clock

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        # The server sends a request to all hospitals at once, and waits for all replies. Hospitals that reply count as
        # available.
        if len(ids):
            seconds = self._system.seconds(ids, np.zeros(len(ids)), down.astype(float), up.astype(float))
            self._at(self.clock.now + float(seconds.max()))

    def _at(self, now: float) -> None:
        self.clock = self.clock.at(now, self.clock.waits)

    def _wait(self, why: str) -> None:
        """Let virtual time pass until more hospitals may be available.

        Raises ``ConfigError`` if no hospital becomes available later, or after too many waits in a row. ``why`` is the
        reason in the message.
        """
        trace, now, waits = self._system.trace, self.clock.now, self.clock.waits + 1
        later = now + self._section.wait if trace is None else trace.following(now)
        if not np.isfinite(later):
            raise ConfigError(
                f"system.trace: after {now:g} s {why}, and no hospital becomes available later; set "
                "system.trace_period or give "
                "later intervals"
            )
        if waits > WAITS + (0 if trace is None else trace.moments):
            raise ConfigError(
                f"system: {why}, {waits} times in a row until {now:g} s; lower rounds.minimum_cohort, or make "
                "hospitals more reliable"
            )
        self.clock = self.clock.at(later, waits)

    def _availability(self, *key: int) -> tuple[NDArray[np.bool_], Floats | None]:
        """Return a mask ``[N]`` of the available hospitals, and when each becomes unavailable (None: never).

        If availability is random, it is sampled from the random stream ``key``.
        """
        if self._system.trace is not None:
            until = self._system.trace.until(self.clock.now)
            return until > self.clock.now, until
        if (self._system.availability < 1).any():
            chance = stream(self._seed, "available", *key).random(len(self._system.availability))
            return chance < self._system.availability, None
        return np.ones(len(self._system.availability), dtype=np.bool_), None

    def _called(
        self, view: FederationView, ids: Ids, problem: LocalProblem, state: State, until: Floats | None, *key: int
    ) -> tuple[Answers, Floats, Floats]:
        """Return when the local updates of the hospitals ``ids [H]`` end if they start now, and which of them are lost.

        Also return the bytes that each hospital receives and sends.
        """
        down, up = self._exchanged(ids, problem, state)
        rows = trained_rows(view, ids, problem)
        seconds = self._system.seconds(ids, rows, down, up) if problem.sent else rows / self._system.rate[ids]
        leaves = None if until is None else until[ids]
        return answers(self._system, self._seed, ids, self.clock.now, seconds, leaves, *key), down, up


def keyed(view: FederationView, attempt: int) -> Callable[..., np.random.Generator]:
    """Return a function that creates the random generators for one ``attempt`` at a round.

    The first attempt (0) uses the generators of ``view``.
    """
    return view.rng if attempt == 0 else lambda purpose, *key: view.rng(purpose, *key, attempt)


def check_one_model(state: State, problem: LocalProblem, what: str, instead: str) -> None:
    """Raise ``ConfigError`` for several models, several sums of updates, or a ``problem`` with further phases, groups
    of rows or a program.

    ``what`` is the configuration key that requires a single model. ``instead`` is the advice in the message.
    """
    several = problem.sent is not None and problem.sent.sums > 1
    further = problem.then or problem.groups or problem.program
    if len(state.models) > 1 or several or further is not None:
        raise ConfigError(
            f"{what} is for strategies whose only model is the global one, from which all hospitals start; {instead}"
        )
