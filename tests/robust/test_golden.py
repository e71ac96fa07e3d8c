"""The rules on seven updates of two coordinates, the last of which is far off, against numbers worked out by hand."""

import numpy as np
import pytest

from raysim.robust import aggregation, breakdown, centres, selecting
from raysim.robust.aggregation import Aggregation
from raysim.robust.breakdown import NEEDS
from raysim.robust.rule import squared_distances, uniform

ROWS = np.array([[1, 2], [1.2, 1.8], [0.9, 2.1], [1.1, 2.2], [0.8, 1.9], [1.3, 2], [-5, 9]], dtype=float)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)


def test_median_and_trimmed_mean():
    close(centres.median(ROWS).update, [1, 2])
    close(centres.trimmed_mean(ROWS, 1).update, [1, 2.04])
    close(centres.trimmed_mean(ROWS, 2).update, [1, 2.0333333333333333])


def test_distances_of_nearly_equal_updates_far_from_the_origin_are_exact():
    updates = 2.0**40 + np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 4.0]])
    assert squared_distances(updates).tolist() == [[0, 1, 25], [1, 0, 20], [25, 20, 0]]


def test_krum_and_what_is_made_of_it():
    assert (squared_distances(ROWS).diagonal() == 0).all()
    scores = selecting.krum_scores(squared_distances(ROWS), 1)
    close(scores, [0.2, 0.47, 0.29, 0.35, 0.45, 0.39, 334.92])
    close(selecting.krum(ROWS, 1).update, ROWS[0])
    close(selecting.multi_krum(ROWS, 1, kept=4).update, [1.075, 2.075])
    close(selecting.multi_krum(ROWS, 1).update, [1.05, 2])
    assert selecting.krum_scores(squared_distances(ROWS[:1]), 0).tolist() == [0]  # it has no others
    close(selecting.krum_scores(squared_distances(ROWS[:2]), 0), [0.08, 0.08])
    assert selecting.bulyan_selection(ROWS, 1).tolist() == [0, 2, 5, 1, 3]
    close(selecting.bulyan(ROWS, 1).update, [1.1, 2.0333333333333333])


def test_a_weighted_median_does_not_depend_on_the_unit_of_weights():
    """The first two values weigh as much as the third: the middle lies between the second and the third."""
    values, weights = np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 2.0, 3.0])
    assert centres.median(values, weights).update.tolist() == [3.0]
    assert centres.median(values, weights + np.array([0, 0.01, 0])).update.tolist() == [2.0]
    assert centres.median(values, 1e-9 * (weights + np.array([0, 0.01, 0]))).update.tolist() == [2.0]


def test_a_geometric_median_without_iterations_is_the_weighted_mean():
    weights = np.arange(1.0, len(ROWS) + 1)
    begun = centres.geometric_median(ROWS, weights, passes=0)
    close(begun.update, np.average(ROWS, axis=0, weights=weights))
    close(begun.admitted, weights / weights.sum())


def test_geometric_median():
    close(centres.geometric_median(ROWS).update, [0.9982302665, 2.0160609220])
    close(centres.geometric_median(ROWS, nu=0.1, passes=3).update, [0.9859773920, 2.0534070925])
    from_zero = centres.geometric_median(ROWS, nu=0.1, passes=3, start=np.zeros(2))
    close(from_zero.update, [0.9865328924, 2.0537732707])


def test_centred_clipping_and_norm_bound():
    close(centres.centred_clipping(ROWS, np.zeros(2), 1.0, 1).update, [0.3272070150, 0.8820408534])
    close(centres.centred_clipping(ROWS, np.zeros(2), 1.0, 3).update, [0.9130092608, 2.0720452867])
    close(centres.norm_bound(ROWS, 2.0).update, [0.6544140301, 1.7640817068])


