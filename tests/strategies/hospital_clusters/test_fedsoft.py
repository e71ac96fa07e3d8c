"""FedSoft: identity 16, importance by hand, and who trains towards what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.system import SystemSection
from raysim.data.federation import Federation
from raysim.strategies.base import MIXTURE, OWN, FederationView, Update
from raysim.strategies.hospital_clusters.fedsoft import FedSoft, NearestShares, SoftState
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.selections.sampling import All, Uniform
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.contexts import answered_by, hospital, sent, view_of
from tests.strategies.test_battery import UNEVEN
from tests.strategies.test_identities import SIZES, assert_different, assert_same

PLAIN = FedSoft(clusters=1, selection="configured", start="mixture")


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def view_of_shares(shares: list[list[float]], rows: list[int]) -> FederationView:
    """A federation whose hospitals have these shares of their ``rows`` nearest to each of two centres."""
    return answered_by(view_of([hospital([n, 0]) for n in rows]), lambda call, i: shares[i])


@pytest.mark.parametrize("selection", [All(), Uniform(0.5, 2)])
def test_16_one_centre_without_draws_from_the_mixture_is_fedprox(selection, federation):
    run = {"rounds": 4, "epochs": 3, "selection": selection}
    for lam in (0.3, 2.0):
        soft = run_strategy(federation, replace(PLAIN, lam=lam), **run)
        prox = run_strategy(federation, FedProx(mu=lam), **run)
        assert_same(soft.models[1], prox.models[0])
    assert_different(run_strategy(federation, replace(PLAIN, lam=0.3, start="own"), **run).models[1], soft.models[1])


def test_16_without_its_proximal_term_it_is_fedavg(federation):
    run = {"rounds": 4, "epochs": 3, "selection": Uniform(0.5, 2)}
    assert_same(
        run_strategy(federation, replace(PLAIN, lam=0.0), **run).models[1],
        run_strategy(federation, FedAvg(), **run).models[0],
    )


def test_shares_are_of_rows_and_ties_go_to_the_first():
    rows = hospital([4, 0])
    rows = replace(rows, losses=np.array([[1.0, 2, 3, 1], [1, 1, 3, 2], [5, 0, 3, 0]]))
    assert sent(NearestShares((3,)), rows).tolist() == [0.5, 0.0, 0.5]
    single = replace(hospital([1, 0]), losses=np.array([[2.0], [1.0]]))
    assert sent(NearestShares((2,)), single).tolist() == [0, 1]
    nobody = replace(hospital([0, 0]), losses=np.empty((2, 0)))
    assert sent(NearestShares((2,)), nobody).tolist() == [0, 0]


def test_an_importance_of_nothing_is_the_floor_and_nothing_is_renormalised():
    view = view_of_shares([[1.0, 0.0], [0.25, 0.75], [0.0, 0.0]], [4, 4, 0])
    how = FedSoft(clusters=2, floor=0.01)
    state = how.setup(view)
    assert state.importance.tolist() == [[1.0, 0.01], [0.25, 0.75], [0.0, 0.0]]
    assert how.mixture(view, state) == pytest.approx(
        np.array([[0, 1 / 1.01, 0.01 / 1.01], [0, 0.25, 0.75], [0, 5 / 8.04, 3.04 / 8.04]])  # by training rows
    )


def test_what_goes_into_a_centre_without_draws():
    """``v_sk`` in proportion to ``u_ks n_k``: 1 * 2 : .25 * 8 and .01 * 2 : .75 * 8; each centre's sum to 1."""
    view = view_of_shares([[1.0, 0.0], [0.25, 0.75], [0.5, 0.5]], [2, 8, 4])
    how = FedSoft(clusters=2, floor=0.01, selection="configured", lam=0.2)
    problem = how.problem(view, how.setup(view), np.array([0, 1]))
    assert problem.upload.weight == pytest.approx(np.array([[2 / 4, 0.02 / 6.02], [2 / 4, 6 / 6.02]]))
    assert problem.upload.weight.sum(axis=0) == pytest.approx([1, 1])
    assert [term.weight.tolist() for term in problem.objective.proximal] == [
        pytest.approx([0.2, 0.05]),
        pytest.approx([0.002, 0.15]),
    ]
    assert [term.towards.tolist() for term in problem.objective.proximal] == [[1, 1], [2, 2]]
    assert problem.start.tolist() == [OWN, OWN]
    assert replace(how, start="mixture").problem(view, how.setup(view), np.array([2])).start.tolist() == [MIXTURE]


def test_a_single_row_and_little_importance_count_like_any_other():
    view = view_of_shares([[1.0, 0.0]], [1])
    how = FedSoft(clusters=2, floor=0.01, selection="configured")
    state = how.setup(view)
    assert how.problem(view, state, np.array([0])).upload.weight == pytest.approx(np.array([[1, 1]]))
    assert how.mixture(view, state) == pytest.approx(np.array([[0, 1 / 1.01, 0.01 / 1.01]]))


