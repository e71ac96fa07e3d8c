"""What a hospital sends after its local update, into sums or as a single update, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import TrainingDiverged
from raysim.core.exact import ExactSum, largest_entry
from raysim.data.federation import Federation
from raysim.engine.client.deltas import add_deltas
from raysim.engine.client.initial_model import Parameters
from raysim.engine.client.tasks import Tasks
from raysim.engine.messages.plan import VARIATE, HospitalStates, RoundPlan
from raysim.engine.messages.update_sums import heaviest, number_rows, sum_count
from raysim.engine.privacy.release import Release
from raysim.strategies.base import POOLED, Floats, LocalProblem, Upload, Variates
from raysim.training.base import Task

if TYPE_CHECKING:
    from raysim.engine.pipeline.compressing import Compressing


class Sending:
    """What the entries of ``plan``'s cohort that are in this process send of ``problem``.

    ``tasks`` makes their tasks. ``kept`` is what hospitals remember, and is written to. ``open(pooled)`` gives the
    federation.
    """

    def __init__(
        self,
        plan: RoundPlan,
        problem: LocalProblem,
        tasks: Tasks,
        kept: HospitalStates,
        open: Callable[[bool], Federation],
    ) -> None:
        self._plan, self._problem, self._tasks, self._kept, self._open = plan, problem, tasks, kept, open
        count = sum_count(problem, plan.models.shape[1])
        bits = plan.release is not None and plan.release.bit
        self._sums = ExactSum(count + bits, plan.models.shape[1]) if count else None
        self._variates = count - 1
        self.limit = largest_entry(heaviest(problem))
        """The magnitude that every entry of a sum's terms must stay below."""
        self._deltas: list[Parameters] = []
        self._bits: list[int] = []

    @property
    def units(self) -> NDArray[np.int64] | None:
        """The sums, in units of the exact grid; None where nothing is added up."""
        return None if self._sums is None else self._sums.units

    @property
    def deltas(self) -> NDArray[Any] | None:
        """Single updates, a row each, where the problem asks for them."""
        return np.stack(self._deltas) if self._deltas else None

    @property
    def bits(self) -> NDArray[np.int64] | None:
        """Bits that each compressed update has taken."""
        return np.array(self._bits) if self._bits else None

    def send_together(
        self, phase: LocalProblem, some: Sequence[int], tasks: Sequence[Task], trained: NDArray[Any]
    ) -> None:
        """Add the deltas of the entries ``some``, which are sent unchanged, to their sums.

        ``trained [len(some), P]`` are the models after their ``tasks``.
        """
        upload, masking, entries = phase.upload, self._plan.masking, list(some)
        if upload is None or upload.weight is None or self._sums is None:
            raise ValueError("nothing is added up")
        groups = np.zeros(len(entries), np.int64) if upload.sum_index is None else upload.sum_index[entries]
        weights = upload.weight[entries].astype(np.float64)
        if masking is not None and not masking.everybody:
            weights *= masking.admitted(groups, self._plan.ids[entries])

        def check() -> None:
            for theta, j, task in zip(trained, some, tasks, strict=True):
                self.check(np.subtract(theta, task.start, dtype=np.float64), self.limit, j, task.learning_rate)

        add_deltas(self._sums, groups, weights, [task.start for task in tasks], trained, self.limit, check)

    def send_made(self, upload: Upload, j: int, delta: Floats, loss: float, rate: float) -> None:
        """Add the message that entry ``j`` makes of its ``delta`` to the sums, with the numbers that go with it.

        ``loss`` is its mean loss before training with the learning ``rate``.
        """
        if upload.weight is None or self._sums is None:
            raise ValueError("nothing is added up")
        plan, weight, hospital = self._plan, float(upload.weight[j]), int(self._plan.ids[j])
        group = 0 if upload.sum_index is None else int(upload.sum_index[j])
        group, numbers = self._tasks.chosen.get(j, 1 + group) - 1, np.zeros(0)
        if upload.message is not None:
            delta, numbers = upload.message.made(delta, group, loss)
        counted = numbers if upload.message is not None and upload.message.counts else None
        vectors = [np.zeros_like(delta) for _ in range(upload.sums)] if j in self._tasks.chosen else [delta]
        if j in self._tasks.chosen:
            vectors[group] = delta
        if counted is None:
            vectors.append(numbers)
        if plan.release is not None:
            self.send_bit(plan.release, vectors, j)
            vectors = plan.release.leaving(vectors, plan.work.seed, plan.round, hospital)
            if counted is not None:
                counted = plan.release.counted(counted, plan.work.seed, plan.round, hospital)
        *vectors, numbers = vectors if counted is None else [*vectors, counted]
        first = 0 if j in self._tasks.chosen else group
        for k, vector in enumerate(vectors):
            if plan.private is not None:
                vector[plan.private] = 0.0
            self.check(vector, self.limit, j, rate)
            self._add(j, first + k, weight, vector)
        size = plan.models.shape[1]
        rows = np.zeros((number_rows(self._problem, size), size))
        rows.ravel()[: len(numbers)] = numbers
        for k, row in enumerate(rows):
            self.check(row, self.limit, j, rate)
            self._add(j, upload.sums + k, weight, row)

    def send(self, upload: Upload, j: int, delta: Floats, theta: Parameters, task: Task) -> None:
        """Add entry ``j``'s vector to its sum or sums, and keep its delta where single updates are asked for."""
        if upload.single:
            self._deltas.append(delta)
        if upload.weight is None or self._sums is None:
            return
        vector: Parameters = delta
        if upload.what == "parameters":
            vector = theta if self._plan.private is None else np.where(self._plan.private, 0.0, theta)
            self.check(vector, self.limit, j, task.learning_rate)
        if upload.weight.ndim == 1:
            weight = float(upload.weight[j])
            on_grid = self._after_noise(upload, j)
            if on_grid is not None:
                compressing, weight = on_grid
                vector = np.rint(vector / compressing.compression.step)
            self._add(j, 0 if upload.sum_index is None else int(upload.sum_index[j]), weight, vector)
            return
        for group in np.flatnonzero(upload.weight[j]):
            self._add(j, int(group), float(upload.weight[j, group]), vector)

    def send_bit(self, release: Release, vectors: Sequence[Floats], j: int) -> None:
        """Add the bit whether entry ``j``'s ``vectors`` were short enough, where that is asked for."""
        if not release.bit or self._sums is None:
            return
        hospital = int(self._plan.ids[j])
        short = release.short(vectors, self._plan.work.seed, self._plan.round, hospital)
        if self._plan.masking is not None:
            self._plan.masking.tell(self._sums, short, hospital)
            return
        bit = np.zeros_like(vectors[0])
        bit[0] = short
        self._sums.add(len(self._sums.units) - 1, 1.0, bit)

    def compressed(self, upload: Upload, j: int, delta: Floats) -> Floats:
        """Entry ``j``'s update as the server adds it after compression; parameters that do not travel are 0."""
        compressing, private, groups = self._plan.compressing, self._plan.private, self._problem.groups
        if compressing is None:
            return delta
        on_grid = self._after_noise(upload, j)
        if on_grid is not None:
            compressing = on_grid[0]
        hospital, group = int(self._plan.ids[j]), 0 if groups is None else int(groups.group[j])
        name = f"residual of {group}"
        travels = slice(None) if private is None else ~private
        before = self._kept.get(hospital, {}).get(name)
        sent, remembered, bits = compressing.sent(hospital, group, delta[travels], before)
        if compressing.remembers:
            self.remember(j, name, remembered)
        self._bits.append(bits)
        whole = np.zeros_like(delta)
        whole[travels] = sent
        return whole

    def _after_noise(self, upload: Upload, j: int) -> tuple[Compressing, float] | None:
        """How entry ``j``'s noisy message is put on the common grid, and the weight of a step of it in the sum.

        None where messages are not noisy shares on a grid: then rounding needs no exact weights.
        """
        compressing, weight, release = self._plan.compressing, upload.weight, self._plan.release
        if compressing is None or compressing.compression.name != "grid" or release is None or not release.in_shares:
            return None
        return None if weight is None or not weight[j] else compressing.exactly(float(weight[j]))

    def vary(self, variates: Variates, j: int, variate: Parameters, change: Floats, task: Task) -> None:
        """Add the ``change [P]`` of entry ``j``'s control variate to its sum, and remember the ``variate`` after it."""
        self.check(change, self.limit, j, task.learning_rate)
        if self._sums is not None:
            self._add(j, self._variates, float(variates.weight[j]), change)
        if self._plan.release is not None:
            # The change that the server received, so that its variate stays the mean of the hospitals'.
            variate = (self._tasks.variate(int(self._plan.ids[j])) + change).astype(variate.dtype)
        self.remember(j, VARIATE, variate)

    def check(self, vector: NDArray[Any], limit: float, j: int, rate: float) -> None:
        """Raise :class:`TrainingDiverged` unless all entries are below ``limit``, and finite where that is infinite."""
        if np.abs(vector).max(initial=0.0) < limit:  # False for NaN, and for infinity whatever the limit
            return
        hospital = int(self._plan.ids[j])
        name = "the pooled rows" if hospital == POOLED else f"hospital '{self._open(False).hospitals[hospital]}'"
        raise TrainingDiverged(
            f"training.learning_rate: {rate} made {name} diverge in round {self._plan.round}; "
            "lower it or scale the features"
        )

    def remember(self, j: int, what: str, vector: Any) -> None:
        """Have entry ``j``'s hospital remember a copy of ``vector`` under the name ``what``."""
        self._kept.setdefault(int(self._plan.ids[j]), {})[what] = vector.copy()

    def _add(self, j: int, group: int, weight: float, vector: Parameters) -> None:
        """Add what entry ``j`` sends to a sum, masked where sums are hidden."""
        if self._sums is None:
            return
        if self._plan.masking is None:
            self._sums.add(group, weight, vector)
        else:
            self._plan.masking.add(self._sums, group, weight, vector, int(self._plan.ids[j]))
