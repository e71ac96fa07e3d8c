"""A run's model on one hospital's rows, for client programs: :class:`raysim.strategies.programs.LocalModel`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import Streams
from raysim.engine.messages.plan import Work
from raysim.strategies.base import Floats, Ids, Mask, Rows
from raysim.strategies.programs import Trained
from raysim.training.base import Model, Optimizer, Task

GREAT_STEP = 2.0**20
"""The learning rate of the single step of gradient descent by which a gradient is computed.

Parameters are tiny compared with such a step, so almost no digit of the gradient is lost. The rate is a power of two,
so dividing by it loses no digit.
"""


class HospitalModel:
    """The run's ``model`` on the ``rows`` of one hospital, in a ``round``. ``turn`` is the number of earlier calls of
    the same client program in this round.
    """

    def __init__(self, model: Model, work: Work, rows: Rows, hospital: int, round: int, turn: int) -> None:
        self._model, self._rows, self._optimizer, self._precision = model, rows, work.optimizer, work.precision
        self.trained: int = model.layout.trained
        self.batch_size, self.epochs = work.optimizer.batch_size, work.epochs
        self.learning_rate = work.optimizer.learning_rate
        self._key = work.seed, turn, round, hospital

    @cached_property
    def parameters(self) -> Mapping[str, slice]:
        """See :class:`raysim.strategies.programs.LocalModel`, which also documents the other methods of this class."""
        return self._model.layout.slices

    @cached_property
    def _stream(self) -> Callable[..., np.random.Generator]:
        # Made only if used: many programs train nothing. The first call of a round uses the batches of the built-in
        # training.
        seed, turn, round, hospital = self._key
        return partial(Streams(seed, "batch" + (f" of call {turn}" if turn else ""), round).at, hospital)

    def outputs(self, theta: Floats, rows: Ids | None = None) -> NDArray[Any]:
        return self._model.logits(self._sized(theta), self._rows.X if rows is None else self._rows.X[rows])

    def losses(self, theta: Floats, rows: Ids | None = None) -> Floats:
        y, weights = self._labels(rows)
        losses = self._model.row_losses(self.outputs(theta, rows), y)
        return losses if weights is None else losses * weights

    def loss(self, theta: Floats, rows: Ids | None = None) -> float:
        losses = self.losses(theta, rows)
        return float(losses.mean()) if len(losses) else 0.0

    def gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        optimizer = replace(self._optimizer, name="sgd", batch_size=0)
        return np.asarray(self._descended([self._task(theta, rows, 1, GREAT_STEP)], optimizer)[0])

    def rows_gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        each = np.arange(len(self._rows.y)) if rows is None else rows
        if not len(each):
            return np.zeros((0, self._model.layout.size))
        tasks = [self._task(theta, np.array([row]), 1, GREAT_STEP) for row in each.tolist()]
        return self._descended(tasks, Optimizer("sgd", GREAT_STEP, 0))

    def batches(self, epochs: int | None = None, size: int | None = None) -> Iterator[Ids]:
        n, size = len(self._rows.y), self.batch_size if size is None else size
        for epoch in range(self.epochs if epochs is None else epochs):
            order = np.arange(n)
            if 0 < size < n:
                self._stream(epoch).shuffle(order)
            for first in range(0, n, size or n or 1):
                yield order[first : first + (size or n)]

    def train(
        self,
        theta: Floats,
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        proximal: Sequence[tuple[float, Floats]] = (),
        linear: Floats | None = None,
        frozen: Mask | None = None,
    ) -> Trained:
        epochs = self.epochs if epochs is None else epochs
        rate = self.learning_rate if learning_rate is None else learning_rate
        task = self._task(theta, None, epochs, rate)
        task.proximal = [(weight, self._sized(towards)) for weight, towards in proximal if weight]
        task.linear, task.frozen = None if linear is None else self._sized(linear), frozen
        trained = np.asarray(self._model.train([task], self._optimizer)[0], np.float64)
        batches = -(-len(self._rows.y) // (self.batch_size or len(self._rows.y) or 1))
        return Trained(trained, epochs * batches)

    def _task(self, theta: Floats, rows: Ids | None, epochs: int, rate: float) -> Task:
        y, weights = self._labels(rows)
        X = self._rows.X if rows is None else self._rows.X[rows]
        return Task(X, y, self._sized(theta), (), epochs, rate, self._stream, weights=weights)

    def _descended(self, tasks: Sequence[Task], optimizer: Optimizer) -> Floats:
        """Return the gradient of each task's loss at the task's start model, ``[len(tasks), P]``."""
        ends = self._model.train(tasks, optimizer)
        steps = np.stack([task.start for task in tasks]).astype(np.float64) - ends
        steps[:, self._model.layout.trained :] = 0.0
        return np.asarray(steps / GREAT_STEP)

    def _labels(self, rows: Ids | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
        y, weights = self._rows.y, self._rows.weights
        if rows is None:
            return y, weights
        return y[rows], None if weights is None else weights[rows]

    def _sized(self, theta: Floats) -> NDArray[Any]:
        size = self._model.layout.size
        if np.shape(theta) != (size,):
            raise ValueError(f"the parameters have shape {list(np.shape(theta))}, but the model needs shape [{size}]")
        return np.asarray(theta, dtype=self._precision)
