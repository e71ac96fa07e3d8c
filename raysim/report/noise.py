"""How much of the spread between hospitals equal service would show too: the noise floor of the first seed's runs.

Runs with other seeds test on largely the same patients, so their figures are no independent evidence: the test and its
interval come from the first seed alone, which is named (:mod:`raysim.statistics.noise_floor`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from raysim.core.streams import stream
from raysim.engine.job import Result
from raysim.statistics.noise_floor import NoiseFloor, noise_floor

DRAWS = 200
"""Federations drawn for each true spread that is tried: a third of a second for 208 hospitals."""


def floors(results: Sequence[Result], minimum_events: int) -> dict[tuple[str, str], NoiseFloor]:
    """The floor of every model served by the runs of the first seed; none for labels without two classes."""
    if not results:
        return {}
    first = results[0].seed
    return {
        (result.label, model): noise_floor(
            sums,
            result.federation.totals,
            stream(first, "noise floor"),  # the same draws for all, so that they differ by their figures alone
            minimum_events=minimum_events,
            draws=DRAWS,
        )
        for result in results
        if result.seed == first
        for model, sums in result.outcome.pairs.items()
    }


def table(floor_of: dict[tuple[str, str], NoiseFloor]) -> pd.DataFrame:
    """``noise.csv``: a row a strategy, model and figure of dispersion; empty cells are undefined.

    ``value`` on the test rows; ``floor`` with ``floor_low`` and ``floor_high``, what equal service shows; ``p``, how
    often it shows one as bad; ``true`` with its interval, the figure without test noise that the spread implies.
    """
    return pd.DataFrame(_rows(floor_of))


def _rows(floor_of: dict[tuple[str, str], NoiseFloor]) -> Iterator[dict[str, Any]]:
    for (strategy, model), floor in floor_of.items():
        for name, figure in floor.figures.items():
            yield {
                "strategy": strategy,
                "model": model,
                "figure": name,
                "hospitals": floor.hospitals,
                "value": figure.value,
                "floor": figure.floor,
                "floor_low": figure.low,
                "floor_high": figure.high,
                "p": figure.p,
                "true": figure.true.estimate,
                "true_low": figure.true.low,
                "true_high": figure.true.high,
            }


def as_json(floor: NoiseFloor) -> dict[str, Any]:
    """What ``summary.json`` says of a model's floor: whether a difference is shown, and the true spread."""
    return {
        "hospitals": floor.hospitals,
        "difference_shown": floor.shown,
        "p": floor.p,
        "true_spread": floor.tau.estimate,
        "true_spread_low": floor.tau.low,
        "true_spread_high": floor.tau.high,
        "sentence": floor.sentence(),
    }
