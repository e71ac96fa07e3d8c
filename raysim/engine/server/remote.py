"""The server's access to a job's hospitals, through a pool of processes that store nothing of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.measuring.measurement import StatisticNoise
from raysim.engine.measuring.stopping import Stopping
from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.engine.messages.plan import Inquiry, PartialResult, RoundPlan, Work
from raysim.engine.run_state import RunState
from raysim.engine.server.pool import Pool, StateReferences
from raysim.strategies.base import POOLED, Floats, Ids, Mask, Question, State
from raysim.virtual_time.clock import Clock


class RemoteHospitals:
    """All hospitals of a job with their memory, which travels with each message or stays where it was made.

    ``private [P]``: the parameters that never leave a hospital. ``noise`` gives the noise on answers to a question.
    """

    remembered: StateReferences | None
    """The memory of each process's hospitals; None until the strategy lets them remember something."""

    def __init__(
        self,
        pool: Pool,
        work: Work,
        private: Mask | None,
        states: HospitalStates | None,
        noise: Callable[[Question], StatisticNoise | None],
    ) -> None:
        self._noise = noise
        self._turns: Counter[tuple[str, int]] = Counter()
        self._pool, self._work, self._private = pool, work, private
        self._homes = np.concatenate(pool.served)
        self.remembered = self.dealt(states)

    def play(self, plan: RoundPlan) -> list[PartialResult]:
        """Send the plan to all hospitals, which evaluate and train; return the partial results."""
        partials, memory = self._pool.round(plan, self.remembered)
        if not plan.only_reads and (self.remembered is not None or plan.remembers):
            self.remembered = memory
        return partials

    def answers(self, question: Question, round: int, models: Floats | None, ids: Ids | None) -> Sequence[Floats]:
        """Return the answers of hospitals ``ids`` (None: all), in that order, about ``models [M, P]``."""
        sent = None if models is None else models.astype(self._work.precision)
        memory = None if sent is None or self._private is None else self.remembered
        inquiry = Inquiry(self._work, question, round, sent, ids, self._private, self._noise_on(question, round))
        answers = [answer for of_process in self._pool.ask(inquiry, memory) for answer in of_process]
        asked = np.arange(len(self._homes)) if ids is None else ids
        by_hospital = dict(zip(self._homes[np.isin(self._homes, asked)].tolist(), answers, strict=True))
        return [by_hospital[hospital] for hospital in asked.tolist()]

    def _noise_on(self, question: Question, round: int) -> StatisticNoise | None:
        noise = self._noise(question)
        if noise is None:
            return None
        turn = self._turns[question.kind, round]
        self._turns[question.kind, round] += 1
        return replace(noise, turn=turn)

    def states(self, remembered: StateReferences | None) -> HospitalStates | None:
        """Fetch the hospitals' memory, of now or of an earlier state."""
        return None if remembered is None else self._pool.recall(remembered)

    def models(self) -> dict[int, NDArray[Any]]:
        """Return the hospitals' own models ``[P]``, by id."""
        states = self.states(self.remembered) or {}
        return {hospital: vectors[MODEL] for hospital, vectors in states.items() if MODEL in vectors}

    def dealt(self, states: HospitalStates | None) -> StateReferences | None:
        """Divide hospitals' memory by the processes that run them; the memory of pooled rows goes to the first
        process."""
        if states is None:
            return None
        served = [set(ids.tolist()) | ({POOLED} if i == 0 else set()) for i, ids in enumerate(self._pool.served)]
        return [{hospital: states[hospital] for hospital in sorted(ids) if hospital in states} for ids in served]


@dataclass(frozen=True, eq=False)
class RemoteState:
    """The state of a run after a round, like :class:`RunState`, but hospitals' memory stays where it was made."""

    round: int
    state: State
    remembered: StateReferences | None
    memory: Any = None
    clock: Clock | None = None
    stopping: Stopping | None = None
    reception: Any = None
    best: RemoteState | None = None
    attacks: Any = None

    def fetched(self, hospitals: RemoteHospitals) -> RunState:
        """Return the complete state, with the memory of ``hospitals`` fetched."""
        fields = vars(self) | {"best": None if self.best is None else self.best.fetched(hospitals)}
        return RunState(kept=hospitals.states(fields.pop("remembered")), **fields)
