"""Non-IID metrics: golden numbers of a small federation, the definitions over pairs, and what always holds."""

from __future__ import annotations

import io
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, wasserstein_distance

from raysim.data.federation import Federation
from raysim.data.heterogeneity import (
    EarthMover,
    earth_movers_distance,
    feature_psi,
    federation_feature_psi,
    hellinger_distance,
    hospital_table,
    jensen_shannon_distance,
    label_counts,
    label_metrics,
    label_psi,
    quantity,
)
from raysim.report.terminal.unlikeness import unlikeness
from raysim.strategies.shared import psi
from raysim.strategies.shared.psi import size_terms
from tests.conftest import MakeFederation, store

GOLDEN = np.array([[50, 30, 20], [10, 60, 30], [0, 5, 35], [40, 40, 20]])
KINDS: tuple[EarthMover, ...] = ("tv", "pooled", "l1", "ordinal", "fedartml")

federations = st.integers(2, 5).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 30), min_size=classes, max_size=classes).filter(any), min_size=2, max_size=8
    )
).map(np.array)  # fmt: skip


def near(value: float) -> object:
    return pytest.approx(value, abs=5e-11)


def test_psi_of_the_golden_federation():
    psi = label_psi(GOLDEN, epsilon=1e-6)
    assert psi.hospital == near([0.183730883, 0.2934536043, 4.6075341269, 0.0798572928])
    assert psi.weighted == near(0.7058986561)


def test_psi_of_a_hospital_of_one_class_is_set_by_the_smoothing_constant():
    """P = (.5, .5) and p = (1, 0), with 1e-6 added to each."""
    psi = label_psi(np.array([[7, 0]]), reference=np.array([10, 10]), epsilon=1e-6)
    assert psi.terms[0] == near([0.3465730903, 6.5611826887])


def test_psi_of_a_hospital_of_one_class_with_the_default_constant():
    """P = (.55, .55) and p = (1.05, .05): terms -.5 ln(.55 / 1.05) and .5 ln(.55 / .05)."""
    psi = label_psi(np.array([[7, 0]]), reference=np.array([10, 10]))
    assert psi.terms[0] == near([-0.5 * np.log(11 / 21), 0.5 * np.log(11)])
    assert label_metrics(np.array([[7, 0], [3, 10]])) == label_metrics(np.array([[7, 0], [3, 10]]), 0.05)


def test_psi_with_half_a_row_in_every_bin_fits_the_size_of_the_hospital():
    """P = (10.5, 10.5)/21 and p = (7.5, .5)/8; ten times the rows leave a tenth of the doubt about the empty bin."""
    small = label_psi(np.array([[7, 0]]), reference=np.array([10, 10]), epsilon="counts").terms[0]
    expected = [(0.5 - 0.9375) * np.log(0.5 / 0.9375), (0.5 - 0.0625) * np.log(0.5 / 0.0625)]
    assert small == near(expected)
    large = label_psi(np.array([[70, 0]]), reference=np.array([10, 10]), epsilon="counts").terms[0]
    assert large[1] == near((0.5 - 0.5 / 71) * np.log(0.5 / (0.5 / 71)))
    absent = label_psi(np.array([[7, 0, 0]]), reference=np.array([10, 10, 0]), epsilon="counts").terms[0]
    assert absent == near([*expected, 0.0])


@pytest.mark.parametrize("epsilon", [1e-4, 0.01])
def test_psi_with_another_epsilon(epsilon):
    P, p = 0.5 + epsilon, np.array([1.0, 0.0]) + epsilon
    terms = label_psi(np.array([[7, 0]]), reference=np.array([10, 10]), epsilon=epsilon).terms[0]
    assert terms == near((P - p) * np.log(P / p))
    assert label_metrics(np.array([[7, 0], [3, 10]]), epsilon)["wpsi"] == near(
        label_psi(np.array([[7, 0], [3, 10]]), epsilon=epsilon).weighted
    )


def test_psi_of_test_rows_is_against_the_training_shares():
    tested = np.array([[5, 5, 0], [2, 6, 3], [0, 1, 1], [4, 4, 2]])
    pooled = np.append(GOLDEN, [GOLDEN.sum(axis=0)], axis=0)
    psi = label_psi(tested, reference=GOLDEN.sum(axis=0)).hospital
    P = pooled[-1] / pooled[-1].sum() + 0.05
    p = tested / tested.sum(axis=1, keepdims=True) + 0.05
    assert psi == near(((P - p) * np.log(P / p)).sum(axis=1))


