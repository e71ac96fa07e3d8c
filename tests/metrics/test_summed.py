"""Figures from one sum over rows: of several classes, and of a real-valued label."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.metrics.binned import BINS, CENTRES
from raysim.metrics.measures import ERRORS, FIGURES, multiclass_figures, regression_figures
from raysim.metrics.summed import Classes, Errors, SummedFigures, TwoClasses, figures_of_counts

HUGE = st.sampled_from([0.0, 0.3, -2.0, 7.0, -1e3, 1e300, np.inf, -np.inf, np.nan])


def of_rows(sums: SummedFigures, outputs, y) -> np.ndarray:
    return sums.figures(sums.added(np.asarray(outputs, dtype=np.float64), y).sum(axis=0)[None, :])[0]


@given(st.lists(st.tuples(st.integers(0, 3), HUGE, HUGE, HUGE, HUGE), min_size=1, max_size=6))
def test_a_row_of_several_classes_adds_as_many_ones_as_is_said(rows):
    sums = Classes(4)
    added = sums.added(np.array([row[1:] for row in rows]), [row[0] for row in rows])
    assert added.shape == (len(rows), sums.width)
    assert set(np.unique(added)) == {0.0, 1.0}
    assert (added.sum(axis=1) == 5.0).all()
    assert (sums.absolute, sums.euclidean) == (5.0, math.sqrt(5.0))


@given(st.lists(st.tuples(HUGE, HUGE), min_size=1, max_size=6), st.floats(-50, 50), st.floats(0.01, 100))
def test_a_row_of_a_real_label_adds_entries_from_minus_1_to_1(rows, low, width):
    sums = Errors(low, low + width)
    labels = np.nan_to_num([label for _, label in rows])  # of labels none is missing
    added = sums.added(np.array([z for z, _ in rows]), labels)
    assert added.shape == (len(rows), sums.width) == (len(rows), 6)
    assert (np.abs(added) <= 1.0).all()
    assert (sums.absolute, sums.euclidean) == (6.0, math.sqrt(6.0))


def test_entries_of_a_real_label_by_hand():
    """A range from 2 to 12: width 10, middle 7."""
    added = Errors(2.0, 12.0).added(np.array([9.0, 0.0, np.nan, np.inf]), [4.0, 7.0, 20.0, -5.0])
    assert added == pytest.approx(
        np.array(
            [
                [1, 0.5, 0.5, 0.25, -0.6, 0.36],
                [1, 0.5, -0.5, 0.25, 0.0, 0.0],  # 0 is brought to 2
                [1, 0.5, -0.5, 0.25, 1.0, 1.0],  # NaN to 7, 20 to 12
                [1, 1.0, 1.0, 1.0, -1.0, 1.0],
            ]
        )
    )


def test_figures_of_a_real_label_are_those_of_its_rows():
    rng = np.random.default_rng(2)
    y = rng.uniform(1, 9, size=300)
    z = np.clip(y + rng.normal(size=300), 0, 10)
    assert of_rows(Errors(0.0, 10.0), z, y) == pytest.approx(regression_figures(z, y, [0, 300])[0], abs=1e-12)


def test_figures_of_several_classes_by_hand():
    """Seven rows of three classes; the third row is called wrong though its class is the second most probable."""
    y = np.array([0, 0, 1, 1, 2, 2, 2])
    p = [[8, 1, 1], [8, 7, 5], [5, 4, 1], [1, 8, 1], [1, 1, 3], [3, 3, 4], [3, 1, 1]]
    z = np.log(np.array(p, dtype=np.float64))
    got = dict(zip(FIGURES, of_rows(Classes(3), z, y), strict=True))
    exact = dict(zip(FIGURES, multiclass_figures(z, y, [0, 7])[0], strict=True))
    assert (got["n"], got["accuracy"]) == (7.0, 5 / 7)
    assert got["recall"] == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)
    assert np.isnan(got["events"])
    assert got["log_loss"] == pytest.approx(exact["log_loss"], abs=0.04)
    assert got["brier"] == pytest.approx(exact["brier"], abs=0.04)
    # Probabilities differ by more than a bin holds, or not at all: ranks are those of the rows.
    assert got["auroc"] == pytest.approx(exact["auroc"], abs=1e-12)
    assert got["auprc"] == pytest.approx(exact["auprc"], abs=1e-12)


@pytest.mark.parametrize("classes", [3, 10])
def test_figures_of_several_classes_are_within_what_a_bin_holds(classes):
    rng = np.random.default_rng(classes)
    y, n = rng.integers(classes, size=5000), 5000
    z = rng.normal(size=(n, classes))
    z[np.arange(n), y] += 1.0
    got, exact = of_rows(Classes(classes), z, y), multiclass_figures(z, y, [0, n])[0]
    auprc = FIGURES.index("auprc")
    assert got[auprc] == pytest.approx(exact[auprc], abs=1e-2)  # of equal scores each counts like the last of them
    assert np.delete(got, auprc) == pytest.approx(np.delete(exact, auprc), abs=2e-3, nan_ok=True)
    rank = FIGURES.index("accuracy")
    assert got[[0, rank, rank + 1]] == pytest.approx(exact[[0, rank, rank + 1]], abs=1e-12)


def test_two_columns_of_logits_are_a_margin():
    y, margins = np.array([0, 1, 1, 0]), np.array([-1.0, 2.0, -0.3, 0.4])
    two, one = np.column_stack([np.ones(4), 1.0 + margins]), TwoClasses()
    assert (one.added(two, y) == one.added(margins, y)).all()
    assert one.figures(one.added(margins, y)) == pytest.approx(figures_of_counts(one.added(margins, y)), nan_ok=True)
    assert one.together(one.added(margins, y).sum(axis=0))["pooled_auroc"] == 0.75


def test_the_auroc_of_all_rows_is_that_of_counts_of_all():
    rng = np.random.default_rng(5)
    y, z, sums = rng.integers(3, size=400), rng.normal(size=(400, 3)), Classes(3)
    z[np.arange(400), y] += 0.5
    together = sums.together(sums.added(z, y).sum(axis=0))
    exact = multiclass_figures(z, y, [0, 400])[0][FIGURES.index("auroc")]
    assert together["pooled_auroc"] == pytest.approx(exact, abs=3e-3)
    assert np.isnan(together["pooled_auroc_bound"])
    assert Errors(0.0, 1.0).together(np.ones(6)) == {}


@pytest.mark.parametrize("sums", [Classes(3), Errors(-3.0, 3.0)], ids=["classes", "real"])
def test_noise_without_bias_leaves_no_bias_and_all_stays_in_range(sums):
    rng = np.random.default_rng(1)
    names, ratios = list(FIGURES), ["n", "log_loss", "brier", "accuracy", "recall"]
    y, outputs = rng.integers(3, size=3000).astype(np.float64), rng.normal(size=(3000, 3))
    outputs[np.arange(3000), y.astype(np.int64)] += 1.0
    if isinstance(sums, Errors):
        names, ratios, y = list(ERRORS), ["n", "mae", "bias"], rng.normal(size=3000)
        outputs = y + rng.normal(size=3000)
    exact = sums.added(outputs, y).sum(axis=0)
    noisy, truth = sums.figures(exact + rng.laplace(scale=2.0, size=(3000, sums.width))), sums.figures(exact[None])[0]
    for name in ratios:
        k = names.index(name)
        error = 5 * noisy[:, k].std() / 3000**0.5
        assert noisy[:, k].mean() == pytest.approx(truth[k], abs=error + 1e-3 * abs(truth[k])), name
    small = dict(zip(names, sums.figures(rng.laplace(scale=30.0, size=(500, sums.width))).T, strict=True))
    most = {"auroc": 1, "auprc": 1, "accuracy": 1, "recall": 1, "brier": 2, "log_loss": 8.1, "mae": 6, "rmse": 6}
    for name in most.keys() & small.keys():
        values = small[name][~np.isnan(small[name])]
        assert len(values), name
        assert ((values >= 0) & (values <= most[name])).all(), name
    assert (small["n"] >= 0).all()
    if "bias" in small:
        assert np.nanmax(np.abs(small["bias"])) <= 6
        assert np.nanmax(small["r2"]) <= 1


def test_what_is_undefined_is_nan():
    nobody = dict(zip(FIGURES, Classes(3).figures(np.zeros((1, Classes(3).width)))[0], strict=True))
    assert nobody.pop("n") == 0.0
    assert np.isnan(list(nobody.values())).all()
    one_class = dict(zip(FIGURES, of_rows(Classes(3), np.zeros((2, 3)), [1, 1]), strict=True))
    assert np.isnan([one_class["auroc"], one_class["auprc"]]).all()
    assert (one_class["accuracy"], one_class["recall"]) == (0.0, 0.0)  # the first of equal classes is called
    nobody = dict(zip(ERRORS, Errors(0.0, 1.0).figures(np.zeros((1, 6)))[0], strict=True))
    assert nobody.pop("n") == 0.0
    assert np.isnan(list(nobody.values())).all()
    alike = dict(zip(ERRORS, of_rows(Errors(0.0, 1.0), [0.5, 0.25], [0.25, 0.25]), strict=True))
    assert np.isnan(alike["r2"])
    assert alike["mae"] == 0.125


def test_widths_of_all_kinds():
    assert (TwoClasses().width, Classes(3).width, Errors(0.0, 1.0).width) == (2 * BINS, 3 * (2 * BINS + 2), 6)
    for sums, shape in ((TwoClasses(), (0,)), (Classes(3), (0, 3)), (Errors(0.0, 1.0), (0,))):
        assert sums.added(np.zeros(shape), np.zeros(0)).shape == (0, sums.width)


def counts_of_three(positives, others, called) -> dict[str, float]:
    """The figures of three classes: per class, rows of it in bin 100, others in bin 20, and those wrong and right."""
    bins = np.zeros((3, 2, BINS))
    bins[:, 1, 100], bins[:, 0, 20] = positives, others
    sums = np.concatenate([bins.ravel(), np.array(called, dtype=np.float64).ravel()])
    return dict(zip(FIGURES, Classes(3).figures(sums[None])[0], strict=True))


def test_half_a_row_of_a_class_counts_and_less_does_not():
    p, q = 1 / (1 + np.exp(-CENTRES[[100, 20]]))
    halves = counts_of_three([0.5, 0.5, 0.0], [0.5, 0.5, 1.0], [[0.0, 0.5], [0.0, 0.5], [0.0, 0.0]])
    assert [halves[name] for name in ("n", "auroc", "auprc", "accuracy", "recall")] == pytest.approx([1] * 5)
    assert halves["log_loss"] == pytest.approx(np.logaddexp(0.0, -CENTRES[100]))
    assert halves["brier"] == pytest.approx((1 - p) ** 2 + 2 * q**2)
    fewer = counts_of_three([0.5, 0.4, 0.0], [0.4, 0.5, 0.9], [[0.0, 0.5], [0.4, 0.0], [0.0, 0.0]])
    assert (fewer["n"], fewer["recall"]) == (1.0, 1.0)
    assert np.isnan([fewer["auroc"], fewer["auprc"]]).all()
    assert fewer["accuracy"] == pytest.approx(5 / 9)
    one = counts_of_three([0.5, 0.0, 0.0], [0.0, 0.5, 0.5], [[0.0, 0.5], [0.0, 0.0], [0.0, 0.0]])
    assert (one["n"], one["accuracy"]) == (0.0, 1.0)
    least = counts_of_three([0.4, 0.0, 0.0], [0.0, 0.4, 0.4], [[0.0, 0.4], [0.0, 0.0], [0.0, 0.0]])
    assert np.isnan([least["accuracy"], least["log_loss"], least["brier"]]).all()
    assert counts_of_three([0] * 3, [0] * 3, [[-3.0, 0.0], [0.0, 0.0], [0.0, 0.0]])["n"] == 0.0


def test_figures_of_several_classes_beyond_their_range_are_brought_to_it():
    """A row in all; fifty rows more, or less, than that in the bins, and two called right, or wrong, of each class."""
    bins = np.zeros((2, 3, 2, BINS))
    bins[0, :, 1, 0], bins[1, :, 1, 0] = 50.0, -50.0
    called = np.array([[[-1.0, 2.0], [-1.0, 2.0], [-1.0, 0.0]], [[2.0, -1.0], [2.0, -1.0], [0.0, -1.0]]])
    sums = np.concatenate([bins.reshape(2, -1), called.reshape(2, -1)], axis=1)
    of = dict(zip(FIGURES, Classes(3).figures(sums).T, strict=True))
    assert of["n"].tolist() == [1, 1]
    assert of["log_loss"].tolist() == pytest.approx([np.logaddexp(0.0, -CENTRES[0]), 0.0])
    assert of["brier"].tolist() == [2.0, 0.0]
    assert of["accuracy"].tolist() == [1.0, 0.0]
    assert of["recall"].tolist() == [1.0, 0.0]


def test_figures_of_a_real_label_from_sums_that_noise_has_moved():
    """A range of 10; counts of a half, less, two, and two with errors beyond what they can be."""
    sums = [
        [0.5, 0.1, -0.1, 0.02, 0.0, 0.5],
        [0.4, 0.1, -0.1, 0.02, 0.0, 0.5],
        [2.0, 0.4, 0.2, 0.08, 0.0, 0.0],
        [2.0, 3.0, 3.0, 4.0, 1.0, 1.0],
        [2.0, -1.0, -3.0, -1.0, 1.0, 1.0],
        [-3.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    ]
    of = dict(zip(ERRORS, Errors(-4.0, 6.0).figures(sums).T, strict=True))
    assert of["n"].tolist() == [0, 0, 2, 2, 2, 0]
    np.testing.assert_allclose(of["mae"], [2.0, np.nan, 2.0, 10.0, 0.0, np.nan])
    np.testing.assert_allclose(of["rmse"], [2.0, np.nan, 2.0, 10.0, 0.0, np.nan])
    np.testing.assert_allclose(of["r2"], [1 - 0.08 / 0.5, np.nan, np.nan, 1 - 16 / 0.5, 1.0, np.nan])
    np.testing.assert_allclose(of["bias"], [-2.0, np.nan, 1.0, 10.0, -10.0, np.nan])
