"""Partitions a data set at each point of a grid. Measures how much clients differ, and how many clusters a strategy
chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.errors import ConfigError, DataError
from raysim.core.streams import stream
from raysim.data.heterogeneity import label_metrics, quantity
from raysim.data.sources.partition import dirichlet, holdout
from raysim.strategies.base import Answers, Call, Context, FederationView, Rows, Selection, Strategy
from raysim.study.settings import Study

Labels = NDArray[np.int64]

KNOWN = "label_counts"
"""The only statistic that a study can compute for a strategy: a hospital's number of rows of each class."""


def cells(study: Study) -> list[tuple[int, float, int]]:
    """Return ``(clients, alpha, seed)`` for every partition of a study; ``clients`` is the number of clients."""
    return list(product(study.clients, study.alphas, study.seeds))


def measure(y: Labels, classes: int, study: Study, strategy: Strategy | None) -> Iterator[dict[str, float]]:
    """Divide the labels ``y [N]`` by every partition of a study, and yield a row of metrics for each partition.

    Columns are ``clients, alpha, seed, feasible``, every metric of the label skew of training rows, the Gini index of
    clients' sizes and, with a strategy, its number of ``clusters``. A partition that leaves a client with too few rows
    is not feasible and has no metrics.
    """
    for clients, alpha, seed in cells(study):
        row: dict[str, float] = {"clients": clients, "alpha": alpha, "seed": seed}
        try:
            counts = divided(y, classes, clients, alpha, seed, study.min_size)
        except DataError:
            yield row | {"feasible": False}
            continue
        row |= (
            {"feasible": True}
            | label_metrics(counts, study.epsilon)
            | {"quantity_gini": quantity(counts.sum(axis=1)).gini}
        )
        if strategy is not None:
            row["clusters"] = chosen_clusters(strategy, counts, seed)
        yield row


def divided(y: Labels, classes: int, clients: int, alpha: float, seed: int, min_size: int) -> NDArray[np.int64]:
    """Divide the labels ``y [N]`` by a Dirichlet partition, and count training rows, ``[clients, classes]``.

    Raises ``DataError`` if no partition gives each client ``min_size`` rows.
    """
    home = dirichlet(y, clients, alpha, seed, min_size=min_size)
    trains = holdout(y, home, seed) == 0
    return np.bincount(home[trains] * classes + y[trains], minlength=clients * classes).reshape(clients, classes)


def chosen_clusters(strategy: Strategy, counts: NDArray[np.int64], seed: int) -> int:
    """Return how many clusters ``strategy`` makes of ``H`` hospitals with the label counts ``counts [H, C]``.

    Raises ``ConfigError`` for a strategy that makes no clusters, or that needs more than label counts.
    """
    hospitals, classes = counts.shape
    named = type(strategy).__name__

    def call(call: Call) -> Answers:
        program = call.program
        if program.name != KNOWN:
            raise ConfigError(
                f"study.strategy: {named} requests '{program.name}' from hospitals, but a study has only their "
                f"'{KNOWN}'; name a strategy that clusters by '{KNOWN}' (see 'raysim list strategies')"
            )
        sent = [program.run(_labelled(counts[h], partial(stream, seed, KNOWN, 0, h))).sent[KNOWN] for h in call.ids]
        return Answers({}, {KNOWN: np.stack(sent)}, call.ids, np.array([len(sent)]))

    view = FederationView(
        names=tuple(f"client_{h + 1}" for h in range(hospitals)),
        sizes=counts.sum(axis=1),
        classes=classes,
        initial=np.zeros(1),
        local_epochs=1,
        learning_rate=1.0,
        selection=Selection(),
        memory=None,
        rng=lambda purpose, *key: stream(seed, purpose, *key),
        call=call,
    )
    try:
        strategy.check(view.names, view.sizes)
    except ValueError as error:
        raise ConfigError(f"study.strategy.{error}") from None
    cluster = strategy.setup(view).cluster
    if cluster is None:
        raise ConfigError(
            f"study.strategy: {named} makes no clusters; name a strategy with clusters of hospitals (see "
            "'raysim list strategies')"
        )
    return len(np.unique(cluster))


def check_feasible(table: pd.DataFrame) -> None:
    """Raise ``DataError`` if the feasible partitions have fewer than two values of alpha or fewer than two seeds."""
    feasible = table[table["feasible"]]
    if feasible["alpha"].nunique() < 2 or feasible["seed"].nunique() < 2:
        raise DataError(
            f"study.alphas: {int((~table['feasible']).sum())} of {len(table)} partitions leave a client with too few "
            "rows, and fewer than two alphas or seeds are left; use larger alphas, fewer clients or a lower min_size"
        )


def _labelled(counts: NDArray[np.int64], rng: Callable[[], np.random.Generator]) -> Context:
    y = np.repeat(np.arange(len(counts)), counts)
    nothing = np.empty((len(y), 0))
    return cast(Context, SimpleNamespace(rows=Rows(nothing, y, nothing.astype(np.bool_)), rng=rng))
