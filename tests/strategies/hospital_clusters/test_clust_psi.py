"""Clust-PSI-PFL: identity 14, its clusters, what it asks, and what it clusters by beyond the paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.strategies.base import choose
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import All, Uniform
from raysim.strategies.shared.clustering import kmeans, members
from raysim.strategies.shared.feature_bins import FeatureCounts, FeatureQuantiles, common_edges, feature_counts
from raysim.strategies.shared.label_counts import LabelCounts, label_counts
from raysim.strategies.shared.psi import feature_terms, psi_terms
from raysim.traffic.ledger import TO_EXPERIMENTER
from tests.conftest import MakeFederation, run_strategy, store
from tests.strategies.contexts import At, hospital, sent, view_of
from tests.strategies.test_identities import assert_different, assert_same

RUN = {"rounds": 3, "epochs": 2}


def clusters(hospitals: list[At], strategy: ClustPsi | None = None) -> list[int]:
    return members((strategy or ClustPsi()).setup(view_of(hospitals))).tolist()


@pytest.fixture
def skewed(federate: MakeFederation, tmp_path: Path) -> Federation:
    """Six hospitals with training rows, three of mostly class 0 and three of mostly class 1, and one without."""
    drawn = federate([20, 16, 12, 0, 24, 16, 20], [5] * 7)
    labels = drawn.y.copy()
    for h in range(7):
        train = np.arange(*drawn.bounds[h, :2])
        labels[train] = 0 if h < 3 else 1
        labels[train[: len(train) // 4]] = 1 if h < 3 else 0
    (tmp_path / "skewed").mkdir()
    return store(tmp_path / "skewed", drawn.X, labels, drawn.bounds)


def test_14_one_cluster_is_fedavg(skewed):
    for selection in (All(), Uniform(0.5, 1)):
        one = run_strategy(skewed, ClustPsi(clusters=1), selection=selection, **RUN)
        fedavg = run_strategy(skewed, FedAvg(), selection=selection, **RUN)
        assert_same(one.models[1], fedavg.models[0])
        assert_same(one.models[0], fedavg.models[0])
    assert_different(run_strategy(skewed, ClustPsi(), **RUN).models[1], fedavg.models[0])


def test_14_equal_distributions_of_labels_are_one_cluster_and_fedavg(federate, tmp_path):
    """Shares 1/3 and 2/3 everywhere, at different sizes."""
    drawn = federate([3, 6, 9, 30, 21], [4] * 5)
    labels = drawn.y.copy()
    for h in range(5):
        train = np.arange(*drawn.bounds[h, :2])
        labels[train] = np.arange(len(train)) % 3 > 0
    (tmp_path / "alike").mkdir()
    federation = store(tmp_path / "alike", drawn.X, labels, drawn.bounds)
    outcome = run_strategy(federation, ClustPsi(), selection=Uniform(0.5, 1), **RUN)
    assert set(outcome.cluster) == {1}
    assert_same(outcome.models[1], run_strategy(federation, FedAvg(), selection=Uniform(0.5, 1), **RUN).models[0])


class Only(FedAvg):
    """Federated averaging among some hospitals, with the whole federation's streams; ``key`` as the cluster draws."""

    ids: np.ndarray
    key: tuple[int, ...]

    def __init__(self, ids: np.ndarray, key: tuple[int, ...]) -> None:
        super().__init__()
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "key", key)

    def select(self, view, state, round):
        return choose(view, state, self.ids, "sample", round, *self.key)


@pytest.mark.parametrize("selection", [All(), Uniform(0.5, 1)])
def test_each_cluster_is_fedavg_on_its_members_alone(skewed, selection):
    outcome = run_strategy(skewed, ClustPsi(clusters=2), selection=selection, **RUN)
    trainable = np.flatnonzero(skewed.sizes("train"))
    assert set(outcome.cluster) == {1, 2}
    for row, key in ((1, ()), (2, (2,))):
        cluster_ids = trainable[outcome.cluster[trainable] == row]
        assert_same(
            outcome.models[row], run_strategy(skewed, Only(cluster_ids, key), selection=selection, **RUN).models[0]
        )


def test_hospitals_of_opposite_skew_are_two_clusters_and_keep_their_models_apart():
    """Three classes, because PSI terms of two classes are the same for opposite skews of an even pool."""
    hospitals = [hospital([80, 10, 10]), hospital([78, 12, 10]), hospital([10, 10, 80]), hospital([9, 11, 80])]
    assert clusters(hospitals) == [1, 1, 2, 2]


