"""The metrics of a model at one hospital: meaning, computation, and when each is undefined.

Tables, means over hospitals, comparisons of patient groups, curves and metrics with noise are derived from these
declarations. Another package can add a metric by an entry point of the group ``raysim.figures`` that names a
:class:`ScoreFigure` or an :class:`ErrorFigure`. Definitions: ``docs/metrics.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from raysim.core.arrays import Floats
from raysim.core.errors import ConfigError
from raysim.core.installed import loaded, registered
from raysim.core.words import counted
from raysim.metrics.counts import BinaryCounts, ClassCounts, ErrorSums
from raysim.metrics.rows import BinaryRows, ClassRows, ErrorRows

F = TypeVar("F", bound="Figure")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A performance metric of a model, such as AUROC or mean absolute error, on the evaluated rows of one hospital."""

    name: str
    """Name of the metric and of its column."""
    unit: str
    """Title of the axis in plots, with a unit after a comma."""
    meaning: str
    """Meaning of the value at one hospital, in one line."""
    mean: str
    """Meaning of the mean over hospitals, in one line."""
    larger: bool | None
    """Whether a larger value is better; None if neither direction is better."""
    weighted_by: Literal["rows", "events", "other rows", "rows, squared"] | None = None
    """The weights with which the mean over hospitals equals the metric over all rows together.

    With ``rows, squared``, hospitals' squared metrics are averaged with rows as weights; the metric over all rows is
    the root of this mean. With None, no weighted mean equals the metric over all rows.
    """


@dataclass(frozen=True, kw_only=True)
class ScoreFigure(Figure):
    """A metric for class labels. Each function returns one value for each of ``S`` hospitals, ``[S]``.

    If a function is None, the metric is undefined for the rows or counts that this function would take.
    """

    of_rows: Callable[[BinaryRows], Floats]
    """Computes the metric from the scores and labels of rows, for two classes."""
    of_classes: Callable[[ClassRows], Floats] | None = None
    """Computes the metric from the logits and labels of rows, for three classes or more."""
    of_counts: Callable[[BinaryCounts], Floats] | None = None
    """Computes the metric from noisy counts of rows in bins of the score, for two classes."""
    of_class_counts: Callable[[ClassCounts], Floats] | None = None
    """Computes the metric from noisy counts of rows in bins of each class's score, for three classes or more."""
    undefined: Literal["without rows", "without events", "with one class"] = "without rows"
    """When the metric is undefined at a hospital, for two classes."""
    most: Callable[[BinaryCounts | ClassCounts], float] = lambda counts: 1.0
    """Returns the largest possible value, to which noisy values are clipped; the smallest is 0."""
    gap: bool = False
    """Whether the largest difference of the metric between groups of patients is also reported."""


@dataclass(frozen=True, kw_only=True)
class ErrorFigure(Figure):
    """A metric for a real-valued label. Each function returns one value for each of ``S`` hospitals, ``[S]``."""

    of_rows: Callable[[ErrorRows], Floats]
    """Computes the metric from the predictions and labels of rows."""
    of_sums: Callable[[ErrorSums], Floats] | None = None
    """Computes the metric from noisy sums of errors; None if it is undefined with noise."""


