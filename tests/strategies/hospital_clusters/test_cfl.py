"""CFL: identity 15, the best parting, and splits by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.data.federation import Federation
from raysim.strategies.base import Update
from raysim.strategies.hospital_clusters.cfl import Cfl, CflState, bipartition, cosines
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from raysim.strategies.shared.clustering import members
from tests.conftest import MakeFederation, run_strategy, store
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_battery import same
from tests.strategies.test_identities import SIZES, assert_different, assert_same

V = np.array([3.0, -4.0])
EAGER = Cfl(eps1=2.0, eps2=0.1, gamma=0.5)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def oppose(federate: MakeFederation, folder: Path) -> Federation:
    """Six hospitals and one without rows; hospitals 1, 3 and 5 call every row by the other class."""
    drawn = federate([30, 30, 30, 30, 30, 30, 0], [20] * 6 + [0])
    labels = drawn.y.copy()
    for h in (1, 3, 5):
        rows = np.arange(drawn.bounds[h, 0], drawn.bounds[h, 3])
        labels[rows] = 1 - labels[rows]
    folder.mkdir()
    return store(folder, drawn.X, labels, drawn.bounds)


def rounds(strategy: Cfl, sizes: list[int], *updates: dict[int, np.ndarray]) -> list[CflState]:
    """The states after rounds in which these hospitals sent these deltas."""
    view = view_of([hospital([n, 0]) for n in sizes])
    states = [strategy.setup(view)]
    for deltas in updates:
        ids = np.array(sorted(deltas))
        states.append(
            strategy.aggregate(
                view, states[-1], Update(ids, np.zeros((1, 2)), deltas=np.stack([deltas[i] for i in ids.tolist()]))
            )
        )
    return states[1:]


@pytest.mark.parametrize("never", [{"eps1": 0.0, "eps2": 0.0}, {"eps1": np.inf, "eps2": np.inf}])
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_15_without_splits_it_is_fedavg(never, weights, federation):
    run = {"rounds": 4, "epochs": 2, "selection": Uniform(0.5, 2)}
    cfl = run_strategy(federation, Cfl(gamma=0.0, weights=weights, **never), **run)
    fedavg = run_strategy(federation, FedAvg(weights=weights), **run)
    assert_same(cfl.models[1], fedavg.models[0])
    assert_same(cfl.models[0], fedavg.models[0])
    often = run_strategy(federation, Cfl(gamma=0.0, eps1=np.inf, eps2=0.0), rounds=4, epochs=2)
    assert len(often.models) > 2
    assert_different(often.models[-1], run_strategy(federation, FedAvg(), rounds=4, epochs=2).models[0])


def test_cosines_of_one_inside_and_minus_one_across_split_exactly_there():
    after = rounds(EAGER, [4] * 5, {0: V, 1: -V, 2: V, 3: -2 * V, 4: 0.5 * V})[0]
    assert members(after).tolist() == [2, 3, 2, 3, 2]
    assert after.parent.tolist() == [-1, -1, 1, 1]
    assert after.models[1].tolist() == [0.0, 0.0], "the parent's model is kept as it was"
    assert after.models[2] == pytest.approx(V * 2.5 / 3)
    assert after.models[3] == pytest.approx(-V * 1.5)
    assert after.models[0] == pytest.approx((3 * after.models[2] + 2 * after.models[3]) / 5)
    assert np.isnan(after.last).all(), "the parts gather deltas of their own"


def test_a_split_clears_the_deltas_of_its_cluster_alone():
    """The second round splits {0, 2, 4} again; of the other cluster hospital 1 has sent, and 3 has not."""
    first = {0: V, 1: -V, 2: V, 3: -2 * V, 4: 0.5 * V}
    after = rounds(EAGER, [4] * 5, first, {0: V, 1: V, 2: -V, 4: V})[-1]
    assert members(after).tolist() == [4, 3, 5, 3, 4]
    assert after.last[1].tolist() == V.tolist()
    assert np.isnan(after.last[[0, 2, 3, 4]]).all()


def test_u_and_g_are_logged():
    """By rows: u = |(1 - 2 * 3 + .5 * 4) / 8| * 5 = 1.875 and g = 2 * 5."""
    after = rounds(replace(EAGER, eps1=0.0), [1, 3, 4], {0: V, 1: -2 * V, 2: 0.5 * V})[0]
    assert after.log.tolist() == [[1, 1, 1.875, 10.0]]


def test_facts_have_the_bounds_of_u_and_g_over_all_tests():
    never = replace(EAGER, eps1=0.0)
    after = rounds(never, [1, 3, 4], {0: V, 1: -2 * V, 2: 0.5 * V}, {0: V, 1: V, 2: 3 * V})[-1]
    view = view_of([hospital([1, 0])])
    facts = never.facts(view, after)
    assert facts == {"tests": 2, "u_least": 1.875, "u_largest": 10.0, "g_least": 10.0, "g_largest": 15.0}
    assert never.facts(view, replace(after, log=np.empty((0, 4)))) == {"tests": 0}


@pytest.mark.parametrize(
    ("change", "splits"),
    [
        ({}, True),
        ({"eps1": 0.9}, False),
        ({"eps2": 5.1}, False),
        ({"gamma": 1.0}, False),
        ({"warmup": 1}, False),
        ({"weights": "uniform"}, True),
        ({"linkage": "complete"}, True),
    ],
)
def test_a_cluster_is_split_only_if_every_condition_holds(change, splits):
    """u = 1 (of 5), g = 5 and a = -1, for which sqrt((1 - a) / 2) is 1."""
    after = rounds(replace(EAGER, **change), [4] * 5, {0: V, 1: -V, 2: V, 3: -V, 4: V})[0]
    assert len(after.models) == (4 if splits else 2)


@pytest.mark.parametrize(
    ("edge", "beyond"),
    [
        ({"eps1": 2.5}, {"eps1": np.nextafter(2.5, 3)}),
        ({"eps2": 5.0}, {"eps2": np.nextafter(5, 0)}),
        ({"gamma": 1.0}, {"gamma": 1 - 1e-9}),
        ({"warmup": 1}, {"warmup": 0}),
    ],
)
def test_on_its_threshold_a_cluster_stays_whole_and_beyond_it_it_is_split(edge, beyond):
    """u = |1 - 1 + 1 + 1| / 4 * 5 = 2.5 and g = 5, without rounding; a = -1, and no round has been before."""
    deltas = {0: V, 1: -V, 2: V, 3: V}
    for change, models in ((edge, 2), (beyond, 4)):
        assert len(rounds(replace(EAGER, **{"eps1": 9.0, **change}), [4] * 4, deltas)[0].models) == models


def test_parts_at_right_angles_are_split_below_the_root_of_a_half():
    deltas = {0: V, 1: V, 2: np.array([4.0, 3.0])}
    for gamma, models in ((0.7071, 4), (0.7072, 2)):
        assert len(rounds(Cfl(eps1=9.0, eps2=0.1, gamma=gamma), [1] * 3, deltas)[0].models) == models


def test_deltas_of_one_direction_are_not_parted_even_without_a_threshold():
    """Of this length their cosine is 1 to the last bit, and how far they are apart 0."""
    deltas = {0: 1e6 * V, 1: 1e6 * V, 2: 1e6 * V}
    assert cosines(np.stack(list(deltas.values()))).tolist() == np.ones((3, 3)).tolist()
    assert len(rounds(Cfl(eps1=np.inf, eps2=0.0, gamma=0.0), [1] * 3, deltas)[0].models) == 2


def test_warm_up_is_over_after_its_rounds():
    deltas = {0: V, 1: -V, 2: V, 3: -V}
    after = rounds(replace(EAGER, warmup=2), [4] * 4, deltas, deltas, deltas)
    assert [len(state.models) for state in after] == [2, 2, 4]


def test_the_global_row_is_the_mean_of_all_hospitals_models_by_rows():
    """A hospital without rows has no part in it, and neither has the parent's model, which nobody uses any more."""
    sizes = [1, 2, 3, 10, 0]
    before = rounds(
        replace(EAGER, warmup=1, eps1=99.0),
        sizes,
        {i: V * (-1) ** i for i in range(4)},
        {i: V * (-1) ** i for i in range(4)},
    )
    assert len(before[0].models) == 2
    assert before[0].models[0] == pytest.approx(before[0].models[1])
    after = before[1]
    assert len(after.models) == 4
    assert after.models[2] == pytest.approx(after.models[1] + V)
    assert after.models[3] == pytest.approx(after.models[1] - V)
    assert after.models[0] == pytest.approx((4 * after.models[2] + 12 * after.models[3]) / 16)


