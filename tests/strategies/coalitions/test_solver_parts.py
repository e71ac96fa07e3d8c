"""Parts of the solvers of program (11), of their bounds and searches, and the radii that losses are worked out with."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest

from raysim.strategies.coalitions.robust import fits
from raysim.strategies.coalitions.solver import bound, cliques, search, solve


@pytest.mark.parametrize(
    ("values", "total", "nearest"),
    [
        ([-0.25, 0.875, 0.375], 1, [0.0, 0.75, 0.25]),  # a shift of 1/8, between breaks at -1/8 and 3/8
        ([3.0, 0.5, 0.5], 2, [1.0, 0.5, 0.5]),
        ([0.0, 3.0, 0.0], 1, [0.0, 1.0, 0.0]),
        ([0.5, 0.5], 1, [0.5, 0.5]),
        ([2.0, -5.0, 1.0], 2, [1.0, 0.0, 1.0]),
        ([0.0, 0.0, 0.0, 0.0], 1, [0.25, 0.25, 0.25, 0.25]),
        ([0.0, 0.0, 0.0, 0.0], 3, [0.75, 0.75, 0.75, 0.75]),
    ],
)
def test_the_nearest_shares_of_a_total_by_hand(values, total, nearest):
    assert bound._capped_simplex(np.array(values), total).tolist() == nearest


def test_steps_project_onto_the_spectral_set_and_onto_what_is_not_negative():
    """By the eigenvectors of the whole matrix without its ones, with shares that are found by halving a shift."""
    rng = np.random.default_rng(3)
    cost, term = (m + m.T for m in rng.normal(size=(2, 6, 6)))
    relaxation = bound._Relaxation(cost, 3)
    centring = np.eye(6) - 1 / 6
    assert relaxation.scale == pytest.approx(np.linalg.norm(centring @ cost @ centring) / 6)
    assert relaxation.penalty == pytest.approx(bound.PENALTY * relaxation.scale)
    relaxation.penalty = 2.0  # so that entries below 0 come up at once
    relaxation.term = term
    positive, negative = np.full((6, 6), 1 / 6), np.zeros((6, 6))
    for _ in range(3):
        relaxation.step()
        values, vectors = np.linalg.eigh(centring @ (positive - negative - (cost + term) / 2.0) @ centring)
        ones = np.abs(vectors.sum(axis=0)).argmax()
        values, vectors = np.delete(values, ones), np.delete(vectors, ones, axis=1)
        low, high = values.min() - 1, values.max()
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if np.clip(values - middle, 0, 1).sum() >= 2 else (low, middle)
        Z = 1 / 6 + (vectors * np.clip(values - low, 0, 1)) @ vectors.T
        positive, negative = np.maximum(Z + negative, 0), np.minimum(Z + negative, 0)
        assert pytest.approx(Z, abs=1e-12) == relaxation.Z
        assert relaxation.positive == pytest.approx(positive, abs=1e-12)
        assert relaxation.negative == pytest.approx(negative, abs=1e-12)
    assert (negative < -0.01).any()
    M = cost + term + 2.0 * negative
    values = np.sort(np.linalg.eigvalsh(centring @ M @ centring + 1e3 / 6))  # the ones' own value comes last
    assert relaxation.bound() == pytest.approx(M.sum() / 6 + values[:2].sum())


class FakeRelaxation(SimpleNamespace):
    """A relaxation whose bound after ``i`` steps is ``rise(i)``; notes after which steps it was asked and cut."""

    def __init__(self, rise, scale=1.0):
        super().__init__(scale=scale, cost=np.full((1, 1), -2.0), steps=0, asked=[], cuts=[], rise=rise)

    def step(self):
        self.steps += 1

    def bound(self):
        self.asked.append(self.steps)
        return self.rise(self.steps)

    def cut(self):
        self.cuts.append(self.steps)


def test_the_bound_s_search_asks_cuts_and_ends_by_its_count_of_steps():
    never = FakeRelaxation(lambda i: -1.0)
    assert bound._ascend(never, 1.0, 0.0, np.inf) == -1.0
    assert never.asked == list(range(50, 1001, 50))
    assert never.cuts == list(range(400, 1000, 100))
    # A gap of 2 to begin with, of which a sixty-fourth is closed in each 500 steps but the last, and then a 128th.
    slow = FakeRelaxation(lambda i: -1.0 + (i // 500) / 32 if i < 2000 else -1.0 + 3.5 / 32)
    assert bound._ascend(slow, 1.0, 0.0, np.inf) == -1.0 + 3.5 / 32
    assert slow.steps == 2000


def test_the_bound_s_search_ends_within_the_tolerance_without_time_or_where_all_partitions_tie(monkeypatch):
    near = FakeRelaxation(lambda i: {50: 2.875, 100: 3.0}[i])
    assert (bound._ascend(near, 4.0, 0.25, np.inf), near.steps) == (3.0, 100)
    below = FakeRelaxation(lambda i: {50: -5.25, 100: -5.0, 150: -9.0}[i])
    assert (bound._ascend(below, -4.0, 0.25, np.inf), below.steps) == (-5.0, 100)
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    late = FakeRelaxation(lambda i: -float(i))
    assert (bound._ascend(late, 4.0, 0.25, 2.5), late.steps) == (-3.0, 3)
    tied = FakeRelaxation(lambda i: 7.0, scale=2e-14)
    assert (bound._ascend(tied, 4.0, 0.25, np.inf), tied.steps) == (7.0, 0)
    unlike = FakeRelaxation(lambda i: 4.0, scale=2.5e-14)
    assert (bound._ascend(unlike, 4.0, 0.25, np.inf), unlike.steps) == (4.0, 50)


def test_multipliers_move_by_their_steps_along_what_is_violated_and_not_below_zero():
    """``1/2 + 1/2 - 1/4 - 1/8`` of the first, and ``1/2 + 1/8 - 1 - 1/2`` of the second."""
    Z = np.array([[0.25, 0.5, 0.5], [0.5, 1.0, 0.125], [0.5, 0.125, 0.0]])
    inequalities = cliques.Cliques(np.array([[0, 1, 2], [1, 0, 2]]), np.array([0.25, 0.25]), 3)
    inequalities.steps = np.array([0.5, 2.0])
    inequalities.move(Z)
    assert inequalities.multipliers.tolist() == [0.25 + 0.5 * 0.625, 0.0]


def test_active_inequalities_stay_and_the_most_violated_new_ones_are_added():
    there = cliques.Cliques(np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1]]), np.array([0.5, 0.0, 0.25]), 4)
    new = np.array([[2, 0, 1], [0, 1, 3], [1, 0, 3], [3, 0, 1]])
    renewed = there.renewed(new, np.array([9.0, 1.0, 3.0, 2.0]), 2)
    assert renewed.at.tolist() == [[0, 1, 2], [2, 0, 1], [1, 0, 3], [3, 0, 1]]
    assert renewed.multipliers.tolist() == [0.5, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(("size", "find"), [(3, cliques.violated_triangles), (4, cliques.violated_fours)])
def test_what_is_violated_just_by_the_least_is_left_out_and_amounts_stay_with_theirs(size, find):
    Z = np.random.default_rng(16).integers(0, 1024, size=(9, 9)) / 1024  # sums of which are exact
    Z = (Z + Z.T) / 2
    every, all_amounts = find(Z, 1e-9, 99)
    least = np.sort(all_amounts)[len(all_amounts) // 2]
    at, amounts = find(Z, least, 99)
    assert at.tolist() == every[all_amounts > least].tolist()
    assert amounts.tolist() == all_amounts[all_amounts > least].tolist()


@pytest.mark.parametrize("medoids", [[0, 1], [1, 0], [4, 5]])
def test_medoids_move_to_the_most_central_member_until_none_is_more_central(medoids):
    points = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    drawn = SimpleNamespace(permutation=lambda n: np.array([*medoids, *range(n)]))
    labels = search._medoid_labels(np.abs(points[:, None] - points), 2, drawn)
    assert (labels == labels[0]).tolist() == [True, True, True, False, False, False]


def test_the_search_ends_with_a_proven_partition_and_reports_its_seconds(monkeypatch):
    monkeypatch.setattr(solve, "spectral_bound", lambda losses, coalitions, cost, **how: cost)
    monkeypatch.setattr(solve, "enumerate_coalitions", None)
    clock = itertools.count(7)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    losses = np.random.default_rng(2).random((5, 5))
    found = solve.find_coalitions(losses, 2, np.random.default_rng(0))
    assert (found.gap, found.seconds) == (0.0, 2.0)  # one look at the clock between
    assert solve.find_coalitions(losses, 5, np.random.default_rng(0)).seconds == 1.0
    assert solve.Coalitions(np.zeros(2), 0.5, 0.375, 0.0).gap == 0.25


def test_every_fold_is_validated_on_once(monkeypatch):
    trained_on = []

    def noted(X, y, classes, radius, kappa):
        trained_on.append(X[:, 0].tolist())
        return np.zeros(2)

    monkeypatch.setattr(fits, "trained", noted)
    rule = fits.RadiusRule(0.0, None, 0, (0.2, 0.1), 3, np.inf)
    assert rule.of(np.arange(7.0)[:, None], np.zeros(7), 0) == 0.1
    assert [len(rows) for rows in trained_on[::2]] == [4, 5, 5], "seven rows in three folds"
    assert trained_on[::2] == trained_on[1::2]
    assert sorted(row for rows in trained_on[::2] for row in set(range(7)) - set(rows)) == list(range(7))


def test_every_row_counts_alike_in_the_validation_of_a_radius(monkeypatch):
    """Seven rows in folds of three, two and two: 3 + 4 + 4 is less than 5.7 + 3 + 3, though 1 + 2 + 2 is more."""
    monkeypatch.setattr(fits, "trained", lambda *_: np.zeros(2))
    monkeypatch.setattr(
        fits, "transfer_losses", lambda _, norms, y, *rest: np.array([[2.0, 1.5], [1.0, 1.9]][len(y) > 2])
    )
    rule = fits.RadiusRule(0.0, None, 0, (0.1, 0.2), 3, np.inf)
    assert rule.of(np.ones((7, 1)), np.zeros(7), 0) == 0.1


def test_a_radius_is_of_use_below_half_of_kappa():
    for radius, usable in ((np.nextafter(0.5, 0), True), (0.5, False)):
        rule = fits.RadiusRule(radius, None, 0, (), 3, 1.0)
        if usable:
            rule.check_trainable(2, True)
        else:
            with pytest.raises(ValueError, match=r"radius: 0.5 must be below kappa / 2 = 0.5"):
                rule.check_trainable(2, True)


def test_a_radius_is_validated_on_the_whole_model(monkeypatch):
    """Models that predict -2 and -3 by their intercepts, of labels -3."""
    monkeypatch.setattr(fits, "trained", lambda X, y, classes, radius, kappa: np.array([0.0, -radius]))
    rule = fits.RadiusRule(0.0, None, 0, (2.0, 3.0), 3, np.inf)
    assert rule.of(np.ones((6, 1)), np.full(6, -3.0), 0) == 3.0


def test_half_of_the_searches_start_from_medoids_and_kicks_from_the_best(monkeypatch):
    begun = []
    for name in ("_random_labels", "_medoid_labels", "_dealt_again"):
        monkeypatch.setattr(search, name, lambda *_, name=name: begun.append(name) or np.array([0, 1, 1]))
    search.search_coalitions(np.ones((3, 3)), 2, np.random.default_rng(0), starts=3, kicks=2)
    assert begun == ["_random_labels"] * 2 + ["_medoid_labels", "_random_labels"] + ["_dealt_again"] * 2


def test_a_gap_of_the_tolerance_is_proof(monkeypatch):
    monkeypatch.setattr(solve, "TOLERANCE", 0.25)
    assert solve.Coalitions(np.zeros(2), 0.5, 0.375, 0.0).proven
    assert not solve.Coalitions(np.zeros(2), 0.5, 0.37, 0.0).proven


def test_steps_are_what_the_busiest_entry_of_each_inequality_allows():
    """Entry by entry: half of a coefficient on either side of the diagonal, and at least 1 in all."""
    three = cliques.Cliques(np.array([[0, 1, 2], [0, 1, 3], [2, 0, 3]]), np.zeros(3), 4)
    four = cliques.Cliques(np.array([[0, 1, 2, 3]]), np.zeros(1), 4)
    busy = np.zeros((4, 4))
    for each in (three, four):
        for coefficient, entries in zip(each.coefficients, each.flat, strict=True):
            for i, j in zip(*np.unravel_index(entries, (4, 4)), strict=True):
                busy[i, j] += abs(coefficient) / 2
                busy[j, i] += abs(coefficient) / 2
    cliques.pace([three, four], 3.0)
    for each in (three, four):
        busiest = [max(1.0, *busy.ravel()[entries]) for entries in each.flat.T]
        assert each.steps.tolist() == pytest.approx([3.0 / (len(each.coefficients) * most) for most in busiest])
