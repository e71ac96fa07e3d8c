"""Synchronous rounds of unreliable hospitals: which are called, which reply in time, and how late updates are used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from raysim.config.sizes import sized
from raysim.core.errors import ConfigError
from raysim.strategies.base import POOLED, Answers, Call, FederationView, Floats, Ids, LocalProblem, State
from raysim.virtual_time.clock import NOBODY, trained_rows
from raysim.virtual_time.scheduling import ClockedScheduler, ScheduledCohort, check_one_model, keyed


class SynchronousScheduler(ClockedScheduler):
    """The scheduler of synchronous rounds, which end when enough hospitals have replied or at a deadline."""

    def schedule(self, view: FederationView, state: State, round: int) -> ScheduledCohort:
        rules, done = self._section.rounds, ScheduledCohort(NOBODY, None, state)
        for attempt in range(1 + rules.retries):
            current, until = self._view_when_enough(view, round, attempt)
            ids = self._strategy.select(current, state, round)
            problem = self._strategy.problem(current, state, ids) if len(ids) else None
            if POOLED in ids:
                self._at(np.nan)  # no federation could do this, however fast its hospitals are
                return replace(done, ids=ids, problem=problem)
            if problem is None and not len(self.clock.hospital) and self._calls_nobody(current, state, round):
                self.clock = self.clock.at(self.clock.now)
                return done
            needed = rules.minimum_cohort if problem is None or problem.sent else 1
            if problem is not None and self._wanted(ids, problem) < needed and not len(self.clock.hospital):
                self._check_selection(current)
                self._wait(f"fewer than {needed} hospitals could be called")
                continue
            fresh, in_vain = self._answering(current, state, ids, problem, until, round, attempt)
            done = replace(done, asked=done.asked + len(ids), in_vain=done.in_vain + in_vain)
            stale = self.clock.ends <= self.clock.now
            if len(fresh) + stale.sum() >= needed:
                self.clock = self.clock.at(self.clock.now)
                return self._merged(current, state, ids, problem, fresh, stale, round, done)
            if len(fresh):
                again = self._strategy.problem(self._measuring(current), state, fresh)
                done = replace(done, unused=(*done.unused, (fresh, again)))
            self._wait(f"fewer than {needed} updates arrived")
        return done

    def _view_when_enough(self, view: FederationView, round: int, attempt: int) -> tuple[FederationView, Floats | None]:
        """Return the server's view. With an availability trace, first wait until enough hospitals are available.

        Also return when each hospital becomes unavailable (None: never).
        """
        available, until = self._availability(round, attempt)
        least = self._section.rounds.minimum_cohort
        while until is not None and (available & (view.sizes > 0)).sum() < least and np.isfinite(self.clock.now):
            self._wait(f"fewer than {least} hospitals are available")
            available, until = self._availability(round, attempt)
        available[self.clock.hospital] = False
        return replace(view, available=available, rng=keyed(view, attempt)), until

    def _answering(
        self,
        view: FederationView,
        state: State,
        ids: Ids,
        problem: LocalProblem | None,
        until: Floats | None,
        *key: int,
    ) -> tuple[Ids, int]:
        """Call the hospitals ``ids``. Return those whose updates arrive in time, and the number of bytes sent to
        hospitals whose updates are never used.

        The clock advances until enough updates have arrived, or to the deadline. A late hospital continues to train if
        ``rounds.late`` is ``discount``.
        """
        rules, round = self._section.rounds, key[0]
        deadline = np.inf if rules.deadline is None else self.clock.now + rules.deadline
        if problem is None:
            if len(self.clock.hospital):  # all hospitals are still training for an earlier round
                self._at(deadline)
            return ids, 0
        result, down, up = self._called(view, ids, problem, state, until, *key)
        if problem.sent is None:
            deadline = np.inf
        taken, close = result.taken(self._wanted(ids, problem), deadline, ids)
        late = ~taken & ~result.lost & (rules.late == "discount")
        if late.any():
            check_one_model(state, problem, "system.rounds.late: discount", "set late: drop")
            if problem.sent is None or problem.sent.weight is None:
                raise ConfigError(
                    "system.rounds.late: discount lowers the weights of late updates, and updates of this strategy "
                    "have no weights; set late: drop"
                )
            ends, lost = result.ends[late], result.lost[late]
            self.clock = self.clock.started(ids[late], round - 1, state.models[0], ends, lost)
        elif taken.sum() < rules.minimum_cohort and np.isfinite(deadline):
            self._check_deadline(view, ids, problem, down, up)
        self._at(close)
        return ids[taken], int(down[~taken & ~late].sum())

    def _merged(
        self,
        view: FederationView,
        state: State,
        ids: Ids,
        problem: LocalProblem | None,
        fresh: Ids,
        stale: NDArray[np.bool_],
        round: int,
        done: ScheduledCohort,
    ) -> ScheduledCohort:
        """Return the hospitals whose updates are used in this round, and their local problem.

        The hospitals in ``fresh`` have replied in time. ``stale [F]`` marks, among the ``F`` hospitals that were still
        training, those whose late updates have arrived.
        """
        if len(fresh) == len(ids) and not stale.any():
            return replace(done, ids=ids, problem=problem)
        late = self.clock.hospital[stale]
        ids = np.concatenate([fresh, late])
        versions = np.concatenate([np.full_like(fresh, round - 1), self.clock.version[stale]])
        order = np.argsort(ids)
        ids, versions = ids[order], versions[order]
        problem = self._strategy.problem(self._measuring(view, late), state, ids)
        age = (round - 1) - versions
        if age.any():
            problem = discounted(problem, 1.0 / (1.0 + age))
            state, problem = self.clock.resumed(versions, round - 1, state, problem)
        self.clock = self.clock.without(stale).tidied()
        return replace(done, ids=ids, problem=problem, state=state, staleness=float(age.mean()))

    def _wanted(self, ids: Ids, problem: LocalProblem) -> int:
        share = 1.0 + self._section.rounds.over_selection if problem.sent else 1.0
        return int(np.ceil(len(ids) / share - 1e-9))

    def _measuring(self, view: FederationView, late: Ids = NOBODY) -> FederationView:
        """Return a view for calling hospitals again in this round without counting time and traffic.

        For the ``late`` hospitals both are counted, because they have not answered before.
        """

        def call(call: Call) -> Answers:
            unheard = np.isin(call.ids, late)
            if unheard.any():
                each_of = {name: array[unheard] for name, array in call.each_of.items()}
                view.call(replace(call, ids=call.ids[unheard], each_of=each_of))
            return self._measure(call)

        return replace(view, call=call)

    def _calls_nobody(self, view: FederationView, state: State, round: int) -> bool:
        return not len(self._strategy.select(replace(self._measuring(view), available=None), state, round))

    def _check_selection(self, view: FederationView) -> None:
        """Raise ``ConfigError`` if the selection can never give enough hospitals, even if all are available.

        A selection without the fields ``fraction`` and ``minimum`` is not checked.
        """
        size, needed, everyone = sized(view.selection), self._section.rounds.minimum_cohort, len(view.trainable)
        if not size or not self._strategy.uses_selection() or len(view.present) < everyone:
            return
        largest = min(everyone, max(size["minimum"], int(size["fraction"] * everyone + 1e-9)))
        most = int(np.ceil(largest / (1.0 + self._section.rounds.over_selection) - 1e-9))
        if most < needed:
            raise ConfigError(
                f"system.rounds.minimum_cohort: {needed} is more than the {most} hospitals whose updates a round of "
                "this selection waits for; lower minimum_cohort, or select more hospitals"
            )

    def _check_deadline(self, view: FederationView, ids: Ids, problem: LocalProblem, down: Floats, up: Floats) -> None:
        """Raise ``ConfigError`` if the fastest hospitals cannot reply before the deadline, even if none is lost."""
        rules, everyone = self._section.rounds, view.trainable
        rows = view.sizes[everyone] * (trained_rows(view, ids, problem) / view.sizes[ids]).min()
        seconds = np.sort(self._system.seconds(everyone, rows, down.min(), up.min()))
        needed = seconds[min(rules.minimum_cohort, len(seconds)) - 1]
        if rules.deadline is not None and needed > rules.deadline:
            raise ConfigError(
                f"system.rounds.deadline: {rules.deadline:g} s are too short: even the fastest hospitals "
                f"need {needed:.3g} s "
                f"until {rules.minimum_cohort} of them have replied; raise the deadline"
            )


def discounted(problem: LocalProblem, factor: Floats) -> LocalProblem:
    """Return the problem with the weights of updates multiplied by ``factor [H]``, and rescaled to the same total."""
    upload = problem.upload
    if upload is None or upload.weight is None:
        raise ValueError("upload.weight: is None, so there are no weights to discount; give Upload(weight)")
    weight = upload.weight * (factor if upload.weight.ndim == 1 else factor[:, None])
    total = weight.sum()
    return replace(problem, upload=replace(upload, weight=weight * (upload.weight.sum() / total) if total else weight))
