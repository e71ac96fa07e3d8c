"""Coalitions: golden costs, agreement of the ways to the optimum, and what is said where time runs out."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

from raysim.data.sources.coalitions import coalition_sets
from raysim.strategies.base import Floats, Ids
from raysim.strategies.coalitions.robust.loss import l1_losses, logistic_losses, signs
from raysim.strategies.coalitions.robust.training import train_l1, train_logistic
from raysim.strategies.coalitions.solver import solve as module
from raysim.strategies.coalitions.solver.bound import _Relaxation, spectral_bound
from raysim.strategies.coalitions.solver.cliques import PATTERNS, Cliques, violated_fours, violated_triangles
from raysim.strategies.coalitions.solver.enumeration import enumerate_coalitions, subset_costs
from raysim.strategies.coalitions.solver.search import _dealt_again, _descend, coalition_cost, search_coalitions
from raysim.strategies.coalitions.solver.solve import coalition_models, find_coalitions
from raysim.strategies.shared.clustering import by_smallest_member
from tests.strategies.coalitions.linear_program import lp_bound

GOLDEN = np.array([[1.0, 2.0, 9.0, 8.0], [3.0, 1.0, 7.0, 9.0], [8.0, 9.0, 2.0, 3.0], [9.0, 7.0, 4.0, 1.0]])

EXACT = {"mip_rel_gap": 0.0}
"""Options of scipy's integer programs: no gap is allowed."""

AMPLE = 3600.0
"""Seconds for a proof that must not hang on how busy the machine is."""


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def set_partitioning(losses: Floats, coalitions: int) -> Ids:
    """The optimal labels ``[N]`` by a program with a column for every subset: ``min c.z``, each hospital in one."""
    from scipy.optimize import LinearConstraint, milp

    n = len(losses)
    costs = subset_costs(losses)[1:]
    within = (np.arange(1, 2**n)[None, :] >> np.arange(n)[:, None]) & 1
    rows = np.vstack([within, np.ones(2**n - 1)])
    right = np.r_[np.ones(n), float(coalitions)]
    solved = milp(
        costs,
        integrality=1,
        bounds=(0, 1),
        constraints=LinearConstraint(rows, right, right),
        options={"mip_rel_gap": 0.0},
    )
    chosen = np.flatnonzero(solved.x > 0.5)
    return by_smallest_member(within[:, chosen].argmax(axis=1))


@pytest.mark.parametrize(
    ("coalitions", "value", "labels"),
    [(1, 20.75, [0, 0, 0, 0]), (2, 8.5, [0, 0, 1, 1]), (3, 6.5, [0, 0, 1, 2]), (4, 5.0, [0, 1, 2, 3])],
)
def test_golden(coalitions, value, labels):
    partition = find_coalitions(GOLDEN, coalitions, rng(), seconds=AMPLE)
    assert partition.value == value
    assert partition.labels.tolist() == labels
    assert partition.proven
    assert partition.bound == pytest.approx(value, rel=1e-6)
    assert enumerate_coalitions(GOLDEN, coalitions).tolist() == labels
    assert set_partitioning(GOLDEN, coalitions).tolist() == labels


def brute_force(losses: np.ndarray, coalitions: int) -> float:
    """The least cost over all labellings that use every label."""
    labellings = itertools.product(range(coalitions), repeat=len(losses))
    return min(coalition_cost(losses, np.array(at)) for at in labellings if len(set(at)) == coalitions)


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 7), st.integers(1, 7), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 5.0]))
def test_20_all_ways_to_the_optimum_agree_and_bounds_are_on_their_sides(n, coalitions, seed, structure):
    draw = np.random.default_rng(seed)
    coalitions = min(coalitions, n)
    group = draw.integers(0, 3, n)
    losses = draw.normal(size=(n, n)) + structure * (group[:, None] != group)
    least = coalition_cost(losses, enumerate_coalitions(losses, coalitions))
    if coalitions**n <= 3000:
        assert least == pytest.approx(brute_force(losses, coalitions), abs=1e-9)
    assert coalition_cost(losses, set_partitioning(losses, coalitions)) == pytest.approx(least, abs=1e-6)
    assert coalition_cost(losses, search_coalitions(losses, coalitions, draw)) >= least - 1e-9
    assert lp_bound(losses, coalitions) <= least + 1e-6
    if 1 < coalitions < n:
        assert spectral_bound(losses, coalitions, least, tolerance=0, seconds=0.1) <= least + 1e-9