def test_each_centre_draws_by_importance_and_takes_the_plain_mean():
    """Two of six hospitals each, those that are its own; hospital 6 has no rows."""
    shares = [[1.0, 0.0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1], [0, 0]]
    view = view_of_shares(shares, [5, 5, 5, 5, 5, 5, 0])
    how = FedSoft(clusters=2, fraction=0.6, floor=1e-12)
    state = how.setup(view)
    drawn = set()
    for t in range(20):
        view = replace(view, round=t + 1)
        ids = how.select(view, state, t + 1)
        problem = how.problem(view, state, ids)
        assert ids.tolist() == sorted(set(ids.tolist()))
        assert (ids < 3).sum() == (ids >= 3).sum() == 2, "ceil(.6 * 6 / 2) for each centre"
        assert problem.upload.weight.tolist() == [[0.5, 0], [0.5, 0], [0, 0.5], [0, 0.5]]
        drawn |= set(ids.tolist())
    assert drawn == {0, 1, 2, 3, 4, 5}


def test_a_hospital_is_sampled_for_a_centre_as_often_as_its_rows_that_are_nearest_to_it():
    """One of three each: ``u_ks n_k`` is 1, 6, 1 of 8 at the first centre, and 1, 2, 3 of 6 at the second."""
    view = view_of_shares([[0.5, 0.5], [0.75, 0.25], [0.25, 0.75]], [2, 8, 4])
    how = FedSoft(clusters=2, fraction=0.5)
    state = how.setup(view)
    draws, rounds = np.zeros((3, 2)), 3000
    for t in range(1, rounds + 1):
        now = replace(view, round=t)
        weight = how.problem(now, state, np.arange(3)).upload.weight
        assert weight.sum(axis=0).tolist() == [1, 1]
        draws += weight
    assert draws / rounds == pytest.approx(np.array([[1 / 8, 1 / 6], [6 / 8, 2 / 6], [1 / 8, 3 / 6]]), abs=0.03)


def test_the_size_of_a_draw_is_rounded_up_but_for_what_floats_add():
    """.07 * 100 is 7.000000000000001 and makes one for each of 7 centres; .08 * 100 / 7 makes two."""
    view = view_of_shares([[1.0] * 7] * 100, [5] * 100)
    for fraction, count in ((0.07, 1), (0.08, 2), (0.14, 2), (0.15, 3)):
        how = FedSoft(clusters=7, fraction=fraction)
        weight = how.problem(view, how.setup(view), np.arange(100)).upload.weight
        assert (weight > 0).sum(axis=0).tolist() == [count] * 7


def test_a_hospital_sampled_twice_counts_in_both_centres():
    view = view_of_shares([[0.5, 0.5], [0.5, 0.5]], [3, 3])
    how = FedSoft(clusters=2, fraction=1.0)
    state = how.setup(view)
    for t in range(12):
        view = replace(view, round=t + 1)
        weight = how.problem(view, state, how.select(view, state, t + 1)).upload.weight
        assert weight.sum(axis=0) == pytest.approx([1, 1])
        assert set(np.unique(weight)) <= {0.0, 1.0}


def test_centres_become_what_was_summed_and_are_asked_about_every_so_often():
    asked = []

    def answer(call, hospital):
        asked.append(call.received["models"].tolist())
        return [0.5, 0.5]

    view = answered_by(view_of_shares([[0.5, 0.5]], [3]), answer)
    how = FedSoft(clusters=2, every=3)
    state: SoftState = how.setup(view)
    for t in range(1, 8):
        sums = np.full((2, 2), float(t))
        problem = how.problem(view, state, how.select(view, state, t))
        state = how.aggregate(view, state, Update(np.array([0]), sums, problem=problem))
        assert state.models.tolist() == [[t, t]] * 3
        assert state.rounds == t
    assert asked[1:] == [[[3, 3], [3, 3]], [[6, 6], [6, 6]]]


def test_a_centre_of_which_nothing_comes_back_stays():
    """Hospitals 0 and 1 are drawn by the first centre alone, 2 and 3 by the second, and only the latter answer."""
    view = view_of_shares([[1.0, 0.0], [1, 0], [0, 1], [0, 1]], [5, 5, 5, 5])
    how = FedSoft(clusters=2, fraction=1.0, floor=1e-12, every=9)
    state = replace(how.setup(view), models=np.array([[2.0, 3.0], [1.0, 2.0], [3.0, 4.0]]))
    assert how.select(view, state, 1).tolist() == [0, 1, 2, 3]
    back = np.array([2, 3])
    problem = how.problem(view, state, back)
    assert problem.upload.weight.tolist() == [[0, 0.5], [0, 0.5]]
    later = how.aggregate(view, state, Update(back, np.array([[0.0, 0.0], [5.0, 8.0]]), problem=problem))
    assert later.models.tolist() == [[3, 5], [1, 2], [5, 8]]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hospitals_that_are_lost_leave_numbers(seed, federate):
    outcome = run_strategy(
        federate([20] * 8), FedSoft(clusters=3), rounds=4, seed=seed, system=SystemSection(dropout=0.6)
    )
    assert np.abs(outcome.models).max() < 10