def hellinger(p, q):
    """``sqrt(1/2 sum (sqrt p - sqrt q)^2)`` of two distributions ``[C]``: 0 to 1."""
    return float(np.sqrt(0.5 * ((np.sqrt(p) - np.sqrt(q)) ** 2).sum()))


def test_hellinger_distances_of_the_golden_federation():
    shares = GOLDEN / GOLDEN.sum(axis=1, keepdims=True)
    pairs = [hellinger(shares[i], shares[j]) for i, j in combinations(range(4), 2)]
    assert pairs == near([0.3273838103, 0.6229131717, 0.0798513806, 0.4623755865, 0.2552510082, 0.5983838141])
    assert hellinger_distance(GOLDEN) == pytest.approx(0.435619228, abs=5e-10)


def test_jensen_shannon_distances_of_the_golden_federation():
    assert jensen_shannon_distance(GOLDEN) == near(0.4173233841)
    assert jensen_shannon_distance(GOLDEN[[0, 2]]) == near(0.6646224805)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tv", 0.4541666667),
        ("pooled", 0.2188581315),
        ("l1", 2 * 0.2188581315),
        ("ordinal", 0.6541666667),
        ("fedartml", 0.4116363011),
    ],
)
def test_earth_movers_distances_of_the_golden_federation(kind, expected):
    assert earth_movers_distance(GOLDEN, kind) == pytest.approx(expected, abs=1e-10)


def test_fedartmls_distance_sees_no_difference_between_opposite_one_class_hospitals():
    assert earth_movers_distance(np.array([[9, 0], [0, 9]]), "fedartml") == 0
    assert earth_movers_distance(np.array([[9, 0], [0, 9]]), "tv") == 1


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind: 'emd' is not one of"):
        earth_movers_distance(GOLDEN, "emd")


@settings(max_examples=60, deadline=None)
@given(federations)
def test_metrics_are_what_their_definitions_over_pairs_say(counts):
    shares = counts / counts.sum(axis=1, keepdims=True)
    pairs = [(shares[i], shares[j]) for i, j in combinations(range(len(shares)), 2)]

    def mean(distance) -> float:
        return float(np.mean([distance(p, q) for p, q in pairs]))

    by_pairs = {
        "hellinger": math.sqrt(mean(lambda p, q: hellinger(p, q) ** 2)),
        "emd_tv": mean(lambda p, q: 0.5 * np.abs(p - q).sum()),
        "emd_ordinal": mean(lambda p, q: np.abs(np.cumsum(p) - np.cumsum(q)).sum()),
        "emd_fedartml": math.sqrt(mean(wasserstein_distance)),
    }
    metrics = label_metrics(counts)
    for name, value in by_pairs.items():
        # A root takes the rounding of what is all but zero to 1e-8.
        assert metrics[name] == pytest.approx(value, rel=1e-9, abs=2e-8), name
    spread = entropy(shares.mean(axis=0), base=2) - np.mean([entropy(p, base=2) for p in shares])
    bound = math.log2(len(shares)) if len(shares) > 2 else 1
    assert metrics["jensen_shannon"] == pytest.approx(math.sqrt(max(spread / bound, 0)), abs=1e-7)
    if len(shares) == 2:
        expected = jensenshannon(*shares, base=2)
        assert metrics["jensen_shannon"] == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(federations, st.randoms(use_true_random=False))
def test_metrics_are_bounded_and_do_not_depend_on_the_order_of_hospitals(counts, random):
    metrics = label_metrics(counts)
    assert all(value >= 0 for value in metrics.values())
    assert all(metrics[name] <= 1 + 1e-12 for name in ("hellinger", "jensen_shannon", "emd_tv", "emd_pooled"))
    assert metrics["emd_l1"] == pytest.approx(2 * metrics["emd_pooled"])
    order = random.sample(range(len(counts)), len(counts))
    shuffled = label_metrics(counts[order])
    assert shuffled == pytest.approx(metrics, rel=0, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(federations)
def test_hospitals_without_rows_change_nothing(counts):
    idle = np.vstack([counts[:1], np.zeros_like(counts[:1]), counts[1:]])
    assert label_metrics(idle) == pytest.approx(label_metrics(counts), abs=1e-7)
    assert np.isnan(label_psi(idle).hospital).tolist() == [h == 1 for h in range(len(idle))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any), st.lists(st.integers(1, 9), min_size=2))
