"""AUROC, DeLong and U-statistics: worked numbers, the definitions as double loops, and what changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from raysim.statistics.discrimination.auroc import PairSums, delong, delong_of_sums, pair_sums, placements, u_statistics

Y = [1] * 5 + [0] * 7
A = [0.9, 0.8, 0.55, 0.4, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.35]
B = [0.6, 0.9, 0.3, 0.5, 0.7, 0.4, 0.6, 0.2, 0.1, 0.5, 0.3, 0.35]
"""Two models' scores of five events and seven non-events, with ties between and within the classes."""


def kernel(scores, y):
    """psi of every pair ``[m, n]``, by the definition."""
    x, z = np.asarray(scores)[np.asarray(y) == 1], np.asarray(scores)[np.asarray(y) == 0]
    return (x[:, None] > z).astype(float) + 0.5 * (x[:, None] == z)


def kernel_covariance(psi, other):
    m, n = psi.shape
    events, non_events = (np.cov(psi.mean(axis=axis), other.mean(axis=axis))[0, 1] for axis in (1, 0))
    return events / m + non_events / n


rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(-3, 3)), min_size=12, max_size=60).map(
    lambda drawn: (
        np.array([0, 1, 0, 1, *(int(c > 2) for c, _, _ in drawn)]),
        np.array([[1, 0, 1, 2, *(a for _, a, _ in drawn)], [2, 2, 0, 1, *(b for _, _, b in drawn)]], float),
    )
)


def one(scores, y=Y):
    return delong(placements(scores, y, [0, len(y)]))


def test_worked_numbers():
    d = one([A, B])
    assert d.auroc[:, 0] == pytest.approx([0.9, 0.8142857143], abs=6e-11)
    assert d.variance[:, 0] == pytest.approx([0.0082312925, 0.0190816327], abs=6e-11)
    assert d.covariance[0, 0, 1] == d.covariance[0, 1, 0] == pytest.approx(0.0049659864, abs=6e-11)
    (difference,), (variance,) = d.difference(0, 1)
    assert difference == pytest.approx(0.0857142857, abs=6e-11)
    assert variance == pytest.approx(0.0173809524, abs=6e-11)
    assert np.sqrt(variance) == pytest.approx(0.1318368400, abs=6e-11)
    assert difference / np.sqrt(variance) == pytest.approx(0.6501542794, abs=6e-11)


def test_placements_are_the_rows_shares():
    placed = placements(A, Y, [0, 12])
    shares = placed.influence[0] * np.where(placed.event, 5, 7) + placed.auroc[0, 0]
    assert shares == pytest.approx([1, 1, 6 / 7, 4.5 / 7, 1, 0.6, 0.8, 0.9, 1, 1, 1, 1])
    assert (placed.events, placed.non_events) == ([5], [7])


def test_worked_u_statistics():
    sums = pair_sums(A, Y, [0, 12])
    assert sums == PairSums(*(np.array([value]) for value in (5, 7, 4 * 31.5, 4 * 31.25, 4 * 172, 4 * 114)))
    assert all(values.dtype == np.int64 for values in sums)
    u = u_statistics(sums)
    assert u.squared == pytest.approx([675 / (20 * 42)], abs=1e-15)
    assert [u.pair[0], u.event[0], u.non_event[0]] == pytest.approx(
        [0.0892857143, 0.0154761905, 0.0107142857], abs=6e-11
    )
    assert u.variance == pytest.approx([0.0064285714], abs=6e-11)


@given(rows)
def test_the_fast_form_is_the_definition(drawn):
    y, scores = drawn
    d = one(scores, y)
    psi = [kernel(s, y) for s in scores]
    assert d.auroc[:, 0] == pytest.approx([roc_auc_score(y, s) for s in scores], abs=1e-14)
    for k in range(2):
        for other in range(2):
            assert d.covariance[0, k, other] == pytest.approx(kernel_covariance(psi[k], psi[other]), abs=1e-14)


@given(rows)
def test_the_sums_are_the_definition_and_both_forms_of_the_variance_agree(drawn):
    y, (scores, _) = drawn
    psi, sums = kernel(scores, y), pair_sums(scores, y, [0, len(y)])
    squares = (psi**2).sum()
    wanted = [psi.sum(), squares, (psi.sum(axis=1) ** 2).sum() - squares, (psi.sum(axis=0) ** 2).sum() - squares]
    assert [int(values[0]) for values in sums[2:]] == [4 * value for value in wanted]
    u = u_statistics(sums)
    assert u.variance == pytest.approx(u.auroc**2 - u.squared, abs=1e-12)
    # Over all pairs of different events and different non-events, by the definition.
    m, n = psi.shape
    apart = (
        sum(
            psi[j, k] * psi[i, h]
            for j in range(m)
            for i in range(m)
            if i != j
            for k in range(n)
            for h in range(n)
            if h != k
        )
        if m * n < 60
        else None
    )
    if apart is not None:
        assert u.squared[0] == pytest.approx(apart / (m * (m - 1) * n * (n - 1)), abs=1e-12)


