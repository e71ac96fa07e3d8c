"""Figures over hospitals: golden numbers, invariances, and what is undefined."""

from __future__ import annotations

import math
import tracemalloc
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raysim.metrics.equity
from raysim.metrics.equity import (
    accuracy_equity,
    equity,
    gini,
    paired_difference,
    paired_interval,
    pareto_front,
    size_slope,
    worst_decile,
)

A = [0.95, 0.91, 0.90, 0.88, 0.86, 0.93, 0.70, 0.92, 0.89, 0.85, 0.94, 0.87]
N = [900, 500, 420, 300, 150, 700, 40, 610, 330, 120, 800, 200]
SPREAD = ("gini", "std", "size_bias", "size_bias_abs")
NAMES = ("auroc", "mean_unweighted", "worst_decile", "p10", *SPREAD, "undefined", "hospitals")


def test_golden_numbers() -> None:
    figures = equity(A, N, N)
    golden = {
        "auroc": 0.9157593688,
        "mean_unweighted": 0.8833333333,
        "worst_decile": 0.775,
        "p10": 0.851,
        "gini": 0.0345911950,
        "std": 0.0630255680,
        "size_bias": 0.0684145174,
        "size_bias_abs": 0.0684145174,
        "undefined": 0,
        "hospitals": 12,
    }
    assert set(figures) == set(golden)
    assert figures == pytest.approx(golden, abs=6e-11)
    assert accuracy_equity(A, N) == pytest.approx(
        {
            "accuracy": 0.9157593688,
            "ad": 0.1166666667,
            "sdad": 0.0630255680,
            "accuracy_min": 0.70,
            "accuracy_max": 0.95,
            "accuracy_range": 0.25,
            "accuracy_cv": 0.0630255680 / 0.8833333333,
        },
        abs=2e-10,
    )


def test_larger_hospitals_doing_better_is_a_positive_slope() -> None:
    assert equity([0.7, 0.8, 0.9], [1, 1, 1], [10, 100, 1000])["size_bias"] == pytest.approx(0.1 / math.log(10))
    down = equity([0.9, 0.8, 0.7], [1, 1, 1], [10, 100, 1000])
    assert down["size_bias"] == pytest.approx(-0.1 / math.log(10))
    assert down["size_bias_abs"] == -down["size_bias"]


def test_undefined_hospitals_are_left_out_and_counted() -> None:
    nan = math.nan
    figures = equity([*A, nan, nan, 0.1], [*N, 7, 9, 0], [*N, 50, 60, 70])
    assert figures == pytest.approx({**equity(A, N, N), "undefined": 2})


def test_weights_are_test_rows_and_sizes_are_all_stays() -> None:
    figures = equity([0.6, 0.9], [1, 3], [10, 1000])
    assert figures["auroc"] == pytest.approx(0.825)
    assert figures["size_bias"] == pytest.approx(0.3 / math.log(100))


def test_nothing_defined_is_nan_and_one_hospital_has_no_spread() -> None:
    for nothing in (equity([math.nan, math.nan], [3, 4], [5, 6]), equity([], [], [])):
        assert all(math.isnan(nothing[name]) for name in NAMES[:-2])
        assert nothing["hospitals"] == 0
    one = equity([0.8, math.nan], [3, 4], [5, 6])
    centre = [one[name] for name in ("auroc", "mean_unweighted", "worst_decile", "p10")]
    assert centre == pytest.approx([0.8] * 4)
    assert all(math.isnan(one[name]) for name in SPREAD)
    assert (one["undefined"], one["hospitals"]) == (1, 1)
    same = equity([0.8, 0.9], [3, 4], [7, 7])
    assert math.isnan(same["size_bias"])
    assert same["std"] == pytest.approx(0.05)
    assert all(math.isnan(v) for v in accuracy_equity([], []).values())
    one = accuracy_equity([0.7], [5])
    assert {name for name, value in one.items() if math.isnan(value)} == {"sdad", "accuracy_range", "accuracy_cv"}
    assert math.isnan(accuracy_equity([0.0, 0.0], [5, 5])["accuracy_cv"])


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="shapes"):
        equity([0.5], [1, 2], [1, 2])


@pytest.mark.parametrize(("m", "count"), [(1, 1), (10, 1), (11, 2), (20, 2), (30, 3), (208, 21)])
def test_the_worst_decile_is_rounded_up(m: int, count: int) -> None:
    values = np.random.default_rng(m).random(m)
    assert float(worst_decile(values)) == pytest.approx(np.sort(values)[:count].mean())


hospitals = st.lists(
    st.tuples(st.floats(0.01, 1), st.integers(1, 500), st.integers(1, 10_000)), min_size=2, max_size=40
)