def test_unsigned_terms_cannot_tell_opposite_skews_of_two_classes():
    """The limit of the method: 90:10 and 10:90 around an even pool share a row."""
    assert clusters([hospital([90, 10]), hospital([10, 90]), hospital([50, 50]), hospital([50, 50])]) == [1, 1, 2, 2]


def test_a_hospital_without_rows_joins_those_without_skew():
    """The pool is 290 : 132 : 78; hospitals 2 and 3 are nearest to it, so that their PSI is nearest to 0."""
    label_counts = [[90, 5, 5], [88, 6, 6], [50, 20, 30], [52, 20, 28], [0, 0, 0], [5, 40, 5], [5, 41, 4]]
    cluster = clusters([hospital(counts) for counts in label_counts], ClustPsi(clusters=3))
    assert cluster[4] == cluster[2] == cluster[3]
    assert len({cluster[0], cluster[2], cluster[5]}) == 3


def test_every_cluster_gives_at_least_one_hospital_a_round():
    """``m_c = max(1, floor(q |c|))``: 1 of 3 and 1 of 1 at q = .4."""
    hospitals = [hospital([9, 1, 0]), hospital([9, 1, 0]), hospital([9, 1, 0]), hospital([0, 1, 9])]
    view = view_of(hospitals)
    object.__setattr__(view, "selection", Uniform(0.4, 1))
    state = ClustPsi(clusters=2).setup(view)
    for round in range(1, 9):
        ids = ClustPsi(clusters=2).select(view, state, round)
        assert len(ids) == 2
        assert ids[-1] == 3


def test_what_leaves_a_hospital_before_training(skewed):
    def sent_before_training(strategy: ClustPsi) -> dict[str, int]:
        ledger = run_strategy(skewed, strategy, rounds=1).ledger
        return {
            kind: int(bytes_[0]) // 4
            for t, kind, _, bytes_, _ in ledger.entries
            if t == 0 and kind not in TO_EXPERIMENTER
        }

    assert sent_before_training(ClustPsi()) == {"size": 1, "label_counts": 2}
    assert sent_before_training(ClustPsi(by=("sizes",))) == {"size": 1}
    features, bins = 3, 4
    assert sent_before_training(ClustPsi(by=("attributes",), bins=bins)) == {
        "size": 1,
        "feature_quantiles": (bins + 1) * features,
        "feature_counts": (bins + 1) * features,
    }


def test_epsilon_decides_what_an_empty_class_weighs():
    """Rows of (0, a few and many) of class 1: nearly empty is like empty under a large epsilon only."""
    counts = [(40, 0), (40, 0), (38, 2), (38, 2), (10, 30), (10, 30)]
    hospitals = [hospital(list(each)) for each in counts]
    sharp = clusters(hospitals, ClustPsi(clusters=2, epsilon=1e-12))
    even = clusters(hospitals, ClustPsi(clusters=2, epsilon=0.1))
    assert sharp == [1, 1, 2, 2, 2, 2]
    assert even == [1, 1, 1, 1, 2, 2]


def test_noise_on_label_counts_is_the_hospitals_and_never_negative():
    hospitals = [hospital([5, 0]), hospital([0, 7]), hospital([100, 50])]
    exact = label_counts(view_of(hospitals), None)
    assert exact.tolist() == [[5, 0], [0, 7], [100, 50]]
    noisy = label_counts(view_of(hospitals), 0.5)
    assert (noisy >= 0).all()
    assert (noisy != exact).any()
    assert (label_counts(view_of(hospitals[:2]), 0.5) == noisy[:2]).all(), "not moved by who else is there"
    assert (label_counts(view_of(hospitals, seed=2), 0.5) != noisy).any()
    many = label_counts(view_of([hospital([1000, 1000])] * 2000), 0.5) - 1000
    assert np.abs(many).mean() == pytest.approx(2.0, rel=0.05), "Laplace noise of scale 1/0.5 has this mean deviation"


def test_noise_on_label_counts_by_hand():
    noise = np.random.default_rng(9).laplace(scale=2.0, size=3)
    assert noise.min() < 0 < noise.max()
    counted = sent(LabelCounts(3, privacy_epsilon=0.5), replace(hospital([5, 0, 3]), stream=np.random.default_rng(9)))
    assert counted.tolist() == [(np.array([5.0, 0, 3]) + noise).tolist()]


