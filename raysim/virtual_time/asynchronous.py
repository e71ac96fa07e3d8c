"""Asynchronous training: the updates of each new version of the global model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from raysim.config.sizes import resized
from raysim.core.streams import stream
from raysim.strategies.base import Asynchrony, FederationView, Ids, State
from raysim.virtual_time.clock import NOBODY
from raysim.virtual_time.scheduling import ClockedScheduler, ScheduledCohort, check_one_model, keyed


class AsynchronousScheduler(ClockedScheduler):
    """Hospitals that start one after the other, each from the current global model."""

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
                self._wait("no hospital is there to be asked")
                continue
            # The first of those that end at once is the one that started first.
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
        check_one_model(state, problem, "strategy: asynchrony")
        later, problem = self.clock.resumed(versions, round - 1, state, problem)
        self.clock = self.clock.tidied()
        return replace(done, ids=ids, problem=problem, state=later, staleness=float(staleness[ids].mean()))

    def _start(self, view: FederationView, state: State, arrived: Ids, *key: int) -> tuple[int, int]:
        """Start available hospitals until enough are training. Returns how many started, and the bytes to lost ones."""
        room = self._concurrency - len(self.clock.hospital)
        available, until = self._there(*key)
        available[self.clock.hospital] = available[arrived] = False
        if room < 1 or not (available & (view.sizes > 0)).any():
            return 0, 0
        round, tries = key
        seen = replace(view, available=available, rng=keyed(view, tries), selection=resized(view.selection, room))
        ids = self._strategy.select(seen, state, round)
        if len(ids) > room:
            ids = np.sort(stream(self._seed, "room", *key).permutation(ids)[:room])
        if not len(ids):
            return 0, 0
        problem = self._strategy.problem(seen, state, ids)
        result, down, _ = self._visit(view, ids, problem, state, until, *key)
        self.clock = self.clock.started(ids, round - 1, state.models[0], result.ends, result.lost)
        return len(ids), int(down[result.lost].sum())
