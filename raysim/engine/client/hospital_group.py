"""The hospitals that one process runs: they train, evaluate and run client programs on their own rows.

A :class:`HospitalGroup` caches only what can be loaded or computed again, such as memory-mapped data and compiled
models. A call that is repeated after a crash therefore gives the same result, and several runs can share the group.
What hospitals store between rounds is sent with each call and returned with its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.engine.client import programs
from raysim.engine.client.evaluating import Evaluating
from raysim.engine.client.failure_context import of_full_memory
from raysim.engine.client.local_training import CohortTraining
from raysim.engine.client.program_context import MadeOfRows
from raysim.engine.measuring.divisions import Groups
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan, Work
from raysim.engine.privacy.contributions import Contributions
from raysim.strategies.base import POOLED, Ids
from raysim.training.base import Model

CHUNK_BYTES = 30 * 2**20
"""The largest size in bytes of the models that a training kernel trains in one call on a CPU, and of the rows copied
for this call. A call trains at least one model, even if it exceeds this size.
"""


Open = Callable[[str, bool], Federation]


def mapped(folder: str, pooled: bool) -> Federation:
    """Open the federation in ``folder`` by memory mapping: rows are read only when they are accessed. ``pooled`` has no
    effect.
    """
    return Federation.open(folder)


class HospitalGroup:
    """The hospitals of one process; ``served [h]`` has their ids.

    If ``pools`` is true, the group also trains on the pooled rows of all hospitals. ``open(folder, pooled)`` opens a
    federation that has at least the rows of the hospitals ``served``; if ``pooled`` is true, it has the training rows
    of all hospitals.
    """

    def __init__(self, served: Ids, *, pools: bool, device: str, open: Open = mapped) -> None:
        self.served = served
        self._pools = pools
        self._device = device
        # A mask by id, because look-ups in a set of a million ids are slow.
        self._is_mine = np.zeros(int(served.max(initial=-1)) + 1, np.bool_)
        self._is_mine[served] = True
        self._models: dict[str, Model] = {}
        self._made = MadeOfRows()
        self._groups, self._contributions = Groups(), Contributions()
        self._federation = lru_cache(maxsize=16)(open)
        arguments = (served, self._federation, self.model, self._groups, self._contributions)
        self._evaluating = Evaluating(*arguments)

    def round(self, plan: RoundPlan, states: HospitalStates | None) -> tuple[PartialResult, HospitalStates]:
        """Evaluate models as requested, then let the sampled hospitals train or run a client program.

        Return this process's part of the round's result, and what hospitals store until the next round (empty if they
        only run a client program that stores nothing). Raises :class:`TrainingDiverged`, :class:`HospitalFailed`,
        :class:`ResourceError` or :class:`StrategyError`.
        """
        began = time.perf_counter()
        states = states or {}
        result = PartialResult()
        self._evaluating.measure(plan, states, result.measured)
        if (plan.problem is not None or plan.call is not None) and (mine := self._mine(plan.ids)):
            opened = partial(self._federation, plan.work.federation)
            if plan.problem is not None:
                arguments = (
                    plan,
                    mine,
                    self.model(plan.work),
                    opened,
                    states,
                    self._groups,
                    self._contributions,
                    self._made,
                )
                states = CohortTraining(*arguments).train(self._chunk(plan, mine), result)
            elif plan.call is not None:
                model = partial(self.model, plan.work)
                states = programs.run(plan, plan.call, mine, opened, model, states, result, self._made)
        result.seconds = time.perf_counter() - began
        return result, {} if plan.only_reads else states

    def model(self, work: Work) -> Model:
        """Return the model of a run, which is built once and cached."""
        key = repr((work.federation, work.model, work.precision))
        if key not in self._models:
            federation = self._federation(work.federation, False)
            try:
                self._models[key] = work.model.bind(federation, self._device, work.precision)
            except RuntimeError as error:
                if not of_full_memory(error):
                    raise
                raise ResourceError(
                    "resources.gpus_per_actor: the GPU's share has too little memory for the model "
                    f"({str(error).splitlines()[0]}); raise it, use a smaller model or set resources.device: cpu"
                ) from error
        return self._models[key]

    def _chunk(self, plan: RoundPlan, mine: Sequence[int]) -> int:
        if self._device != "cpu":
            return len(mine)
        chunk: int = max(1, CHUNK_BYTES // (plan.models.shape[1] * plan.models.itemsize))
        if plan.problem is not None and plan.problem.groups is not None:
            # The rows of a group are copied for training.
            federation = self._federation(plan.work.federation, False)
            rows = int(federation.sizes("train")[plan.ids[mine]].max())
            chunk = min(chunk, max(1, CHUNK_BYTES // max(1, rows * federation.X.shape[1] * 4)))
        return chunk

    def _mine(self, ids: Ids) -> list[int]:
        """Return the positions in ``ids [H]`` at which a hospital of this process stands.

        ``ids`` has the hospital of each local update.
        """
        mine: NDArray[np.bool_] = (ids >= 0) & (ids < len(self._is_mine))
        mine[mine] = self._is_mine[ids[mine]]
        if self._pools:
            mine |= ids == POOLED
        entries: list[int] = np.flatnonzero(mine).tolist()
        return entries
