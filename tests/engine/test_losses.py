"""Training losses: when they are taken, what they are, and what hospitals send for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.job import Outcome
from raysim.engine.measuring.losses import TrainingLosses, constant_loss
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.statistics.convergence import convergence
from raysim.storage.run_tables import rounds_table
from raysim.strategies.base import OWN, FederationView, Ids, State
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run, run_strategy
from tests.engine.test_objective import job

SIZES = [9, 0, 5, 14]


def mean_loss(federation: Federation, theta: NDArray[Any], rows: Any, weights: tuple[float, ...] = (1, 1)) -> float:
    """Of logistic regression, over some rows, written out."""
    X, y = federation.X[rows].astype(float), federation.y[rows]
    z = X @ theta[:-1] + theta[-1]
    return float(((np.logaddexp(0, z) - y * z) * np.array(weights)[y]).mean())


def losses(outcome: Outcome) -> list[float | None]:
    return [row.training_loss for row in outcome.rounds]


def test_none_is_taken_where_none_is_asked_for(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    asked = job(federation, FedAvg(), rounds=3)
    silent = replace(asked, evaluation=asked.evaluation.model_copy(update={"loss_points": 0}))
    (*_, with_losses), (*_, without) = (
        JobRun(LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu"), each).events()
        for each in (asked, silent)
    )
    assert isinstance(with_losses, Outcome)
    assert isinstance(without, Outcome)
    assert losses(without) == [None] * 3
    assert None not in losses(with_losses)
    assert without.convergence is None
    assert not without.loss_curve
    np.testing.assert_array_equal(without.models, with_losses.models)
    np.testing.assert_array_equal(without.figures["global"], with_losses.figures["global"])


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.5, 3.0)])
def test_it_is_the_mean_over_the_training_rows_of_all_hospitals(federate: MakeFederation, weights: Any) -> None:
    """Of the global model after each round: the last of a run that is as long has the same rounds."""
    federation = federate(SIZES)
    everything = pooled_rows(federation)
    outcome = run(federation, job(federation, FedAvg(), weights=weights, rounds=4), 1)
    for t in range(1, 5):
        shorter = run(federation, job(federation, FedAvg(), weights=weights, rounds=t), 1)
        expected = mean_loss(federation, shorter.models[0], everything, weights)
        assert losses(outcome)[t - 1] == pytest.approx(expected, rel=1e-12)
        assert losses(shorter) == losses(outcome)[:t]
    before = np.log(2) * np.array(weights)[federation.y[everything]].mean()
    assert outcome.losses.before["global"] == pytest.approx(before)
    assert outcome.losses.model == "global"
    assert list(outcome.loss_curve) == [0, 1, 2, 3, 4]
    assert list(rounds_table(outcome.rounds)["training_loss"]) == losses(outcome)


def test_of_own_models_each_on_its_own_rows(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    outcome = run_strategy(federation, Local(), rounds=3)
    sums = [
        mean_loss(federation, theta, federation.rows(h, "train")) * SIZES[h] for h, theta in outcome.own_models.items()
    ]
    assert losses(outcome)[-1] == pytest.approx(sum(sums) / sum(SIZES), rel=1e-12)
    assert outcome.losses.model == "personal"
    assert outcome.losses.before["personal"] == pytest.approx(np.log(2))


@dataclass(frozen=True)
class Sides:
    """Two groups of rows: by the sign of the first feature."""

    count: int = 2

    def assign(self, X: NDArray[Any], observed: NDArray[np.bool_], hospital: int) -> Ids:
        return (X[:, 0] > 0).astype(np.int64)


@dataclass(frozen=True)
class TwoSides(FedAvg):
    """Federated averaging whose model serves one side; the other has the one that it began with, moved."""

    def setup(self, view: FederationView) -> State:
        return State(models=np.stack([view.initial, view.initial + 0.3]))

    def aggregate(self, view: FederationView, state: State, update: Any) -> State:
        return replace(state, models=state.models + np.stack([update.sums[0], np.zeros_like(view.initial)]))

    def division(self, view: FederationView, state: State) -> Sides:
        return Sides()

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"sides": np.tile([0, 1], (len(view.sizes), 1))}


def test_of_models_that_belong_to_groups_of_rows(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    outcome = run_strategy(federation, TwoSides(), rounds=2)
    everything = pooled_rows(federation)
    left, right = (everything[(federation.X[everything, 0] > 0) == side] for side in (False, True))
    parts = [mean_loss(federation, theta, rows) for theta, rows in zip(outcome.models, (left, right), strict=True)]
    assert losses(outcome)[-1] == pytest.approx(np.average(parts, weights=[len(left), len(right)]), rel=1e-12)


@pytest.mark.parametrize(("strategy", "model"), [(Chip(clusters=2), "cluster"), (Ditto(), "personal")])
def test_one_curve_is_of_one_model(federate: MakeFederation, strategy: Any, model: str) -> None:
    """That after the last round too, where some strategies have fine-tuned models besides."""
    federation = federate(SIZES)
    outcome = run_strategy(federation, strategy, rounds=3)
    assert outcome.losses.model == model
    if model == "cluster":
        served = outcome.serve[model]
        parts = [mean_loss(federation, outcome.models[served[h]], federation.rows(h, "train")) for h in (0, 2, 3)]
    else:
        assert outcome.serve[model].tolist() == [OWN, 0, OWN, OWN]
        parts = [mean_loss(federation, outcome.own_models[h], federation.rows(h, "train")) for h in (0, 2, 3)]
    assert losses(outcome)[-1] == pytest.approx(np.average(parts, weights=[9, 5, 14]), rel=1e-12)


@pytest.mark.parametrize(
    ("rounds", "every", "taken"),
    [
        (3, 0, [1, 2, 3]),
        (39, 0, list(range(1, 40))),
        (40, 0, list(range(2, 41, 2))),
        (45, 0, [*range(2, 45, 2), 45]),
        (45, 5, sorted({*range(2, 45, 2), *range(5, 46, 5)})),
        (0, 1, []),
    ],
)
def test_when_they_are_taken(federate: MakeFederation, rounds: int, every: int, taken: list[int]) -> None:
    outcome = run_strategy(federate(SIZES), FedAvg(), rounds=rounds, every=every)
    assert [row.round for row in outcome.rounds if row.training_loss is not None] == taken
    measured = [row.round for row in outcome.rounds if row.metrics]
    assert measured == sorted({*(range(every, rounds, every) if every else ()), rounds})


def test_what_hospitals_tell_for_them_is_measured_and_no_traffic(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    outcome = run_strategy(federation, FedAvg(), rounds=40, every=0, selection=Uniform(0.5, 1))
    messages = [
        (t, ids.tolist(), sent.tolist()) for t, kind, ids, sent, _ in outcome.ledger.entries if kind == "metrics"
    ]
    sums = [(t, [0, 1, 2, 3], [16] * 4) for t in [0, *range(2, 41, 2)]]
    assert [entry for entry in messages if entry[2] == [16] * 4] == sums
    assert outcome.setup.up == outcome.ledger.sent(0) == 4 * len(SIZES)  # sizes alone


def test_placement_changes_no_bit_of_them(federate: MakeFederation) -> None:
    federation = federate([9, 4, 13, 0, 1, 6, 8])
    alone, spread = (run_strategy(federation, FedAvg(), rounds=5, actors=actors) for actors in (1, 5))
    assert losses(alone) == losses(spread)
    assert alone.losses == spread.losses


def test_a_run_says_whether_it_converged(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    outcome = run_strategy(federation, FedAvg(), rounds=9)
    expected = convergence([outcome.losses.before["global"], *losses(outcome)], outcome.losses.constant)
    assert outcome.convergence == expected
    assert expected.verdict == "falling"
    wild = job_of(federation, FedAvg(), rounds=9, learning_rate=500.0)
    assert run(federation, wild, 1).convergence.verdict == "diverged"
    assert run_strategy(federation, FedAvg(), rounds=0).convergence is None


def test_what_never_came_is_no_curve() -> None:
    assert TrainingLosses().curve({}) == {}
    assert TrainingLosses({"global": 0.7}, "personal").curve({}) == {}


@pytest.mark.parametrize(
    ("y", "classes", "weights", "expected"),
    [
        ([0, 0, 0, 1], 2, "none", -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))),
        ([0, 0, 0, 1], 2, (1.0, 3.0), 1.5 * np.log(2)),  # masses .75 and .75
        ([1, 1], 3, "none", 0.0),
        ([], 2, "none", np.nan),
        ([0.5, 2.0], 0, "none", np.nan),
    ],
)
def test_the_best_constant(y: Any, classes: int, weights: Any, expected: float) -> None:
    assert constant_loss(np.array(y), classes, weights) == pytest.approx(expected, nan_ok=True)
    if classes == 2 and len(y):
        # No constant does better: a fine grid of probabilities comes close from above.
        w = np.array(weights if weights != "none" else (1.0, 1.0))[y]
        p = np.linspace(0.001, 0.999, 999)[:, None]
        grid = (-w * np.where(np.array(y) == 1, np.log(p), np.log(1 - p))).mean(axis=1).min()
        assert expected <= grid < expected + 1e-5


def test_a_job_that_goes_on_without_its_history_takes_none(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    made = job_of(federation, FedAvg(), rounds=4)
    standing = next(event for event in JobRun(pool, made).events(2) if isinstance(event, RunState))
    *_, outcome = JobRun(pool, made, replace(standing, history=None)).events()
    assert isinstance(outcome, Outcome)
    assert losses(outcome) == [None, None]
    assert outcome.convergence is None