_SCORES = (
    ScoreFigure(
        name="auroc",
        unit="AUROC",
        meaning="Share of pairs, one row with the event and one without, that are ranked right; .5 is chance.",
        mean="Mean AUROC, weighted by evaluated rows.",
        larger=True,
        undefined="with one class",
        of_rows=lambda rows: rows.ranks[0],
        of_classes=lambda rows: rows.mean(rows.ranks[0]),
        of_counts=lambda of: (of.positives * of.below).sum(axis=1) / (of.events * of.others),
        of_class_counts=lambda of: of.mean((of.positives * of.midranks).sum(axis=2) / of.pairs + 0.5, of.ranked),
    ),
    ScoreFigure(
        name="auprc",
        unit="AUPRC",
        meaning="Average precision over all thresholds: the precision, weighted by the recall gained. More is better.",
        mean="Mean average precision, weighted by evaluated rows.",
        larger=True,
        undefined="without events",
        of_rows=lambda rows: rows.ranks[1],
        of_classes=lambda rows: rows.mean(rows.ranks[1]),
        of_counts=lambda of: of.precision / of.events,
        of_class_counts=lambda of: of.mean(of.precision / of.of_class, of.ranked),
    ),
    ScoreFigure(
        name="log_loss",
        unit="log loss, nats",
        meaning="Mean surprise at the outcome, in natural logarithms. Less is better.",
        mean="Mean log loss, weighted by evaluated rows. Less is better.",
        larger=False,
        weighted_by="rows",
        of_rows=lambda rows: rows.segments.sums(rows.log_loss) / rows.n,
        of_classes=lambda rows: rows.segments.sums(rows.log_loss) / rows.n,
        of_counts=lambda of: of.loss / of.n,
        of_class_counts=lambda of: of.loss / of.n,
        most=lambda counts: counts.largest_loss,
    ),
    ScoreFigure(
        name="brier",
        unit="Brier score",
        meaning="Mean squared distance of the risk from the outcome. Less is better.",
        mean="Mean Brier score, weighted by evaluated rows. Less is better.",
        larger=False,
        weighted_by="rows",
        of_rows=lambda rows: rows.segments.sums(rows.squared_error) / rows.n,
        of_classes=lambda rows: rows.segments.sums(rows.squared_error) / rows.n,
        of_counts=lambda of: of.squared_error / of.n,
        of_class_counts=lambda of: of.squared_error / of.n,
        most=lambda counts: counts.largest_error,
    ),
    ScoreFigure(
        name="accuracy",
        unit="accuracy, share of rows",
        meaning="Share of rows that are classified right, at a risk of .5.",
        mean="Mean accuracy, weighted by evaluated rows.",
        larger=True,
        weighted_by="rows",
        gap=True,
        of_rows=lambda rows: rows.segments.counts(rows.predicted_positive == rows.positive) / rows.n,
        of_classes=lambda rows: rows.segments.counts(rows.predicted == rows.labels) / rows.n,
        of_counts=lambda of: (of.predicted_positive(of.positives) + of.predicted_negative(of.negatives)) / of.n,
        of_class_counts=lambda of: of.right.sum(axis=1) / of.n,
    ),
    ScoreFigure(
        name="recall",
        unit="recall, share of events",
        meaning="Share of the events that are predicted positive, at a risk of .5.",
        mean="Mean recall, weighted by evaluated rows.",
        larger=True,
        weighted_by="events",
        gap=True,
        undefined="without events",
        of_rows=lambda rows: rows.segments.counts(rows.predicted_positive & rows.positive) / rows.events,
        of_classes=lambda rows: rows.mean(rows.recalls),
        of_counts=lambda of: of.predicted_positive(of.positives) / of.events,
        of_class_counts=lambda of: of.mean(of.right / of.of_class, of.present),
    ),
)

_ERRORS = (
    ErrorFigure(
        name="mae",
        unit="mean absolute error, unit of the label",
        meaning="Mean absolute error, in the unit of the label. Less is better.",
        mean="Mean absolute error, weighted by evaluated rows.",
        larger=False,
        weighted_by="rows",
        of_rows=lambda rows: rows.segments.sums(np.abs(rows.errors)) / rows.n,
        of_sums=lambda of: of.width * np.clip(of.absolute / of.count, 0.0, 1.0),
    ),
    ErrorFigure(
        name="rmse",
        unit="RMSE, unit of the label",
        meaning="Root of the mean squared error, in the unit of the label. Less is better.",
        mean="Mean RMSE, weighted by evaluated rows. Less is better.",
        larger=False,
        weighted_by="rows, squared",
        of_rows=lambda rows: np.sqrt(rows.squared / rows.n),
        of_sums=lambda of: of.width * np.sqrt(np.clip(of.squared / of.count, 0.0, 1.0)),
    ),
    ErrorFigure(
        name="r2",
        unit="R²",
        meaning="Share of the label's variance that is explained; below 0 it is worse than the mean.",
        mean="Mean R2, weighted by evaluated rows.",
        larger=True,
        of_rows=lambda rows: np.where(rows.varied, 1.0 - rows.squared / rows.spread, np.nan),
        # Errors are in widths of the range, places in half-widths: their squares differ by a factor of 4.
        of_sums=lambda of: np.where(of.spread > 0, 1.0 - 4.0 * np.maximum(of.squared, 0.0) / of.spread, np.nan),
    ),
    ErrorFigure(
        name="bias",
        unit="bias, unit of the label",
        meaning="Mean of prediction less label; 0 is best.",
        mean="Mean bias, weighted by evaluated rows.",
        larger=None,
        weighted_by="rows",
        of_rows=lambda rows: rows.segments.sums(rows.errors) / rows.n,
        of_sums=lambda of: of.width * np.clip(of.signed / of.count, -1.0, 1.0),
    ),
)