def test_two_hospitals_are_never_split():
    after = rounds(EAGER, [4, 4], {0: V, 1: -V})[0]
    assert members(after).tolist() == [1, 1]


def test_a_late_delta_stands_until_the_next_split():
    deltas = [{0: V, 1: -V}, {1: -V}, {2: V, 3: -V}]
    first, second, third = rounds(EAGER, [4] * 4, *deltas)
    assert len(first.models) == len(second.models) == 2
    assert len(first.log) == len(second.log) == 0, "hospitals 2 and 3 have sent no update"
    assert members(third).tolist() == [2, 3, 2, 3]
    assert third.models[2] == pytest.approx(second.models[1] + V), "only this round's participants move it"
    assert third.models[3] == pytest.approx(second.models[1] - V)


def test_a_cluster_that_waits_for_deltas_does_not_keep_others_from_their_tests():
    """Of the first part hospital 0 alone sends updates after the split, of the second all are: u = g = 5."""
    after = rounds(EAGER, [4] * 6, {i: V * (-1) ** i for i in range(6)}, {0: V, 1: -V, 3: -V, 5: -V})[-1]
    assert after.log == pytest.approx(np.array([[1, 1, 0, 5], [2, 3, 5, 5]]))


def test_a_cluster_without_participants_stays():
    before, after = rounds(EAGER, [4] * 6, {i: V * (-1) ** i for i in range(6)}, {0: V, 2: V})
    assert after.models[3].tolist() == before.models[3].tolist()
    assert after.models[2] == pytest.approx(before.models[2] + V)