def test_equal_shares_at_different_sizes_have_no_skew(counts, factors):
    metrics = label_metrics(np.outer(factors, counts))
    assert all(value == pytest.approx(0, abs=1e-7) for value in metrics.values())
    assert label_psi(np.outer(factors, counts)).hospital == pytest.approx(0, abs=1e-15)


@settings(max_examples=60, deadline=None)
@given(federations)
def test_psi_is_never_negative_and_symmetric_in_the_two_distributions(counts):
    assert (label_psi(counts).terms >= 0).all()
    both = counts[:2] + 1
    forth, back = (label_psi(both[[a]], reference=both[b]).hospital for a, b in ((0, 1), (1, 0)))
    assert forth == pytest.approx(back)


def test_a_class_that_nobody_has_changes_no_metric():
    absent = np.insert(GOLDEN, 1, 0, axis=1)
    assert label_psi(absent).hospital == near(label_psi(GOLDEN).hospital)
    unaffected = {k: v for k, v in label_metrics(GOLDEN).items() if k not in ("emd_ordinal", "emd_fedartml")}
    assert {k: label_metrics(absent)[k] for k in unaffected} == pytest.approx(unaffected)


def test_one_hospital_has_no_pairs():
    metrics = label_metrics(GOLDEN[:1])
    assert np.isnan([metrics[name] for name in ("hellinger", "jensen_shannon", "emd_tv", "emd_ordinal")]).all()
    assert metrics["wpsi"] == metrics["emd_l1"] == 0
    nobody = label_metrics(np.zeros((3, 2), dtype=np.int64))
    assert np.isnan(list(nobody.values())).all()


def test_psi_terms_of_sizes_keep_their_sign():
    """Half, once and one and a half times the mean of 20."""
    terms = size_terms(np.array([10, 20, 30]))
    assert terms == pytest.approx([0.5 * np.log(0.5), 0, 0.5 * np.log(1.5)])
    assert terms[0] < 0 < terms[2]


def test_quantity_of_two_hospitals_by_hand():
    """Shares 1/4 and 3/4: PSI .25 ln 2 + .25 ln 1.5, Gini 1/4, effective 1 / (1/16 + 9/16)."""
    skew = quantity(np.array([10, 30]))
    assert skew.psi == pytest.approx(0.25 * math.log(2) + 0.25 * math.log(1.5))
    assert skew.gini == pytest.approx(0.25)
    assert skew.effective == pytest.approx(1.6)
    assert skew.largest == 0.75
    assert quantity(np.array([10, 0, 30])) == skew


def test_equal_sizes_have_no_skew_and_nobody_has_none():
    even = quantity(np.array([7, 7, 7]))
    assert (even.psi, even.gini) == (0, pytest.approx(0, abs=1e-15))
    assert even.effective == pytest.approx(3)
    assert np.isnan(quantity(np.zeros(2, dtype=np.int64)).psi)
    assert quantity(np.array([5])).gini == 0


def test_feature_psi_by_hand():
    """Bins below and above the median 2, and missing: pool (3, 4, 1)/8; hospital 0 (3, 1, 0)/4, 1 (0, 3, 1)/4."""
    X = np.array([[0.0], [1.0], [1.0], [2.0], [3.0], [3.0], [4.0], [9.0]])
    observed = np.array([[True]] * 7 + [[False]])
    psi = feature_psi(X, observed, np.repeat([0, 1], 4), bins=2)
    P = np.array([3, 4, 1]) / 8 + 0.05
    p = np.array([[3, 1, 0], [0, 3, 1]]) / 4 + 0.05
    assert psi.terms[:, 0] == pytest.approx(((P - p) * np.log(P / p)).sum(axis=1))
    assert psi.hospital == pytest.approx(psi.terms[:, 0])


def test_unless_said_otherwise_there_are_ten_bins(federate):
    X, home = np.random.default_rng(1).normal(size=(200, 2)), np.arange(200) % 2
    observed = np.ones((200, 2), dtype=np.bool_)
    assert feature_psi(X, observed, home).hospital == pytest.approx(feature_psi(X, observed, home, bins=10).hospital)
    federation = federate([40, 50])
    ten = federation_feature_psi(federation, bins=10)
    assert federation_feature_psi(federation).hospital == pytest.approx(ten.hospital)


def test_without_rows_feature_psi_is_of_no_hospital():
    psi = feature_psi(np.zeros((0, 2)), np.ones((0, 2), dtype=np.bool_), np.zeros(0, dtype=np.int64), bins=2)
    assert (psi.terms.shape, psi.hospital.shape) == ((0, 2), (0,))


