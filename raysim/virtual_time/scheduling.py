"""Which hospitals take part in a round, and from which model: all that were selected, or those that answer in time.

Of unreliable hospitals only those are trained whose updates are used. A hospital that is lost, late or superfluous
gives up its round as if it had never been called: it keeps nothing of it either, so that what it remembers (a control
variate, its own model) always belongs to what the server has heard.
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
from raysim.strategies.base import (
    Ask,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    State,
    Strategy,
)
from raysim.virtual_time.clock import Answers, Clock, answers, trained_rows
from raysim.virtual_time.hospitals import System

WAITS = 1000
"""How often in a row the server may wait without an update; a trace adds one for each moment at which a hospital
comes.
"""

Exchanged = Callable[[Ids, LocalProblem, State], tuple[Floats, Floats]]
"""Bytes down and up of each hospital of a cohort, ``[H]`` each."""


@dataclass(frozen=True, eq=False)
class ScheduledCohort:
    """A round's cohort and what it minimises."""

    ids: Ids
    """The hospitals that take part, ``[H]``."""
    problem: LocalProblem | None
    """What they minimise; None: nobody takes part."""
    state: State
    """The state whose ``models`` have the rows that the problem names."""
    asked: int = 0
    """How many hospitals were called for it."""
    unused: tuple[tuple[Ids, LocalProblem], ...] = ()
    """Hospitals whose updates came but were too few to be used, with the problems that they minimised."""
    in_vain: int = 0
    """Bytes that hospitals received whose updates never came."""
    staleness: float = 0.0
    """The mean staleness of the cohort's updates, in versions of the global model."""


class CohortScheduler(Protocol):
    """Decides which hospitals take part in each round of a run."""

    @property
    def clock(self) -> Clock | None:
        """The virtual clock, which is carried from round to round; None without one."""
        ...

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        """Who takes part in the next round."""
        ...

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        """Hospitals ``ids [H]`` have answered a question: bytes that each received, and sent, ``[H]``."""
        ...


class PerfectScheduler:
    """Everybody that was selected takes part, and no time passes."""

    clock: Clock | None = None

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        ids = self._strategy.select(view, state, round)
        return ScheduledCohort(ids, self._strategy.problem(view, state, ids) if len(ids) else None, state)

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        pass


class ClockedScheduler:
    """What schedulers on a virtual clock share. ``measure`` repeats a question, without traffic or time."""

    def __init__(
        self,
        strategy: Strategy,
        section: SystemSection,
        system: System,
        seed: int,
        exchanged: Exchanged,
        measure: Ask,
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
        # A question goes to all at once, and the server waits for all answers. Those who answer are taken to be there.
        if len(ids):
            seconds = self._system.seconds(ids, np.zeros(len(ids)), down.astype(float), up.astype(float))
            self._at(self.clock.now + float(seconds.max()))

    def _at(self, now: float) -> None:
        self.clock = self.clock.at(now, self.clock.waits)

    def _wait(self, why: str) -> None:
        """Let time pass without an update. Raises ``ConfigError`` where none will ever come."""
        trace, now, waits = self._system.trace, self.clock.now, self.clock.waits + 1
        later = now + self._section.wait if trace is None else trace.following(now)
        if not np.isfinite(later):
            raise ConfigError(
                f"system.trace: after {now:g} s {why}, and nobody comes any more; set system.trace_period or give "
                "later intervals"
            )
        if waits > WAITS + (0 if trace is None else trace.moments):
            raise ConfigError(
                f"system: {why}, {waits} times in a row until {now:g} s; lower rounds.minimum_cohort, or make "
                "hospitals more reliable"
            )
        self.clock = self.clock.at(later, waits)

    def _there(self, *key: int) -> tuple[NDArray[np.bool_], Floats | None]:
        """Which hospitals are available now ``[N]``, and when each leaves (None: never); ``key`` names the draw."""
        if self._system.trace is not None:
            until = self._system.trace.until(self.clock.now)
            return until > self.clock.now, until
        if (self._system.availability < 1).any():
            chance = stream(self._seed, "available", *key).random(len(self._system.availability))
            return chance < self._system.availability, None
        return np.ones(len(self._system.availability), dtype=np.bool_), None

    def _visit(
        self, view: FederationView, ids: Ids, problem: LocalProblem, state: State, until: Floats | None, *key: int
    ) -> tuple[Answers, Floats, Floats]:
        """The fate of a call to ``ids [H]`` now, and the bytes down to and up from each."""
        down, up = self._exchanged(ids, problem, state)
        rows = trained_rows(view, ids, problem)
        seconds = self._system.seconds(ids, rows, down, up) if problem.sent else rows / self._system.rate[ids]
        leaves = None if until is None else until[ids]
        return answers(self._system, self._seed, ids, self.clock.now, seconds, leaves, *key), down, up


def keyed(view: FederationView, attempt: int) -> Callable[..., np.random.Generator]:
    """The streams of an attempt; those of the first (0) are those of a run in which nothing has to be tried again."""
    return view.rng if attempt == 0 else lambda purpose, *key: view.rng(purpose, *key, attempt)


def check_one_model(state: State, problem: LocalProblem, what: str) -> None:
    """Raise ``ConfigError`` for old models of a strategy that has others than the global one; ``what`` needs them."""
    several = problem.sent is not None and problem.sent.sums > 1
    further = problem.then or problem.groups or problem.program
    if len(state.models) > 1 or several or further is not None:
        raise ConfigError(
            f"{what} is for strategies whose only model is the global one, from which all hospitals start"
        )
