"""A hospital's message after its local update. Steps such as clipping, compression and masking change the message
before it is added to sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import TrainingDiverged
from raysim.core.exact import ExactSum, largest_entry
from raysim.data.federation import Federation
from raysim.engine.client.failure_context import check_rows
from raysim.engine.client.initial_model import Parameters
from raysim.engine.client.tasks import Tasks
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import RoundPlan
from raysim.engine.messages.steps import EXTRAS, UPDATE, Adding, HospitalStep, Leaving
from raysim.engine.messages.update_sums import extra_weights, heaviest, sum_count
from raysim.engine.privacy.release import release_of
from raysim.strategies.base import POOLED, Floats, LocalProblem, Upload


class Sending:
    """Adds up what this process's hospitals send after their local updates in a round.

    ``states`` has what hospitals store between rounds; it is changed in place. ``open(pooled)`` returns the federation,
    with the training rows of all hospitals if ``pooled`` is true.
    """

    def __init__(
        self,
        plan: RoundPlan,
        problem: LocalProblem,
        tasks: Tasks,
        states: HospitalStates,
        open: Callable[[bool], Federation],
    ) -> None:
        self._plan, self._problem, self._tasks, self._states, self._open = plan, problem, tasks, states, open
        count = sum_count(problem, plan.models.shape[1])
        self._sums = ExactSum(count + plan.bit, plan.models.shape[1]) if count else None
        release = release_of(plan)
        self._hidden = release is not None and release.hides
        last = plan.steps[-1] if plan.steps else None
        self._adding = last if isinstance(last, Adding) else Adding()
        self._largest = largest_entry(heaviest(problem))
        self._deltas: list[Parameters] = []
        self._bits: list[int] = []

    @property
    def units(self) -> NDArray[np.int64] | None:
        """Return the sums of weighted updates as integers, in fixed point; None if nothing is summed."""
        return None if self._sums is None else self._sums.units

    @property
    def deltas(self) -> NDArray[Any] | None:
        """Return the updates of single hospitals, one row each; None if only sums are sent."""
        return np.stack(self._deltas) if self._deltas else None

    @property
    def bits(self) -> NDArray[np.int64] | None:
        """Return the number of bits of each compressed update; None if updates are not compressed."""
        return np.array(self._bits) if self._bits else None

    def leaving(
        self, phase: LocalProblem, upload: Upload, j: int, update: Floats, rate: float, loss: Callable[[], float]
    ) -> Leaving:
        """Return the message of local update ``j`` before any step changes it."""
        summed, groups = upload.weight is not None and upload.what == "delta", self._problem.groups
        return Leaving(
            hospital=int(self._plan.ids[j]),
            entry=j,
            upload=upload,
            vectors={UPDATE: update},
            private=self._plan.private,
            limit=self._largest if summed else np.inf,
            loss=loss,
            check=lambda vector, limit: self.check(vector, limit, j, rate),
            states=self._states,
            hidden=self._hidden,
            group=0 if groups is None else int(groups.group[j]),
        )

    def send(self, leaving: Leaving, steps: Sequence[HospitalStep], theta: Parameters | None = None) -> None:
        """Apply the ``steps``, such as clipping and compression, to a message and add the result to the sums. ``theta
        [P]`` is the model after training.
        """
        for step in steps:
            step.forward(leaving)
        if leaving.bit is not None and self._sums is not None:
            self._adding.add_number(self._sums, leaving.bit, leaving.hospital)
        self._send_update(leaving, theta)
        if EXTRAS in leaving.vectors:
            self._send_extras(leaving)

    def _send_extras(self, leaving: Leaving) -> None:
        """Add the numbers that a hospital sends along with its update. Their sums follow the sums of updates."""
        numbers, sent = leaving.vectors[EXTRAS], leaving.upload
        leaving.check(numbers, self._largest)
        size, weight = self._plan.models.shape[1], float(extra_weights(sent)[leaving.entry])
        for k in range(0, len(numbers), size):
            row = np.zeros(size)
            part = numbers[k : k + size]
            row[: len(part)] = part
            self._add(leaving, sent.sums + k // size, weight, row)

    def _send_update(self, leaving: Leaving, theta: Parameters | None) -> None:
        upload, vector, j = leaving.upload, leaving.update, leaving.entry
        leaving.check(vector, leaving.limit)
        if leaving.bits is not None:
            self._bits.append(leaving.bits)
        if upload.single:
            self._deltas.append(vector)
        if upload.weight is None:
            return
        if upload.what == "parameters" and theta is not None:
            vector = theta if self._plan.private is None else np.where(self._plan.private, 0.0, theta)
        if upload.weight.ndim > 1:
            for group in np.flatnonzero(upload.weight[j]):
                self._add(leaving, int(group), float(upload.weight[j, group]), vector)
        elif vector.size > self._plan.models.shape[1]:
            for g, part in enumerate(vector.reshape(upload.sums, -1)):
                self._add(leaving, g, float(upload.weight[j]), part)
        elif leaving.grid is not None:
            step, weight = leaving.grid
            self._add(leaving, leaving.sum_index, weight, np.rint(vector / step))
        else:
            self._add(leaving, leaving.sum_index, float(upload.weight[j]), vector)

    def check(self, vector: NDArray[Any], limit: float, j: int, rate: float) -> None:
        """Raise :class:`TrainingDiverged` unless all entries of ``vector`` are finite and have magnitudes below
        ``limit``. If the hospital's training rows are not finite, :class:`HospitalFailed` is raised instead.
        """
        if np.abs(vector).max(initial=0.0) < limit:  # False for NaN, and for infinity whatever the limit
            return
        hospital = int(self._plan.ids[j])
        name = "the pooled rows" if hospital == POOLED else f"hospital '{self._open(False).hospitals[hospital]}'"
        if hospital != POOLED:
            check_rows(self._open(False), hospital, "train", f"training in round {self._plan.round}")
        raise TrainingDiverged(
            f"training.learning_rate: {rate} made {name} diverge in round {self._plan.round}; "
            "lower it or scale the features"
        )

    def remember(self, j: int, what: str, vector: Any) -> None:
        """Store a copy of ``vector`` under the name ``what`` at the hospital of local update ``j``, for later
        rounds.
        """
        self._states.setdefault(int(self._plan.ids[j]), {})[what] = vector.copy()

    def _add(self, leaving: Leaving, group: int, weight: float, vector: Parameters) -> None:
        """Add ``weight`` times ``vector`` to the sum with index ``group``. Raises :class:`TrainingDiverged` for a model
        that is too large for the integers that store sums.
        """
        if self._sums is None:
            return
        if leaving.upload.what == "parameters":
            leaving.check(vector, self._largest)
        self._adding.add(self._sums, group, weight, vector, leaving.hospital)
