"""Figures of a real-valued label, their federation metrics, and what a kind of label decides for whoever shows them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from raysim.metrics.equity import error_equity, paired_interval, worst_decile
from raysim.metrics.labels import CLASSIFICATION, REGRESSION, error_metrics, reporting
from raysim.metrics.measures import ERRORS, regression_figures
from raysim.report import tables
from raysim.report.pages import contents, page
from tests.report.answered import answered
from tests.report.pages import CARD, PROVENANCE, assert_sound


def by_hand(z: np.ndarray, y: np.ndarray) -> list[float]:
    """The figures of one hospital's rows, one sum after another."""
    n = len(y)
    if n == 0 or any(math.isnan(v) for v in z):
        return [n, *[math.nan] * 4]
    errors = [float(a - b) for a, b in zip(z, y, strict=True)]
    mean = sum(y) / n
    spread = sum((b - mean) ** 2 for b in y)
    squares = sum(e * e for e in errors)
    r2 = math.nan if len(set(y.tolist())) == 1 else 1 - squares / spread
    return [n, sum(abs(e) for e in errors) / n, math.sqrt(squares / n), r2, sum(errors) / n]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=6), st.integers(0, 2**31), st.booleans())
def test_figures_are_those_of_each_hospital_alone(sizes: list[int], seed: int, spoiled: bool) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=int)])
    n = int(offsets[-1])
    y = rng.integers(-2, 3, n) * 1.7 + 5
    z = (y + rng.normal(size=n)).astype(np.float32)
    if spoiled and n:
        z[rng.integers(n)] = math.nan
    errors = regression_figures(z, y, offsets)
    assert errors.shape == (len(sizes), len(ERRORS))
    for s in range(len(sizes)):
        rows = slice(offsets[s], offsets[s + 1])
        expected = by_hand(z[rows].astype(float), y[rows])
        np.testing.assert_allclose(errors[s], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(errors[s], regression_figures(z[rows], y[rows], [0, len(y[rows])])[0])


def test_figures_by_hand_and_their_edges() -> None:
    y = [1.0, 3.0, 4.0, 4.0, 0.1, 0.1, 0.1]
    z = [2.0, 3.0, 4.0, 6.0, 0.1, 0.1, math.inf]
    first, constant, infinite, empty = regression_figures(z, y, [0, 3, 6, 7, 7])
    np.testing.assert_allclose(first, [3, 1 / 3, math.sqrt(1 / 3), 1 - 1 / (14 / 3), 1 / 3])
    np.testing.assert_allclose(constant, [3, 2 / 3, math.sqrt(4 / 3), 1 - 4 / 10.14, 2 / 3], rtol=1e-9)
    assert (infinite[0], infinite[1], infinite[2]) == (1, math.inf, math.inf)
    assert math.isnan(infinite[3])
    assert empty[0] == 0
    assert np.isnan(empty[1:]).all()
    equal = regression_figures([0.3, 0.1, 0.1], [0.1, 0.1, 0.1], [0, 3])[0]  # 0.1 three times does not average to 0.1
    assert math.isnan(equal[3])
    with pytest.raises(ValueError, match="does not fit"):
        regression_figures([1.0], [1.0, 2.0], [0, 2])


def test_the_federation_metrics_of_errors() -> None:
    rng = np.random.default_rng(4)
    H = 23
    figures = np.column_stack([rng.integers(1, 30, H), rng.gamma(2.0, 3.0, (H, 2)), rng.normal(size=(H, 2))])
    stays = figures[:, 0].astype(int) * 5 + rng.integers(0, 9, H)
    figures[2, 3] = math.nan  # R2 alone is undefined there
    figures[5, 1:] = math.nan
    figures[7, 0], figures[7, 1:] = 0, math.nan
    figures[8, 1:3] = math.inf
    metrics = error_metrics(figures, stays)
    kept = [h for h in range(H) if h not in (5, 7, 8)]
    n, mae, rmse, _, _ = figures[kept].T
    assert metrics["mae"] == pytest.approx((n * mae).sum() / n.sum())
    assert metrics["rmse"] == pytest.approx((n * rmse).sum() / n.sum())
    with_r2 = ~np.isnan(figures[:, 3])
    with_r2[[5, 7]] = False
    weights = figures[with_r2, 0]
    assert metrics["r2"] == pytest.approx((weights * figures[with_r2, 3]).sum() / weights.sum())
    with_bias = [h for h in range(H) if h not in (5, 7)]
    assert metrics["bias"] == pytest.approx(np.average(figures[with_bias, 4], weights=figures[with_bias, 0]))
    assert metrics["mean_unweighted"] == pytest.approx(mae.mean())
    assert metrics["worst_decile"] == pytest.approx(np.sort(mae)[-2:].mean())  # ceil(20 / 10) highest
    assert metrics["p90"] == pytest.approx(np.quantile(mae, 0.9))
    assert metrics["gini"] == pytest.approx(np.abs(mae[:, None] - mae).sum() / (2 * len(mae) ** 2 * mae.mean()))
    assert metrics["std"] == pytest.approx(mae.std())
    assert metrics["size_bias"] == pytest.approx(stats.linregress(np.log(stays[kept]), mae).slope)
    assert (metrics["undefined"], metrics["hospitals"]) == (2, 20)
    assert list(metrics) == REGRESSION.reported()


def test_worse_is_larger_and_larger_hospitals_with_larger_errors_have_a_positive_bias() -> None:
    mae, stays = np.array([1.0, 2, 3, 4]), np.array([10, 100, 1000, 10_000])
    figures = error_equity(mae, np.ones(4), stays)
    assert figures["worst_decile"] == 4
    assert figures["size_bias"] == pytest.approx(1 / math.log(10))
    assert worst_decile(mae) == 1


def test_the_interval_of_errors_turns_round_that_of_their_negatives() -> None:
    rng = np.random.default_rng(3)
    a, b, n = rng.gamma(2, 1, (3, 25)), rng.gamma(2, 1, (3, 25)), rng.integers(1, 40, (3, 25))
    for figure in ("mae", "worst_decile"):
        low, high = paired_interval(a, b, n, np.random.default_rng(8), figure=figure, larger=False, draws=60)
        turned = paired_interval(-a, -b, n, np.random.default_rng(8), figure=figure, draws=60)
        assert (low, high) == pytest.approx((-turned[1], -turned[0]), abs=1e-12)
        drawn = np.random.default_rng(8).integers(25, size=(60, 25))
        weights = [n[s] if figure == "mae" else None for s in range(3)]
        by_draw = [
            np.mean([_figure(a[s], weights[s], d) - _figure(b[s], weights[s], d) for s in range(3)]) for d in drawn
        ]
        assert (low, high) == pytest.approx(tuple(np.quantile(by_draw, [0.025, 0.975])), abs=1e-12)


def _figure(values: np.ndarray, weights: np.ndarray | None, drawn: np.ndarray) -> float:
    if weights is not None:
        return float((weights[drawn] * values[drawn]).sum() / weights[drawn].sum())
    return float(np.sort(values[drawn])[-math.ceil(len(drawn) / 10) :].mean())


def test_a_table_tells_its_kind() -> None:
    assert reporting(["strategy", "mae"]) is REGRESSION
    assert reporting(["strategy", "auroc"]) is CLASSIFICATION
    assert reporting([]) is CLASSIFICATION
    assert CLASSIFICATION.reported()[-1] == "pooled_auroc"


def test_objectives_are_measured_from_no_better_than_chance() -> None:
    chance = {"auroc": 0.5, "pooled_auroc": 0.5, "worst_decile": 0.0}
    assert CLASSIFICATION.reference == chance | {"size_bias_abs": 0.1, "gini": 0.5, "std": 0.5}
    assert REGRESSION.reference == {}


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([0.52, 0.9], 3),
        ([2.4], 2),
        ([24.0, 1.0], 1),
        ([-24.0, 1.0], 1),
        ([51_000.0], 0),
        ([2e-5], 7),
        ([2e-7], 9),
        ([2e-8], 9),
        ([0.0], 3),
        ([math.nan], 3),
        ([], 3),
    ],
)
def test_errors_are_shown_with_three_digits(values: list[float], decimals: int) -> None:
    assert REGRESSION.decimals(values) == decimals
    assert CLASSIFICATION.decimals(values) == 3