def test_the_u_variance_is_unbiased():
    rng, y = np.random.default_rng(4), np.repeat([1, 0], [3, 6])
    draws = 40_000
    scores = np.round(rng.normal(size=(draws, 9)) + y, 1)  # with ties
    sums = pair_sums(scores.ravel(), np.tile(y, draws), 9 * np.arange(draws + 1))
    u = u_statistics(sums)
    deviation = u.variance.std() / np.sqrt(draws)
    assert abs(u.variance.mean() - u.auroc.var()) < 4 * (deviation + u.auroc.var() * np.sqrt(2 / draws))


@given(rows, st.randoms(use_true_random=False))
def test_order_of_rows_monotone_scores_and_exchanged_classes_change_nothing(drawn, random):
    y, scores = drawn
    d = one(scores, y)
    order = random.sample(range(len(y)), len(y))
    for same in (one(scores[:, order], y[order]), one(np.exp(scores) * 7 - 2, y), one(-scores, 1 - y)):
        assert same.auroc == pytest.approx(d.auroc, abs=1e-14)
        assert same.covariance == pytest.approx(d.covariance, abs=1e-14)
    sums, exchanged = pair_sums(scores[0], y, [0, len(y)]), pair_sums(-scores[0], 1 - y, [0, len(y)])
    assert exchanged == (sums[1], sums[0], sums[2], sums[3], sums[5], sums[4])


@given(rows, rows)
def test_hospitals_side_by_side_are_as_each_alone(first, second):
    y = np.concatenate([first[0], second[0]])
    scores = np.concatenate([first[1], second[1]], axis=1)
    cuts = [0, 0, len(first[0]), len(y)]
    d = delong(placements(scores, y, cuts))
    for hospital, (labels, s) in ((1, first), (2, second)):
        alone = one(s, labels)
        np.testing.assert_array_equal(d.auroc[:, hospital], alone.auroc[:, 0])
        np.testing.assert_array_equal(d.covariance[hospital], alone.covariance[0])
    together = pair_sums(scores[1], y, cuts)
    for hospital, (labels, s) in ((1, first), (2, second)):
        assert [v[hospital] for v in together] == [v[0] for v in pair_sums(s[1], labels, [0, len(labels)])]
    assert np.isnan(d.auroc[:, 0]).all()


def test_float32_takes_the_same_path_as_float64():
    rng = np.random.default_rng(0)
    scores = np.round(rng.normal(size=(2, 300)) * 4).astype(np.float32) / 4
    y, cuts = rng.random(300) < 0.3, [0, 20, 21, 150, 300]
    narrow, wide = (placements(scores.astype(kind), y, cuts) for kind in (np.float32, np.float64))
    np.testing.assert_array_equal(narrow.influence, wide.influence)
    narrow_sums, wide_sums = (pair_sums(scores[0].astype(kind), y, cuts) for kind in (np.float32, np.float64))
    np.testing.assert_array_equal(narrow_sums, wide_sums)


def test_models_that_order_rows_alike_are_equal():
    (difference,), (variance,) = one([A, np.exp(A)]).difference(0, 1)
    assert (difference, variance) == (0, 0)


@pytest.mark.parametrize(
    ("scores", "auroc"), [([3.0] * 12, 0.5), ([1.0] * 5 + [0.0] * 7, 1), ([0.0] * 5 + list(range(1, 8)), 0)]
)
def test_all_ties_and_perfect_order_have_a_variance_of_exactly_0(scores, auroc):
    d = one(scores)
    assert (d.auroc[0, 0], d.variance[0, 0]) == (auroc, 0)


def test_undefined():
    # One event; one non-event; no event; a NaN score; no rows.
    y = [1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0]
    scores = [2, 1, 3, 2, 1, 0, 1, 2, np.nan, 1, 0, 0]
    cuts = [0, 3, 6, 8, 12, 12]
    d = delong(placements(scores, y, cuts))
    assert d.auroc[0] == pytest.approx([0.5, 1, np.nan, np.nan, np.nan], nan_ok=True)
    assert np.isnan(d.variance).all()
    sums = pair_sums(scores, y, cuts)
    assert sums.judged.tolist() == [True, True, False, False, False]
    u = u_statistics(sums)
    assert u.auroc == pytest.approx([0.5, 1, np.nan, np.nan, np.nan], nan_ok=True)
    assert np.isnan([u.squared, u.pair, u.event, u.non_event, u.variance]).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="for K models"):
        placements(np.zeros((1, 1, 3)), [0, 1, 0], [0, 3])
    with pytest.raises(ValueError, match="one model"):
        pair_sums(np.zeros((2, 3)), [0, 1, 0], [0, 3])
    with pytest.raises(ValueError, match="labels"):
        placements([0.0, 1, 2], [0, 1, 2], [0, 3])
    with pytest.raises(ValueError, match="offsets"):
        placements([0.0, 1, 2], [0, 1, 0], [0, 2])


@given(st.integers(0, 2**32 - 1))
def test_delong_from_what_hospitals_send_is_delong_from_the_rows(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 9, size=5)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    y = rng.integers(0, 2, size=offsets[-1])
    scores = rng.integers(0, 5, size=offsets[-1]).astype(np.float32)  # ties in plenty
    auroc, variance = delong_of_sums(pair_sums(scores, y, offsets))
    rows = delong(placements(scores[None, :], y, offsets))
    np.testing.assert_allclose(auroc, rows.auroc[0], rtol=1e-12)
    np.testing.assert_allclose(variance, rows.variance[0], rtol=1e-9, atol=1e-15)
