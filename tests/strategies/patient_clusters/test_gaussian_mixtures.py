"""Gaussian mixtures: what travels of them, whom their components hold, how many there are, and rows that are hard."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from raysim.core.arrays import shared_out
from raysim.strategies.patient_clusters import gaussian_mixtures
from raysim.strategies.patient_clusters.cluster_models import PatientClusters, most_likely_components
from raysim.strategies.patient_clusters.continuous import chosen, defined
from raysim.strategies.patient_clusters.gaussian_mixtures import (
    ITERATIONS,
    LocalMixture,
    Mixture,
    best_mixture,
    fitted,
)
from tests.strategies.contexts import hospital, sent


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**31))
@settings(deadline=None, max_examples=25)
def test_a_mixture_travels_as_its_lower_triangles(k, d, seed):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, d, d))
    mixture = Mixture(rng.dirichlet(np.ones(k)), rng.normal(size=(k, d)), roots @ roots.transpose(0, 2, 1))
    table = mixture.packed()
    assert table.shape == (k, 1 + d + d * (d + 1) // 2)
    again = Mixture.unpacked(table, d)
    for a, b in ((mixture.weights, again.weights), (mixture.means, again.means)):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(mixture.covariances, again.covariances, rtol=1e-12)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31), st.data())
@settings(deadline=None, max_examples=40)
def test_a_patient_belongs_to_the_largest_posterior_whoever_else_is_asked(k, d, seed, data):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(k, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(d)
    mixture = Mixture(rng.dirichlet(np.ones(k)), 2 * rng.normal(size=(k, d)), covariances)
    clusters = most_likely_components(np.arange(d) + 1, mixture)
    X = 2 * rng.normal(size=(30, d + 2)).astype(np.float32)
    observed = np.ones((30, d + 2), dtype=bool)
    densities = [
        np.log(w) + multivariate_normal(m, c).logpdf(X[:, 1 : 1 + d].astype(float)).reshape(-1)
        for w, m, c in zip(mixture.weights, mixture.means, covariances, strict=True)
    ]
    top = np.sort(np.stack(densities), axis=0)
    clear = np.ones(30, dtype=bool) if k == 1 else top[-1] - top[-2] > 1e-9
    assigned = clusters.assign(X, observed, 0)
    np.testing.assert_array_equal(assigned[clear], np.stack(densities).argmax(axis=0)[clear])
    some = np.array(data.draw(st.lists(st.integers(0, 29), min_size=1, max_size=8, unique=True)))
    np.testing.assert_array_equal(clusters.assign(X[some], observed[some], 0), assigned[some])


def test_clusters_are_sent_as_columns_and_means_or_with_offsets_and_triangles():
    means, columns, offsets = np.zeros((2, 3)), np.arange(3), np.zeros(2)
    assert PatientClusters(columns, means, offsets).scalars == 3 + 2 * 3
    assert PatientClusters(columns, means, offsets, np.zeros((2, 3, 3))).scalars == 3 + 2 * (3 + 1 + 6)


def test_scores_are_offsets_less_half_the_squared_distance():
    """Of (2, 2) from (1, 0): 5, and 4 + 36 with the factor ((2, 0), (2, 2))."""
    means, triangle = np.array([[1.0, 0.0]]), np.array([[[2.0, 0.0], [2.0, 2.0]]])
    for factors, score in ((None, 0.5), (triangle, 3.0 - (4 + 36) / 2)):
        assert PatientClusters(np.arange(2), means, np.array([3.0]), factors).scores(np.array([[2.0, 2.0]])) == score


@pytest.mark.parametrize("factors", [False, True])
def test_scores_of_a_row_do_not_depend_on_others_to_the_last_bit(factors):
    rng = np.random.default_rng(0)
    clusters = PatientClusters(
        np.arange(37), rng.normal(size=(2, 37)), np.zeros(2), rng.normal(size=(2, 37, 37)) if factors else None
    )
    x = rng.normal(size=(64, 37))
    whole = clusters.scores(x)
    for first, last in ((0, 1), (5, 6), (3, 20), (63, 64), (10, 64)):
        np.testing.assert_array_equal(clusters.scores(x[first:last]), whole[first:last])


@pytest.mark.parametrize("factors", [False, True])
def test_nor_do_they_on_how_many_rows_columns_are_chosen_of(factors):
    rng = np.random.default_rng(0)
    columns = np.arange(1, 38)
    clusters = PatientClusters(
        columns, rng.normal(size=(2, 37)), np.zeros(2), rng.normal(size=(2, 37, 37)) if factors else None
    )
    X = rng.normal(size=(64, 40)).astype(np.float32)
    whole = clusters.scores(chosen(X, columns))
    for row in range(0, 64, 7):
        np.testing.assert_array_equal(clusters.scores(chosen(X[row : row + 1], columns)), whole[row : row + 1])


def test_largest_remainders():
    assert shared_out(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert shared_out(10, np.array([0.26, 0.74])).tolist() == [3, 7]
    assert shared_out(3, np.array([0.0, 5.0])).tolist() == [0, 3]


def test_the_servers_mixture_on_tiny_data():
    """Six points of two far groups: responsibilities are 0 or 1, so the fit is each group's mean and variance."""
    points = np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 4.0], [50.0, 51.0], [51.0, 50.0], [55.0, 52.0]])
    mixture = best_mixture(points, (2, 3), np.random.default_rng(0))
    order = mixture.means[:, 0].argsort()
    for g, group in zip(order, (points[:3], points[3:]), strict=True):
        assert mixture.weights[g] == pytest.approx(0.5)
        np.testing.assert_allclose(mixture.means[g], group.mean(axis=0), rtol=1e-9)
        full = np.cov(group.T, ddof=0) + 1e-6 * np.eye(2)
        np.testing.assert_allclose(mixture.covariances[g], full, rtol=1e-6)
    clusters = most_likely_components(np.arange(2), mixture)
    labels = clusters.assign(points, np.ones((6, 2), dtype=bool), 0)
    assert labels.tolist() == [order[0]] * 3 + [order[1]] * 3


