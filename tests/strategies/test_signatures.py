"""Signatures of hospitals, and the rows that they are clustered by, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from raysim.strategies.base import OWN
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.shared.clustering import members
from raysim.strategies.shared.signatures import Block, Signature, signature_matrix, standardise
from tests.strategies.contexts import At, hospital, sent, view_of

ROOT = np.sqrt(1.5)
"""What three numbers at equal distances are standardised to: -ROOT, 0, ROOT."""
LOW, HIGH = 1 / np.sqrt(2), np.sqrt(2)
"""What two equal numbers and a third are standardised to: LOW twice, and HIGH on the other side."""


def three() -> list[At]:
    """Hospitals of 1, 2 and 4 rows with 1, 1 and 0 of the second class, and columns ``a`` and ``b``.

    The first never recorded ``b``. What was not recorded is 99, and after the two columns stands a flag.
    """
    hole = 99.0
    X = [
        [[2, hole, 1]],
        [[4, 1, 1], [hole, 3, 1]],
        [[5, 0, 1], [7, 0, 1], [hole, 8, 1], [hole, 8, 1]],
    ]
    rows = []
    for counts, values in zip([[0, 1], [1, 1], [4, 0]], X, strict=True):
        array = np.array(values, dtype=float)
        rows.append(hospital(counts, array, array[:, :2] != hole))
    return rows


def answers() -> np.ndarray:
    return np.stack([sent(Signature(2, 2), rows) for rows in three()])


def test_signatures_by_hand():
    """``log n``, prevalence, missing rates, means and population deviations of ``a`` and ``b``."""
    first, second, third = answers()
    assert first == pytest.approx([0, 1, 0, 1, 2, np.nan, 0, np.nan], nan_ok=True)
    assert second == pytest.approx([np.log(2), 0.5, 0.5, 0, 4, 2, 0, 1])
    assert third == pytest.approx([np.log(4), 0, 0.5, 0, 6, 4, 1, 4])


def test_prevalence_is_of_every_class_but_the_first():
    assert sent(Signature(3, 1), hospital([1, 2, 5]))[:3] == pytest.approx([np.log(8), 2 / 8, 5 / 8])


EXPECTED = {
    "size": [[-ROOT], [0], [ROOT]],
    "prevalence": [[ROOT], [0], [-ROOT]],
    "missingness": [[-HIGH, HIGH], [LOW, -LOW], [LOW, -LOW]],
    # The first has no mean of b: it takes that of the others, 3, and with it 0.
    "mean": [[-ROOT, 0], [0, -ROOT], [ROOT, ROOT]],
    # And their mean deviation, 2.5.
    "std": [[-LOW, 0], [-LOW, -ROOT], [HIGH, ROOT]],
}


def test_the_rows_of_hospitals_by_hand():
    assert signature_matrix(answers(), 2) == pytest.approx(np.hstack(list(EXPECTED.values())), abs=1e-12)


@pytest.mark.parametrize("block", EXPECTED)
def test_each_block_by_itself(block):
    assert signature_matrix(answers(), 2, [block]) == pytest.approx(np.array(EXPECTED[block]), abs=1e-12)


def test_blocks_stand_in_one_order_whatever_that_of_their_names():
    expected = np.hstack([EXPECTED["size"], EXPECTED["std"]])
    assert signature_matrix(answers(), 2, ["std", "size"]) == pytest.approx(expected, abs=1e-12)


def test_scaled_blocks_weigh_the_same():
    """Each is divided by the square root of its length: 1 of size, 2 of the others where there are three classes."""
    lengths = {"size": 1, "prevalence": 1, "missingness": 2, "mean": 2, "std": 2}
    expected = np.hstack([np.array(EXPECTED[block]) / np.sqrt(length) for block, length in lengths.items()])
    assert signature_matrix(answers(), 2, block_scale=True) == pytest.approx(expected, abs=1e-12)
    shares = np.array([[0.0, 0.5], [0.2, 0.1], [0.4, 0.3]])
    scaled = np.hstack([answers()[:, :1], shares, answers()[:, 2:]])
    classes = np.array([[-ROOT, ROOT], [0, -ROOT], [ROOT, 0]])
    assert signature_matrix(scaled, 3, ["prevalence"]) == pytest.approx(classes, abs=1e-12)
    assert signature_matrix(scaled, 3, ["prevalence"], block_scale=True) == pytest.approx(classes / HIGH, abs=1e-12)
    assert signature_matrix(scaled, 3)[:, 3:] == pytest.approx(np.hstack(list(EXPECTED.values()))[:, 2:], abs=1e-12)


def test_what_nobody_recorded_tells_no_hospitals_apart():
    without_features = np.array([[np.log(n), 0.5, 1, np.nan, np.nan] for n in (2, 3)])
    assert signature_matrix(without_features, 2) == pytest.approx(np.array([[-1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]))


@pytest.mark.parametrize("value", [0.1, 1e-9, 1e9 + 0.1])
def test_a_column_that_is_constant_but_for_rounding_is_0(value):
    """Its deviation comes out as a few units in the last place, which standardising would blow up to 1."""
    column = np.full(10, value)
    column[3] = np.nextafter(value, 1)
    assert column.std() > 0
    assert (standardise(column[:, None]) == 0).all()
    assert (standardise(-column[:, None]) == 0).all()


def test_a_small_deviation_is_no_rounding():
    rows = np.array([[1.0, 1e-6], [1.0 + 1e-9, 3e-6]])
    assert standardise(rows) == pytest.approx(np.array([[-1, -1], [1, 1]]), rel=1e-6)


def test_a_rescaled_feature_makes_the_same_clusters():
    """CHiP's clusters do not depend on a feature's unit: any positive factor and any shift."""
    rng = np.random.default_rng(0)
    rows = [hospital([5, 5], rng.normal(mean, 1, (10, 2))) for mean in (0, 0, 4, 4, 4, 8)]
    scaled = [replace(h, X=h.X * np.array([1000.0, 0.01]) + np.array([-7.0, 3.0])) for h in rows]
    clusters = [members(Chip(clusters=3).setup(view_of(some))).tolist() for some in (rows, scaled)]
    assert clusters[0] == clusters[1]
    assert set(clusters[0]) == {1, 2, 3}


def test_chip_serves_everybody_the_global_model_their_clusters_and_their_own():
    view = view_of(three())
    state = Chip(clusters=2).setup(view)
    served = {name: rows.tolist() for name, rows in Chip().serve(view, state).items()}
    assert served == {"global": [0] * 3, "cluster": members(state).tolist(), "personal": [OWN] * 3}


@pytest.mark.parametrize("block", EXPECTED)
def test_chip_clusters_by_the_blocks_that_are_named(block):
    """Six hospitals: three differ from three in one block alone, and without it they are one cluster."""
    spread = np.array([0.0, 0, 2, 2])
    alike: dict[str, Any] = {"counts": [2, 2], "X": spread, "observed": np.ones(4, dtype=np.bool_)}
    other = dict(alike)
    if block == "size":
        other |= {"counts": [4, 4], "X": np.tile(spread, 2), "observed": np.ones(8, dtype=np.bool_)}
    elif block == "prevalence":
        other |= {"counts": [1, 3]}
    elif block == "missingness":
        other |= {"X": np.array([0.0, 99, 2, 99]), "observed": np.array([True, False, True, False])}
    elif block == "mean":
        other |= {"X": spread + 5}
    else:
        other |= {"X": np.array([-1.0, -1, 3, 3])}
    rows = [hospital(h["counts"], h["X"][:, None], h["observed"][:, None]) for h in (alike, other) * 3]
    view = view_of(rows)
    assert members(Chip(clusters=2, signature=(block,)).setup(view)).tolist() == [1, 2] * 3
    rest = tuple(name for name in EXPECTED if name != block)
    assert members(Chip(clusters=2, signature=rest).setup(view)).tolist() == [1] * 6


def test_blocks_of_three_classes_are_cut_where_they_begin() -> None:
    """A size, two prevalences, and of each of two columns its missingness, mean and deviation."""
    rows = np.random.default_rng(0).normal(size=(5, 1 + 2 + 3 * 2))
    names: tuple[Block, ...] = ("size", "prevalence", "missingness", "mean", "std")
    cuts = dict(zip(names, pairwise((0, 1, 3, 5, 7, 9)), strict=True))
    for classes in (3, 0):  # a real-valued label has a mean and a deviation
        for block, (begin, end) in cuts.items():
            assert signature_matrix(rows, classes, [block]) == pytest.approx(standardise(rows[:, begin:end]))


def test_a_real_label_has_a_mean_and_a_deviation_in_place_of_prevalence():
    rows = replace(hospital([2, 2]), y=np.array([1.0, 3.0, 3.0, 5.0]), classes=0)
    answer = sent(Signature(0, 1), rows)
    assert answer == pytest.approx([np.log(4), 3, np.sqrt(2), 0, 0, 0])
    nobody = replace(hospital([0, 0]), y=np.zeros(0), classes=0)
    assert np.isnan(sent(Signature(0, 1), nobody)).tolist() == [True] * 6


def test_a_mean_needs_counts_and_sums_and_a_deviation_squares():
    for block, powers in (("missingness", 1), ("mean", 2), ("std", 3), ("size", 0)):
        assert Signature(2, 1, (block,)).powers == powers


def test_values_that_are_not_finite_are_no_values_that_were_never_observed():
    X = np.array([[0.5, 1.0], [np.nan, 2.0]])
    rows = At(X, np.array([0, 1]), np.array([[True, True], [False, True]]))
    assert np.isfinite(sent(Signature(2, 2), rows)).all()
    with pytest.raises(ValueError, match="its rows contain values that are not finite"):
        sent(Signature(2, 2), replace(rows, observed=np.ones((2, 2), dtype=bool)))
