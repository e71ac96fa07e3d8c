"""The server's access to a job's hospitals, through a pool of processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.client.program_context import MODELS
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.engine.messages.plan import PartialResult, ProgramCall, RoundPlan, Work, collected
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.privacy.noisy_answers import StatisticRelease
from raysim.engine.privacy.noisy_statistics import statistic_noise
from raysim.engine.run_state import RunState
from raysim.engine.server.pool import Pool, StateReferences
from raysim.strategies.base import POOLED, Answers, Call, Mask, State
from raysim.virtual_time.clock import Clock

if TYPE_CHECKING:
    from raysim.config.sections.privacy import PrivacySection


class RemoteHospitals:
    """All hospitals of a job, with what they store between rounds.

    ``pool`` decides where the stored values are between rounds: here, or in the hospitals' processes. ``states`` are
    the values that hospitals have stored so far; None if there are none. ``private [P]`` marks the parameters that
    never leave a hospital. ``section`` determines the privacy noise on statistics. ``before`` is an earlier object for
    the same hospitals. The new object continues the earlier count of calls, so that a repeated call has fresh noise.
    """

    remembered: StateReferences | None
    """What hospitals store between rounds, by process; None until they store something."""

    def __init__(
        self,
        pool: Pool,
        work: Work,
        private: Mask | None,
        states: HospitalStates | None,
        section: PrivacySection | None,
        before: RemoteHospitals | None = None,
    ) -> None:
        self._section = section
        self._turns: Counter[tuple[str, int]] = Counter() if before is None else before._turns
        self._pool, self._work, self._private = pool, work, private
        self.remembered = self.dealt(states)

    def run(self, plan: RoundPlan) -> list[PartialResult]:
        """Let all hospitals evaluate and train as the ``plan`` says. Return one result for each process."""
        partials, memory = self._pool.round(plan, self.remembered)
        if not plan.only_reads and (self.remembered is not None or plan.remembers):
            self.remembered = memory
        return partials

    def answers(self, call: Call, round: int, job: str, shares: int = 0) -> Answers:
        """Return hospitals' answers to a call that the strategy makes before the first round or outside a round's
        training. ``job`` is the strategy's name.

        ``shares`` is 0 if each hospital adds the full noise. If each hospital adds only a share of the noise,
        ``shares`` is the number of hospitals.
        """
        program, precision = call.program, self._work.precision
        turn, noise = self._turns[program.name, round], statistic_noise(self._section, program)
        if noise is not None and shares:
            noise = replace(noise, mechanism=noise.mechanism.in_shares(shares))
        self._turns[program.name, round] += 1
        received = {name: np.asarray(value) for name, value in call.received.items()}
        if MODELS in received:
            received[MODELS] = received[MODELS].astype(precision)
        where = f"round {round}" if round else "before round 1"
        planned = ProgramCall(
            program,
            f"strategy '{job}', {where}, program '{program.name}'",
            turn,
            received,
            {name: np.asarray(value) for name, value in call.each_of.items()},
            {},
        )
        plan = RoundPlan(
            self._work,
            round,
            np.zeros((0, 0), precision),
            call.ids,
            None,
            planned,
            private=self._private,
            steps=() if noise is None else (StatisticRelease(replace(noise, turn=turn), self._work.seed, round),),
        )
        ids, each = collected(self.run(plan), SumLayout(program))
        return Answers({}, each, ids, np.array([len(ids)]))

    @contextmanager
    def repeatable(self) -> Iterator[None]:
        """A context for calls that are later repeated: the repeated calls have the same noise, and so the same
        answers.
        """
        turns = self._turns.copy()
        yield
        self._turns.clear()
        self._turns.update(turns)

    def states(self, remembered: StateReferences | None) -> HospitalStates | None:
        """Fetch what hospitals have stored; None if ``remembered`` is None."""
        return None if remembered is None else self._pool.recall(remembered)

    def models(self) -> dict[int, NDArray[Any]]:
        """Return the models ``[P]`` that hospitals have stored, by hospital id."""
        states = self.states(self.remembered) or {}
        return {hospital: vectors[MODEL] for hospital, vectors in states.items() if MODEL in vectors}

    def dealt(self, states: HospitalStates | None) -> StateReferences | None:
        """Divide what hospitals store among the hospitals' processes. What is stored for the pooled rows goes to the
        first process.
        """
        if states is None:
            return None
        served = [set(ids.tolist()) | ({POOLED} if i == 0 else set()) for i, ids in enumerate(self._pool.served)]
        return [{hospital: states[hospital] for hospital in sorted(ids) if hospital in states} for ids in served]


@dataclass(frozen=True, eq=False)
class RemoteState:
    """The state of a run after a round, like :class:`RunState`, but with :data:`StateReferences` in place of the values
    that hospitals store.
    """

    round: int
    state: State
    remembered: StateReferences | None
    memory: Any = None
    clock: Clock | None = None
    stopping: Stopping | None = None
    guarantee: Any = None
    best: RemoteState | None = None
    attacks: Any = None

    def fetched(self, hospitals: RemoteHospitals) -> RunState:
        """Return the state with what hospitals store, fetched from their processes."""
        fields = vars(self) | {"best": None if self.best is None else self.best.fetched(hospitals)}
        return RunState(states=hospitals.states(fields.pop("remembered")), **fields)
