"""The paired difference: worked numbers, the parts of its variance by loops, and what may be said of it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from raysim.statistics.differences.paired import Limits, Paired, equivalent, paired
from raysim.statistics.discrimination.auroc import delong, placements
from tests.statistics.federations import scored
from tests.statistics.patients import patient_covariance, patient_sums

D, R = np.array([0.03, 0.01, 0.06, -0.02]), np.array([100, 50, 30, 20])


def simple(d, r, **more):
    return paired(np.asarray(d) + 0.5, np.full(np.shape(d), 0.5), r, **more)


def test_worked_numbers():
    pair = paired(D[None], np.zeros((1, 4)), R[None])
    assert pair.difference == pytest.approx(0.0245)
    assert pair.hospital_variance == pytest.approx(0.00008800816993, abs=6e-15)
    assert pair.df == pytest.approx(1.8985507246, abs=6e-11)
    assert math.sqrt(pair.variance) == pytest.approx(0.0093812670, abs=6e-11)
    assert pair.population() == pytest.approx((-0.018003, 0.067003), abs=6e-7)
    assert not pair.population().shows
    assert pair.visible() == pytest.approx(0.0525861580, abs=6e-11)
    assert (pair.hospitals, pair.seeds) == (4, 1)
    assert pair.p == pytest.approx(2 * student.sf(0.0245 / 0.0093812670, 1.8985507246), abs=1e-8)


def test_the_parts_are_their_sums():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.6, 0.9, (2, 3, 6))
    r = rng.integers(10, 90, (3, 6)).astype(float)
    a[1, 2], b[0, 4], r[2, 0] = np.nan, np.nan, 0
    pair = paired(a, b, r, patients=np.arange(6.0))
    d = a - b
    there = np.isfinite(d) & (r > 0)
    total = sum(r[s, i] for s in range(3) for i in range(6) if there[s, i])
    theta = sum(r[s, i] * d[s, i] for s in range(3) for i in range(6) if there[s, i]) / total
    e = [[r[s, i] * (d[s, i] - theta) / total if there[s, i] else 0 for i in range(6)] for s in range(3)]
    h = [sum(r[s, i] for s in range(3) if there[s, i]) / total for i in range(6)]
    v_h = sum(sum(e[s][i] for s in range(3)) ** 2 / (1 - h[i]) for i in range(6))
    v_s = 3 / 2 * sum(sum(e[s]) ** 2 for s in range(3))
    v_p = 15 / total**2
    assert pair.difference == pytest.approx(theta)
    assert (pair.hospital_variance, pair.seed_variance, pair.patient_variance) == pytest.approx((v_h, v_s, v_p))
    df_h = 1 / sum(share**2 for share in h) - 1
    largest = max(v_h, v_p)
    assert pair.variance == pytest.approx(largest + v_s)
    assert pair.df == pytest.approx(df_h)
    reaches = [
        math.sqrt(student.ppf(q, df_h) ** 2 * largest + student.ppf(q, 2) ** 2 * v_s) for q in (0.975, 0.995, 0.8)
    ]
    assert pair.population() == pytest.approx((theta - reaches[0], theta + reaches[0]))
    assert pair.population(0.01) == pytest.approx((theta - reaches[1], theta + reaches[1]))
    assert pair.visible() == pytest.approx(reaches[0] + reaches[2])
    low, high = pair.population(pair.p)
    assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-9)  # the p-value is where the interval ends at 0
    reach = math.sqrt(norm.ppf(0.975) ** 2 * v_p + student.ppf(0.975, 2) ** 2 * v_s)
    assert pair.fixed() == pytest.approx((theta - reach, theta + reach))


def test_the_larger_of_hospitals_and_patients_counts():
    small, large = (simple(D[None], R[None], patients=np.full(4, v * R.sum() ** 2 / 4)) for v in (1e-5, 1e-3))
    assert small.variance == small.hospital_variance
    assert large.variance == pytest.approx(1e-3)
    assert large.df == pytest.approx(small.df)


def test_degrees_of_freedom_are_at_least_one():
    two = simple([[0.1, -0.2]], [[99, 1]])
    assert 1 / (0.99**2 + 0.01**2) - 1 < 1
    assert two.df == 1


def test_seeds_alone_have_their_own_degrees_of_freedom():
    """Hospitals agree, and seeds do not: the interval is that of a mean of seeds."""
    by_seed = np.array([0.1, 0.3, -0.1])
    pair = simple(np.repeat(by_seed[:, None], 3, axis=1), np.ones((3, 3)))
    assert pair.hospital_variance == pytest.approx(0, abs=1e-30)
    reach = student.ppf(0.975, 2) * by_seed.std(ddof=1) / math.sqrt(3)
    assert pair.population() == pytest.approx((0.1 - reach, 0.1 + reach))


@given(st.permutations(range(5)), st.floats(0.1, 50))
def test_names_of_hospitals_and_the_unit_of_rows_do_not_matter(order, scale):
    rng = np.random.default_rng(3)
    a, b = rng.random((2, 2, 5))
    r = rng.integers(1, 90, (2, 5))
    mine, other = paired(a, b, r), paired(a[:, order], b[:, order], scale * r[:, order])
    for name in ("difference", "hospital_variance", "seed_variance", "df", "p"):
        assert getattr(mine, name) == pytest.approx(getattr(other, name))
    assert mine.visible() == pytest.approx(other.visible())
    swapped = paired(b, a, r)
    assert swapped.population() == pytest.approx((-mine.population().high, -mine.population().low))


def test_equal_models():
    a = np.random.default_rng(1).random((2, 5))
    pair = paired(a, a, np.ones((2, 5)), patients=np.zeros(5))
    assert pair.equal
    assert (pair.population(), pair.fixed(), pair.p, pair.visible()) == ((0, 0), (0, 0), 1, 0)
    # The same AUROCs by different orders of rows are not equal models.
    assert not paired(a, a, np.ones((2, 5)), patients=np.ones(5)).equal
    assert not simple(D[None], R[None]).equal


def test_one_hospital_speaks_only_for_itself():
    pair = simple([[0.1], [0.2]], [[50], [50]], patients=[4.0])
    assert np.isnan([pair.variance, pair.df, *pair.population(), pair.p, pair.visible()]).all()
    assert pair.patient_variance == pytest.approx(4 / 100**2)
    assert np.isfinite(pair.fixed()).all()
    assert pair.notes()[0].startswith("one hospital")
    equal = paired([[0.7], [0.8]], [[0.7], [0.8]], [[50], [50]], patients=[0.0])
    assert (equal.equal, equal.fixed()) == (True, (0, 0))
    assert np.isnan([*equal.population(), *equal.population(0.01), equal.p, equal.visible()]).all()


def test_without_patients_there_is_no_interval_for_these_hospitals():
    assert np.isnan(simple(D[None], R[None]).fixed()).all()


def test_nothing_that_varies_has_no_interval():
    pair = simple([[0.1, 0.1, 0.1]], [[5, 6, 7]])
    assert pair.difference == pytest.approx(0.1)
    assert pair.variance == pytest.approx(0, abs=1e-30)
    exact = paired([[0.5, 0.5]], [[0.25, 0.25]], [[4, 4]])
    assert exact.variance == 0
    assert np.isnan(exact.population()).all()
    assert not exact.population().shows


def test_nothing_defined():
    pair = paired([[np.nan, 0.5]], [[0.5, np.nan]], [[3, 4]])
    assert (pair.hospitals, pair.seeds, pair.equal) == (0, 0, False)
    assert np.isnan([pair.difference, pair.variance, pair.df, *pair.population(), *pair.fixed()]).all()


def test_one_seed_says_nothing_of_the_ways_of_training():
    often = np.tile(np.arange(10.0), (2, 1))
    assert not simple(often[:1], np.ones((1, 10))).of_training
    assert simple(often, np.ones((2, 10))).of_training
    half = np.where([[True], [False]], often, np.nan)
    assert not simple(half, np.ones((2, 10))).of_training, "a seed without any figure is none"


def test_notes():
    assert simple(D[None], R[None]).notes() == [
        "4 hospitals, 1.8 degrees of freedom",
        "fewer than 2 degrees of freedom: almost nothing can be demonstrated",
        "one training seed: intervals apply to the trained models, not to the methods",
    ]
    often = np.tile(np.arange(10.0), (5, 1))
    assert simple(often, np.ones((5, 10))).notes() == []
    (note,) = simple(often[:1], np.ones((1, 10))).notes()
    assert note.startswith("one training seed")
    (note,) = simple(often[:, :9], np.ones((5, 9))).notes()
    assert note.startswith("9 hospitals")
    (note,) = simple(often[:4], np.ones((4, 10))).notes()
    assert note.startswith("4 training seeds")


def test_equivalence_is_another_claim():
    assert equivalent(Limits(-0.009, 0.009))
    assert equivalent(Limits(0.001, 0.009))  # different, and too little to matter
    assert not equivalent(Limits(-0.011, 0.0))
    assert not equivalent(Limits(0.0, 0.011))
    assert not equivalent(Limits(math.nan, math.nan))


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="must all be the same"):
        paired(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 4)))


def test_two_degrees_of_freedom_are_not_too_few():
    few: Any = SimpleNamespace(hospitals=1000, seeds=1000, df=2.0)
    assert Paired.notes(few) == []
    few.df = 1.99
    assert Paired.notes(few) == ["fewer than 2 degrees of freedom: almost nothing can be demonstrated"]
    few.hospitals = 3  # not "2.0"
    assert Paired.notes(few)[0] == "3 hospitals, 1.9 degrees of freedom"


# --- patients ---


def models(rng, events, non_events, count=3):
    scores, y, cuts = scored(rng, events, non_events, 0.75)
    return np.stack([scores + 0.4 * rng.standard_normal(len(y)) for _ in range(count)]), y, cuts


def test_in_one_seed_patients_have_delongs_covariance():
    scores, y, cuts = models(np.random.default_rng(2), [5, 9, 3], [20, 7, 40])
    placed = placements(scores, y, cuts)
    rows = np.diff(cuts)
    covariance = patient_covariance([placed], [np.arange(len(y))])
    assert covariance == pytest.approx(delong(placed).covariance * (rows**2)[:, None, None])
    sums = patient_sums(covariance, 0, 2)
    assert sums == pytest.approx(delong(placed).difference(0, 2)[1] * rows**2)
    assert sums == pytest.approx(patient_sums(covariance, 2, 0))


def test_the_variance_of_a_difference_is_never_below_zero():
    covariance = np.array([[[0.25, 0.125], [0.125, 0.5]], [[0.25, 0.5], [0.5, 0.5]]])
    assert patient_sums(covariance, 0, 1).tolist() == [0.5, 0.0]


def test_patients_in_two_seeds_are_one_patient():
    """The same rows and scores in two seeds add up before they are squared: twice the influence, four times the sum."""
    scores, y, cuts = models(np.random.default_rng(2), [5, 9], [20, 7])
    placed, ids = placements(scores, y, cuts), np.arange(len(y))
    once = patient_covariance([placed], [ids])
    assert patient_covariance([placed, placed], [ids, ids]) == pytest.approx(4 * once)
    assert patient_covariance([placed, placed], [ids, ids + 1000]) == pytest.approx(2 * once)


def test_overlapping_seeds_by_loops():
    rng = np.random.default_rng(5)
    seeds, ids, rows = [], [], []
    for first in (0, 4):
        scores, y, cuts = models(rng, [4, 3], [9, 12], 2)
        order = np.concatenate([cuts[h] + rng.permutation(cuts[h + 1] - cuts[h]) for h in (0, 1)])
        seeds.append(placements(scores[:, order], y[order], cuts))
        ids.append(np.concatenate([100 * h + first + np.arange(cuts[h + 1] - cuts[h]) for h in (0, 1)]))
        rows.append(np.diff(cuts))
    total = {}
    for placed, names, count in zip(seeds, ids, rows, strict=True):
        for row, name in enumerate(names):
            h = name // 100
            of_class = placed.events[h] if placed.event[row] else placed.non_events[h]
            part = placed.influence[:, row] * count[h] * math.sqrt(of_class / (of_class - 1))
            total[name] = total.get(name, 0) + part
    wanted = [sum(np.outer(part, part) for name, part in total.items() if name // 100 == h) for h in (0, 1)]
    assert len(total) < sum(len(names) for names in ids)
    assert patient_covariance(seeds, ids) == pytest.approx(np.array(wanted))


def test_single_events_undefined_seeds_and_broken_models():
    y = np.array([1, 0, 0, 0, 0, 1, 1, 0])
    cuts = [0, 3, 5, 8]  # one event; no event; one non-event
    scores = np.array([[2.0, 1, 3, 0, 0, 1, 2, 0], [1.0, 2, 0, 0, 0, 2, 1, 3]])
    placed = placements(scores, y, cuts)
    covariance = patient_covariance([placed], [np.arange(8)])
    assert np.isfinite(covariance).all()
    assert (covariance[1] == 0).all()
    # The event adds nothing, the two non-events their sample variance.
    v01 = np.array([1.0, 0.0])
    assert covariance[0, 0, 0] == pytest.approx(9 * v01.var(ddof=1) / 2)
    scores[1, 0] = np.nan
    broken = patient_covariance([placements(scores, y, cuts)], [np.arange(8)])
    assert np.isnan([broken[0, 0, 1], broken[0, 1, 1]]).all()
    assert np.isfinite(broken[0, 0, 0])
    pair = paired([[0.5, 0.6, 0.7]], [[np.nan, 0.5, 0.5]], [[3, 2, 3]], patients=patient_sums(broken, 0, 1))
    assert np.isfinite(pair.patient_variance)  # the hospital takes no part