def test_clipping_without_a_centre_is_around_nothing():
    close(centres.centred_clipping(ROWS, np.zeros(2), 1.0).update, [0.3272070150, 0.8820408534])
    once = centres.centred_clipping(np.array([[3.0, 4.0], [0.3, 0.4]]), np.zeros(2), 1.0, 1)
    close(once.admitted, [0.5 / 5, 0.5])
    close(once.update, [0.5 * 0.6 + 0.5 * 0.3, 0.5 * 0.8 + 0.5 * 0.4])
    never = centres.centred_clipping(ROWS[:2], np.array([7.0, 8.0]), 1.0, 0)
    assert (never.update.tolist(), never.admitted.tolist()) == ([7.0, 8.0], [0.5, 0.5])
    around = Aggregation("centred_clipping", radius=0.5, passes=2)
    nothing = around.aggregate(ROWS, centre=np.zeros(2)).update
    assert around.aggregate(ROWS).update.tolist() == nothing.tolist()
    assert np.abs(nothing - around.aggregate(ROWS, centre=np.ones(2)).update).max() > 0.1


def test_fltrust():
    root = np.array([1.0, 2.0])
    trusted = [1, 0.9922778767, 0.9982743732, 1, 0.9978801060, 0.9936529683, 0.5646839156]
    close(selecting.trust_scores(ROWS, root), trusted)
    close(selecting.fltrust(ROWS, root).update, [0.8513589660, 1.9736512901])
    # An update of nothing points nowhere.
    with_nothing = selecting.fltrust(np.vstack([ROWS, np.zeros(2)]), root)
    close(with_nothing.update, [0.8513589660, 1.9736512901])
    assert with_nothing.admitted[-1] == 0
    assert with_nothing.selects


def test_fltrust_brings_short_updates_to_the_root_s_length_too():
    close(selecting.fltrust(np.array([[0.5, 0.0], [4.0, 0.0]]), np.array([2.0, 0.0])).update, [2.0, 0.0])


def test_fltrust_where_nobody_is_trusted_changes_nothing():
    nothing = selecting.fltrust(np.array([[-1.0, 0.0], [-2.0, 1.0], [0.0, 3.0]]), np.array([1.0, 0.0]))
    assert nothing.update.tolist() == [0.0, 0.0]
    assert nothing.admitted.tolist() == [0.0, 0.0, 0.0]
    assert nothing.selects


def test_mixing_with_neighbours_and_buckets():
    mixed = aggregation.mixed(aggregation.nearest_neighbours(ROWS, 1), ROWS)
    close(mixed, [[1.05, 2]] * 6 + [[0.0166666666666667, 3.2]])
    for rule in ("median", "trimmed_mean"):
        close(Aggregation(rule, assumed=1 / 7, before="nnm").aggregate(ROWS).update, [1.05, 2])
    means = aggregation.buckets(np.array([3, 0, 6, 1, 5, 2, 4]), 2)
    close(centres.median(aggregation.mixed(means, ROWS)).update, [0.925, 2.075])
    bucketed = Aggregation("median", assumed=1 / 7, before="bucketing")
    shuffled = bucketed.aggregate(ROWS, order=np.array([3, 0, 6, 1, 5, 2, 4]))
    assert (shuffled.update != bucketed.aggregate(ROWS).update).any()


def test_of_two_updates_one_of_which_is_wrong_each_has_no_neighbour_but_itself():
    for f in (1, 2):
        assert aggregation.nearest_neighbours(ROWS[:2], f).tolist() == [[1, 0], [0, 1]]


def test_three_updates_are_enough_for_bulyan_to_choose():
    assert [Aggregation("bulyan").aggregate(ROWS[:m]).selects for m in (2, 3)] == [False, True]


def test_the_updates_that_are_kept_are_averaged_in_their_order():
    rows = np.random.default_rng(0).normal(size=(15, 3))
    assert (selecting.multi_krum(rows, 1, kept=15).update == uniform(rows)).all()


