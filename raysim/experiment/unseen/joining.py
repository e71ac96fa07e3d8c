"""How a joining hospital uses its first labelled rows, other than to recalibrate the model used for it.

It fine-tunes the model, as participants do. Or it chooses the cluster whose model has the lowest mean loss on these
rows; among equal clusters, it chooses the one with more training rows. The labelled rows are never used for testing.
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
    """The model's outputs for all rows of the hospital, ``[n]`` or ``[n, C]``."""
    served_by: str


def fine_tuned(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """Fine-tune the model ``served`` for hospital ``h`` on the rows ``joined`` among its test rows.

    Epochs and learning rate are taken from the strategy's fine-tuning, or are the defaults if the strategy has none.
    Returns None if none of the server's models is used for the hospital, or if the model was recalibrated.
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
    """Choose the cluster whose model fits the rows ``joined`` of hospital ``h`` best, and return its model.

    Without clusters, the hospital's current model is returned. Returns None in the same cases as :func:`fine_tuned`.
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
    best = rows[int(np.argmin(losses))]  # among equal losses the first, which is the largest cluster
    name = served if len(rows) == 1 or best == 0 else f"{served} {best - 1}"
    return Joined(model.logits(models[best], X), name)


def _row(run: LeftOut, served: str, h: int) -> int | None:
    """Return the row of the server's models that is used for hospital ``h``; None if there is no single such row."""
    serve = run.result.outcome.serve.get(served)
    if served == RECALIBRATED or serve is None or serve.ndim != 1 or serve[h] < 0:
        return None
    return int(serve[h])


def _bound(run: LeftOut, h: int) -> tuple[Model, NDArray[np.float32], NDArray[Any]]:
    """Return the model family, and all rows of hospital ``h`` with their labels."""
    federation = run.result.federation
    rows = federation.rows(h, "test")
    model = ModelSpec.of(run.config.model).bind(federation, "cpu", run.config.training.precision)
    return model, federation.X[rows], federation.y[rows]