def test_hospitals_without_rows_follow_the_larger_part():
    for small, large in ((0, 1), (1, 0)):
        sizes = [0] * 6
        for i in range(4):
            sizes[i] = 2 if i % 2 == small else 3
        after = rounds(replace(EAGER, eps1=9.0), sizes, {i: V * (-1) ** i for i in range(4)})[0]
        assert members(after)[4] == members(after)[5] == members(after)[large]


def test_of_two_parts_alike_they_follow_the_first():
    after = rounds(replace(EAGER, eps1=9.0), [3] * 4 + [0], {i: V * (-1) ** i for i in range(4)})[0]
    assert members(after).tolist() == [2, 3, 2, 3, 2]


def test_a_split_part_can_be_split_again():
    e, f = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    signs = {0: e, 1: e, 2: -e, 3: -e, 4: f, 5: f}
    again = {i: s * (-1) ** i for i, s in signs.items()}
    after = rounds(replace(EAGER, gamma=0.1), [1] * 6, signs, again, again)[-1]
    assert after.parent.tolist()[:4] == [-1, -1, 1, 1]
    assert len(np.unique(members(after))) > 2
    assert set(members(after).tolist()).isdisjoint(after.parent.tolist()), "only leaves have members"


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_single_linkage_is_the_best_of_all_partings(count, seed):
    similarity = cosines(np.random.default_rng(seed).normal(size=(count, 3)))
    best = min(
        similarity[np.ix_(~parts, parts)].max()
        for parts in (np.array([(code >> i) & 1 for i in range(count)], bool) for code in range(1, 2**count - 1))
    )
    for linkage in ("single", "complete"):
        parts = bipartition(similarity, linkage)
        assert 0 < parts.sum() < count
        assert not parts[0]
        across = similarity[np.ix_(~parts, parts)].max()
        assert across >= best - 1e-12
        if linkage == "single":
            assert across == pytest.approx(best, abs=1e-12)


def test_complete_linkage_is_not_always_the_best():
    worse = 0
    for seed in range(40):
        similarity = cosines(np.random.default_rng(seed).normal(size=(8, 3)))
        across = [
            similarity[np.ix_(~parts, parts)].max()
            for parts in (bipartition(similarity, "single"), bipartition(similarity, "complete"))
        ]
        worse += across[1] > across[0] + 1e-9
    assert worse > 10


def test_a_delta_of_zeros_is_at_right_angles_to_all():
    assert cosines(np.array([[0.0, 0.0], [1.0, 0.0]])).tolist() == [[0, 0], [0, pytest.approx(1)]]


@pytest.mark.parametrize("linkage", ["single", "complete"])
def test_long_parallel_deltas_are_as_alike_as_can_be(linkage):
    """Their cosine may come out above 1."""
    lengths = np.array([1.0, 1.0, -1.0, -1.0])[:, None]
    above = 0
    for seed in range(40):
        similarity = cosines(lengths * np.random.default_rng(seed).normal(scale=10.0, size=500))
        above += int(similarity[0, 1] > 1.0)
        assert bipartition(similarity, linkage).tolist() == [False, False, True, True]
    assert above


def test_hospitals_that_disagree_are_parted_and_then_agree(federate, tmp_path):
    opposed = oppose(federate, tmp_path / "opposed")
    run = {"rounds": 12, "epochs": 2, "learning_rate": 0.5, "batch_size": 0}
    outcome = run_strategy(opposed, Cfl(eps1=0.1, eps2=0.35), **run)
    assert outcome.cluster is not None
    assert (outcome.cluster[:6] == [2, 3, 2, 3, 2, 3]).all()
    assert outcome.metrics["cluster"]["auroc"] > 0.85
    assert run_strategy(opposed, FedAvg(), **run).metrics["global"]["auroc"] < 0.7
    partly = run_strategy(opposed, Cfl(eps1=0.1, eps2=0.35), selection=Uniform(0.5, 1), **run)
    same(partly, run_strategy(opposed, Cfl(eps1=0.1, eps2=0.35), selection=Uniform(0.5, 1), actors=3, **run))


@pytest.mark.parametrize("bad", [{"eps1": -1.0}, {"eps2": -1.0}, {"gamma": 1.5}, {"warmup": -1}, {"linkage": "ward"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        Cfl(**bad)