_OWN: tuple[Figure, ...] = (*_SCORES, *_ERRORS)


def _with_registered(own: tuple[F, ...], kind: type[F]) -> tuple[F, ...]:
    """Return raysim's ``own`` metrics, then metrics of this ``kind`` from other packages, in the order of entry point
    names.

    Raises ``ConfigError`` for an entry point that names no metric, and for a name used twice.
    """
    figures = list(own)
    taken = {"n", "events", *(figure.name for figure in _OWN)}
    for entry in registered("figures"):
        figure = loaded(entry, "raysim.figures")
        if not isinstance(figure, Figure):
            raise ConfigError(
                f"raysim.figures: '{entry.name}' is neither a ScoreFigure nor an ErrorFigure; register one"
            )
        if not isinstance(figure, kind):
            continue
        if figure.name in taken:
            raise ConfigError(f"raysim.figures: '{figure.name}' is taken; give '{entry.name}' another name")
        figures.append(figure)
        taken.add(figure.name)
    return tuple(figures)


SCORES = _with_registered(_SCORES, ScoreFigure)
"""The metrics for class labels, including registered ones."""

ERROR_FIGURES = _with_registered(_ERRORS, ErrorFigure)
"""The metrics for real-valued labels, including registered ones."""

ADDED = tuple(each.name for each in (*SCORES[len(_SCORES) :], *ERROR_FIGURES[len(_ERRORS) :]))
"""Names of the metrics that other packages have registered."""


def values_of(figure: Figure, function: Callable[[R], Floats], rows: R, hospitals: int) -> Floats:
    """Return the values of a metric, ``[hospitals]``, that one of its functions computes from ``rows``.

    Raises ``ConfigError`` if the function of another package fails, or returns another shape.
    """
    if figure.name not in ADDED:
        return function(rows)
    try:
        values = np.asarray(function(rows), dtype=np.float64)
    except Exception as error:  # whatever another package raises
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"raysim.figures: '{figure.name}' cannot be computed ({reason}); mend the package that registers it"
        ) from error
    if values.shape != (hospitals,):
        raise ConfigError(
            f"raysim.figures: '{figure.name}' has shape {list(values.shape)}; return one number for each of "
            f"{counted(hospitals, 'hospital')}, [{hospitals}]"
        )
    return values


DECLARED = (*SCORES, *ERROR_FIGURES)

AT_HOSPITAL = {"n": "Evaluated rows.", "events": "Rows with the event."} | {
    figure.name: figure.meaning for figure in DECLARED
}
"""The meaning of each count and metric of a model at one hospital, by name."""

OVER_HOSPITALS = {figure.name: figure.mean for figure in DECLARED} | {
    "mean_unweighted": "Mean of the headline figure (AUROC or MAE), every hospital alike.",
    "worst_decile": "Mean of the tenth of hospitals that are served worst.",
    "p10": "The headline figure below which a tenth of hospitals lie.",
    "p90": "The headline figure above which a tenth of hospitals lie.",
    "gini": "How unequal hospitals are; 0 when all are served alike.",
    "std": "Standard deviation over hospitals.",
    "size_bias": "Slope of the headline figure on the logarithm of a hospital's rows.",
    "size_bias_abs": "The size bias without its sign. Less is better.",
    "undefined": "Hospitals with evaluated rows at which the headline figure is undefined.",
    "hospitals": "Hospitals at which the headline figure is defined.",
    "ad": "Average distance: the mean of 1 less the accuracy. Less is better.",
    "sdad": "Standard deviation of 1 less the accuracy over hospitals. Less is better.",
    "accuracy_min": "The least accuracy of a hospital.",
    "accuracy_max": "The greatest accuracy of a hospital. Hospitals with few rows are first or last by chance.",
    "accuracy_range": "The greatest accuracy of a hospital less the least. Less is better.",
    "accuracy_cv": "Standard deviation of accuracy over hospitals, divided by their unweighted mean. Less is better.",
    "pooled_auroc": "AUROC over all rows together, which ranks patients of different hospitals too.",
}
"""The meaning of each summary over all hospitals, by name."""
