"""Agnostic federated learning: identity 23, the projection, and rounds by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.coordinator import JobRun
from raysim.storage.served import named_tensors, served
from raysim.strategies.base import Update
from raysim.strategies.fairness.afl import AgnosticFL, AgnosticState, project_to_simplex
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies.contexts import hospital, view_of
from tests.strategies.one_model.test_scaffold import gradient
from tests.strategies.test_identities import SIZES, assert_different, assert_same

POINTS = st.lists(st.floats(-5, 5), min_size=1, max_size=6).map(np.array)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def last_state(federation: Federation, strategy: AgnosticFL, **settings) -> AgnosticState:
    """The state that the last round began with."""
    run = JobRun(
        LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu"), job_of(federation, strategy, **settings)
    )
    for event in run.run():
        assert event is not None
    standing = run.state_after_round()
    assert standing is not None
    assert isinstance(standing.state, AgnosticState)
    return standing.state


@given(POINTS)
def test_the_projection_is_the_nearest_point_of_the_simplex(point):
    """By the optimality condition: ``(point - x) . (corner - x) <= 0`` for every corner."""
    x = project_to_simplex(point)
    assert (x >= 0).all()
    assert x.sum() == pytest.approx(1)
    corners = np.eye(len(point)) - x
    assert (corners @ (point - x) <= 1e-9).all()


def test_the_projection_is_what_a_solver_finds():
    for seed in range(5):
        point = np.random.default_rng(seed).normal(size=4)
        n = len(point)
        solution = minimize(
            lambda x, p=point: ((x - p) ** 2).sum(),
            np.full(n, 1 / n),
            method="SLSQP",
            bounds=[(0, None)] * n,
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(project_to_simplex(point), solution.x, atol=1e-6)


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([3.0], [1.0]),
        ([2.0, 0.0], [1.0, 0.0]),
        ([1, 1, 1, 1], [0.25] * 4),
        ([-7, -7], [0.5] * 2),
    ],
)
def test_projections_by_hand(point, expected):
    assert project_to_simplex(np.array(point, dtype=float)) == pytest.approx(expected)


def test_23_without_ascent_and_by_rows_it_is_fedavg_with_a_full_batch_step(federation):
    still = AgnosticFL(ascent=0.0, start="samples")
    one_step = run_strategy(federation, FedAvg(), rounds=5, batch_size=0)
    # Whatever the training's batches, epochs and optimiser are.
    outcome = run_strategy(federation, still, rounds=5, batch_size=4, epochs=3, optimizer="adam")
    assert_same(outcome.models[0], one_step.models[0])
    assert_different(run_strategy(federation, AgnosticFL(start="samples"), rounds=5).models[0], one_step.models[0])


def test_23_with_local_epochs_it_is_fedavg(federation):
    run = {"rounds": 4, "epochs": 2}
    for start in ("samples", "uniform"):
        still = AgnosticFL(ascent=0.0, start=start, averaging="model")
        assert_same(
            run_strategy(federation, still, **run).models[0],
            run_strategy(federation, FedAvg(weights=start), **run).models[0],
        )


def test_rounds_by_hand(federation):
    """Losses are those at w before the step; the served average is over the models after each of the rounds."""
    descent, ascent, n = 0.3, 0.2, len(SIZES)
    w, mixture, path = np.zeros(4), np.full(n, 1 / n), []
    for _ in range(4):
        losses = np.array([loss(federation, h, w) for h in range(n)])
        w = w - descent * sum(mixture[h] * gradient(federation, h, w) for h in range(n))
        mixture = project_to_simplex(mixture + ascent * losses)
        path.append(w)
    outcome = run_strategy(federation, AgnosticFL(ascent=ascent, learning_rate=descent), rounds=4)
    assert_same(outcome.models, np.stack([w, np.mean(path, axis=0)]))
    assert list(outcome.serve) == ["global", "average"], "the average is the headline model"
    assert outcome.serve["average"].tolist() == [1] * n


def loss(federation: Federation, h: int, theta: np.ndarray) -> float:
    rows = federation.rows(h, "train")
    margins = federation.X[rows].astype(np.float64) @ theta[:-1] + theta[-1]
    return float((np.logaddexp(0, margins) - federation.y[rows] * margins).mean())


def test_the_average_is_stored_under_its_name(federation):
    outcome = run_strategy(federation, AgnosticFL(), rounds=2)
    stored = named_tensors(served(federation, outcome, "float64").vectors, outcome.layout)
    assert set(stored) == {"global/weight", "global/bias", "average/weight", "average/bias"}
    assert stored["average/bias"][0] == outcome.models[1, -1]


def test_23_equal_losses_leave_the_mixture(federation):
    """Under zeros every loss is log 2, so round 1 leaves it; the rounds after it do not."""
    for start, expected in (("uniform", np.full(6, 1 / 6)), ("samples", np.array(SIZES) / sum(SIZES))):
        assert_same(last_state(federation, AgnosticFL(ascent=3.0, start=start), rounds=2).mixture, expected)
    assert_different(last_state(federation, AgnosticFL(ascent=3.0), rounds=3).mixture, np.full(6, 1 / 6))


@given(
    losses=st.lists(st.lists(st.floats(0, 30), min_size=3, max_size=3), min_size=1, max_size=5), ascent=st.floats(0, 9)
)
def test_23_the_mixture_stays_in_the_simplex_and_without_rows_at_zero(losses, ascent):
    view = view_of([hospital([2, 1]), hospital([0, 0]), hospital([4, 4]), hospital([0, 3])])
    how = AgnosticFL(ascent=ascent)
    state = how.setup(view)
    for cohort_losses in losses:
        ids = how.select(view, state, 1)
        assert ids.tolist() == [0, 2, 3]
        problem = how.problem(view, state, ids)
        assert problem.upload.weight.sum() == pytest.approx(1)
        state = how.aggregate(view, state, Update(ids, np.zeros((1, 2)), losses=np.array(cohort_losses)))
        assert (state.mixture >= 0).all()
        assert state.mixture.sum() == pytest.approx(1)
        assert state.mixture[1] == 0


def test_who_is_not_there_gives_up_weight_by_the_projection_alone():
    view = view_of([hospital([2, 1]), hospital([3, 3]), hospital([4, 4])])
    object.__setattr__(view, "available", np.array([True, False, True]))
    how = AgnosticFL(ascent=0.3)
    state = how.setup(view)
    ids = how.select(view, state, 1)
    assert ids.tolist() == [0, 2]
    state = how.aggregate(view, state, Update(ids, np.zeros((1, 2)), losses=np.array([1.0, 0.5])))
    # (1/3 + .3, 1/3, 1/3 + .15) less .15 each.
    assert state.mixture == pytest.approx([1 / 3 + 0.15, 1 / 3 - 0.15, 1 / 3])


def test_the_worst_hospital_fares_better_than_under_fedavg(federate):
    federation = federate([60, 60, 60, 6], [20] * 4, features=5, seed=3)
    worst = []
    for how in (FedAvg(), AgnosticFL(ascent=0.5)):
        models = run_strategy(federation, how, rounds=60, learning_rate=0.5, batch_size=0).models
        worst.append(max(loss(federation, h, models[-1]) for h in range(4)))
    assert worst[1] < worst[0] - 0.01


def test_everybody_takes_part_and_sends_a_loss(federation):
    outcome = run_strategy(federation, AgnosticFL(), rounds=2, selection=Uniform(0.3, 1))
    assert isinstance(outcome, Outcome)
    size = outcome.layout.size
    assert [row.bytes_down for row in outcome.rounds] == [4 * 6 * size] * 2
    assert [row.bytes_up for row in outcome.rounds] == [4 * 6 * (size + 2)] * 2


@pytest.mark.parametrize("bad", [{"ascent": -1.0}, {"learning_rate": -0.1}, {"averaging": "mean"}, {"start": "rows"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        AgnosticFL(**bad)


def test_who_has_no_rows_has_no_weight_at_the_start():
    view = view_of([hospital(counts) for counts in ([2, 4], [0, 0], [1, 1])])
    for start, mixture in (("uniform", [0.5, 0.0, 0.5]), ("samples", [0.75, 0.0, 0.25])):
        assert AgnosticFL(start=start).setup(view).mixture.tolist() == mixture