def test_20_at_twelve_hospitals():
    """Enumeration through its recursion, above the size of its table."""
    draw = np.random.default_rng(1)
    losses = draw.uniform(size=(12, 12)) + 2.0 * (np.arange(12)[:, None] % 3 != np.arange(12) % 3)
    for coalitions in (3, 6, 9):
        exact = enumerate_coalitions(losses, coalitions)
        least = coalition_cost(losses, exact)
        assert len(set(exact)) == coalitions
        if coalitions == 6:  # such a program takes a second
            assert coalition_cost(losses, set_partitioning(losses, coalitions)) == pytest.approx(least, abs=1e-9)
        partition = find_coalitions(losses, coalitions, draw, seconds=AMPLE)
        assert partition.proven
        assert partition.value == pytest.approx(least, rel=1e-6)


def test_a_descent_ends_where_neither_a_move_nor_a_swap_gains():
    draw = np.random.default_rng(5)
    for _ in range(30):
        losses = draw.uniform(size=(9, 9))
        losses = (losses + losses.T) / 2
        labels = _descend(losses, np.arange(9) % 3, 3)
        swaps = [(i, j) for i in range(9) for j in range(i)]
        moved = [np.where(np.arange(9) == i, k, labels) for i in range(9) for k in range(3)]
        swapped = [
            labels[np.where(np.arange(9) == i, j, np.where(np.arange(9) == j, i, np.arange(9)))] for i, j in swaps
        ]
        near = [other for other in [*moved, *swapped] if len(set(other.tolist())) == 3]
        assert min(coalition_cost(losses, other) for other in near) >= coalition_cost(losses, labels) - 1e-9


@pytest.mark.parametrize("n", [24, 60])
def test_groups_that_are_there_are_found_and_proven(n):
    draw = np.random.default_rng(2)
    groups = np.arange(n) % 4
    losses = 1 + draw.uniform(size=(n, n)) * 0.2 + (groups[:, None] != groups)
    partition = find_coalitions(losses, 4, draw, seconds=AMPLE)
    assert partition.labels.tolist() == groups.tolist()
    assert partition.proven
    assert partition.bound <= partition.value


def test_the_spectral_bound_is_not_below_that_of_the_linear_program():
    draw = np.random.default_rng(3)
    for coalitions in (3, 5):
        losses = draw.uniform(size=(12, 12))
        least = coalition_cost(losses, search_coalitions(losses, coalitions, draw))
        program = lp_bound(losses, coalitions)
        spectral = spectral_bound(losses, coalitions, least, tolerance=1e-6, seconds=600)
        assert program - 1e-4 <= spectral <= least + 1e-9


def test_the_bound_s_basis_is_orthonormal_and_across_from_the_ones():
    across = _Relaxation(np.arange(25.0).reshape(5, 5), 2).across
    np.testing.assert_allclose(across.T @ across, np.eye(4), rtol=0, atol=1e-15)
    np.testing.assert_allclose(across.sum(axis=0), 0, rtol=0, atol=1e-15)


def test_where_all_partitions_tie_their_cost_is_the_bound():
    for losses, cost in ((np.zeros((5, 5)), 0.0), (np.ones((5, 5)), 5.0)):
        assert spectral_bound(losses, 2, cost, tolerance=1e-6, seconds=600) == pytest.approx(cost, abs=1e-12)


