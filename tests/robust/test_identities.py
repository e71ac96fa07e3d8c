"""What holds of every rule, whatever the updates."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raysim.robust import centres, selecting
from raysim.robust.aggregation import Aggregation
from raysim.robust.breakdown import NEEDS

ROOTLESS = [name for name in tuple(NEEDS) if name != "fltrust"]
SELECTING = ("krum", "multi_krum", "bulyan")
EQUIVARIANT = [name for name in ROOTLESS if name != "norm_bound"]


@st.composite
def updates(draw, least=1):
    m, p = draw(st.integers(least, 12)), draw(st.integers(1, 6))
    return np.random.default_rng(draw(st.integers(0, 2**32))).standard_normal((m, p))


@given(updates())
def test_without_wrong_ones_it_is_the_mean(rows):
    mean = rows.mean(axis=0)
    same = [
        centres.trimmed_mean(rows, 0),
        selecting.multi_krum(rows, 0),
        centres.norm_bound(rows, np.inf),
        centres.centred_clipping(rows, np.zeros(rows.shape[1]), np.inf),
    ]
    for aggregate in same:
        np.testing.assert_allclose(aggregate.update, mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        Aggregation("trimmed_mean", before="nnm").aggregate(rows).update, mean, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        Aggregation("trimmed_mean", before="bucketing").aggregate(rows).update, mean, rtol=0, atol=1e-12
    )


@given(updates(), st.sampled_from(EQUIVARIANT), st.sampled_from(["none", "nnm"]), st.integers(0, 2**32))
def test_the_origin_does_not_matter(rows, name, before, seed):
    # Where two updates are each other's only neighbour, rounding says which of them wins.
    assume(name not in SELECTING or (before == "none" and len(rows) >= 4 and name != "bulyan"))
    rng = np.random.default_rng(seed)
    rule = Aggregation(name, assumed=0.2, before=before)
    centre, shift = rng.standard_normal((2, rows.shape[1]))
    whole = rule.aggregate(rows, centre=centre).update
    moved = rule.aggregate(rows + shift, centre=centre + shift).update
    np.testing.assert_allclose(moved, whole + shift, rtol=0, atol=1e-7)


@given(updates(), st.sampled_from(tuple(NEEDS)), st.sampled_from(["none", "nnm"]), st.integers(0, 2**32))
def test_the_order_does_not_matter(rows, name, before, seed):
    # Where two updates are each other's only neighbour, the first of them wins.
    assume(name not in SELECTING or (before == "none" and len(rows) >= 4 and name != "bulyan"))
    rng = np.random.default_rng(seed)
    rule = Aggregation(name, assumed=0.2, before=before)
    centre = rng.standard_normal(rows.shape[1])
    whole = rule.aggregate(rows, centre=centre, root=centre).update
    shuffled = rule.aggregate(rng.permutation(rows), centre=centre, root=centre).update
    np.testing.assert_allclose(shuffled, whole, rtol=0, atol=1e-7)


def test_bulyan_without_ties_does_not_depend_on_the_order():
    rows = np.random.default_rng(0).standard_normal((12, 3))
    rule = Aggregation("bulyan", assumed=0.0)
    np.testing.assert_allclose(rule.aggregate(rows[::-1]).update, rule.aggregate(rows).update, rtol=0, atol=1e-12)


@given(updates(), st.sampled_from(tuple(NEEDS)), st.sampled_from(["none", "nnm", "bucketing"]), st.integers(1, 9))
def test_equal_updates_are_returned(rows, name, before, count):
    one = rows[0]
    rule = Aggregation(name, assumed=0.3, before=before, bound=np.inf, passes=1)
    made = rule.aggregate(np.tile(one, (count, 1)), root=one)
    np.testing.assert_allclose(made.update, one, rtol=0, atol=1e-12)


@given(updates(least=5), st.sampled_from(["median", "trimmed_mean", "krum", "multi_krum"]))
def test_one_far_outlier_does_not_carry_the_rest_away(rows, name):
    poisoned = rows.copy()
    poisoned[-1] = 1e9
    made = Aggregation(name, assumed=1 / len(rows)).aggregate(poisoned).update
    others = rows[:-1]
    assert (made >= others.min(axis=0) - 1e-3).all()
    assert (made <= others.max(axis=0) + 1e-3).all()


@given(updates(least=3))
def test_the_geometric_median_stays_near_most_updates(rows):
    poisoned = rows.copy()
    poisoned[-1] = 1e9
    made = centres.geometric_median(poisoned).update
    honest, m = rows[:-1].mean(axis=0), len(rows)
    radius = np.linalg.norm(rows[:-1] - honest, axis=1).max()
    assert np.linalg.norm(made - honest) <= 2 * (1 + 1 / (m - 2)) * radius + 1e-3


@given(updates(), st.sampled_from(["median", "trimmed_mean", "geometric_median"]))
def test_equal_weights_are_none(rows, name):
    rule = Aggregation(name, assumed=0.2)
    weighted = rule.aggregate(rows, weights=np.full(len(rows), 0.5)).update
    np.testing.assert_allclose(weighted, rule.aggregate(rows).update, rtol=0, atol=1e-8)


@given(updates(least=3))
def test_a_weight_of_two_is_that_of_two_hospitals(rows):
    weights = np.ones(len(rows))
    weights[0] = 2.0
    doubled = np.concatenate([rows[:1], rows])
    for rule in (centres.median, centres.geometric_median):
        np.testing.assert_allclose(rule(rows, weights).update, rule(doubled).update, rtol=0, atol=1e-7)


def test_nothing_to_aggregate_is_an_error():
    with pytest.raises(ValueError, match="no update"):
        Aggregation("median").aggregate(np.empty((0, 3)))


@pytest.mark.parametrize("before", ["none", "nnm", "bucketing"])
@pytest.mark.parametrize("name", ROOTLESS)
def test_some_columns_at_a_time_give_the_bits_of_all_at_once(monkeypatch, name, before):
    rng = np.random.default_rng(len(name))
    of_all, weights = Aggregation(name, 0.2, before), rng.uniform(1, 9, 12)
    for size in (1, 2, 3, 5, 64, 101):
        rows = rng.standard_normal((12, size))
        for given_weights in (None, weights) if before == "none" else (None,):
            made = []
            for piece in (2**40, 1, 50, 300):
                monkeypatch.setattr("raysim.robust.rule.PIECE", piece)
                made.append(of_all.aggregate(rows, weights=given_weights))
            for other in made[1:]:
                assert other.update.tobytes() == made[0].update.tobytes()
                assert (other.admitted is None) == (made[0].admitted is None)
                assert other.admitted is None or (other.admitted == made[0].admitted).all()