@given(hospitals, st.randoms(use_true_random=False))
def test_the_order_of_hospitals_does_not_matter(rows: list[tuple[float, int, int]], random: object) -> None:
    mixed = list(rows)
    random.shuffle(mixed)
    assert equity(*zip(*mixed, strict=True)) == pytest.approx(
        equity(*zip(*rows, strict=True)), rel=1e-9, abs=1e-9, nan_ok=True
    )


@given(hospitals)
def test_bounds(rows: list[tuple[float, int, int]]) -> None:
    a, v, n = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    figures, tol, m = equity(a, v, n), 1e-12, len(a)
    assert figures["gini"] == pytest.approx(np.abs(a[:, None] - a).sum() / (2 * m * m * a.mean()), abs=1e-12)
    assert -tol <= figures["gini"] <= 1 - 1 / m + tol
    assert figures["gini"] <= figures["std"] / figures["mean_unweighted"] / math.sqrt(3) + 1e-9
    assert a.min() - tol <= figures["worst_decile"] <= figures["mean_unweighted"] + tol
    assert a.min() - tol <= figures["auroc"] <= a.max() + tol
    assert a.min() - tol <= figures["p10"] <= a.max() + tol


@given(hospitals, st.floats(0.1, 10))
def test_scale(rows: list[tuple[float, int, int]], factor: float) -> None:
    a, v, n = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    plain, scaled = equity(a, v, n), equity(factor * a, v, n)
    for name in NAMES[:-2]:
        times = 1.0 if name == "gini" else factor
        assert scaled[name] == pytest.approx(times * plain[name], rel=1e-9, abs=1e-10, nan_ok=True)
    # The unit in which sizes are counted, days or stays, does not change a slope on their logarithm.
    assert equity(a, v, 7 * n)["size_bias"] == pytest.approx(plain["size_bias"], rel=1e-6, abs=1e-8, nan_ok=True)


def test_gini_and_slope_where_they_are_undefined() -> None:
    assert math.isnan(gini(np.zeros(3)))
    assert math.isnan(size_slope(np.array([0.5, 0.6]), np.array([0, 10])))


def test_pareto_front() -> None:
    values = [[0.9, 0.5], [0.8, 0.8], [0.8, 0.8], [0.7, 0.7], [0.9, 0.4], [math.nan, 0.9]]
    assert pareto_front(values).tolist() == [True, True, True, False, False, False]
    assert pareto_front(np.zeros((0, 3))).tolist() == []


def test_paired_difference_over_seeds() -> None:
    difference = paired_difference([0.9, 0.8, 0.7, math.nan], [0.8, 0.8, 0.8, 0.1])
    assert difference == pytest.approx((0.0, 0.1, 3), abs=1e-12)
    assert paired_difference([0.9], [0.8])[::2] == pytest.approx((0.1, 1))
    assert math.isnan(paired_difference([0.9], [0.8]).std)
    assert math.isnan(paired_difference([], []).mean)


