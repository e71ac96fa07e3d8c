"""Silhouettes by hand and against scikit-learn, and the number of clusters that they choose."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from raysim.strategies.shared import clustering
from raysim.strategies.shared.clustering import kmeans
from raysim.strategies.shared.silhouette import best_clusters, best_labels, mean_silhouette


def of_points(points: np.ndarray, labels: list[int]) -> float:
    return mean_silhouette(cdist(points, points), np.array(labels))


def test_four_points_by_hand():
    """Points 0, 1 | 4, 6 on a line: a = 1, 1, 2, 2 and b = 5, 4, 3.5, 5.5."""
    points = np.array([[0.0], [1.0], [4.0], [6.0]])
    by_hand = np.mean([4 / 5, 3 / 4, 1.5 / 3.5, 3.5 / 5.5])
    assert of_points(points, [0, 0, 1, 1]) == pytest.approx(by_hand, abs=1e-15)
    assert of_points(points / 64, [0, 0, 1, 1]) == pytest.approx(by_hand, abs=1e-15)


def test_a_point_alone_counts_nothing():
    """0, 1 | 4: the pair has (4 - 1)/4 and (3 - 1)/3, the single point 0."""
    points = np.array([[0.0], [1.0], [4.0]])
    assert of_points(points, [0, 0, 1]) == pytest.approx((3 / 4 + 2 / 3) / 3, abs=1e-15)


def test_equal_points_in_two_clusters_count_nothing():
    assert of_points(np.zeros((4, 2)), [0, 0, 1, 1]) == 0.0


def test_one_cluster_and_one_cluster_each_are_minus_one():
    points = np.arange(4.0)[:, None]
    assert of_points(points, [0] * 4) == -1.0
    assert of_points(points, [0, 1, 2, 3]) == -1.0


@settings(max_examples=60, deadline=None)
@given(
    st.integers(3, 30).flatmap(
        lambda n: st.tuples(
            st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=n, max_size=n),
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
        )
    )
)
def test_it_agrees_with_scikit_learn(drawn):
    points = np.array(drawn[0], dtype=np.float64)
    _, labels = np.unique(drawn[1], return_inverse=True)
    if labels.max() in (0, len(labels) - 1):
        return
    assert mean_silhouette(cdist(points, points), labels) == pytest.approx(silhouette_score(points, labels), abs=1e-9)


def search(rows: np.ndarray, *, allow_one: bool = False, search_sample: int = 200) -> list[int]:
    labels = best_clusters(rows, np.random.default_rng, allow_one=allow_one, search_sample=search_sample)
    return labels.tolist()


def groups(*sizes: int) -> np.ndarray:
    """Tight groups of points, far from each other."""
    rng = np.random.default_rng(0)
    return np.concatenate([20.0 * k + rng.normal(0, 0.3, (size, 3)) for k, size in enumerate(sizes)])


def test_it_finds_the_groups_that_are_there():
    assert search(groups(5, 7, 4)) == [0] * 5 + [1] * 7 + [2] * 4


@pytest.mark.parametrize("rows", [np.empty((0, 2)), np.zeros((1, 2)), np.array([[0.0], [1.0]]), np.ones((6, 2))])
def test_too_few_or_equal_rows_are_one_cluster(rows):
    assert search(rows) == [0] * len(rows)


def test_copies_of_two_rows_are_two_clusters():
    assert search(np.array([[0.0], [1.0]])[[0, 1, 1, 0, 1]]) == [0, 1, 1, 0, 1]


def test_numbers_are_tried_up_to_one_below_the_rows_and_to_the_distinct_rows():
    def asked(rows: np.ndarray) -> list[int]:
        numbers = []

        def rng(clusters: int) -> np.random.Generator:
            numbers.append(clusters)
            return np.random.default_rng(clusters)

        best_clusters(rows, rng, allow_one=False, search_sample=200)
        return numbers

    distinct = np.array([[0.0, 9.0], [1.0, 9.0], [5.0, 9.0]])
    assert asked(distinct) == [2]
    assert asked(distinct[[0, 0, 1, 2, 2, 2]]) == [2, 3]
    assert asked(distinct[[0, 0, 1, 1, 1, 1]]) == [2]
    assert asked(distinct[[0, 0, 0]]) == asked(distinct[:2]) == []


def test_one_cluster_wins_only_where_it_may_and_nothing_is_better():
    """Three corners of a triangle: two clusters are one pair (s = 0 each) and one point alone: silhouette 0."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    assert max(search(corners)) == 1
    assert search(corners, allow_one=True) == [0, 0, 0]
    assert max(search(groups(4, 4), allow_one=True)) == 1


