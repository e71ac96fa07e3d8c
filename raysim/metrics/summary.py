"""From hospitals' figures to the metrics of a federation."""

from __future__ import annotations

import numpy as np

from raysim.metrics.declared import ERROR_FIGURES, SCORES
from raysim.metrics.equity import accuracy_equity, equity, error_equity
from raysim.metrics.measures import ERRORS, FIGURES
from raysim.strategies.base import Floats, Ids


def federation_metrics(figures: Floats, stays: Ids) -> dict[str, float]:
    """Every federation-level metric by name, from ``figures [H, len(FIGURES)]`` and the ``stays [H]`` of each site."""
    column = dict(zip(FIGURES, figures.T, strict=True))
    metrics = equity(column["auroc"], column["n"], stays) | accuracy_equity(column["accuracy"], column["n"])
    for figure in SCORES:
        if figure.name not in metrics:
            metrics[figure.name] = weighted_mean(column[figure.name], column["n"])
    return metrics


def error_metrics(figures: Floats, stays: Ids) -> dict[str, float]:
    """As :func:`federation_metrics`, of a real label: from ``figures [H, len(ERRORS)]``."""
    column = dict(zip(ERRORS, figures.T, strict=True))
    metrics = error_equity(column["mae"], column["n"], stays)
    for figure in ERROR_FIGURES:
        if figure.name not in metrics:
            # Where an error is infinite the hospital is counted as undefined above, and left out here too.
            finite = np.where(np.isfinite(column[figure.name]), column[figure.name], np.nan)
            metrics[figure.name] = weighted_mean(finite, column["n"])
    return metrics


def weighted_mean(values: Floats, weights: Floats) -> float:
    """The mean over entries that are not NaN and have weight; NaN without any, infinite where one of them is."""
    counted = ~np.isnan(values) & (weights > 0)
    total = weights[counted].sum()
    return float(weights[counted] @ values[counted] / total) if total else float("nan")
