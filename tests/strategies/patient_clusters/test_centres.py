"""Centres of patients: those of CBFL and k-FED by hand, how many a server looks for, and who belongs to which."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.cluster import kmeans_plusplus

from raysim.strategies.base import Unfit, own_state
from raysim.strategies.patient_clusters import kfed
from raysim.strategies.patient_clusters.cbfl import Cbfl
from raysim.strategies.patient_clusters.cluster_models import (
    PatientState,
    most_likely_components,
    nearest_centres,
    numbers_to_try,
    patient_state,
)
from raysim.strategies.patient_clusters.gaussian_mixtures import Mixture
from raysim.strategies.patient_clusters.kfed import KFed, farthest_first, lloyd, local_centres, server_centres
from tests.strategies.contexts import hospital, view_of


def test_cbfl_by_hand():
    """Hospitals' means are 0, 1, 10, 11, 20, 21: three clusters with centres .5, 10.5, 20.5."""
    rows = [[m - 1.0, m, m + 1.0] for m in (0, 1, 10, 11, 20, 21)]
    view = view_of([hospital([2, 1], np.array(values)[:, None]) for values in rows])
    state = own_state(Cbfl().setup(view), PatientState)
    assert state.clusters.means[:, 0].tolist() == [0.5, 10.5, 20.5]
    expected = np.zeros((6, 3), dtype=int)
    expected[np.arange(6), [0, 0, 1, 1, 2, 2]] = 3
    assert state.rows.tolist() == expected.tolist()
    assert state.clusters.assign(np.array([[5.4], [5.6], [99]]), np.ones((3, 1), dtype=bool), 0).tolist() == [0, 1, 2]


def test_farthest_first_by_hand():
    points = np.array([[0.0], [1.0], [9.0], [10.0], [4.0]])
    assert farthest_first(points, points[1:2], 4)[:, 0].tolist() == [1, 10, 4, 0]


def test_kfed_starts_from_the_first_hospital_that_sent_enough_centres():
    """Centres 0, 10 of hospital 1 and the farthest point, 30: Lloyd's means of {0, 1}, {10, 11}, {30}."""
    by_hospital = [np.array([[30.0]]), np.array([[0.0], [10.0]]), np.array([[1.0], [11.0]])]
    labels, centres = server_centres(by_hospital, 3)
    assert centres[:, 0].tolist() == [0.5, 10.5, 30.0]
    assert labels.tolist() == [2, 0, 1, 0, 1]
    assert server_centres(by_hospital, 1)[1].tolist() == [[52 / 5]]
    assert len(server_centres(by_hospital, 9)[1]) == 5, "no more clusters than centres"


def test_kfed_local_centres_of_far_groups_are_their_means():
    rng = np.random.default_rng(4)
    middles = 100 * np.eye(4, 6)
    rows = np.repeat(middles, 7, axis=0) + rng.normal(size=(28, 6))
    centres = local_centres(rows, 4, np.random.default_rng(0))
    expected = rows.reshape(4, 7, 6).mean(axis=1)
    np.testing.assert_allclose(centres[centres.argmax(axis=1).argsort()], expected, rtol=1e-9, atol=1e-9)


def local_centres_by_hand(rows: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Algorithm 1 in loops; the seeds of k-means++ are scikit-learn's, chosen among the projected rows."""
    directions = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :clusters]
    # The sign of a direction is free, and changes no distance; k-means++ draws by distances.
    projected = rows @ directions
    number = int(np.random.default_rng(seed).integers(2**31))
    chosen = kmeans_plusplus(projected, clusters, random_state=number)[1]
    centres = []
    for r in chosen:
        apart = {s: np.linalg.norm(projected - projected[s], axis=1) for s in chosen}
        near = [i for i in range(len(rows)) if all(3 * apart[r][i] <= apart[s][i] for s in chosen if s != r)]
        centres.append(rows[near].mean(axis=0) if near else rows[r])
    now = np.stack(centres)
    for _ in range(100):
        nearest = np.linalg.norm(rows[:, None] - now, axis=2).argmin(axis=1)
        now = np.stack([rows[nearest == k].mean(axis=0) if (nearest == k).any() else now[k] for k in range(clusters)])
    return now