def test_above_the_limit_the_number_is_found_on_a_sample_and_everybody_is_clustered():
    rows = groups(14, 10, 8)
    assert search(rows, search_sample=16) == search(rows) == [0] * 14 + [1] * 10 + [2] * 8


def test_a_sample_has_its_own_random_stream_and_stays_in_order(monkeypatch):
    rows = np.arange(9.0)[:, None] ** 2
    fits = []

    def fit(rows: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
        fits.append((np.sqrt(rows).ravel().tolist(), clusters))
        return kmeans(rows, clusters, rng)

    monkeypatch.setattr("raysim.strategies.shared.silhouette.kmeans", fit)
    labels = best_clusters(rows, np.random.default_rng, allow_one=False, search_sample=5)
    sample = np.sort(np.random.default_rng(0).permutation(9)[:5])
    assert sample.tolist() != np.random.default_rng(0).permutation(9)[:5].tolist()
    clusters = 1 + max(search(rows[sample]))
    assert clusters > 1
    assert fits[:3] == [(sample.tolist(), number) for number in (2, 3, 4)]
    assert fits[3] == (list(range(9)), clusters)
    assert labels.tolist() == kmeans(rows, clusters, np.random.default_rng(clusters)).tolist()


def test_k_means_is_that_of_scikit_learn_with_ten_starts_of_one_thread(monkeypatch):
    fits, threads = [], []

    class Recorded(sklearn.cluster.KMeans):
        def __init__(self, n_clusters=8, **settings):
            fits.append({"n_clusters": n_clusters, **settings})
            super().__init__(n_clusters, **settings)

    monkeypatch.setattr("sklearn.cluster.KMeans", Recorded)
    monkeypatch.setattr(clustering, "one_thread", lambda: threads.append(1) or contextlib.nullcontext())
    rows = np.array([[8.125], [0.5], [8.25], [0.75]])
    for clusters, labels in ((2, [0, 1, 0, 1]), (9, [0, 1, 2, 3])):
        assert kmeans(rows, clusters, np.random.default_rng(3)).tolist() == labels
    how = {"init": "k-means++", "n_init": 10, "max_iter": 300, "tol": 1e-4}
    seed = int(np.random.default_rng(3).integers(2**31))
    assert fits == [{"n_clusters": clusters, "random_state": seed, **how} for clusters in (2, 4)]
    assert threads == [1, 1]


def test_the_first_of_equally_good_labels_is_taken():
    rows = np.array([[0.0], [1.0], [10.0], [11.0]])
    good, bad = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    for candidates, best in (([bad, good], 1), ([good, 1 - good, bad], 0), ([bad, good, 1 - good], 1), ([bad], 0)):
        assert best_labels(rows, candidates, np.random.default_rng(0)) == best


def test_above_the_limit_labels_are_judged_by_a_sample(monkeypatch):
    """Rows 0 and 1 tell one labelling from the other; a sample without them sees no difference and takes the first."""
    monkeypatch.setattr("raysim.strategies.shared.silhouette.SAMPLE", 6)
    rows = np.concatenate([[[-9.0], [9.0]], np.arange(10.0)[:, None] / 10 + np.repeat([-9.0, 9.0], 5)[:, None]])
    good = np.concatenate([[0, 1], np.repeat([0, 1], 5)])
    bad = np.concatenate([[1, 0], np.repeat([0, 1], 5)])
    seeds = range(40)
    without = [seed for seed in seeds if np.random.default_rng(seed).permutation(12)[:6].min() > 1]
    assert 0 < len(without) < 40
    taken = [best_labels(rows, [bad, good], np.random.default_rng(seed)) for seed in seeds]
    assert [seed for seed in seeds if taken[seed] == 0] == without


def test_up_to_2000_rows_are_all_compared_and_of_more_2000_are_sampled():
    asked: list[int] = []
    drawing: Any = SimpleNamespace(permutation=lambda n: asked.append(n) or np.arange(n))
    compared = []
    for n in (2000, 2001):
        rows = np.zeros((n, 1))
        rows[-1] = 1.0  # alone in the second cluster; not drawn of 2001
        labels = (np.arange(n) == n - 1).astype(np.int64)
        compared.append(best_labels(rows, [np.zeros(n, np.int64), labels], drawing))
    assert (compared, asked) == ([1, 0], [2001])
