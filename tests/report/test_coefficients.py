"""The figure of a regression's coefficients, against the standard errors that other programs give."""

from pathlib import Path

import numpy as np
import pytest

from raysim.core.csv_files import write_csv
from raysim.report.figures.coefficients import MOST, of_table
from raysim.storage.coefficients import SURE, coefficients, of_global_model
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.regressions.newton import Newton
from tests.conftest import run_strategy
from tests.strategies.regressions.federations import LINEAR_MODEL, federation_of
from tests.strategies.regressions.tables import table_t

T = table_t()


def write_run(folder: Path, y, classes=2, strategy=None, model=None):
    """The rows of the global model, written and read back, and the outcome."""
    federation = federation_of(folder / "data", T, y, classes)
    outcome = run_strategy(federation, strategy or Newton(), rounds=20, **({} if model is None else {"model": model}))
    vectors = {"global": outcome.models[0], "personal/h0": outcome.models[0] + 1}
    table = coefficients(federation, vectors, outcome.layout, outcome.uncertainty)
    write_csv(table, folder / "coefficients.csv")
    return of_global_model(folder / "coefficients.csv")


def test_both_kinds_of_interval(tmp_path: Path):
    table = write_run(tmp_path, T.y).set_index("feature")
    assert table.index.tolist() == ["x0", "x1", "(intercept)"]
    assert set(table["effect"]) == {"odds ratio"}
    low, high = table.loc["x0", ["low", "high"]]
    assert (low, high) == pytest.approx((0.5861550, 3.0644971), abs=1e-6)
    away = 4.3026527297 * 0.2026311330
    robust = table.loc["x0", ["low_robust", "high_robust"]].tolist()
    assert robust == pytest.approx([1.8253260800 - away, 1.8253260800 + away], abs=1e-6)


def test_ratios_are_drawn_with_the_interval_that_holds_where_hospitals_differ(tmp_path: Path):
    table = write_run(tmp_path, T.y)
    figure = of_table(table, "Newton, seed 0")
    assert figure is not None
    (chart,) = figure.charts
    # exp(1.8253), exp(1.8253 -+ 4.3027 x .2026); x0 is 2.9 and x1 2.1 standard errors from 0.
    assert chart.description == "x0 6.20 (2.59 to 14.8); x1 0.271 (0.026 to 2.84)."
    assert "odds ratio per standard deviation" in figure.markup
    assert "<caption>Newton, seed 0</caption>" in figure.markup
    assert figure.markup.count('class="c0 behind"') == figure.markup.count('class="c0 whisker"') == 2
    alone = table.assign(low_robust=np.nan, high_robust=np.nan)
    (of_likelihood,) = of_table(alone).charts
    assert of_likelihood.description == "x0 6.20 (1.80 to 21.4); x1 0.271 (0.082 to 0.892)."


def test_of_a_number_they_are_differences(tmp_path: Path):
    table = write_run(tmp_path, T.real, 0, model=LINEAR_MODEL)
    figure = of_table(table.assign(low_robust=np.nan, high_robust=np.nan))
    assert figure is not None
    assert figure.charts[0].x.kind == "linear"
    assert figure.charts[0].description.startswith("x0 1.15 (0.728 to 1.57)")  # 1.1471 -+ t_33 x .2061


def test_only_the_surest_are_drawn_and_none_without_errors(tmp_path: Path):
    table = write_run(tmp_path, T.y)
    many = table.loc[[0] * (MOST + 3)].assign(feature=[f"c{i}" for i in range(MOST + 3)])
    many["coefficient"] = np.arange(MOST + 3) / 10.0
    figure = of_table(many)
    assert figure is not None
    assert [name for name in many["feature"] if f" {name} " in f" {figure.charts[0].description}"] == [
        f"c{i}" for i in range(3, MOST + 3)
    ]
    assert figure.caption.startswith(f"The {MOST} of {MOST + 3} coefficients")
    unsure = write_run(tmp_path / "fedavg", T.y, strategy=FedAvg())
    assert unsure[list(SURE)].isna().all(axis=None)
    assert of_table(unsure) is None