# strategy: shift of MAE, and the slope of MAE on ln stays
ERRING = {"fedavg": (0.0, 0.1), "better": (-1.0, 0.01), "worse": (1.5, 0.4)}


def frames(seeds: int = 3, hospitals: int = 24, unit: float = 1.0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    stays = np.maximum(12, np.random.default_rng(99).lognormal(4.6, 1.1, hospitals)).astype(int)
    rows = np.maximum(2, stays // 5)
    per_seed, by_hospital, by_round = [], [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        base = 4 + rng.normal(0, 0.02) + rng.uniform(-0.5, 0.5, hospitals)
        for strategy, (shift, slope) in ERRING.items():
            mae = unit * (base + shift + slope * (np.log(stays) - 4.6))
            key = {"strategy": strategy, "model": "global", "seed": seed}
            columns = {"hospital": [f"h{i}" for i in range(hospitals)], "n_train": stays - rows, "n_test": rows}
            by_hospital.append(pd.DataFrame({**key, **columns, "mae": mae}))
            per_seed.append({**key, **error_equity(mae, rows, stays), "rmse": 1.3 * mae.mean()})
            t = np.arange(1, 9)
            by_round.append(pd.DataFrame({**key, "round": t, "mae": unit * (4 + 3 * np.exp(-t))}))
    return pd.DataFrame(per_seed), pd.concat(by_hospital, ignore_index=True), pd.concat(by_round, ignore_index=True)


def test_the_answer_recommends_the_lower_error() -> None:
    per_seed, hospitals, _ = frames()
    said = answered(per_seed, hospitals, "fedavg")
    assert said.card.recommended == "better"
    which = said.card.line("which")
    assert which is not None
    assert which.text.startswith("better is better than fedavg: -1.0")
    rows = contents.body_rows(tables.comparison(per_seed), list(ERRING))
    best = {row.name: [cell.best for cell in row.cells] for row in rows}
    assert best["better"][:3] == [True, True, True]  # MAE, RMSE, worst decile
    assert not any(best["worse"])


def test_differences_of_errors_have_intervals_on_the_right_side() -> None:
    per_seed, hospitals, _ = frames()
    differences = tables.differences(per_seed, "fedavg", hospitals).set_index(["strategy", "figure"])
    low, high = differences.loc[("better", "mae"), ["low", "high"]]
    assert low <= differences.loc[("better", "mae"), "mean"] <= high < 0
    assert differences.loc[("worse", "mae"), "low"] > 0
    assert differences.loc[("worse", "rmse"), ["low", "high"]].isna().all()


def test_pages_speak_of_errors_and_never_of_auroc(tmp_path: Path) -> None:
    per_seed, hospitals, rounds = frames()
    whole = page.comparison_page("Errors", per_seed, PROVENANCE, hospitals=hospitals, rounds=rounds, baseline="fedavg")
    sound = assert_sound(whole.html())
    assert len(whole.figures()) >= 4
    for said in (
        "Mean MAE is weighted by test rows",
        "hospitals with the highest MAE",
        "positive when larger hospitals do worse on these rows",
        "Negative is better.",
        "The slope of a line is the size bias",
        "better is better than fedavg",
    ):
        assert said in sound.text, said
    assert "AUROC" not in whole.html()
    assert "MAE at the hospital" in sound.text
    one = per_seed[(per_seed["strategy"] == "worse") & (per_seed["seed"] == 0)]
    theirs = hospitals[(hospitals["strategy"] == "worse") & (hospitals["seed"] == 0)]
    run = assert_sound(
        page.run_page("One", one, PROVENANCE, card=CARD, hospitals=theirs, rounds=rounds[rounds["seed"] == 0]).html()
    )
    assert "hospitals do better" not in run.text, "a slope without an interval is no direction"
    assert "with the highest MAE under the global model, highest first." in run.text
    highest = theirs.loc[theirs["mae"].idxmax()]
    cells = [text for tag, text in run.texts if tag in ("th", "td")]
    assert cells[cells.index("MAE") + 1] == highest["hospital"], "without intervals there is no column of them"


@pytest.mark.parametrize("case", ["large unit", "small unit", "undefined", "one hospital", "empty"])
def test_no_page_of_errors_fails(case: str, tmp_path: Path) -> None:
    unit = {"large unit": 1e5, "small unit": 1e-6}.get(case, 1.0)
    per_seed, hospitals, rounds = frames(seeds=2, unit=unit)
    if case == "undefined":
        per_seed = per_seed.assign(**dict.fromkeys(tables.figures_in(per_seed), math.nan))
        hospitals, rounds = hospitals.assign(mae=math.inf), rounds.assign(mae=math.nan)
    if case == "one hospital":
        hospitals = hospitals[hospitals["hospital"] == "h3"]
    if case == "empty":
        per_seed, rounds = per_seed[:1], rounds[:0]
    shown = None if case == "empty" else hospitals
    html = page.comparison_page(case, per_seed, PROVENANCE, hospitals=shown, rounds=rounds, baseline="fedavg").html()
    sound = assert_sound(html)
    if case == "undefined":
        assert "their predictions are not finite, so MAE is undefined there" in sound.text
    if unit != 1:
        lowest = tables.comparison(per_seed)["mae"].min()
        assert ("strong", f"{lowest:.0f}" if unit > 1 else f"{lowest:.8f}") in sound.texts


def test_the_worst_hospitals_have_the_lowest_auroc_and_the_highest_error() -> None:
    assert (CLASSIFICATION.worst, REGRESSION.worst) == ("lowest", "highest")
