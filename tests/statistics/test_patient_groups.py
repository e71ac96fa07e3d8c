"""Gaps between groups of patients within hospitals: exact values, plain loops, and what must not change them."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from benchmarks import patient_groups
from benchmarks.patient_groups import DESIGNS, outcomes
from raysim.statistics.patient_groups import arrangements
from raysim.statistics.patient_groups.arrangements import draws_for, every, number, permuted, within_limit
from raysim.statistics.patient_groups.composition import composition
from raysim.statistics.patient_groups.contributions import (
    ONE_ROW,
    Figures,
    averaged,
    contribution,
    pairs,
    ranked,
    weights,
)
from raysim.statistics.patient_groups.risks import group_risks, in_the_large, ratios, risk_sums
from raysim.statistics.patient_groups.within import AttributeSums, merged, together, within_gap

FIRST = ([0.9, 0.6, 0.8, 0.3, 0.7], [0, 0, 1, 1, 1], [0.5, 0.2, 0.65, 0.4, 0.1], [0, 0, 0, 1, 1])
SECOND = ([0.75, 0.45, 0.55], [0, 1, 1], [0.5, 0.15, 0.35, 0.6], [0, 0, 1, 1])
"""Two hospitals: scores and groups of events, and of other rows."""


def sums_of(hospitals, groups=2, *, draws=0, seed=0, swap=False, monotone=lambda z: z) -> AttributeSums:
    """What hospitals as :data:`FIRST` send; without ``draws``, under every arrangement of all of them."""
    parts, weighed, sizes = [], [], []
    for h, (event_scores, event_groups, other_scores, other_groups) in enumerate(hospitals):
        codes = [np.array(each) for each in (event_groups, other_groups)]
        if swap:
            codes = [1 - each for each in codes]
        scores = monotone(np.array([*event_scores, *other_scores]))
        event = np.arange(len(scores)) < len(event_scores)
        if draws:
            rng = np.random.default_rng([seed, h])
            labels = tuple(permuted(each, draws, rng) for each in codes)
        else:
            of_event, of_other = (every(each) for each in codes)
            labels = (
                np.repeat(of_event, of_other.shape[1], axis=1),
                np.tile(of_other, (1, of_event.shape[1])),
            )
        counts = np.stack([np.bincount(each, minlength=groups) for each in codes], axis=1)
        figures = ranked(scores, event, labels, groups)
        parts.append((counts, figures))
        weighed.append(weights(counts))
        sizes.append(labels[0].shape[1])
    total = int(np.prod(sizes)) if not draws else sizes[0]
    units, stride = np.zeros((2, len(pairs(groups)), total), np.int64), 1
    for (_, figures), weight, size in zip(parts, weighed, sizes, strict=True):
        which = np.arange(total) if draws else np.arange(total) // stride % size
        units += contribution(figures, weight)[:, :, which]
        stride *= size
    return AttributeSums(
        np.stack([counts for counts, _ in parts]),
        np.stack([figures.value[:, 0] for _, figures in parts]),
        np.stack([figures.variance[:, 0] for _, figures in parts]),
        None,
        {0: units},
    )


def test_the_exact_test_of_two_hospitals():
    """Gaps of 0 and .5 with weights .6 and .4: .2; 1003 of 1800 arrangements have one as large."""
    sums = sums_of([FIRST, SECOND])
    np.testing.assert_allclose(weights(sums.counts)[:, 0], [0.6, 0.4])
    np.testing.assert_allclose(sums.value[:, 0] - sums.value[:, 1], [0.0, 0.5], atol=1e-12)
    first, _ = sums.sums()
    gap = np.abs(first[0])
    assert gap.shape == (1800,)
    assert (gap >= gap[0] - 1e-9).sum() == 1003
    found = within_gap("sex", ("F", "M"), sums, larger=True, exact=True)
    assert found.estimate == pytest.approx(0.2, abs=1e-12)
    assert (found.arrangements, found.exact, found.hospitals, found.groups) == (1800, True, 2, ("F", "M"))


def test_the_order_of_hospitals_and_monotone_scores_change_no_bit_and_a_swap_flips_the_sign():
    names = ("F", "M")
    usual = within_gap("sex", names, sums_of([FIRST, SECOND]), larger=True)
    turned = within_gap("sex", names, sums_of([SECOND, FIRST]), larger=True)
    assert turned.p == usual.p
    assert turned.estimate == pytest.approx(usual.estimate, abs=1e-15)
    bent = within_gap("sex", names, sums_of([FIRST, SECOND], monotone=lambda z: np.exp(3 * z)), larger=True)
    assert (bent.p, bent.estimate, bent.low, bent.high) == (usual.p, usual.estimate, usual.low, usual.high)
    swapped = within_gap("sex", names, sums_of([FIRST, SECOND], swap=True), larger=True)
    assert swapped.estimate == pytest.approx(-usual.estimate)
    assert swapped.p == usual.p
    assert (swapped.low, swapped.high) == pytest.approx((-usual.high, -usual.low))


def of_pairs(z: np.ndarray, event: np.ndarray, mine: np.ndarray) -> tuple[float, float]:
    """AUROC and DeLong's variance of the rows that are ``mine``, from all pairs."""
    x, y = z[event & mine], z[~event & mine]
    if not (len(x) and len(y)):
        return np.nan, np.nan
    psi = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    parts = [psi.mean(axis=axis).var(ddof=1) if n > 1 else ONE_ROW for axis, n in ((1, len(x)), (0, len(y)))]
    return psi.mean(), parts[0] / len(x) + parts[1] / len(y)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 25) | st.just(300), st.integers(1, 3), st.sampled_from([3, 1000]), st.integers(0, 2**31))
