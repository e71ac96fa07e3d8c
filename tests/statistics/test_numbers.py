"""The numbers that results rest on and that no formula gives: levels, least counts, draws, edges.

Who changes one changes what is printed, so that it is changed here and in the documentation too.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from raysim.metrics.equity import paired_interval
from raysim.statistics.chance.noise_floor import error_floor, noise_floor
from raysim.statistics.clinical.calibration import binned, calibration_error
from raysim.statistics.clinical.equity import calibration_chance
from raysim.statistics.differences.worst_decile import worst_decile_difference

NUMBERS: dict[str, dict[str, Any]] = {
    "core.levels": {"LEVEL": 0.95, "ALPHA": 0.05, "POWER": 0.8, "Z": 1.959963984540054},
    "statistics.intervals": {"ENOUGH": 2.5, "FEW_ROWS": 10, "OF_RARER": 0.4, "OF_COMMONER": 0.2},
    "statistics.meta_analysis.between_hospitals": {
        "FEWEST": 3,
        "FEWEST_TO_PREDICT": 5,
        "WIDEST": 0.5,
        "WIDEST_UNBOUNDED": 4.0,
        "GRID": 200,
    },
    "statistics.discrimination.common_curve": {"LEAST": 20, "EDGE": 0.02, "WIDEST": 3.0},
    "statistics.convergence": {"LEAST_POINTS": 5},
    "statistics.chance.dispersion": {"TENTH": 10, "SAME_SIZE": 0.1},
    "statistics.chance.inversion": {
        "TAUS": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1, 1.25, 1.6, 2.2, 4),
        "SAME": 1e-9,
    },
    "statistics.chance.noise_floor": {"FEWEST": 3, "DRAWS": 1000},
    "statistics.differences.paired": {"FEW_HOSPITALS": 10, "ENOUGH_SEEDS": 5, "SMALLEST_P": 1e-12},
    "statistics.differences.harm": {"ENOUGH": 10},
    "statistics.discrimination.sketches": {"SUMS": 100},
    "statistics.meta_analysis.spread": {"PRECISION": 1e-12},
    "statistics.clinical.by_hospital": {"LARGE": 5000, "TOLERATED": (0.8, 1.25)},
    "statistics.clinical.calibration": {"STEEPEST": 20.0, "ENOUGH": 10, "BINS": 10, "BINNED_ROWS": 100},
    "statistics.clinical.equity": {"DRAWS": 200, "FEWEST": 3},
    "statistics.clinical.clinical_figures": {"FLOOR_DRAWS": 1000},
    "statistics.clinical.operating_points": {"BOOTSTRAP": 300, "ROUNDING": 1e-12},
    "statistics.clinical.thresholds": {"ONE_ROW": 1 - 1e-9},
}


@pytest.mark.parametrize("module", NUMBERS)
def test_the_numbers_of_statistics(module: str) -> None:
    has = vars(importlib.import_module(f"raysim.{module}"))
    assert {name: has[name] for name in NUMBERS[module]} == NUMBERS[module]


@pytest.mark.parametrize(
    ("function", "left_out"),
    [
        (calibration_error, {"draws": 1000}),
        (calibration_chance, {"draws": 1000}),
        (paired_interval, {"draws": 2000, "level": 0.95}),
        (worst_decile_difference, {"draws": 2000, "level": 0.95, "larger": True}),
        (noise_floor, {"draws": 1000, "minimum_events": 5}),
        (error_floor, {"draws": 1000, "minimum_rows": 5}),
        (binned, {"bins": 10}),
    ],
)
def test_defaults_of_functions(function: Callable[..., Any], left_out: dict[str, Any]):
    parameters = inspect.signature(function).parameters
    assert {name: parameters[name].default for name in left_out} == left_out
