"""Figures per hospital against scikit-learn and against numbers worked by hand; the pooled AUROC against its bound."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as sk

from raysim.metrics.labels import federation_metrics, weighted_mean
from raysim.metrics.measures import (
    FIGURES,
    ScoreHistogram,
    binary_figures,
    figures,
    merge_histograms,
    multiclass_figures,
    pooled_auroc,
    score_histogram,
)
from raysim.metrics.segments import floating, sortable

DTYPES = (np.float32, np.float64)


@pytest.fixture(autouse=True)
def _no_warning_and_no_trap() -> Iterator[None]:
    """Neither a warning nor a floating-point trap that the caller has set may come out of these functions."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        yield


def row(rows: NDArray[np.float64], segment: int = 0) -> dict[str, float]:
    return dict(zip(FIGURES, rows[segment].tolist(), strict=True))


def sampled_scores(
    seed: int, segments: int, classes: int = 2, dtype: Any = np.float32, coarse: bool = True, most: int = 60
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Logits (with ties if ``coarse``), labels and offsets of segments of fewer than ``most`` rows."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, most, segments))])
    n = int(offsets[-1])
    shape = (n,) if classes == 2 else (n, classes)
    logits = rng.normal(0, 3, shape)
    if coarse:
        logits = np.round(logits)
    return logits.astype(dtype), rng.integers(0, classes, n), offsets


def test_a_hospital_worked_by_hand() -> None:
    # Pairs (event, other): 2 > 0, 2 > -1, 0 = 0, 0 > -1: 3.5 of 4. Thresholds 2, 0, -1 have precision 1, 2/3, 1/2.
    measured = row(binary_figures(np.array([0.0, 2.0, -1.0, 0.0]), np.array([1, 1, 0, 0]), [0, 4]))
    e = math.exp
    expected = {
        "n": 4,
        "events": 2,
        "auroc": 3.5 / 4,
        "auprc": 0.5 * 1 + 0.5 * 2 / 3,
        "log_loss": (2 * math.log(2) + math.log1p(e(-2)) + math.log1p(e(-1))) / 4,
        "brier": (0.25 + 0.25 + (1 / (1 + e(2))) ** 2 + (1 / (1 + e(1))) ** 2) / 4,
        "accuracy": 3 / 4,  # a margin of exactly 0 is called positive
        "recall": 1.0,
    }
    assert {name: measured[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coarse", [True, False])
def test_binary_agrees_with_scikit_learn(dtype: Any, coarse: bool) -> None:
    z, y, offsets = sampled_scores(1, 30, dtype=dtype, coarse=coarse)
    measured = binary_figures(z, y, offsets)
    compared = 0
    for s, (i, j) in enumerate(pairwise(offsets)):
        t, m = y[i:j], z[i:j].astype(float)
        if len(set(t.tolist())) < 2:
            continue
        p = 1 / (1 + np.exp(-m))
        expected = {
            "n": j - i,
            "events": t.sum(),
            "auroc": sk.roc_auc_score(t, m),
            "auprc": sk.average_precision_score(t, m),
            "log_loss": sk.log_loss(t, p),
            "brier": sk.brier_score_loss(t, p),
            "accuracy": sk.accuracy_score(t, p >= 0.5),
            "recall": sk.recall_score(t, p >= 0.5),
        }
        ours = row(measured, s)
        assert {name: ours[name] for name in expected} == pytest.approx(expected, rel=1e-9)
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("dtype", DTYPES)
def test_multiclass_agrees_with_scikit_learn(dtype: Any) -> None:
    z, y, _ = sampled_scores(2, 30, classes=4, dtype=dtype, coarse=False)
    measured = row(multiclass_figures(z, y, [0, len(y)]))
    p = np.exp(z.astype(float))
    p /= p.sum(axis=1, keepdims=True)
    one_hot = np.eye(4)[y]
    assert measured["auroc"] == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovr"), rel=1e-6)
    assert measured["auprc"] == pytest.approx(sk.average_precision_score(one_hot, p), rel=1e-6)
    assert measured["log_loss"] == pytest.approx(sk.log_loss(y, p))
    assert measured["brier"] == pytest.approx(np.square(p - one_hot).sum(axis=1).mean())
    assert measured["accuracy"] == pytest.approx((p.argmax(axis=1) == y).mean())
    assert measured["recall"] == pytest.approx(sk.recall_score(y, p.argmax(axis=1), average="macro"))
    assert measured["n"] == len(y)
    assert math.isnan(measured["events"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_logits_are_one_margin(dtype: Any) -> None:
    z, y, offsets = sampled_scores(3, 12, dtype=dtype, coarse=False)
    pair = np.stack([np.zeros_like(z), z], axis=1)
    assert figures(pair, y, offsets) == pytest.approx(binary_figures(z, y, offsets), nan_ok=True)
    assert figures(z[:, None], y, offsets) == pytest.approx(figures(z, y, offsets), nan_ok=True)
    # The general formulas agree with the binary ones where they mean the same; Brier counts both classes.
    wide, narrow = row(multiclass_figures(pair, y, [0, len(y)])), row(binary_figures(z, y, [0, len(y)]))
    assert wide["auroc"] == pytest.approx(narrow["auroc"], rel=1e-6)
    assert wide["log_loss"] == pytest.approx(narrow["log_loss"])
    assert wide["brier"] == pytest.approx(2 * narrow["brier"])
    assert wide["accuracy"] == narrow["accuracy"]


def test_undefined_is_nan() -> None:
    z = np.array([1.0, -1.0, 2.0, 0.5, np.nan, 1.0], dtype=np.float32)
    y = np.array([0, 0, 1, 1, 0, 1])
    measured = binary_figures(z, y, [0, 0, 2, 4, 6, 6])
    empty, healthy, sick, broken, _ = (row(measured, s) for s in range(5))
    assert empty.pop("n") == 0
    assert empty.pop("events") == 0
    assert all(math.isnan(v) for v in empty.values())
    names = ("auroc", "auprc", "log_loss", "brier", "accuracy", "recall")
    assert [name for name in names if math.isnan(healthy[name])] == ["auroc", "auprc", "recall"]
    assert [name for name in names if math.isnan(sick[name])] == ["auroc"]
    assert (sick["auprc"], sick["recall"]) == (1.0, 1.0)
    assert (broken.pop("n"), broken.pop("events")) == (2, 1)
    assert all(math.isnan(v) for v in broken.values())


def test_a_class_alone_ranks_against_nothing() -> None:
    """Three rows of class 2, one of them called 0; then classes 0 and 1 of three, ranked without a fault."""
    logits = np.array([[0.0, 0, 3], [2, 0, 1], [0, 1, 2], [3, 0, 1], [0, 3, 1], [2, 0, -1]])
    alone, pair = (row(multiclass_figures(logits, [2, 2, 2, 0, 1, 0], [0, 3, 6]), s) for s in (0, 1))
    assert math.isnan(alone["auroc"])
    assert math.isnan(alone["auprc"]), "a precision of 1 whatever the scores are says nothing"
    assert (alone["recall"], alone["accuracy"]) == (2 / 3, 2 / 3)
    assert (pair["auroc"], pair["auprc"], pair["recall"]) == (1, 1, 1)


def test_no_rows_and_no_segments() -> None:
    none = np.zeros(0)
    assert binary_figures(none, none.astype(int), [0]).shape == (0, len(FIGURES))
    assert binary_figures(none, none.astype(int), [0, 0, 0])[:, 0].tolist() == [0, 0]
    measured = multiclass_figures(np.zeros((0, 3)), none.astype(int), [0, 0])
    assert measured[0, 0] == 0
    assert np.isnan(measured[0, 1:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_margins(dtype: Any) -> None:
    inf = math.inf
    sure = row(binary_figures(np.array([inf, 800, -inf, -800], dtype=dtype), np.array([1, 1, 0, 0]), [0, 4]))
    assert [sure[k] for k in ("auroc", "auprc", "log_loss", "brier", "accuracy", "recall")] == [1, 1, 0, 0, 1, 1]
    wrong = row(binary_figures(np.array([inf, -inf, inf], dtype=dtype), np.array([0, 1, 1]), [0, 3]))
    assert (wrong["log_loss"], wrong["auroc"]) == (inf, 0.25)
    assert wrong["brier"] == pytest.approx(2 / 3)
    tiny = row(binary_figures(np.array([-0.0, 0.0], dtype=dtype), np.array([0, 1]), [0, 2]))
    assert (tiny["auroc"], tiny["auprc"]) == (0.5, 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_logits_of_several_classes(dtype: Any) -> None:
    inf, nan = math.inf, math.nan
    z = np.array([[inf, 0, 0], [0, 0, -inf], [800, 0, -800], [1, 2, nan], [-inf] * 3], dtype=dtype)
    y = np.array([0, 1, 0, 1, 2])
    measured = multiclass_figures(z, y, [0, 1, 2, 3, 4, 5])
    assert measured[:3, 4] == pytest.approx([0, math.log(2), 0])
    assert measured[:3, 5] == pytest.approx([0, 0.5, 0])
    assert np.isnan(measured[3:, 2:]).all()
    assert multiclass_figures(z[:1], [1], [0, 1])[0, 4] == inf


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(DTYPES), st.sampled_from([2, 3, 9]), st.booleans())
def test_a_segment_does_not_depend_on_its_neighbours(seed: int, dtype: Any, classes: int, coarse: bool) -> None:
    z, y, offsets = sampled_scores(seed, 9, classes, dtype, coarse, most=400)
    together = figures(z, y, offsets)
    for s, (i, j) in enumerate(pairwise(offsets)):
        alone = figures(z[i:j], y[i:j], [0, j - i])
        assert alone.tobytes() == together[s : s + 1].tobytes()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(DTYPES))
def test_ranks_ignore_the_order_of_rows_and_any_rising_map(seed: int, dtype: Any) -> None:
    z, y, _ = sampled_scores(seed, 3, dtype=dtype)
    whole = [0, len(y)]
    plain = row(binary_figures(z, y, whole))
    mixed = np.random.default_rng(seed).permutation(len(y))
    ranks = ("auroc", "auprc")
    again = row(binary_figures(z[mixed], y[mixed], whole))
    risen = row(binary_figures(3 * z + 1, y, whole))
    for name in ranks:
        assert np.array_equal([plain[name]] * 2, [again[name], risen[name]], equal_nan=True)
    if not math.isnan(plain["auroc"]):
        turned = row(binary_figures(-z, y, whole))
        assert turned["auroc"] == pytest.approx(1 - plain["auroc"], abs=1e-12)


def test_other_dtypes_are_widened() -> None:
    y = np.array([0, 1, 1])
    expected = binary_figures(np.array([-1.0, 2.0, 3.0]), y, [0, 3])
    for dtype in (np.float16, np.int64):
        assert binary_figures(np.array([-1, 2, 3], dtype=dtype), y.astype(bool), [0, 3]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("z", "y", "offsets", "message"),
    [
        ([1.0], [0, 1], [0, 2], "y: shape"),
        ([1.0, 2.0], [0, 1], [0, 1], "offsets"),
        ([1.0, 2.0], [0, 1], [0, 3, 2], "offsets"),
        ([1.0, 2.0], [0, 1], [], "offsets"),
        ([1.0, 2.0], [0, 2], [0, 2], "labels 0..2"),
        ([1.0, 2.0], [-1, 1], [0, 2], "labels -1..1"),
    ],
)
def test_bad_shapes_and_labels_are_refused(z: list[float], y: list[int], offsets: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        binary_figures(np.array(z), np.array(y), offsets)
    with pytest.raises(ValueError, match="must be \\[n, C\\]"):
        multiclass_figures(np.zeros((2, 1)), [0, 0], [0, 2])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.booleans())
def test_pooled_auroc_keeps_its_bound(seed: int, spread: float, coarse: bool) -> None:
    z, y, offsets = sampled_scores(seed, 6, coarse=coarse)
    z *= np.float32(spread)
    parts = [score_histogram(z[i:j], y[i:j]) for i, j in pairwise(offsets)]
    value, bound = pooled_auroc(parts)
    exact = row(binary_figures(z, y, [0, len(y)]))["auroc"]
    assert np.isnan(value) == np.isnan(exact)
    if not np.isnan(exact):
        assert abs(value - exact) <= bound + 1e-12
        # Doubles are rounded to float32 first and keep the bound.
        assert pooled_auroc([score_histogram(z.astype(np.float64), y)]) == (value, bound)


def test_the_bound_of_the_pooled_auroc_is_attained() -> None:
    y = np.array([1, 0, 0])
    value, bound = pooled_auroc([score_histogram(np.array([1.001, 1.0, 0.5], dtype=np.float32), y)])
    assert (value, bound) == (0.75, 0.25)  # truly 1: the pair 1.001, 1 shares a bin
    assert pooled_auroc([score_histogram(np.array([1.5, 1.0, -0.5]), y)]) == (1.0, 0.0)


def test_integers_are_in_the_order_of_numbers_however_near_0() -> None:
    numbers = np.array([-np.inf, -2.0, -1.0, -1e-30, -0.0, 0.0, 1e-30, 1.0, 2.0, np.inf], dtype=np.float32)
    keys = sortable(numbers)
    assert (np.diff(keys.astype(np.int64)) > 0).tolist() == [True] * 4 + [False] + [True] * 4
    assert keys[4] == keys[5] == 1 << 31


def test_histograms_add_up_exactly_and_sparsely() -> None:
    z, y, _ = sampled_scores(5, 40, coarse=False)
    whole = score_histogram(z, y)
    half = len(y) // 2
    for parts in ([(0, half), (half, len(y))], [(half, len(y)), (0, half), (0, 0)]):
        merged = merge_histograms(score_histogram(z[i:j], y[i:j]) for i, j in parts)
        assert [part.tolist() for part in merged] == [part.tolist() for part in whole]
    assert (whole.positives.sum(), len(y) - whole.negatives.sum()) == (y.sum(), y.sum())
    assert (np.diff(whole.bins.astype(int)) > 0).all()
    assert (whole.positives + whole.negatives > 0).all()
    assert whole.nbytes == 18 * len(whole.bins)
    assert [len(part) for part in merge_histograms([])] == [0, 0, 0]


def test_pooled_auroc_where_undefined() -> None:
    one_class = score_histogram(np.ones(3), np.ones(3, dtype=int))
    broken = score_histogram(np.array([math.nan, -math.nan, 1]), np.array([0, 1, 1]))
    none: list[ScoreHistogram] = []
    for histograms in ([one_class], [broken], [one_class, broken], none):
        assert np.isnan(pooled_auroc(histograms)).all()
    infinite = score_histogram(np.array([math.inf, -math.inf]), np.array([1, 0]))
    assert pooled_auroc([infinite]) == (1.0, 0.0)


def test_an_infinite_log_loss_of_a_hospital_is_one_of_the_federation():
    column = {name: [0.5, 0.5, 0.5] for name in FIGURES} | {"n": [3.0, 1.0, 0.0]}
    column |= {"log_loss": [0.2, math.inf, math.nan], "auprc": [0.4, math.nan, math.nan], "recall": [0.6, 0.2, 0.9]}
    metrics = federation_metrics(np.array([column[name] for name in FIGURES]).T, np.array([9, 5, 2]))
    assert metrics["log_loss"] == math.inf
    assert metrics["auprc"] == pytest.approx(0.4)
    assert metrics["recall"] == pytest.approx((3 * 0.6 + 0.2) / 4)


def test_a_hospital_without_weight_counts_nothing_whatever_it_has():
    values = np.array([0.5, np.inf, np.nan, 0.8])
    assert weighted_mean(values, np.array([1.0, 0.0, 5.0, 2.0])) == pytest.approx(0.7)
    assert weighted_mean(values, np.array([1.0, 1.0, 5.0, 2.0])) == np.inf
    assert np.isnan(weighted_mean(values[1:3], np.array([0.0, 1.0])))


def test_halves_and_singles_are_worked_with_in_single_and_all_else_in_double_precision():
    kinds = {np.float16: np.float32, np.float32: np.float32, np.float64: np.float64, np.int64: np.float64}
    assert {given: floating(np.ones(2, given)).dtype.type for given in kinds} == kinds