def whole_program(losses: np.ndarray, coalitions: int) -> float:
    """The linear program with each of its inequalities from the start, on the entries of Z as they stand."""
    n = len(losses)
    at = np.arange(n * n).reshape(n, n)
    entry = np.eye(n * n)
    triangles = [
        entry[at[i, j]] + entry[at[i, k]] - entry[at[i, i]] - entry[at[j, k]]
        for i in range(n)
        for j, k in itertools.combinations([j for j in range(n) if j != i], 2)
    ]
    pairs = list(itertools.permutations(range(n), 2))
    below = [*triangles, *(entry[at[i, j]] - entry[at[i, i]] for i, j in pairs)]
    equal = [*(entry[at[i]].sum(axis=0) for i in range(n)), entry[at.diagonal()].sum(axis=0)]
    equal += [entry[at[i, j]] - entry[at[j, i]] for i, j in pairs if i < j]
    right = np.r_[np.ones(n), coalitions, np.zeros(n * (n - 1) // 2)]
    return linprog(losses.ravel(), np.array(below), np.zeros(len(below)), np.array(equal), right).fun


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(3, 6))
def test_the_linear_program_ends_where_many_partitions_tie(data, n):
    """Losses of three sizes: most programs have many solutions, and the inequalities of one are slack in the next."""
    losses = data.draw(hnp.arrays(np.float64, (n, n), elements=st.sampled_from([0.0, 1.0, 5.0])))
    coalitions = data.draw(st.integers(1, n))
    bound = lp_bound(losses, coalitions)
    assert bound == pytest.approx(whole_program(losses, coalitions), abs=1e-5)
    assert bound <= brute_force(losses, coalitions) + 1e-6


def test_the_linear_program_is_tight_for_one_coalition_for_lone_hospitals_and_for_clear_groups():
    losses = np.random.default_rng(0).uniform(size=(6, 6))
    assert lp_bound(losses, 1) == pytest.approx(losses.sum() / 6, abs=1e-6)
    assert lp_bound(losses, 6) == pytest.approx(losses.trace(), abs=1e-6)
    groups = np.where(np.arange(6)[:, None] // 3 == np.arange(6) // 3, 1.0, 5.0)
    assert lp_bound(groups, 2) == pytest.approx(6.0, abs=1e-6)


def test_of_each_hospital_only_the_triangles_that_are_violated_most_are_taken():
    """By more than .05: 6, 4, 0, 9, ... of the seven hospitals; where no more are there than may be, all are."""
    Z = np.random.default_rng(0).uniform(size=(7, 7))
    Z = (Z + Z.T) / 2
    by_hand: dict[int, dict[tuple[int, int], float]] = {}
    for i in range(7):
        others = itertools.combinations([j for j in range(7) if j != i], 2)
        amounts = {(j, k): Z[i, j] + Z[i, k] - Z[i, i] - Z[j, k] for j, k in others}
        by_hand[i] = {pair: amount for pair, amount in amounts.items() if amount > 0.05}
    assert [len(by_hand[i]) for i in range(4)] == [6, 4, 0, 9]
    for most in (3, 4, 6, 99):
        at, by = violated_triangles(Z, 0.05, most)
        for i, amounts in by_hand.items():
            taken = sorted(amounts, key=lambda pair: -amounts[pair])[:most]
            found = {
                (int(j), int(k)): amount for (_, j, k), amount in zip(at[at[:, 0] == i], by[at[:, 0] == i], strict=True)
            }
            assert found == pytest.approx({pair: amounts[pair] for pair in taken})


def test_partitions_satisfy_all_clique_inequalities_and_violated_ones_are_found():
    draw = np.random.default_rng(16)
    labels = draw.integers(0, 3, 9)
    together = labels[:, None] == labels
    partition = together / together.sum(axis=1)
    assert len(violated_triangles(partition, 1e-9, 99)[0]) == 0
    assert len(violated_fours(partition, 1e-9, 99)[0]) == 0
    noise = draw.uniform(size=(9, 9))
    Z = (noise + noise.T) / 2
    for size, find in ((3, violated_triangles), (4, violated_fours)):
        at, amounts = find(Z, 1e-9, 99)
        pairs, coefficients = PATTERNS[size]
        left = sum(c * Z[at[:, a], at[:, b]] for (a, b), c in zip(pairs, coefficients, strict=True))
        assert len(at) > 0
        assert left == pytest.approx(amounts)
        assert (np.diff(at[:, 1:], axis=1) > 0).all()
        assert not (at[:, 1:] == at[:, :1]).any()
        multipliers = draw.uniform(size=len(at))
        assert (Cliques(at, multipliers, 9).term() * Z).sum() == pytest.approx(multipliers @ left)


def test_subset_costs_by_definition():
    losses = np.random.default_rng(4).normal(size=(5, 5))
    costs = subset_costs(losses)
    for mask in range(1, 32):
        members = [i for i in range(5) if mask >> i & 1]
        assert costs[mask] == pytest.approx(losses[np.ix_(members, members)].sum() / len(members))
    assert costs[0] == np.inf


def test_losses_that_all_models_share_make_all_partitions_tie():
    losses = np.repeat(np.array([[1.0], [4.0], [2.0], [0.5], [3.0]]), 5, axis=1)
    for coalitions in range(1, 6):
        partition = find_coalitions(losses, coalitions, rng(), seconds=AMPLE)
        assert partition.value == pytest.approx(10.5)
        assert partition.proven
        assert len(set(partition.labels)) == coalitions


def test_own_models_that_are_best_make_more_coalitions_cheaper():
    losses = np.random.default_rng(5).uniform(1, 2, size=(7, 7))
    np.fill_diagonal(losses, 1.0)
    values = [find_coalitions(losses, coalitions, rng()).value for coalitions in range(1, 8)]
    assert (np.diff(values) <= 1e-9).all()


def l1_matrix(sets, models, radius):
    return np.array([l1_losses(X, y, models, radius) for X, y in sets.train])


def test_18_as_many_coalitions_as_hospitals_are_local_models_and_one_is_their_mean():
    models = np.random.default_rng(6).normal(size=(6, 3))
    losses = np.random.default_rng(7).uniform(size=(6, 6))
    each = coalition_models(models, find_coalitions(losses, 6, rng()).labels)
    one = coalition_models(models, find_coalitions(losses, 1, rng()).labels)
    assert (each == models).all()
    assert coalition_models(models, np.array([1, 0, 1, 1, 0, 2])) == pytest.approx(
        np.stack([models[[1, 4]].mean(axis=0), models[[0, 2, 3]].mean(axis=0), models[5]])
    )
    assert one == pytest.approx(models.mean(axis=0, keepdims=True))


def test_18_radius_zero_is_clustering_by_plain_losses():
    sets = coalition_sets(np.random.default_rng(8), "regression", features=5, tests=0)
    models = np.array([train_l1(X, y, 0.0).theta for X, y in sets.train])
    plain = np.array([[np.abs(y - X @ theta).mean() for theta in models] for X, y in sets.train])
    assert l1_matrix(sets, models, 0.0) == pytest.approx(plain, abs=1e-12)


def test_19_equal_radii_do_not_change_the_partition():
    """Proposition 1: the radius adds ``ε sum_j sqrt(|θ_j|^2 + 1)``, whatever the partition; so with certain labels."""
    sets = coalition_sets(np.random.default_rng(9), "regression", features=5, tests=0)
    models = np.array([train_l1(X, y, 0.0).theta for X, y in sets.train])
    y_of = [np.where(y > np.median(y), 1.0, -1.0) for _, y in sets.train]
    for coalitions in (2, 5):
        uncertain = [find_coalitions(l1_matrix(sets, models, radius), coalitions, rng()) for radius in (0.0, 2.0)]
        certain = [
            find_coalitions(
                np.array(
                    [logistic_losses(X, y, models, radius, np.inf) for (X, _), y in zip(sets.train, y_of, strict=True)]
                ),
                coalitions,
                rng(),
            )
            for radius in (0.0, 2.0)
        ]
        for kind in (uncertain, certain):
            assert [at.labels.tolist() for at in kind] == [kind[0].labels.tolist()] * 2
        price = np.sqrt((models**2).sum(axis=1) + 1).sum()
        assert uncertain[1].value - uncertain[0].value == pytest.approx(2.0 * price)


def test_the_paper_s_groups_are_recovered():
    """The paper's logistic sets, its radii and K = 3; ``κ = 1``."""
    sets = coalition_sets(np.random.default_rng(0), "classification", tests=0)
    models = np.array([train_logistic(X, signs(y), 0.0).theta for X, y in sets.train])
    losses = [logistic_losses(X, signs(y), models, 0.5 if len(y) > 150 else 1.0) for X, y in sets.train]
    partition = find_coalitions(np.array(losses), 3, rng(), seconds=AMPLE)
    assert partition.proven
    assert ((partition.labels[:, None] == partition.labels) == (sets.groups[:, None] == sets.groups)).all()


def test_the_sets_are_as_described():
    sets = coalition_sets(np.random.default_rng(11), "classification", tests=2)
    assert len(sets.train) == 10
    assert set(sets.groups) == {0, 1, 2}
    assert all(100 <= len(y) <= 200 and X.shape == (len(y), 50) for X, y in sets.train)
    assert [[len(y) for _, y in test] for test in sets.tests] == [[100] * 10] * 2
    for (X, y), group in zip(sets.train, sets.groups, strict=True):
        assert (y == (X @ sets.weights[group] > 0)).all()
    sets = coalition_sets(np.random.default_rng(12), "regression", hospitals=200, tests=0)
    assert all(50 <= len(y) <= 150 for _, y in sets.train)
    noise = np.concatenate([y - X @ sets.weights[g] for (X, y), g in zip(sets.train, sets.groups, strict=True)])
    assert noise.std() == pytest.approx(5.0, rel=0.03)
    again = coalition_sets(np.random.default_rng(12), "regression", hospitals=200, tests=0)
    assert (again.train[7][0] == sets.train[7][0]).all()
    with pytest.raises(ValueError, match="groups: 4 must be between 1 and 3, the number of hospitals"):
        coalition_sets(rng(), "regression", hospitals=3, groups=4)


def test_without_time_the_best_found_is_returned_with_a_bound():
    losses = np.random.default_rng(13).uniform(size=(30, 30))
    partition = find_coalitions(losses, 5, rng(), seconds=0.0)
    assert sorted(set(partition.labels)) == list(range(5))
    assert partition.bound <= partition.value
    assert not partition.proven
    assert partition.gap == pytest.approx((partition.value - partition.bound) / partition.value)
    assert enumerate_coalitions(losses[:14, :14], 5, seconds=0.0) is None


def test_the_gap_is_relative_to_the_size_of_the_value():
    labels = np.zeros(2, dtype=np.int64)
    gaps = [module.Coalitions(labels, *ends, 0.0).gap for ends in ((4.0, 3.0), (-4.0, -5.0), (4.0, 5.0), (0.0, 0.0))]
    assert gaps == [0.25, 0.25, 0.0, 0.0]
    assert module.Coalitions(labels, 1.0, 1.0 - 0.9e-6, 0.0).proven
    assert not module.Coalitions(labels, 1.0, 1.0 - 1.1e-6, 0.0).proven


def test_three_coalitions_are_dealt_again_and_the_others_stay():
    labels, touched = np.repeat(np.arange(6), 4), set()
    for seed in range(50):
        again = _dealt_again(labels, 6, np.random.default_rng(seed))
        assert np.bincount(again, minlength=6).min() >= 1
        moved = set(labels[again != labels]) | set(again[again != labels])
        assert len(moved) <= 3
        touched.add(len(moved))
    assert 3 in touched
    assert (labels == np.repeat(np.arange(6), 4)).all()
    both = _dealt_again(labels % 2, 2, np.random.default_rng(0))
    assert set(both) == {0, 1}


def test_labels_depend_on_the_stream_alone():
    losses = np.random.default_rng(15).uniform(size=(45, 45))
    run = partial(find_coalitions, losses, 6, seconds=0.0)
    assert run(rng()).labels.tolist() == run(rng()).labels.tolist()


@pytest.mark.parametrize(
    ("losses", "coalitions", "message"),
    [
        (GOLDEN, 5, "coalitions: 5 is more than the 4 hospitals; lower it"),
        (GOLDEN, 0, "coalitions: 0 is not at least 1"),
        (GOLDEN[:2], 1, r"losses: shape \(2, 4\) must be square"),
        (np.where(GOLDEN > 8, np.nan, GOLDEN), 2, "losses: not all are finite"),
    ],
)
def test_what_cannot_be_solved_is_refused(losses, coalitions, message):
    with pytest.raises(ValueError, match=message):
        find_coalitions(losses, coalitions, rng())