@pytest.mark.parametrize("seed", [3, 5])
def test_a_mixture_is_that_of_scikit_learn_with_five_starts(seed):
    """Of overlapping groups, whose first start is not the best; the last column is constant."""
    assert ITERATIONS == 100
    rows = np.random.default_rng(seed).normal(size=(60, 3)) * [1.0, 1.0, 0.0]
    mixture, labels = fitted(rows, 4, seed)
    settings = {"max_iter": 100, "reg_covar": 1e-6, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianMixture(4, n_init=5, **settings)
        assert labels.tolist() == model.fit_predict(rows).tolist()
        assert np.abs(GaussianMixture(4, **settings).fit(rows).means_ - model.means_).max() > 1e-3
    np.testing.assert_allclose(mixture.means, model.means_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mixture.covariances, model.covariances_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(mixture.covariances[:, 2, 2], 1e-6)


def test_a_mixture_is_fitted_by_one_thread(monkeypatch):
    threads = []
    monkeypatch.setattr(gaussian_mixtures, "one_thread", lambda: threads.append(1) or nullcontext())
    assert fitted(np.array([[0.0], [1.0], [8.0], [9.0]]), 2, 0) is not None
    assert threads == [1]


def test_covariances_are_diagonal_where_rows_are_few():
    rng = np.random.default_rng(1)
    for n, full in ((11, False), (12, True)):  # of 2 components in 5 features, 6 rows for each make a full one
        rows = rng.normal(size=(n, 5)) + np.where(np.arange(n) % 2, 20, 0)[:, None]
        mixture, _ = fitted(rows, 2, 0)
        off = mixture.covariances - np.einsum("kdd->kd", mixture.covariances)[:, :, None] * np.eye(5)
        assert (np.abs(off).max() > 1e-3) == full


def test_the_number_of_components_is_that_of_the_groups():
    rng = np.random.default_rng(2)
    for groups in (2, 3, 4):
        rows = rng.normal(size=(80, 2)) + 30 * np.arange(80)[:, None] % (30 * groups)
        assert len(best_mixture(rows, (2, 3, 4), np.random.default_rng(0)).weights) == groups


def test_singular_covariances():
    """Two features that are the same, on a scale at which 1e-6 on the diagonal is nothing."""
    rng = np.random.default_rng(8)
    x = 1e7 * rng.normal(size=(60, 1)) + 1e8 * (np.arange(60)[:, None] % 2)
    mixture = best_mixture(np.hstack([x, x, x]), (2, 3), rng)
    np.linalg.cholesky(mixture.covariances)
    assert len(mixture.weights) in (2, 3)
    clusters = most_likely_components(np.arange(3), mixture)
    assert len(set(clusters.assign(np.hstack([x, x, x]), np.ones((60, 3), dtype=bool), 0))) > 1


@pytest.mark.parametrize("rows", [np.zeros((9, 3)), np.ones((1, 3)), np.array([[1.0, 2.0], [1.0, 5.0]])])
def test_rows_all_alike_or_too_few_are_one_component(rows):
    mixture = best_mixture(rows, (), np.random.default_rng(0))
    np.testing.assert_allclose(mixture.means, rows.mean(axis=0)[None])
    np.testing.assert_allclose(mixture.covariances[0], np.diag(rows.var(axis=0) + 1e-6))
    assert len(best_mixture(np.zeros((9, 3)), (2, 3, 4), np.random.default_rng(0)).weights) == 1


@pytest.mark.parametrize(("count", "components"), [(3, 1), (4, 2)])
def test_a_hospital_looks_for_components_among_four_rows_or_more(count, components):
    rows = hospital([count, 0], np.array([[0.0], [9.0], [0.125], [9.125]])[:count])
    table = sent(LocalMixture(1), replace(rows, given={"columns": np.array([0])}))
    assert table.shape == (4, 3)
    assert len(Mixture.unpacked(defined(table), 1).weights) == components


def test_silhouettes_of_many_rows_are_over_some(monkeypatch):
    monkeypatch.setattr("raysim.strategies.shared.silhouette.SAMPLE", 60)
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(400, 2)) + 50 * (np.arange(400) % 3)[:, None]
    assert len(best_mixture(rows, (2, 3, 4), rng).weights) == 3


def test_clusters_that_are_left_keep_their_own_triangles_and_bytes_are_whole():
    triangles = np.arange(3.0)[:, None, None] * np.eye(2)
    clusters = PatientClusters(np.arange(2), np.zeros((3, 2)), np.array([3.0, 4.0, 5.0]), triangles)
    left = clusters.only(np.array([2, 0]))
    assert left.factors is not None
    assert (left.factors[:, 0, 0].tolist(), left.offsets.tolist()) == ([2.0, 0.0], [5.0, 3.0])
    assert isinstance(left.scalars, int)