def test_a_hospital_s_figures_are_those_of_all_its_pairs(n, groups, levels, seed):
    rng = np.random.default_rng(seed)
    event, z = rng.random(n) < rng.random(), rng.integers(0, levels, n).astype(np.float32)
    codes = rng.integers(0, groups, n)
    labels = permuted(codes[event], 4, rng), permuted(codes[~event], 4, rng)
    figures = ranked(z, event, labels, groups)
    for r in range(5):
        arranged = np.empty(n, np.int64)
        arranged[event], arranged[~event] = labels[0][:, r], labels[1][:, r]
        for g in range(groups):
            value, variance = of_pairs(z, event, arranged == g)
            np.testing.assert_allclose(figures.value[g, r], value, atol=1e-12)
            np.testing.assert_allclose(figures.variance[g, r], variance, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_every_arrangement_once_the_observed_first(codes):
    found = [tuple(column) for column in every(codes).T]
    assert found[0] == tuple(codes)
    assert sorted(found) == sorted(set(permutations(codes)))
    assert len(found) == number(np.bincount(codes, minlength=3))


def test_draws_keep_the_counts_and_reach_every_arrangement_equally_often():
    labels = permuted([0, 0, 1, 2], 12_000, np.random.default_rng(3))
    assert labels.shape == (4, 12_001)
    assert labels[:, 0].tolist() == [0, 0, 1, 2]
    assert (np.sort(labels, axis=0) == np.array([[0], [0], [1], [2]])).all()
    _, times = np.unique(labels[:, 1:], axis=1, return_counts=True)
    assert len(times) == number([2, 1, 1]) == 12
    assert np.abs(times - 1000).max() < 150, "five standard deviations"


def test_all_arrangements_are_taken_where_they_are_few():
    assert number([[2, 3], [3, 2]]) == 100
    assert within_limit([[2, 3], [3, 2]]) == 100
    assert within_limit([[6, 0], [6, 0]]) == 924
    assert within_limit([[7, 0], [6, 0]]) == 1716
    assert within_limit([[7, 0], [7, 0]]) is None
    assert within_limit([[400, 400], [2, 4]]) is None
    assert draws_for(7739) == arrangements.DRAWS
    assert draws_for(10**9) == arrangements.FEWEST_DRAWS


def three(seed: int, hospitals: int = 12, gap: float = 0.0) -> list:
    """Hospitals with three groups; the last ranks worse by ``gap`` standard deviations."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(hospitals):
        of_event, of_other = rng.integers(0, 3, 15), rng.integers(0, 3, 30)
        made.append((rng.normal(1.2 - gap * (of_event == 2)), of_event, rng.normal(size=30), of_other))
    return made


def test_three_groups_have_one_p_over_all_pairs():
    sums = sums_of(three(1), 3, draws=399)
    found = within_gap("ethnicity", ("a", "b", "c"), sums, larger=True)
    assert [pair.groups for pair in found.pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    first, second = sums.sums()
    largest = np.abs(first / np.sqrt(second)).max(axis=0)
    assert found.p == (largest >= largest[0] - 1e-9).sum() / 400
    assert found.estimate in [pair.estimate for pair in found.pairs]
    shown = within_gap("ethnicity", ("a", "b", "c"), sums_of(three(1, gap=1.5), 3, draws=399), larger=True)
    assert shown.p == 1 / 400
    assert "c" in shown.groups
    assert shown.low > 0, "the last group ranks worse"


def test_the_smallest_visible_gap_is_for_all_attributes_at_once():
    """The rank of the critical statistic is 5 of 400 for each of four attributes, and 20 for one."""
    sums = sums_of(three(1), 3, draws=399)
    first, second = sums.sums()
    descending = np.sort(np.abs(first / np.sqrt(second)).max(axis=0))[::-1]
    for attributes, rank in ((1, 20), (4, 5)):
        found = within_gap("ethnicity", ("a", "b", "c"), sums, larger=True, attributes=attributes)
        for pair in found.pairs:
            assert pair.visible == pytest.approx((descending[rank] + 0.8416212336) * pair.se)
            assert pair.high - pair.low == pytest.approx(2 * descending[20] * pair.se), "the interval is for one alone"


def test_hospitals_like_these_are_judged_by_student_s_t():
    """Five hospitals of equal weight: four degrees of freedom."""
    gaps = np.array([0.02, 0.04, 0.06, 0.08, 0.1])
    value, counts = np.stack([0.5 + gaps, np.full(5, 0.5)], axis=1), np.full((5, 2, 2), 3)
    sums = AttributeSums(counts, value, np.full((5, 2), 1e-8), None, {0: np.zeros((2, 1, 1), np.int64)})
    (pair,) = within_gap("sex", ("F", "M"), sums, larger=True).pairs
    half = 2.776445105 * gaps.std(ddof=1) / np.sqrt(5)
    assert (pair.like_low, pair.like_high) == pytest.approx((0.06 - half, 0.06 + half))


def test_a_hospital_without_one_of_the_four_counts_adds_nothing():
    without = ([0.9, 0.8], [0, 0], [0.1, 0.3, 0.5], [0, 1, 1])
    usual, more = sums_of([FIRST, SECOND]), sums_of([FIRST, without, SECOND])
    assert weights(more.counts)[1, 0] == 0
    names = ("F", "M")
    a, b = (within_gap("sex", names, sums, larger=True) for sums in (usual, more))
    assert (a.hospitals, b.hospitals) == (2, 2)
    assert b.estimate == pytest.approx(a.estimate, abs=1e-12)
    assert b.p == pytest.approx(a.p, abs=1e-12), "each arrangement comes three times"
    nobody = within_gap("sex", names, sums_of([without]), larger=True)
    assert not nobody.judged
    assert np.isnan([nobody.estimate, nobody.p, nobody.low]).all()
    assert not nobody.demonstrated


def test_hospitals_come_together_in_any_way_to_the_same_bits():
    every_one = three(5)
    whole = sums_of(every_one, 3, draws=99)
    singles = []
    for h in range(len(every_one)):
        units = np.zeros_like(whole.units[0])
        codes = [np.array(each) for each in (every_one[h][1], every_one[h][3])]
        rng = np.random.default_rng([0, h])
        labels = tuple(permuted(each, 99, rng) for each in codes)
        scores, event = np.concatenate([every_one[h][0], every_one[h][2]]), np.arange(45) < 15
        units += contribution(ranked(scores, event, labels, 3), weights(whole.counts[h]))
        singles.append(AttributeSums(whole.counts[[h]], whole.value[[h]], whole.variance[[h]], None, {0: units}))
    order = np.random.default_rng(2).permutation(len(singles))
    again = merged([singles[h] for h in order], np.argsort(order))
    for name in ("counts", "value", "variance"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    np.testing.assert_array_equal(again.units[0], whole.units[0])


def test_equal_figures_without_error_have_no_gap():
    sums = sums_of([([3.0, 4.0], [0, 1], [1.0, 2.0], [0, 1])] * 3)
    found = within_gap("sex", ("F", "M"), sums, larger=True)
    assert (found.estimate, found.p) == (0.0, 1.0)
    se = np.sqrt(3 * 4 / 12) / 3
    assert (found.low, found.high) == pytest.approx((-1.959964 * se, 1.959964 * se), abs=1e-6), "not of width 0"


def test_a_pair_that_cannot_be_compared_hides_no_other_pair():
    """The first and the second group lack the rows; the other groups rank alike everywhere."""
    sums = sums_of([([3.0, 4.0], [1, 2], [1.0, 2.0], [1, 2])] * 3, 3)
    found = within_gap("ethnicity", ("a", "b", "c"), sums, larger=True)
    assert (found.judged, found.groups, found.estimate, found.hospitals) == (True, ("b", "c"), 0.0, 3)


def test_holm_over_the_attributes_that_are_judged():
    sums = sums_of([FIRST, SECOND])
    gap = within_gap("sex", ("F", "M"), sums, larger=True)
    adjusted = together([replace(gap, p=p) for p in (0.02, np.nan, 0.012, 0.6)])
    assert [each.p_holm for each in adjusted] == pytest.approx([0.04, np.nan, 0.036, 0.6], nan_ok=True)
    assert [each.demonstrated for each in adjusted] == [True, False, True, False]


def test_errors_of_groups_by_plain_means():
    rng = np.random.default_rng(4)
    errors, codes = rng.exponential(3.0, 40), rng.integers(0, 2, 40)
    codes[-1] = 2
    labels = permuted(codes, 9, rng)
    figures, scale = averaged(errors, labels, 4)
    assert 2.0 ** (scale - 1) <= errors.max() < 2.0**scale
    for r in range(10):
        for g in range(3):
            mine = errors[labels[:, r] == g] / 2.0**scale
            spread = mine.var(ddof=1) if len(mine) > 1 else (errors / 2.0**scale).var(ddof=1)
            np.testing.assert_allclose(figures.value[g, r], mine.mean(), atol=2e-6)
            np.testing.assert_allclose(figures.variance[g, r], spread / len(mine), atol=2e-6)
    assert np.isnan(figures.value[3]).all()


def test_errors_of_any_unit_add_up():
    """A hospital's errors of a million and another's of a millionth: the first decides, the second is not lost."""
    rng = np.random.default_rng(6)
    units, parts = {}, []
    for size in (1e6, 1e-6):
        errors, codes = size * rng.exponential(1.0, 12), np.arange(12) % 2
        figures, scale = averaged(errors, every(codes), 2)
        counts = np.array([[6], [6]])
        units[scale] = contribution(figures, weights(counts))
        in_units = Figures(np.ldexp(figures.value, scale), np.ldexp(figures.variance, 2 * scale))
        parts.append((counts, in_units))
    sums = AttributeSums(
        np.stack([counts for counts, _ in parts]),
        np.stack([figures.value[:, 0] for _, figures in parts]),
        np.stack([figures.variance[:, 0] for _, figures in parts]),
        None,
        units,
    )
    found = within_gap("sex", ("F", "M"), sums, larger=False)
    expected = (sums.value[:, 0] - sums.value[:, 1]).mean()
    assert found.estimate == pytest.approx(expected)
    first, second = sums.sums()
    assert first[0, 0] == pytest.approx(3 * 2 * expected, rel=1e-6), "weights of 3 each"
    assert np.sqrt(second[0, 0]) / 6 == pytest.approx(found.pair.se, rel=1e-6)


LOGITS = np.array([-2, -1, 0, 1, -1, 0, 1, -2, -3, -2, -1, 0, -2, -1.0])
EVENTS = np.array([0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
GROUPS = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1])


def test_risks_by_group():
    np.testing.assert_allclose(in_the_large(LOGITS, EVENTS, [0, 8, 14]), [1.1608427570, 0.6655671738], atol=1e-10)
    sums = risk_sums(LOGITS, EVENTS, [0, 8, 14], GROUPS, 2)
    excess, information = sums[:, 1, 0] - sums[:, 1, 1], sums[:, 1, 2] - sums[:, 1, 2] ** 2 / sums[:, :, 2].sum(axis=1)
    np.testing.assert_allclose(excess, [0.5, -0.2860993756], atol=1e-9)
    np.testing.assert_allclose(information, [0.3666720230, 0.2756420206], atol=1e-9)
    of_first, of_second = group_risks(("F", "M"), sums)
    assert of_second.log_odds == pytest.approx(0.3330156432, abs=1e-9)
    assert of_second.p == pytest.approx(0.789551, abs=1e-6), "z = .2668937129"
    assert of_first.log_odds == pytest.approx(-of_second.log_odds)
    assert of_second.observed == 4
    assert of_second.ratio == pytest.approx(4 / sums[:, 1, 1].sum())
    assert sums[:, :, 1].sum() == pytest.approx(EVENTS.sum()), "every hospital's risks add up to its events"


def test_a_hospital_with_one_class_says_nothing_of_risks():
    more = np.concatenate([LOGITS, [1.0, 2.0]])
    sums = risk_sums(more, np.concatenate([EVENTS, [1, 1]]), [0, 8, 14, 16], np.concatenate([GROUPS, [0, 1]]), 2)
    np.testing.assert_allclose(sums[2, :, :3], [[1, 1, 0], [1, 1, 0]])
    assert ratios(sums)[2] == pytest.approx(2 / expit([1.0, 2.0]).sum())
    alone = risk_sums(LOGITS, EVENTS, [0, 8, 14], GROUPS, 2)
    np.testing.assert_array_equal(sums[:2], alone)
    extreme = np.array([-80.0, 60, 30, -2])
    shift = in_the_large(extreme, [1, 0, 1, 0], [0, 4])
    assert expit(extreme + shift[0]).sum() == pytest.approx(2.0)


def test_composition_is_between_hospitals():
    """Two groups at equal hospitals: 0. A group at the better hospitals only has their mean."""
    rng = np.random.default_rng(7)
    figure, rows = rng.uniform(0.6, 0.9, 20), rng.integers(5, 50, 20)
    assert composition(figure, rows, 3 * rows).estimate == pytest.approx(0.0, abs=1e-15)
    better = figure > np.median(figure)
    found = composition(figure, rows * better + 1e-9, rows)
    expected = np.average(figure[better], weights=rows[better]) - np.average(figure, weights=rows)
    assert found.estimate == pytest.approx(expected, abs=1e-6)
    assert found.low < found.estimate < found.high
    assert found.hospitals == 20
    few = composition(figure[:9], rows[:9], rows[:9] + 1)
    assert np.isnan(few.low)
    assert np.isnan(composition(figure, 0 * rows, rows).estimate)


def test_the_jackknife_is_a_plain_loop_s():
    rng = np.random.default_rng(8)
    figure, a, b = rng.uniform(size=12), rng.integers(1, 9, 12), rng.integers(1, 9, 12)

    def difference(kept):
        return np.average(figure[kept], weights=a[kept]) - np.average(figure[kept], weights=b[kept])

    without = np.array([difference(np.arange(12) != i) for i in range(12)])
    se = np.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    found = composition(figure, a, b)
    assert found.estimate == pytest.approx(difference(np.arange(12)))
    assert found.high - found.estimate == pytest.approx(2.200985160082949 * se), "t with 11 degrees of freedom"


@pytest.mark.parametrize(("design", "fooled"), [("Simpson", 0.3), ("AUROC .92", 0.9)])
def test_groups_that_only_go_to_other_hospitals_are_hardly_ever_said_to_differ(design, fooled, monkeypatch):
    """In 100 federations at most 5 % and two deviations, where a test over all patients claims a difference."""
    monkeypatch.setattr(patient_groups, "DRAWS", 39)
    ((name, drawn_from),) = ((name, each) for name, each in DESIGNS.items() if design in name and "errors" not in name)
    seen = [dict(outcomes(drawn_from, np.random.default_rng([draw, len(name)]))) for draw in range(100)]
    assert np.mean([each["claimed"] for each in seen]) <= 0.05 + 2 * 0.0218
    assert np.mean([each["covered"] for each in seen]) >= 0.95 - 2 * 0.0218
    assert np.mean([each["over all patients"] for each in seen]) > fooled
