"""The hospitals of each round, and the models from which they start.

A round's hospitals are all sampled hospitals, or those that reply in time. Of unreliable hospitals, only those whose
updates are used are trained. A hospital that is lost, late or superfluous stores nothing of its round, as if it had
never been called. Its memory (a control variate, its own model) therefore always agrees with what the server has
received.
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
"""The largest number of consecutive waits without an update. A trace adds one for each moment at which a hospital
becomes available."""

Exchanged = Callable[[Ids, LocalProblem, State], tuple[Floats, Floats]]
"""A function that returns the bytes that each hospital of a cohort receives, and the bytes that it sends, ``[H]``
each."""


@dataclass(frozen=True, eq=False)
class ScheduledCohort:
    """A round's cohort and its problem."""

    ids: Ids
    """The hospitals that take part, ``[H]``."""
    problem: LocalProblem | None
    """The problem that they minimise; None if no hospital takes part."""
    state: State
    """The state whose ``models`` contain the rows that ``problem`` uses."""
    asked: int = 0
    """The number of hospitals called."""
    unused: tuple[tuple[Ids, LocalProblem], ...] = ()
    """Hospitals whose updates arrived but were too few to be used, with the problem that each minimised."""
    in_vain: int = 0
    """The bytes received by hospitals whose updates never arrived."""
    staleness: float = 0.0
    """The mean staleness of the cohort's updates, in versions of the global model."""


class CohortScheduler(Protocol):
    """Decides which hospitals take part in each round of a run."""

    @property
    def clock(self) -> Clock | None:
        """Return the virtual clock, which is passed from round to round; None without a clock."""

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        """Return the cohort of the next round."""

    def questions_answered(self, ids: Ids, down: Ids, up: Ids) -> None:
        """Record that hospitals ``ids [H]`` have replied to a request. ``down [H]`` and ``up [H]`` are the bytes that
        each received and sent."""


class PerfectScheduler:
    """The scheduler of reliable hospitals: every sampled hospital takes part, and no time passes."""

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

    ``measure`` is a caller that repeats a request without traffic or time.
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
        """Let time pass without an update. Raises ``ConfigError`` if no update will ever arrive."""
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
        """Return which hospitals are available, ``[N]``, and when each becomes unavailable (None: none does).

        Availability is sampled from the stream ``key``.
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
        """Return the times and outcomes of a call to hospitals ``ids [H]`` now, and the bytes that each receives and
        sends."""
        down, up = self._exchanged(ids, problem, state)
        rows = trained_rows(view, ids, problem)
        seconds = self._system.seconds(ids, rows, down, up) if problem.sent else rows / self._system.rate[ids]
        leaves = None if until is None else until[ids]
        return answers(self._system, self._seed, ids, self.clock.now, seconds, leaves, *key), down, up


def keyed(view: FederationView, attempt: int) -> Callable[..., np.random.Generator]:
    """Return a function that makes the random generators of a round's ``attempt``.

    The first attempt (0) has the streams of a run without repetitions.
    """
    return view.rng if attempt == 0 else lambda purpose, *key: view.rng(purpose, *key, attempt)


def check_one_model(state: State, problem: LocalProblem, what: str, instead: str) -> None:
    """Raise ``ConfigError`` unless a strategy's only model is the global model, and ``problem`` is one local training.

    ``what`` is the key that allows nothing else, and ``instead`` is the remedy in the message.
    """
    several = problem.sent is not None and problem.sent.sums > 1
    further = problem.then or problem.groups or problem.program
    if len(state.models) > 1 or several or further is not None:
        raise ConfigError(
            f"{what} is for strategies whose only model is the global one, from which all hospitals start; {instead}"
        )