def test_paired_interval_agrees_with_the_normal_one_and_with_its_seed() -> None:
    rng = np.random.default_rng(3)
    b = rng.uniform(0.6, 0.9, 300)
    d = rng.normal(0.02, 0.05, 300)
    rows = np.full(300, 10)
    low, high = paired_interval(b + d, b, rows, np.random.default_rng(1))
    half = 1.96 * d.std() / math.sqrt(300)
    assert (low, high) == pytest.approx((d.mean() - half, d.mean() + half), abs=1.5e-3)
    assert paired_interval(b + d, b, rows, np.random.default_rng(1)) == (low, high)
    narrow = paired_interval(b + d, b, rows, np.random.default_rng(1), level=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_a_constant_difference_has_an_interval_without_width() -> None:
    a, v = np.array(A), np.array(N)
    figures: tuple[Literal["auroc", "worst_decile"], ...] = ("auroc", "worst_decile")
    for figure in figures:
        bounds = paired_interval(a + 0.01, a, v, np.random.default_rng(0), figure=figure)
        assert bounds == pytest.approx((0.01, 0.01))


def test_paired_interval_leaves_undefined_hospitals_out() -> None:
    a, v = np.array(A), np.array(N)
    b = a - np.linspace(0, 0.1, len(a))
    more = paired_interval([*a, math.nan, 0.1, 0.9], [*b, 0.5, math.nan, 0.1], [*v, 5, 5, 0], np.random.default_rng(0))
    assert more == paired_interval(a, b, v, np.random.default_rng(0))
    assert all(math.isnan(x) for x in paired_interval([0.5], [0.6], [3], np.random.default_rng(0)))
    assert all(math.isnan(x) for x in paired_interval([], [], [], np.random.default_rng(0)))


@pytest.mark.parametrize("figure", ["auroc", "worst_decile"])
def test_paired_interval_is_the_same_in_blocks_which_bound_its_memory(
    figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(6)
    a, b, v = rng.random((2, 400)), rng.random((2, 400)), rng.integers(0, 50, (2, 400))
    a[0, :9] = math.nan

    def interval(block: int) -> tuple[tuple[float, float], int]:
        monkeypatch.setattr(raysim.metrics.equity, "BLOCK", block)
        tracemalloc.start()
        try:
            bounds = paired_interval(a, b, v, np.random.default_rng(8), figure=figure, draws=1000)
            return bounds, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    (whole, most), (blocks, least) = interval(1000 * 400), interval(1)
    assert whole == blocks
    assert least < 8 * raysim.metrics.equity.ROWS * 400 * 8 < most


def test_paired_interval_leaves_out_seeds_that_are_undefined_everywhere() -> None:
    """As the paired difference does, around whose mean it is."""
    rng = np.random.default_rng(7)
    a, b, v = rng.random((3, 30)), rng.random((3, 30)), rng.integers(1, 50, (3, 30))
    a[1] = math.nan
    for figure in ("auroc", "worst_decile"):
        low, high = paired_interval(a, b, v, np.random.default_rng(1), figure=figure)
        assert (low, high) == paired_interval(a[::2], b[::2], v[::2], np.random.default_rng(1), figure=figure)
        difference = paired_difference(*([equity(x[s], v[s], v[s])[figure] for s in range(3)] for x in (a, b)))
        assert difference.pairs == 2
        assert low < difference.mean < high


def test_the_lowest_of_a_draw_may_be_any_of_its_hospitals() -> None:
    """A draw of the highest hospitals alone, among many: more than the lowest few columns are looked at."""
    values, times = np.random.default_rng(2).permutation(400) / 400, np.zeros((400, 2), np.int32)
    order = np.argsort(values)
    times[order[-20:], 0] = 20  # 400 copies, of which the lowest 40 are two hospitals' 20 each
    times[order[:40], 1] = 10  # the lowest four hospitals
    lowest = raysim.metrics.equity._lowest_of_samples(values, np.arange(400), times, np.array([40, 40], np.int32))
    assert lowest == pytest.approx([values[order[380:382]].mean(), values[order[:4]].mean()])


def test_paired_interval_equals_resampling_by_hand() -> None:
    """The same draws, resampled in a plain loop over draws and seeds with the definitions of the figures."""
    rng = np.random.default_rng(5)
    a, b, v = rng.random((3, 17)), rng.random((3, 17)), rng.integers(1, 50, (3, 17))
    a[1, 4] = b[2, 9] = math.nan
    drawn = np.random.default_rng(8).integers(17, size=(50, 17))
    by_hand: dict[str, list[float]] = {"auroc": [], "worst_decile": []}
    for draw in drawn:
        seeds: dict[str, list[float]] = {"auroc": [], "worst_decile": []}
        for s in range(3):
            kept = [h for h in draw if np.isfinite(a[s, h] + b[s, h])]
            sides = [equity(x[s, kept], v[s, kept], v[s, kept]) for x in (a, b)]
            for name, differences in seeds.items():
                differences.append(sides[0][name] - sides[1][name])
        for name, over_draws in by_hand.items():
            over_draws.append(float(np.mean(seeds[name])))
    figures: tuple[Literal["auroc", "worst_decile"], ...] = ("auroc", "worst_decile")
    for figure in figures:
        expected = np.quantile(by_hand[figure], [0.025, 0.975])
        interval = paired_interval(a, b, v, np.random.default_rng(8), figure=figure, draws=50)
        assert interval == pytest.approx(tuple(expected), abs=1e-12)


def test_a_gini_and_a_slope_of_two_hospitals_by_hand() -> None:
    assert gini(np.array([0.25, 0.75])) == 0.25
    assert size_slope(np.array([0.5, 0.7]), np.array([1.0, math.e])) == pytest.approx(0.2)
    found = accuracy_equity([0.5, 0.25, 0.0], [1, 1, 0])
    assert (found["accuracy"], found["ad"], found["sdad"], found["accuracy_min"]) == (0.375, 0.625, 0.125, 0.25)


def test_the_worst_decile_of_each_of_several_models():
    values = np.arange(24.0).reshape(2, 12)
    assert worst_decile(values).tolist() == [0.5, 12.5]
    assert worst_decile(values, larger=False).tolist() == [10.5, 22.5]