def test_centres_draw_among_those_who_are_there():
    """``ceil(.5 * 4 / 2)`` of four for each centre; who minimises what is the same draw."""
    view = view_of_shares([[0.5, 0.5]] * 8, [5] * 8)
    how = FedSoft(clusters=2, fraction=0.5)
    state = how.setup(view)
    drawn = set()
    for t in range(1, 30):
        here = replace(view, available=np.arange(8) % 2 == 0, round=t)
        ids = how.select(here, state, t)
        assert 1 <= len(ids) <= 2
        assert how.problem(here, state, ids).upload.weight.sum(axis=0).tolist() == [1, 1]
        drawn |= set(ids.tolist())
    assert drawn == {0, 2, 4, 6}
    nobody = replace(view, available=np.zeros(8, dtype=np.bool_), round=1)
    assert not len(how.select(nobody, state, 1))


def test_a_round_after_one_that_changed_nothing_has_a_draw_of_its_own():
    view = view_of_shares([[0.5, 0.5]] * 8, [5] * 8)
    how = FedSoft(clusters=2, fraction=0.5)
    state = how.setup(view)
    cohorts = [how.select(replace(view, round=t), state, t).tolist() for t in range(1, 9)]
    assert len({*map(tuple, cohorts)}) > 4
    # The same as if the centres had changed in each of them.
    assert cohorts == [
        how.select(replace(view, round=t), replace(state, rounds=t - 1), t).tolist() for t in range(1, 9)
    ]


def test_sampling_continues_after_lost_hospitals(federate):
    """One of eight in each round, half of which are too slow: draws go on where nothing came back."""
    rates = {f"h{i}": {"rows_per_second": 1.0 if i < 4 else 100.0} for i in range(8)}
    slow = SystemSection.model_validate({"hospitals": rates, "rounds": {"deadline": 5}})
    for seed in range(4):
        outcome = run_strategy(
            federate([20] * 8), FedSoft(clusters=1, fraction=0.125), rounds=8, seed=seed, system=slow
        )
        assert 0 < sum(row.cohort_size for row in outcome.rounds) < 8


def test_traffic(federate):
    federation = federate(UNEVEN)
    outcome = run_strategy(federation, FedSoft(clusters=3, every=2), rounds=4)
    size, hospitals = outcome.layout.size, 6
    shares = [
        (t, len(ids), int(b[0]) // 4) for t, kind, ids, b, _ in outcome.ledger.entries if kind == "nearest_shares"
    ]
    assert shares == [(0, hospitals, 3), (2, hospitals, 3), (4, hospitals, 3)]
    for row in outcome.rounds:
        asked = hospitals if row.round % 2 == 0 else 0
        assert row.bytes_down == 4 * 3 * size * (row.cohort_size + asked)
        assert row.bytes_up == 4 * (row.cohort_size * (size + 1) + 3 * asked)


def test_a_hospital_that_never_trained_is_served_its_mixture(federate):
    federation = federate(UNEVEN, [40] * 7)
    outcome = run_strategy(federation, FedSoft(clusters=2, fraction=0.2), rounds=1)
    untrained = [h for h in range(7) if h not in outcome.own_models]
    assert 3 in untrained
    assert len(untrained) > 2
    rows = federation.rows(3, "test")
    theta = outcome.mixture[3] @ outcome.models
    right = ((federation.X[rows].astype(np.float64) @ theta[:-1] + theta[-1] >= 0) == federation.y[rows]).mean()
    assert right in outcome.figures["personal"][3]


def test_starting_from_the_mixture_sends_no_more_models(federation):
    assigned = run_strategy(federation, FedSoft(clusters=3), rounds=1)
    mixture = run_strategy(federation, FedSoft(clusters=3, start="mixture"), rounds=1)
    assert assigned.rounds[0].bytes_down == mixture.rounds[0].bytes_down


@pytest.mark.parametrize(
    "bad",
    [
        {"clusters": 0},
        {"lam": -1.0},
        {"every": 0},
        {"floor": 0.0},
        {"spread": -1.0},
        {"selection": "all"},
        {"fraction": 0.0},
        {"start": "global"},
    ],
)
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        FedSoft(**bad)