def test_the_shares_of_updates_in_the_aggregate():
    assert selecting.krum(ROWS, 1).admitted.tolist() == [1, 0, 0, 0, 0, 0, 0]
    close(selecting.multi_krum(ROWS, 1).admitted, [1 / 6] * 6 + [0])
    assert selecting.bulyan(ROWS, 1).admitted.sum() == pytest.approx(1)
    assert selecting.bulyan(ROWS, 1).admitted[[4, 6]].tolist() == [0, 0]
    mixed = Aggregation("krum", assumed=1 / 7, before="nnm").aggregate(ROWS)
    close(mixed.admitted, [1 / 6] * 6 + [0])
    shares = centres.geometric_median(ROWS).admitted
    assert shares.sum() == pytest.approx(1)
    assert shares.argmin() == 6
    close(shares @ ROWS, centres.geometric_median(ROWS).update)
    # One of length 10 is halved.
    halved = centres.norm_bound(np.array([[6.0, 8.0], [0.0, 3.0]]), 5.0)
    close(halved.update, [1.5, 3.5])
    close(halved.admitted, [0.25, 0.5])


def test_only_rules_that_choose_reject():
    root = np.array([1.0, 2.0])
    selects = {name: Aggregation(name, assumed=1 / 7).aggregate(ROWS, root=root).selects for name in tuple(NEEDS)}
    assert {name for name in tuple(NEEDS) if selects[name]} == {"krum", "multi_krum", "bulyan", "fltrust"}


def test_values_that_are_trimmed_take_no_digit_of_the_others():
    for values in ([-1e30, 1.0, 1.0, 1.0, 1e30], [1.0, 1e30, 1.0, -1e30, 1.0]):
        assert centres.trimmed_mean(np.array(values)[:, None], 1, np.ones(5)).update.tolist() == [1.0]


def test_one_update_at_least_is_kept_and_no_more_than_there_are():
    for kept in (1, 7):
        assert (selecting.multi_krum(ROWS, 1, kept).admitted > 0).sum() == kept
    for kept in (0, 8):
        with pytest.raises(ValueError, match=f"^kept: {kept} is not from 1 to 7, the number of updates$"):
            selecting.multi_krum(ROWS, 1, kept)


def test_weights_are_mass():
    values = np.array([[0.0], [1.0], [10.0]])
    assert centres.median(values, np.array([1.0, 1.0, 3.0])).update == 10
    assert centres.median(values, np.array([1.0, 1.0, 2.0])).update == 5.5
    # A third of a mass of 3 is cut at either end: a half of the first and of the second hospital's stays.
    two = np.array([[0.0], [3.0], [10.0]])
    assert centres.trimmed_mean(two, 1, np.array([1.5, 0.75, 0.75])).update == pytest.approx(1.5)


def test_what_each_rule_bears():
    assert breakdown.bears("median", 7, 3)
    assert not breakdown.bears("median", 6, 3)
    assert breakdown.bears("krum", 7, 2)
    assert not breakdown.bears("krum", 6, 2)
    assert breakdown.bears("bulyan", 7, 1)
    assert not breakdown.bears("bulyan", 6, 1)
    assert breakdown.kappa("trimmed_mean", 7, 1) == pytest.approx(6 / 5 * 6 / 5)
    assert breakdown.kappa("krum", 7, 1) == pytest.approx(7.2)
    assert breakdown.kappa("median", 7, 1) == pytest.approx(4 * 1.44)
    assert breakdown.kappa("geometric_median", 7, 1) == pytest.approx(4 * 1.44)
    assert breakdown.kappa("bulyan", 7, 1) == np.inf
    assert breakdown.kappa("krum", 11, 5) == np.inf, "five equal updates have no distance from four others"
    assert np.isfinite(breakdown.kappa("krum", 13, 5))
    assert breakdown.kappa("median", 7, 1, neighbours=True) == pytest.approx(8 / 6 * (4 * 1.44 + 1))
    assert breakdown.kappa("median", 6, 3) == np.inf
    assert breakdown.kappa("median", 5, 2) == 4 * (1 + 2 / 1) ** 2