def test_single_rows_and_a_single_class_count_like_any_other():
    """Of two rows .55 against 1.05 and .05; where half a row is added to each class, .5 against 1.5 and .5 of 2."""
    one, other = -0.5 * np.log(0.55 / 1.05), 0.5 * np.log(0.55 / 0.05)
    counts = np.array([[1, 0], [0, 1]])
    assert psi_terms(counts) == pytest.approx(np.array([[one, other], [other, one]]))
    one, other = -0.25 * np.log(0.5 / 0.75), 0.25 * np.log(0.5 / 0.25)
    assert psi_terms(counts, epsilon="counts") == pytest.approx(np.array([[one, other], [other, one]]))
    assert psi_terms(np.array([[3, 0], [5, 0]]), epsilon="counts").tolist() == [[0, 0], [0, 0]]
    assert psi_terms(np.array([[0, 0], [1, 3]])).tolist() == [[0, 0], [0, 0]], "nor has nobody any skew"
    assert psi_terms(np.array([[0.125, 0.375], [1.0, 3.0]])).tolist() == [[0, 0], [0, 0]], "noise makes parts of rows"


def test_sizes_alone_part_small_from_large():
    label_counts = [[3, 3], [4, 3], [3, 4], [300, 310], [290, 300], [310, 300]]
    assert clusters([hospital(counts) for counts in label_counts], ClustPsi(by=("sizes",))) == [1, 1, 1, 2, 2, 2]


def test_attributes_part_hospitals_by_values_and_by_what_they_record():
    rng = np.random.default_rng(0)
    shifted = [rng.normal(mean, 1, (60, 2)) for mean in (0, 0, 0, 0, 3, 3)]
    by_value = [hospital([30, 30], X) for X in shifted]
    assert clusters(by_value, ClustPsi(by=("attributes",), bins=5, clusters=2)) == [1, 1, 1, 1, 2, 2]
    alike = [rng.normal(0, 1, (60, 2)) for _ in range(6)]
    masks = [np.ones((60, 2), dtype=np.bool_) for _ in range(6)]
    for mask in masks[3:]:
        mask[:50, 1] = False
    by_missing = [hospital([30, 30], X, mask) for X, mask in zip(alike, masks, strict=True)]
    assert clusters(by_missing, ClustPsi(by=("attributes",), bins=5, clusters=2)) == [1, 1, 1, 2, 2, 2]


def test_several_aspects_can_be_clustered_by_at_once():
    label_counts = [[40, 5, 5], [10, 20, 20], [41, 5, 5], [10, 20, 21], [400, 50, 50], [100, 200, 200]]
    cluster = clusters([hospital(counts) for counts in label_counts], ClustPsi(by=("labels", "sizes"), clusters=4))
    assert cluster == [1, 2, 1, 2, 3, 4]


def standardised(columns: np.ndarray) -> np.ndarray:
    return (columns - columns.mean(axis=0)) / columns.std(axis=0)


