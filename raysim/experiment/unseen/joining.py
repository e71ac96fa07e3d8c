"""What a hospital that joins makes of its first labelled rows, beside recalibrating the model that serves it.

It fine-tunes that model as participants fine-tune theirs, or chooses the cluster whose model has the lowest mean loss
on these rows, of two alike the one with more training rows. The rows that it joins with never test.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.config import plugins
from raysim.core.streams import stream
from raysim.data.split import number
from raysim.engine.messages.plan import ModelSpec
from raysim.experiment.unseen.folds import LeftOut
from raysim.strategies.shared.personalization import RECALIBRATED, Personalization
from raysim.training.base import Model, Optimizer, Task


class Joined(NamedTuple):
    """The model of a hospital after it has joined."""

    margins: NDArray[Any]
    """Its outputs for all rows of the hospital, ``[n]`` or ``[n, C]``."""
    served_by: str


def fine_tuned(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """The model ``served`` at hospital ``h``, trained on its rows ``joined`` among its test rows.

    Epochs and rate are those with which the strategy fine-tunes; of one that does not, the defaults of fine-tuning.
    None where no model of the server serves the hospital, or it was recalibrated.
    """
    row = _row(run, served, h)
    if row is None or not len(joined):
        return None
    model, X, y = _bound(run, h)
    strategy = plugins.build_strategy(run.config.strategy)
    how = getattr(strategy, "personalization", None)
    how = how if isinstance(how, Personalization) else Personalization()
    training, name, seed = run.config.training, run.result.federation.hospitals[h], run.result.seed
    start = np.asarray(run.result.outcome.models[row], dtype=training.precision)

    def batches(epoch: int) -> np.random.Generator:
        return stream(seed, "fine-tuning of a hospital that joins", number(name), epoch)

    task = Task(X[joined], y[joined], start, (), how.epochs, how.learning_rate, batches)
    optimizer = Optimizer(training.optimizer, how.learning_rate, training.batch_size, training.weight_decay)
    return Joined(model.logits(model.train([task], optimizer)[0], X), f"{served}, fine-tuned")


def in_cluster(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """The model of the cluster that serves the rows ``joined`` of hospital ``h`` best; the one that serves it already
    where the strategy has no clusters. None as for :func:`fine_tuned`.
    """
    row, cluster, federation = _row(run, served, h), run.result.outcome.cluster, run.result.federation
    if row is None or not len(joined):
        return None
    model, X, y = _bound(run, h)
    rows, models = [row], run.result.outcome.models
    if cluster is not None and row == cluster[h]:
        trained = federation.sizes("train")
        sizes = {int(c): int(trained[cluster == c].sum()) for c in np.unique(cluster[trained > 0])}
        rows = sorted(sizes, key=lambda c: (-sizes[c], c))
    losses = [float(model.row_losses(model.logits(models[c], X[joined]), y[joined]).mean()) for c in rows]
    best = rows[int(np.argmin(losses))]  # the first of equal ones, which is the largest
    name = served if len(rows) == 1 or best == 0 else f"{served} {best - 1}"
    return Joined(model.logits(models[best], X), name)


def _row(run: LeftOut, served: str, h: int) -> int | None:
    """The row of the server's models that serves hospital ``h``; None where there is no one such row."""
    serve = run.result.outcome.serve.get(served)
    if served == RECALIBRATED or serve is None or serve.ndim != 1 or serve[h] < 0:
        return None
    return int(serve[h])


def _bound(run: LeftOut, h: int) -> tuple[Model, NDArray[np.float32], NDArray[Any]]:
    """The model family, and all rows of hospital ``h`` with their labels."""
    federation = run.result.federation
    rows = federation.rows(h, "test")
    model = ModelSpec.of(run.config.model).bind(federation, "cpu", run.config.training.precision)
    return model, federation.X[rows], federation.y[rows]
