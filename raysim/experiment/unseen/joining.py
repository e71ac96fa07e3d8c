"""What a joining hospital does with its labelled rows, other than recalibrating its model.

A hospital that was left out of training joins with some labelled rows. What it does depends on the strategy:

- If hospitals train alone, the hospital trains a model on these rows.
- If models share a body (the layers before the last), it fits its own head (the last layer).
- In all other cases, it fine-tunes the model if ``evaluation.unseen.joining`` is ``fine_tune``. With clusters, it first
  joins a cluster by the strategy's rule. If there is no rule, it joins the cluster whose model has the lowest mean loss
  on these rows.

The labelled rows are never used for testing.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.config import plugins
from raysim.core import host
from raysim.core.streams import stream
from raysim.data.derived.excerpt import newcomer
from raysim.data.split import number
from raysim.engine.job import Outcome
from raysim.engine.messages.plan import ModelSpec
from raysim.experiment.jobs import make_job
from raysim.experiment.session import InProcess
from raysim.experiment.unseen.folds import LeftOut
from raysim.strategies.base import OWN
from raysim.strategies.shared.personalization import RECALIBRATED, LastSteps, Personalization
from raysim.training.base import Model, Optimizer, Task

RIDGE = 1.0
"""The L2 penalty on the weights of a head that a joining hospital fits to its labelled rows."""

SAME = 1e-9
"""An output of the body counts as constant if its standard deviation is at most this number times max(1, ``|mean|``),
where ``mean`` is the output's mean."""


NOBODY = "nobody"
"""The value of ``served_by`` for a hospital at which no model can be used."""


class Joined(NamedTuple):
    """The predictions of a hospital's model after the hospital has joined, and the model's name."""

    margins: NDArray[Any]
    """The model's output for each row of the hospital, ``[n]``, or for each row and class, ``[n, C]``."""
    served_by: str


def joined(
    run: LeftOut, served: str, h: int, rows: NDArray[np.int64], how: str, *, defined: bool = True
) -> Joined | None:
    """Return hospital ``h``'s predictions by a model that was adapted to the hospital's labelled rows. ``rows`` has the
    indices of these rows among the hospital's test rows.

    Models are fine-tuned only if ``how`` is ``fine_tune``. ``served`` names the model, and ``defined`` tells whether
    the hospital can use this model without labelled rows. Returns None if there is no adapted model.
    """
    if run.result.alone:
        return trained_alone(run, served, h, rows)
    if run.result.outcome.private is not None:
        return with_head(run, served, h, rows)
    return fine_tuned(run, served, h, rows) if defined and how == "fine_tune" else None