def test_feature_psi_rises_with_the_shift_of_one_hospital_and_ignores_constants():
    rng = np.random.default_rng(0)
    home = np.repeat(np.arange(4), 200)

    def of_shift(shift: float) -> np.ndarray:
        X = rng.normal(size=(800, 3))
        X[home == 2, 1] += shift
        X[:, 2] = 5.0
        return feature_psi(X, np.ones((800, 3), dtype=np.bool_), home).terms

    near_, far = of_shift(0.5), of_shift(2.0)
    assert far[2, 1] > near_[2, 1] > near_[2, 0]
    assert (far[:, 2] == 0).all()


def test_fewer_than_two_bins_are_refused():
    with pytest.raises(ValueError, match="bins: 1 is not at least 2"):
        feature_psi(np.zeros((1, 1)), np.ones((1, 1), dtype=np.bool_), np.zeros(1, dtype=np.int64), bins=1)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_federations_parts_are_read_from_its_rows(federate: MakeFederation, part):
    federation = federate([6, 0, 9, 0], [3, 4, 0, 5], classes=3)
    counts = label_counts(federation, part)
    for h in range(4):
        assert counts[h].tolist() == np.bincount(federation.y[federation.rows(h, part)], minlength=3).tolist()
    psi = federation_feature_psi(federation, part, bins=3)
    assert psi.terms.shape == (4, 3)
    assert np.isnan(psi.hospital).tolist() == (federation.sizes(part) == 0).tolist()


def golden(folder: Path) -> Federation:
    """The golden federation's labels as training rows of h0 to h3, and h4 without a row."""
    counts = np.append(GOLDEN, [[0, 0, 0]], axis=0)
    y = np.repeat(np.tile(range(3), 5), counts.ravel())
    stops = np.cumsum(counts.sum(axis=1))
    bounds = np.column_stack([stops - counts.sum(axis=1), stops, stops, stops])
    return store(folder, np.zeros((len(y), 2)), y, bounds, classes=3)


def test_the_table_of_hospitals_has_the_psi_of_each_hospital_and_class(tmp_path):
    table = hospital_table(golden(tmp_path), epsilon=1e-6).set_index("hospital")
    assert table.index.tolist() == ["h0", "h1", "h2", "h3", "h4"]
    assert table["rows"].tolist() == [100, 100, 40, 100, 0]
    assert table.loc["h0":"h3", ["rows_0", "rows_1", "rows_2"]].to_numpy().tolist() == GOLDEN.tolist()
    assert table.loc["h0":"h3", "psi"].to_numpy() == near([0.183730883, 0.2934536043, 4.6075341269, 0.0798572928])
    by_class = table[["psi_0", "psi_1", "psi_2"]].to_numpy()
    assert by_class[:4] == near(label_psi(GOLDEN, epsilon=1e-6).terms)
    assert np.isnan(by_class[4]).all()
    assert table["psi_of_features"].tolist() == [0, 0, 0, 0, pytest.approx(np.nan, nan_ok=True)]


def test_a_description_names_the_hospitals_and_classes_of_the_highest_psi(tmp_path):
    console = Console(file=io.StringIO(), width=200)
    console.print(unlikeness(golden(tmp_path), 1e-6).table())
    text = console.file.getvalue()
    assert "labels            much (PSI from 0.25): wpsi 0.706" in text
    # The median of four; the hospital without rows has none.
    assert "lowest 0.0799, median 0.239; highest: h2 4.61, h1 0.293, h0 0.184, h3 0.0799 " in text
    assert "h4" not in text
    shares = GOLDEN.sum(axis=1) / GOLDEN.sum()
    weighted = shares @ label_psi(GOLDEN, epsilon=1e-6).terms
    order = np.argsort(-weighted)
    assert "highest: " + ", ".join(f"{c} {weighted[c]:.3g}" for c in order) in text


def test_a_value_on_an_edge_is_in_the_bin_above_it():
    X, observed = np.array([[0.5], [1.0], [1.5], [2.0], [9.0]]), np.array([[True]] * 4 + [[False]])
    assert psi.bin_indices(X, observed, np.array([[1.0, 2.0]]))[:, 0].tolist() == [0, 1, 1, 2, 3]


def test_hospitals_are_clustered_by_the_sum_of_their_terms_and_by_each():
    assert psi.psi_rows(np.array([[1.0, 2.0, 4.0]])).tolist() == [[7.0, 1.0, 2.0, 4.0]]