def test_how_many_hospitals_each_rule_needs_for_how_many_wrong_ones():
    least = dict.fromkeys(("median", "trimmed_mean", "geometric_median", "centred_clipping"), lambda f: 2 * f + 1)
    least |= {"krum": lambda f: 2 * f + 3, "multi_krum": lambda f: 2 * f + 3, "bulyan": lambda f: 4 * f + 3}
    least |= {"mean": lambda f: np.inf, "norm_bound": lambda f: 0, "fltrust": lambda f: 0}
    assert least.keys() == set(NEEDS)
    for rule in tuple(NEEDS):
        for f in range(1, 5):
            for m in range(25):
                assert breakdown.bears(rule, m, f) == (m >= least[rule](f))
        assert breakdown.bears(rule, 1, 0)


def test_a_share_is_the_count_that_is_meant():
    assert [Aggregation("median", assumed=share).count(10) for share in (0.1, 0.3, 0.7)] == [1, 3, 7]
    assert aggregation.bucket_size(7, 1) == 3
    assert aggregation.bucket_size(7, 0) == 1
    assert [aggregation.bucket_size(m, 2) for m in (3, 4, 7, 8)] == [1, 1, 1, 2]


def test_fltrust_without_a_root_is_refused():
    with pytest.raises(
        ValueError, match="root: is None, but FLTrust needs the update of a trusted hospital; give root"
    ):
        Aggregation("fltrust").aggregate(ROWS)


def test_how_is_as_documented_unless_it_is_said():
    plain = Aggregation("median")
    assert (plain.assumed, plain.before, plain.radius, plain.kept) == (0.0, "none", None, None)
    assert (plain.passes, plain.bound, plain.nu) == (1, 1.0, 1e-6)


def test_too_few_updates_for_a_formula():
    with pytest.raises(ValueError, match="leaves none of 2 updates"):
        centres.trimmed_mean(ROWS[:2], 1)
    with pytest.raises(ValueError, match="fewer than the 7"):
        selecting.bulyan(ROWS[:6], 1)
    # In a small cluster a rule does what it can.
    for name in ("bulyan", "trimmed_mean", "krum", "multi_krum", "median", "geometric_median", "centred_clipping"):
        one = Aggregation(name, assumed=0.4).aggregate(ROWS[:1])
        close(one.update, ROWS[0])
        assert np.isfinite(Aggregation(name, assumed=0.4).aggregate(ROWS[:2]).update).all()


@pytest.mark.parametrize(
    ("name", "least"),
    [("bulyan", lambda f: 4 * f + 3), ("trimmed_mean", lambda f: 2 * f + 1), ("krum", lambda f: f + 1)],
)
def test_in_a_small_cluster_as_many_are_assumed_wrong_as_the_formula_bears(name, least):
    rules = {"bulyan": selecting.bulyan, "trimmed_mean": centres.trimmed_mean, "krum": selecting.krum}
    rows = np.random.default_rng(0).normal(size=(15, 3))
    for m in range(1, 16):
        for share in (0.2, 0.5):
            borne = max(f for f in range(m) if f == 0 or (f <= int(share * m + 1e-9) and least(f) <= m))
            if m >= least(0):
                close(Aggregation(name, assumed=share).aggregate(rows[:m]).update, rules[name](rows[:m], borne).update)


def test_defaults_of_rules():
    left_out = Aggregation("median")
    assert (left_out.assumed, left_out.before, left_out.passes, left_out.bound) == (0.0, "none", 1, 1.0)
    assert (left_out.radius, left_out.nu, left_out.kept) == (None, 1e-6, None)
    assert (centres.PASSES, centres.MOVE) == (1000, 1e-10)