def trained_alone(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """Train a model on only the labelled rows of hospital ``h``, as a participant that trains alone does. ``joined``
    has the indices of the labelled rows among hospital ``h``'s test rows.

    Returns None if the labelled rows have fewer than two different labels, or if the training yields no model
    ``served``.
    """
    config, federation, seed = run.config, run.result.federation, run.result.seed
    rows = np.arange(len(federation.y))[federation.rows(h, "test")]
    if not _differ(federation.y[rows][joined]):
        return None
    rest = np.setdiff1d(np.arange(len(rows)), joined)
    with tempfile.TemporaryDirectory() as scratch:
        alone = newcomer(federation, h, rows[joined], rows[rest], Path(scratch))
        strategy = plugins.build_strategy(config.strategy, model=config.model)
        job = make_job(config, strategy, plugins.build_selection(config.selection), alone.folder, seed)
        job = replace(job, stop=None, last=LastSteps(), secure=None, compression=None, aggregation=None)
        with host.threads(1):
            *_, outcome = InProcess(alone.totals, config.resources).run(job)
    if not isinstance(outcome, Outcome) or served not in outcome.predictions:
        return None
    margins = np.empty_like(outcome.predictions[served])
    margins[np.concatenate([joined, rest])] = outcome.predictions[served]
    return Joined(margins, f"{served}, trained on its rows")


def with_head(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """Fit the model head of hospital ``h`` to its labelled rows; the shared body of the model does not change.

    ``joined`` has the indices of the labelled rows among the hospital's test rows. The head's weights have an L2
    penalty of :data:`RIDGE`. Returns None if the labelled rows have fewer than two different labels, or if there are
    more than two classes. Returns None also if the hospital does not use exactly one of the server's models, or if the
    model's output is not linear in the head.
    """
    row, private, classes = _row(run, served, h), run.result.outcome.private, run.result.federation.classes
    model, X, y = _bound(run, h, "float64")
    if row is None or private is None or not _differ(y[joined]) or len(classes) > 2:
        return None
    body = np.where(private, 0.0, run.result.outcome.models[row])
    constant, outputs = _outputs_of_body(model, body, np.flatnonzero(private), X)
    if outputs is None:
        return None
    mean, scale = outputs[joined].mean(axis=0), outputs[joined].std(axis=0)
    varies = scale > SAME * np.maximum(1.0, np.abs(mean))
    z = (outputs[:, varies] - mean[varies]) / scale[varies]
    columns = np.column_stack([np.ones(len(z)), z])
    link = "log" if getattr(model, "link", "identity") == "log" else "identity"
    beta = _fitted(columns[joined], constant[joined], y[joined].astype(np.float64), "logit" if classes else link)
    return Joined(constant + columns @ beta, f"{served}, with its own head")


def _fitted(X: NDArray[Any], offset: NDArray[Any], y: NDArray[Any], link: str) -> NDArray[Any]:
    """Fit a generalised linear model with ``offset`` to ``X [n, p]`` and ``y``, and return its coefficients ``[p]``.

    The first column of ``X`` is the intercept; the other coefficients have an L2 penalty of :data:`RIDGE`. ``link`` is
    ``logit``, ``log`` or ``identity``.
    """
    from scipy.optimize import minimize  # imported late to start runs faster
    from scipy.special import expit

    def loss(beta: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        eta, shrunken = offset + X @ beta, np.append(0.0, RIDGE * beta[1:])
        if link == "logit":
            cumulant, mean = np.logaddexp(0, eta), expit(eta)
        else:
            cumulant, mean = (np.exp(eta),) * 2 if link == "log" else (eta**2 / 2, eta)
        return float((cumulant - y * eta).sum() + beta @ shrunken / 2), X.T @ (mean - y) + shrunken

    return np.asarray(minimize(loss, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-8}).x)


def _outputs_of_body(
    model: Model, body: NDArray[Any], head: NDArray[np.int64], X: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return a model's outputs without its head, and the outputs of its body, for the rows ``X [n, F]``.

    The first array, ``[n]``, has the model's outputs if all parameters of the head are zero. The second, ``[n, d]``,
    has the head's inputs; it is None if the model's output is not linear in the head. ``body`` has all parameters, with
    zeros for the head, and ``head [q]`` the indices of the head's parameters.
    """
    constant = model.logits(body, X)

    def beyond(places: NDArray[np.int64] | np.int64, values: NDArray[Any] | float) -> NDArray[Any]:
        theta = body.copy()
        theta[places] = values
        return np.asarray(model.logits(theta, X) - constant)

    outputs = np.column_stack([beyond(place, 1.0) for place in head])
    trial = stream(0, "a head").standard_normal(len(head))
    if not np.allclose(beyond(head, trial), outputs @ trial, rtol=1e-6, atol=1e-6):
        return constant, None
    # With an output for each of two classes, an output of the body counts twice, once with the other sign.
    signs = np.sign(outputs[np.abs(outputs).argmax(axis=0), np.arange(len(head))])
    _, once = np.unique(np.round(outputs * signs, 9), axis=1, return_index=True)
    return constant, outputs[:, np.sort(once)]


def _differ(y: NDArray[Any]) -> bool:
    return bool(len(y) and (y != y[0]).any())


def fine_tuned(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> Joined | None:
    """Fine-tune a model for hospital ``h`` on the hospital's labelled rows. ``served`` names the model.

    ``joined`` has the indices of the labelled rows among the hospital's test rows. Returns None if there are no such
    rows, if the hospital does not use exactly one of the server's models, or if ``served`` is the recalibrated model.
    """
    row = _chosen(run, served, h, joined)
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
    """Choose a cluster for hospital ``h`` by its labelled rows, and return the predictions of the cluster's model.

    ``joined`` has the indices of these rows among the hospital's test rows. Returns None if the hospital would use the
    same model without labelled rows.

    The predictions are NaN if no model can be chosen.
    """
    after = _chosen(run, served, h, joined)
    if after == _row(run, served, h):
        return None
    model, X, _ = _bound(run, h)
    if after is None:
        return Joined(np.full_like(run.result.outcome.predictions[served][: len(X)], np.nan), NOBODY)
    return Joined(model.logits(run.result.outcome.models[after], X), name_of(served, after))


def name_of(served: str, row: int) -> str:
    """Return the name of a model for the column ``served_by``.

    ``row`` is its index among the server's models: 0 is the global model, and ``k + 1`` is the model of cluster ``k``.
    """
    return f"{served} {row - 1}" if row else "global"


def _chosen(run: LeftOut, served: str, h: int, joined: NDArray[np.int64]) -> int | None:
    """Return the index of the server's model that hospital ``h`` uses after joining; None if it does not use exactly
    one.

    ``joined`` has the indices of the labelled rows among the hospital's test rows. The hospital may choose a cluster by
    its labelled rows.
    """
    outcome, federation = run.result.outcome, run.result.federation
    row, cluster = _row(run, served, h), outcome.cluster
    if row is None or cluster is None or outcome.serve[served][h] not in (OWN, cluster[h]):
        return row
    model, X, y = _bound(run, h)
    if outcome.newcomers is not None:
        observed = federation.observed[federation.rows(h, "test")]
        found = outcome.newcomers.row(X, observed, y[joined])
        return found if found is not None or "global" not in outcome.serve else 0
    if not len(joined):
        return int(cluster[h])
    trained = federation.sizes("train")
    sizes = {int(c): int(trained[cluster == c].sum()) for c in np.unique(cluster[trained > 0])}
    rows = sorted(sizes, key=lambda c: (-sizes[c], c))
    losses = [float(model.row_losses(model.logits(outcome.models[c], X[joined]), y[joined]).mean()) for c in rows]
    return rows[int(np.argmin(losses))]  # among equal losses the first, which is the largest cluster


def _row(run: LeftOut, served: str, h: int) -> int | None:
    """Return the index of the server's model that hospital ``h`` uses; None if it does not use exactly one.

    If the strategy has clusters and the hospital would use a model of its own, the result is 0, the global model.
    """
    outcome = run.result.outcome
    serve = outcome.serve.get(served)
    if served == RECALIBRATED or serve is None or serve.ndim != 1:
        return None
    if serve[h] == OWN and outcome.cluster is not None:
        return 0
    return int(serve[h]) if serve[h] >= 0 else None


def _bound(run: LeftOut, h: int, precision: str = "") -> tuple[Model, NDArray[Any], NDArray[Any]]:
    """Return the model, ready for computations, and the features and labels of all rows of hospital ``h``.

    The model computes in ``precision``; empty means the configured precision.
    """
    federation = run.result.federation
    rows = federation.rows(h, "test")
    model = ModelSpec.of(run.config.model).bind(federation, "cpu", precision or run.config.training.precision)
    return model, federation.X[rows], federation.y[rows]