def by_hand(counts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """PSI of labels, of their classes, and of sizes, of hospitals and of one without skew, standardised over those."""
    rows = np.array(counts, dtype=float)
    n = rows.sum(axis=1)
    pool, shares = rows.sum(axis=0) / n.sum() + 0.05, rows / n[:, None] + 0.05
    terms = (pool - shares) * np.log(pool / shares)
    ratio = n / n.mean()
    raw = np.column_stack([terms.sum(axis=1), terms, np.abs(ratio - 1) * np.log(ratio)])
    return standardised(raw), -raw.mean(axis=0) / raw.std(axis=0)


def test_several_aspects_weigh_the_same_however_many_columns_they_have():
    """Labels have four columns and sizes one. By size there are two clear groups, by labels only an even spread, which
    would decide if each column weighed the same.
    """
    shares = [5, 15, 25, 35, 45, 55, 65, 75]
    counts = [[n * (100 - s), n * s // 2, n * s // 2] for s, n in zip(shares, [2, 20] * 4, strict=True)]
    assert clusters([hospital(c) for c in counts], ClustPsi(by=("labels", "sizes"), clusters=2)) == [1, 2] * 4
    rows, _ = by_hand(counts)
    halves = kmeans(rows, 2, np.random.default_rng(0)).tolist()
    assert halves != [0, 1] * 4, "without weights it is not so"


def test_a_hospital_without_rows_is_nearest_to_one_without_skew_where_aspects_are_weighted():
    """Where its cluster would be another one without the weights, too."""
    weights = np.array([1 / 2, 1 / 2, 1 / 2, 1 / 2, 1])
    moved = 0
    for seed in range(40):
        counts = np.random.default_rng(seed).integers(1, 60, size=(7, 3)).tolist()
        cluster = clusters([hospital(c) for c in [*counts, [0, 0, 0]]], ClustPsi(by=("labels", "sizes"), clusters=3))
        rows, plain = by_hand(counts)
        labels = np.array(cluster[:-1])
        distances = [
            [np.linalg.norm((rows * w)[labels == k].mean(axis=0) - plain * w) for k in (1, 2, 3)]
            for w in (weights, np.ones(5))
        ]
        assert cluster[-1] == 1 + int(np.argmin(distances[0]))
        moved += np.argmin(distances[0]) != np.argmin(distances[1])
    assert moved


def test_quantiles_of_hospitals_make_common_edges():
    """One hospital with all values and ten with a tenth each agree on about the pool's deciles."""
    values = np.random.default_rng(0).normal(size=(1000, 1)).astype(np.float32)
    pool = np.quantile(values, np.arange(1, 10) / 10)
    for parts in (1, 10):
        split = np.array_split(values, parts)
        quantiles = np.stack([sent(FeatureQuantiles(1, 10), hospital([len(v), 0], v)) for v in split])
        assert common_edges(quantiles, 10)[0] == pytest.approx(pool, abs=0.15)


def test_quantiles_are_those_of_numpy_over_what_was_recorded():
    rng = np.random.default_rng(3)
    X, observed = rng.normal(size=(17, 3)), rng.random((17, 3)) < 0.6
    observed[:, 2] = False
    answer = sent(FeatureQuantiles(3, 4), hospital([17, 0], X, observed))
    quantiles, seen = answer[:4], answer[4]
    assert seen.tolist() == observed.sum(axis=0).tolist()
    for j in (0, 1):
        assert quantiles[:, j] == pytest.approx(np.quantile(X[observed[:, j], j], [0.125, 0.375, 0.625, 0.875]))
    assert np.isnan(quantiles[:, 2]).all()


def test_histograms_count_every_row_once():
    rng = np.random.default_rng(5)
    hospitals = [hospital([n, 0], rng.normal(size=(n, 3)), rng.random((n, 3)) < 0.7) for n in (8, 0, 30)]
    counts = feature_counts(view_of(hospitals), 4)
    assert counts.shape == (3, 3, 5)
    assert counts.sum(axis=2).tolist() == [[8] * 3, [0] * 3, [30] * 3]
    assert counts[:, :, 4].tolist() == [(~rows.observed).sum(axis=0).tolist() for rows in hospitals]
    assert (feature_terms(counts) >= 0).all()


def test_a_value_on_an_edge_is_in_the_bin_above():
    rows = hospital([3, 0], np.array([[0.0], [1.0], [2.0]]))
    rows = replace(rows, given={"edges": np.array([[1.0, 1.5]])})
    assert sent(FeatureCounts(1, 4), rows).tolist() == [[1, 1, 1, 0]]


def test_label_counts_have_a_place_for_absent_classes():
    assert sent(LabelCounts(3), hospital([2, 0, 1])).tolist() == [[2, 0, 1]]


@pytest.mark.parametrize(
    "bad",
    [
        {"by": ()},
        {"by": ("ages",)},
        {"clusters": 0},
        {"privacy_epsilon": 0.0},
        {"privacy_epsilon": 1e-320},
        {"privacy_epsilon": np.inf},
        {"bins": 1},
        {"search_sample": 2},
        {"epsilon": 0.0},
        {"epsilon": 1.5},
        {"epsilon": np.nan},
    ],
)
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        ClustPsi(**bad)


def test_more_clusters_than_hospitals_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="clusters: 4 is more than the 3 hospitals"):
        ClustPsi(clusters=4).check(("a", "b", "c", "d"), np.array([3, 0, 2, 1]))


def test_edges_of_what_nobody_recorded_are_at_0():
    edges = common_edges(np.array([[[np.nan, 1.0], [np.nan, 2.0], [0.0, 2.0]]] * 2), 2)
    assert edges[0].tolist() == [0.0]
    assert 1.0 < edges[1, 0] < 2.0
