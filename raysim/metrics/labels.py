"""The kinds of labels: their number types, their metrics, and which direction is better."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.arrays import Floats
from raysim.metrics.declared import ERROR_FIGURES, SCORES, Figure
from raysim.metrics.equity import accuracy_equity, equity, error_equity
from raysim.metrics.measures import ERRORS, FIGURES, figures, regression_figures

Headline = Literal["auroc", "mae"]


@dataclass(frozen=True)
class TaskKind:
    """A kind of label, for classification or regression, and how models for it are evaluated.

    - ``label``: the number type of labels.
    - ``figures``: the names of the columns that ``measure`` returns: ``n`` (the number of rows), other whole numbers
      (``counts``), and metrics (``declared``).
    - ``headline``: the main metric, whose equity between hospitals is measured. ``title``: its name in texts.
      ``larger``: whether a larger value is better. ``undefined``: why the main metric may be undefined at a hospital
      with test rows.
    - ``secondary``: further metrics; reports show their means next to the main metric.
    - ``objectives``: a sweep's default objectives, for accuracy and equity, and whether each is maximised or minimised.
    - ``reference``: the reference point of a sweep's hypervolume. It has, for each possible objective, a value worse
      than any realistic one; it is empty for regression.
    - ``pooled``: the metrics that are also computed from the rows of all hospitals together.
    - ``measure(outputs, y, offsets)``: computes each hospital's ``figures`` from a model's outputs. ``summarise(figures
      [H, ...], stays [H])``: computes the metrics over ``H`` hospitals by name; ``stays`` are their numbers of rows.
    """

    name: Literal["classification", "regression"]
    label: type[np.int64] | type[np.float64]
    figures: tuple[str, ...]
    declared: tuple[Figure, ...]
    counts: tuple[str, ...]
    headline: Headline
    title: str
    larger: bool
    secondary: tuple[str, ...]
    objectives: dict[str, Literal["max", "min"]]
    reference: dict[str, float]
    undefined: str
    pooled: tuple[str, ...]
    measure: Callable[[ArrayLike, ArrayLike, ArrayLike], Floats]
    summarise: Callable[[Floats, NDArray[np.int64]], dict[str, float]]

    @property
    def intervals(self) -> tuple[Headline, Literal["worst_decile"]]:
        """The two metrics over hospitals whose differences have intervals: the mean of the headline metric, and the
        worst decile.
        """
        return self.headline, "worst_decile"

    @property
    def worst(self) -> str:
        """Whether the worst hospitals have the ``lowest`` or the ``highest`` values of the headline metric."""
        return "lowest" if self.larger else "highest"

    def reported(self) -> list[str]:
        """Return the names of all metrics over hospitals that a run reports."""
        names = self.summarise(np.full((1, len(self.figures)), np.nan), np.ones(1, np.int64))
        return [*names, *self.pooled]

    def decimals(self, values: ArrayLike) -> int:
        """Return the number of decimals for ``values`` of the headline metric.

        The result is 3 for AUROC. For errors, it is large enough to print the largest value with three significant
        digits.
        """
        if self.larger:
            return 3
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        largest = sizes[np.isfinite(sizes)].max(initial=0.0)
        return int(np.clip(2 - np.floor(np.log10(largest)), 0, 9)) if largest > 0 else 3


def federation_metrics(figures: Floats, stays: NDArray[np.int64]) -> dict[str, float]:
    """Return all metrics of a classification task over ``H`` hospitals, by name.

    ``figures [H, len(FIGURES)]`` are each hospital's metrics, and ``stays [H]`` the number of all its rows.
    """
    column = dict(zip(FIGURES, figures.T, strict=True))
    metrics = equity(column["auroc"], column["n"], stays) | accuracy_equity(column["accuracy"], column["n"])
    for figure in SCORES:
        if figure.name not in metrics:
            metrics[figure.name] = weighted_mean(column[figure.name], column["n"])
    return metrics


def error_metrics(figures: Floats, stays: NDArray[np.int64]) -> dict[str, float]:
    """Return all metrics of a regression task over ``H`` hospitals, by name.

    ``figures [H, len(ERRORS)]`` are each hospital's metrics, and ``stays [H]`` the number of all its rows.
    """
    column = dict(zip(ERRORS, figures.T, strict=True))
    metrics = error_equity(column["mae"], column["n"], stays)
    for figure in ERROR_FIGURES:
        if figure.name not in metrics:
            # Hospitals with an infinite error were counted as undefined above, and are left out here.
            finite = np.where(np.isfinite(column[figure.name]), column[figure.name], np.nan)
            metrics[figure.name] = weighted_mean(finite, column["n"])
    return metrics


def weighted_mean(values: Floats, weights: Floats) -> float:
    """Return the weighted mean of the ``values`` that are not NaN and have a positive weight. The mean is NaN without
    such values, and infinite if one of these values is infinite.
    """
    counted = ~np.isnan(values) & (weights > 0)
    total = weights[counted].sum()
    return float(weights[counted] @ values[counted] / total) if total else float("nan")


CLASSIFICATION = TaskKind(
    name="classification",
    label=np.int64,
    figures=FIGURES,
    declared=SCORES,
    counts=("events",),
    headline="auroc",
    title="AUROC",
    larger=True,
    secondary=(),
    objectives={"auroc": "max", "worst_decile": "max", "size_bias_abs": "min", "gini": "min"},
    reference={"auroc": 0.5, "pooled_auroc": 0.5, "worst_decile": 0.0, "size_bias_abs": 0.1, "gini": 0.5, "std": 0.5},
    undefined="their test rows hold one class",
    pooled=("pooled_auroc",),
    measure=figures,
    summarise=federation_metrics,
)
REGRESSION = TaskKind(
    name="regression",
    label=np.float64,
    figures=ERRORS,
    declared=ERROR_FIGURES,
    counts=(),
    headline="mae",
    title="MAE",
    larger=False,
    secondary=("rmse",),
    objectives={"mae": "min", "worst_decile": "min", "size_bias_abs": "min", "gini": "min"},
    reference={},
    undefined="their predictions are not finite",
    pooled=(),
    measure=regression_figures,
    summarise=error_metrics,
)
KINDS = {kind.name: kind for kind in (CLASSIFICATION, REGRESSION)}


def reporting(names: Container[str]) -> TaskKind:
    """Return the kind of label whose headline metric is among ``names``, the columns or keys of a run's results."""
    return REGRESSION if REGRESSION.headline in names else CLASSIFICATION
