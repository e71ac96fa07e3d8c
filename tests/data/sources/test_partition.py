"""Partitions of pooled rows: every row once, the limits of their parameter, streams, and what cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.core.errors import DataError
from raysim.data.heterogeneity import label_metrics
from raysim.data.sources import partition
from raysim.data.sources.partition import dirichlet, holdout, similarity

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))


def counts(home: np.ndarray, labels: np.ndarray = LABELS) -> np.ndarray:
    """Rows of each class at each hospital."""
    table = np.zeros((home.max() + 1, labels.max() + 1), dtype=np.int64)
    np.add.at(table, (home, labels), 1)
    return table


def skew(home: np.ndarray) -> float:
    return label_metrics(counts(home))["emd_tv"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=12, max_size=60),
    st.integers(1, 12),
    st.sampled_from([0.3, 1.0, 20.0]),
    st.integers(0, 5),
)
def test_dirichlet_gives_every_row_one_hospital(labels, hospitals, alpha, seed):
    home = dirichlet(np.array(labels), hospitals, alpha, seed, min_size=0)
    assert home.shape == (len(labels),)
    assert home.min() >= 0
    assert home.max() < hospitals


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=12, max_size=60), st.integers(1, 6), st.floats(0, 1), st.integers(0, 5))
def test_similarity_gives_every_row_one_hospital_and_sizes_that_are_all_but_equal(labels, hospitals, share, seed):
    home = similarity(np.array(labels), hospitals, share, seed)
    sizes = np.bincount(home, minlength=hospitals)
    assert sizes.sum() == len(labels)
    assert sizes.min() > 0
    assert sizes.max() - sizes.min() <= 2  # one for each of the two parts


def test_every_hospital_gets_the_rows_that_it_must_have():
    for min_size in (10, 40):
        assert np.bincount(dirichlet(LABELS, 10, 0.3, 1, min_size=min_size)).min() >= min_size


def test_dirichlet_goes_from_alike_to_one_class():
    by_alpha = [skew(dirichlet(LABELS, 10, alpha, 0, min_size=1)) for alpha in (1000, 50, 1, 0.1)]
    assert by_alpha == sorted(by_alpha)
    assert by_alpha[0] < 0.05
    shares = counts(dirichlet(LABELS, 10, 1e6, 0)) / 200
    assert shares == pytest.approx(0.1, abs=0.011)


@pytest.mark.parametrize(("alpha", "hospitals"), [(1e300, 100), (4e306, 10)])
def test_the_largest_alphas_that_are_taken_divide_evenly(alpha, hospitals):
    of_class = counts(dirichlet(LABELS, hospitals, alpha, 0))
    assert np.abs(of_class - 200 / hospitals).max() <= 3  # what rounding leaves


def test_a_balanced_hospital_that_is_full_gets_no_further_class():
    """It has at least its even part (200) when it closes, and gains no more than one rounded-up row afterwards."""
    for seed in range(5):
        by_class = counts(dirichlet(LABELS, 10, 0.5, seed, min_size=1))
        before = np.cumsum(by_class, axis=1) - by_class
        assert by_class[before >= 200].max(initial=0) <= 1


def test_classes_are_divided_in_the_shares_of_a_dirichlet():
    """With two hospitals and alpha = 1 the share of a class is uniform on [0, 1]: mean 1/2, variance 1/12."""
    labels = np.zeros(1000, dtype=np.int64)
    shares = [np.mean(dirichlet(labels, 2, 1.0, seed, min_size=0) == 0) for seed in range(400)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.05)
    assert np.var(shares) == pytest.approx(1 / 12, abs=0.02)


def test_similarity_zero_is_shards_of_sorted_labels_and_one_is_alike():
    shards = counts(similarity(LABELS, 20, 0.0, 3))
    assert (shards[np.arange(20), np.arange(20) // 2] == 100).all()
    assert skew(similarity(LABELS, 20, 1.0, 3)) < 0.2
    between = skew(similarity(LABELS, 20, 0.5, 3))
    assert skew(similarity(LABELS, 20, 1.0, 3)) < between < skew(similarity(LABELS, 20, 0.0, 3))


def test_similarity_deals_its_two_parts_by_position():
    """10 rows, 3 hospitals, a share of .4: the first 4 in pieces of 1, 1, 2, the sorted 6 in pieces of 2."""
    labels = np.array([1, 0] * 5)
    home = similarity(labels, 3, 0.4, 0)
    assert np.bincount(home).tolist() == [3, 3, 4]


@pytest.mark.parametrize("make", [lambda s: dirichlet(LABELS, 8, 0.5, s), lambda s: similarity(LABELS, 8, 0.3, s)])
def test_the_seed_decides(make):
    assert (make(4) == make(4)).all()
    assert (make(4) != make(5)).any()


def test_which_labels_there_are_does_not_matter_but_their_order_does():
    assert (dirichlet(LABELS, 8, 0.5, 1) == dirichlet(LABELS * 3 + 7, 8, 0.5, 1)).all()


def test_an_infeasible_partition_says_so(monkeypatch):
    """Two classes, 100 hospitals, alpha .05: nearly all rows fall to a few hospitals."""
    labels = np.repeat([0, 1], 20_000)
    with pytest.raises(
        DataError, match=r"^data.partition.alpha: 0.05 over 100 hospitals and 2 classes .* in each of 1000"
    ):
        dirichlet(labels, 100, 0.05, 0)
    with pytest.raises(DataError, match="use a larger alpha"):
        dirichlet(labels, 100, 1e-8, 0)
    # A draw that fails is followed by another one, from a stream of its own.
    tries = partition.TRIES
    monkeypatch.setattr(partition, "TRIES", 1)
    with pytest.raises(DataError):
        dirichlet(LABELS, 20, 0.3, 0, min_size=45)
    monkeypatch.setattr(partition, "TRIES", tries)
    assert np.bincount(dirichlet(LABELS, 20, 0.3, 0, min_size=45)).min() >= 45


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dirichlet(LABELS, 2001, 1.0, 0), "data.clients: 2001 is more than the 2,000 rows"),
        (lambda: dirichlet(LABELS, 201, 1.0, 0), "data.clients: 201 with at least 10 rows each need 2,010 rows"),
        (lambda: dirichlet(LABELS, 5, 1e308, 0), r"data.partition.alpha: 1e\+308 over 5 hospitals .* smaller alpha"),
        (
            lambda: similarity(LABELS[:6], 5, 0.5, 0),
            "data.partition.share: 0.5 divides 3 rows at random and 3 by label among 5 hospitals, which leaves 2 with",
        ),
        (lambda: similarity(LABELS[:4], 5, 1.0, 0), "data.clients: 5 is more than the 4 rows"),
    ],
)
def test_impossible_settings_are_refused_by_name(call, message):
    with pytest.raises(DataError, match=message):
        call()


def test_a_fifth_of_every_class_is_held_out_where_a_hospital_has_two_of_each():
    home = np.repeat([0, 1], [100, 50])
    labels = np.concatenate([np.repeat([0, 1, 2], [60, 30, 10]), np.repeat([0, 1], [40, 10])])
    part = holdout(labels, home, 3)
    tested = counts(home[part == 2], labels[part == 2])
    assert tested.tolist() == [[12, 6, 2], [8, 2, 0]]
    assert set(part) == {0, 2}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=80), st.integers(0, 3))
def test_every_hospital_holds_out_the_nearest_count_and_keeps_a_row_of_each_class(pairs, seed):
    home, labels = np.array(pairs).T
    part = holdout(labels, home, seed)
    for h in np.unique(home):
        hospital_part, n = part[home == h], int((home == h).sum())
        assert (hospital_part == 2).sum() == min(int(0.2 * n + 0.5), n - 1)
        of_class = np.bincount(labels[home == h])
        present = np.flatnonzero(of_class)
        if of_class[present].min() >= 2:
            kept = np.bincount(labels[(home == h) & (part == 0)], minlength=len(of_class))
            assert (kept[present] >= 1).all()
            tested = of_class - kept
            assert (np.abs(tested - (hospital_part == 2).sum() * of_class / n) < 1).all()


def test_what_a_hospital_holds_out_depends_on_its_own_rows():
    home = dirichlet(LABELS, 8, 0.5, 0)
    part = holdout(LABELS, home, 1)
    three = home == 3
    alone = holdout(LABELS[three], home[three], 1)
    assert (part[three] == alone).all()
    assert (holdout(LABELS, home, 2) != part).any()