def test_kfed_local_centres_by_hand():
    """Rows without groups, where Lloyd's iterations end somewhere else for another start.

    The scales of columns make the first two singular vectors no two columns, and not all that matters.
    """
    ends = set()
    for seed in range(12):
        rows = np.random.default_rng(seed).normal(size=(24, 4)) @ np.diag([2.0, 1.5, 1.3, 1.0]) + 0.5
        expected = local_centres_by_hand(rows, 3, seed)
        centres = local_centres(rows, 3, np.random.default_rng(seed))
        np.testing.assert_allclose(centres, expected, atol=1e-9, err_msg=f"seed {seed}")
        ends.add(centres.tobytes())
    assert len(ends) == 12


@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_kfed_local_centres_of_any_rows(n, d, clusters, seed):
    rows = np.random.default_rng(seed).integers(0, 3, size=(n, d)).astype(float)
    centres = local_centres(rows, clusters, np.random.default_rng(seed))
    assert centres.shape[1] == d
    assert len(centres) == min(clusters, n // 2, len(np.unique(rows, axis=0)))
    assert np.isfinite(centres).all()


def test_hospitals_receive_the_remaining_clusters_only_if_one_was_dropped():
    asked: list[str] = []
    view = view_of([hospital([1, 1], np.array([[0.0], [1.0]]))])
    answers = view.call
    object.__setattr__(view, "call", lambda call: asked.append(call.program.name) or answers(call))
    for centres, kinds in (([0.0, 1.0], ["group_sizes"]), ([0.0, 5.0, 1.0], ["group_sizes", "clusters_left"])):
        asked.clear()
        state = patient_state(view, nearest_centres(np.array([0]), np.array(centres)[:, None]))
        assert asked == kinds
        assert (state.rows.tolist(), state.formed, len(state.models)) == ([[1, 1]], len(centres), 3)


def test_lloyds_iterations_have_one_thread(monkeypatch):
    threads = []
    monkeypatch.setattr(kfed, "one_thread", lambda: threads.append(1) or nullcontext())
    labels, centres = lloyd(np.array([[0.0], [1.0], [8.0]]), np.array([[0.0], [9.0]]))
    assert (labels.tolist(), centres.tolist()) == ([0, 0, 1], [[0.5], [8.0]])
    assert threads == [1]


def test_rows_that_are_alike_are_centres_once():
    rows = np.array([[0.0, 1.0, 5.0], [2.0, 3.0, 4.0], [0.0, 1.0, 5.0], [1.0, 0.0, 0.0]] * 2)
    sent = local_centres(rows, 4, np.random.default_rng(0))
    assert sent.tolist() == [[0.0, 1.0, 5.0], [1.0, 0.0, 0.0], [2.0, 3.0, 4.0]]
    assert local_centres(rows, 3, np.random.default_rng(0)).tolist() == sent.tolist()
    labels, centres = server_centres([sent[:2], sent[:2], sent[1:]], 4)
    assert (labels[:4].tolist(), len(centres)) == ([*labels[:2].tolist()] * 2, 3)
    np.testing.assert_allclose(centres[np.lexsort(centres.round(9).T[::-1])], sent, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_hospital_with_at_most_as_many_rows_as_centres_does_not_send_its_rows(rows):
    values = 10.0 ** np.arange(rows)[:, None]
    sent = [local_centres(values, 4, np.random.default_rng(seed)) for seed in range(9)]
    assert {len(centres) for centres in sent} == {rows // 2}
    if rows < 4:  # of four rows, one can be a cluster of its own
        assert not np.isin(np.concatenate(sent), values).any()


def test_kfed_refuses_a_federation_whose_hospitals_have_one_row_each():
    view = view_of([hospital([1, 0], np.array([[value]])) for value in (0.0, 1.0)])
    with pytest.raises(Unfit, match="local_clusters: no hospital has the two training rows"):
        KFed(features="values").setup(view)


def test_a_hospital_of_one_row_belongs_to_the_nearest_of_the_servers_centres():
    groups = [np.array([[0.0], [1.0], [20.0], [21.0]]), np.array([[0.2], [0.8], [20.2], [20.8]]), np.array([[19.0]])]
    view = view_of([hospital([1, len(rows) - 1], rows) for rows in groups])
    for inherit in (False, True):
        state = own_state(
            KFed(clusters=2, local_clusters=2, features="values", inherit=inherit).setup(view), PatientState
        )
        far = int(state.clusters.means[:, 0].argmax())
        assert state.rows[:, far].tolist() == [2, 2, 1]


def test_the_server_searches_among_three_to_eight_clusters_and_fewer_than_points():
    tried = {points: list(numbers_to_try(None, points)) for points in (1, 2, 3, 4, 5, 9, 10)}
    assert tried == {
        1: [1],
        2: [1],
        3: [2],
        4: [3],
        5: [3, 4],
        9: [3, 4, 5, 6, 7, 8],
        10: [3, 4, 5, 6, 7, 8],
    }
    assert list(numbers_to_try(7, 3)) == [7]


def test_patients_of_an_untrained_cluster_go_to_the_next_most_likely():
    centres = nearest_centres(np.arange(1), np.array([[0.0], [10.0], [14.0]]))
    X, observed = np.array([[1.0], [11.0], [13.5], [4.0]]), np.ones((4, 1), dtype=bool)
    assert centres.assign(X, observed, 0).tolist() == [0, 1, 2, 0]
    left = centres.only(np.array([0, 2]))
    assert left.assign(X, observed, 0).tolist() == [0, 1, 1, 0]
    mixture = Mixture(np.array([0.5, 0.3, 0.2]), np.array([[0.0], [5.0], [9.0]]), np.array([[[1.0]], [[4.0]], [[9.0]]]))
    likely = most_likely_components(np.arange(1), mixture)
    densities = [w * multivariate_normal(m, c).pdf(X[:, 0]) for w, m, c in zip(
        mixture.weights, mixture.means, mixture.covariances, strict=True)]  # fmt: skip
    assert likely.assign(X, observed, 0).tolist() == np.stack(densities).argmax(axis=0).tolist()
    left = likely.only(np.array([1, 2]))
    assert left.assign(X, observed, 0).tolist() == np.stack(densities[1:]).argmax(axis=0).tolist()


def begun(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Where Lloyd's iterations start from now on, of one column, call by call."""
    starts: list[list[float]] = []

    def noted(rows: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        starts.append(start[:, 0].tolist())
        return np.zeros(len(rows), np.int64), start

    monkeypatch.setattr(kfed, "lloyd", noted)
    return starts


def test_kfed_starts_from_means_of_rows_three_times_nearer_to_a_seed_than_to_each_other_one(monkeypatch):
    """Seeds 0, 12, 40: of 0, 2, 3 and 4, 3 is just three times nearer to 0 than to 12, and 4 is not."""
    starts = begun(monkeypatch)
    monkeypatch.setattr("sklearn.cluster.kmeans_plusplus", lambda rows, k, random_state: (rows[[0, 5, 6]], [0, 5, 6]))
    local_centres(np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [12.0], [40.0]]), 3, np.random.default_rng(0))
    assert starts == [[1.5, 12.0, 40.0]]


def test_kfed_s_server_starts_from_different_centres(monkeypatch):
    """A hospital of few patients sends them as they are, two of them alike."""
    starts = begun(monkeypatch)
    server_centres([np.array([[0.0], [0.0], [5.0]]), np.array([[9.0]])], 3)
    assert starts == [[0.0, 5.0, 9.0]]
