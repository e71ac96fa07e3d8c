"""The choice of a run's scheduler, asynchronous training, and checks that unreliable hospitals allow progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raysim.config.sections.system import SystemSection
from raysim.config.sizes import enlarged, resized
from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.strategies.base import Asynchrony, Caller, FederationView, Floats, Ids, Selection, State, Strategy
from raysim.traffic.ledger import SCALAR_BYTES
from raysim.virtual_time.clock import NOBODY, Clock
from raysim.virtual_time.hospitals import System, resolve
from raysim.virtual_time.scheduling import (
    ClockedScheduler,
    CohortScheduler,
    Exchanged,
    PerfectScheduler,
    ScheduledCohort,
    check_one_model,
    keyed,
)
from raysim.virtual_time.synchronous import SynchronousScheduler


def scheduler(
    strategy: Strategy,
    section: SystemSection | None,
    view: FederationView,
    seed: int,
    exchanged: Exchanged,
    measure: Caller,
    clock: Clock | None,
) -> tuple[CohortScheduler, FederationView]:
    """Return a run's scheduler, and the view for its strategy.

    The scheduler continues from ``clock`` (None: the beginning). With a ``section``, the returned view has the usual
    duration of rounds, and a selection enlarged by over-selection. Without a section, it is ``view``.
    """
    asynchrony = strategy.asynchrony()
    if section is None and asynchrony is None:
        return PerfectScheduler(strategy), view
    system = resolve(section or SystemSection(), view.names, seed)
    if section is not None:
        seconds = usual_seconds(system, view)
        view = replace(view, round_seconds=seconds, selection=enlarged(view.selection, section.rounds.over_selection))
    rest = (
        strategy,
        section or SystemSection(),
        system,
        seed,
        exchanged,
        measure,
        clock or Clock.zero(view.initial.size),
    )
    if asynchrony is None:
        return SynchronousScheduler(*rest), view
    return AsynchronousScheduler(asynchrony, len(view.trainable), *rest), view


def usual_seconds(system: System, view: FederationView) -> Floats:
    """Return the virtual seconds that each hospital needs for a round of federated averaging."""
    everyone, model = np.arange(len(view.sizes)), np.full(len(view.sizes), float(SCALAR_BYTES * view.initial.size))
    return system.seconds(everyone, (view.local_epochs * view.sizes).astype(float), model, model + SCALAR_BYTES)


def check_system(section: SystemSection, selection: Selection, names: Sequence[str], sizes: Ids, seed: int) -> None:
    """Raise ``ConfigError`` if settings in ``section`` are impossible for the hospitals ``names`` with
    ``sizes [N]`` training rows."""
    resolve(section, names, seed)
    enlarged(selection, section.rounds.over_selection)
    trainable, needed = int((sizes > 0).sum()), section.rounds.minimum_cohort
    if needed > trainable:
        raise ConfigError(
            f"system.rounds.minimum_cohort: {needed} is more than the {trainable} hospitals that have training rows; "
            "lower it"
        )


def check_progress(cohorts: Sequence[int], clock: Clock | None, section: SystemSection) -> None:
    """Raise ``ConfigError`` if a run has waited for updates, but used none in any round.

    ``cohorts`` has the number of hospitals of each round.
    """
    if clock is not None and clock.waits and not any(cohorts):
        raise ConfigError(
            f"system.rounds: none of {len(cohorts)} rounds brought {section.rounds.minimum_cohort} updates; lower "
            "minimum_cohort, raise deadline, or make hospitals more reliable"
        )


class AsynchronousScheduler(ClockedScheduler):
    """The scheduler of asynchronous training: each hospital starts from the newest global model."""

    def __init__(self, asynchrony: Asynchrony, trainable: int, *rest: Any) -> None:
        super().__init__(*rest)
        self._concurrency = min(asynchrony.concurrency, trainable)
        self._buffer = min(asynchrony.buffer, trainable)

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        arrived, versions, done, tries = NOBODY, NOBODY, ScheduledCohort(NOBODY, None, state), 0
        while len(arrived) < self._buffer:
            asked, in_vain = self._start(view, state, arrived, round, tries)
            done = replace(done, asked=done.asked + asked, in_vain=done.in_vain + in_vain)
            tries += 1
            if not len(self.clock.hospital):
                self._wait("no hospital is available")
                continue
            # If several end at the same time, the hospital that started first comes first.
            first = np.arange(len(self.clock.ends)) == self.clock.ends.argmin()
            now = max(self.clock.now, float(self.clock.ends[first][0]))
            if self.clock.lost[first][0]:
                self.clock = self.clock.without(first)
                self._at(now)
                continue
            arrived = np.append(arrived, self.clock.hospital[first])
            versions = np.append(versions, self.clock.version[first])
            self.clock = self.clock.without(first).at(now)
        order = np.argsort(arrived)
        ids, versions = arrived[order], versions[order]
        staleness = np.zeros(len(view.sizes), dtype=np.int64)
        staleness[ids] = (round - 1) - versions
        problem = self._strategy.problem(replace(view, staleness=staleness), state, ids)
        check_one_model(state, problem, "strategy: asynchrony", "choose another strategy")
        later, problem = self.clock.resumed(versions, round - 1, state, problem)
        self.clock = self.clock.tidied()
        return replace(done, ids=ids, problem=problem, state=later, staleness=float(staleness[ids].mean()))

    def _start(self, view: FederationView, state: State, arrived: Ids, *key: int) -> tuple[int, int]:
        """Start local updates at available hospitals, so that at most the configured number of hospitals is training.

        Return how many hospitals were called, and the bytes sent to hospitals whose updates are lost.
        """
        room = self._concurrency - len(self.clock.hospital)
        available, until = self._availability(*key)
        available[self.clock.hospital] = available[arrived] = False
        if room < 1 or not (available & (view.sizes > 0)).any():
            return 0, 0
        round, tries = key
        current = replace(view, available=available, rng=keyed(view, tries), selection=resized(view.selection, room))
        ids = self._strategy.select(current, state, round)
        if len(ids) > room:
            ids = np.sort(stream(self._seed, "room", *key).permutation(ids)[:room])
        if not len(ids):
            return 0, 0
        problem = self._strategy.problem(current, state, ids)
        result, down, _ = self._called(view, ids, problem, state, until, *key)
        self.clock = self.clock.started(ids, round - 1, state.models[0], result.ends, result.lost)
        return len(ids), int(down[result.lost].sum())
