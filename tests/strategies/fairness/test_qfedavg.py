"""q-FedAvg: identity 22, and its step by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.strategies.base import Update
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_identities import SIZES, assert_different, assert_same


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_22_without_q_it_is_uniform_fedavg(federation):
    run = {"rounds": 4, "epochs": 2, "selection": Uniform(0.5, 2)}
    uniform = run_strategy(federation, FedAvg(weights="uniform"), **run).models
    assert_same(run_strategy(federation, QFedAvg(q=0.0), **run).models, uniform)
    assert_different(run_strategy(federation, QFedAvg(q=1.0), **run).models, uniform)
    assert_different(
        run_strategy(federation, QFedAvg(q=0.0), **run).models, run_strategy(federation, FedAvg(), **run).models
    )


@pytest.mark.parametrize("q", [0.001, 0.5, 1.0, 5.0])
def test_a_step_by_hand(q):
    """Algorithm 2 for two hospitals and one scalar, with L = 1 / .1."""
    losses, deltas, lipschitz = [0.5, 2.0], [0.3, -0.1], 10.0
    numerator = denominator = 0.0
    for loss, delta in zip(losses, deltas, strict=True):
        d = -lipschitz * delta
        numerator += loss**q * d
        denominator += q * loss ** (q - 1) * d**2 + lipschitz * loss**q
    view = view_of([hospital([1, 0]), hospital([9, 0])])
    object.__setattr__(view, "initial", np.array([0.7]))
    how = QFedAvg(q=q)
    update = Update(np.arange(2), np.zeros((1, 1)), deltas=np.array(deltas)[:, None], losses=np.array(losses))
    after = how.aggregate(view, how.setup(view), update)
    assert after.models[0, 0] == pytest.approx(0.7 - numerator / denominator, rel=1e-8)


def test_what_was_not_sent_makes_no_step():
    view, how = view_of([hospital([1, 0])] * 2), QFedAvg()
    state, one = how.setup(view), np.ones((1, 2))
    for steepness, step in ((0.0, 0.0), (-1.0, 0.0), (0.5, 2.0)):
        problem = how.problem(replace(view, hides=True), state, np.arange(2))
        hidden = Update(np.arange(2), one, numbers=np.array([steepness]), problem=problem)
        assert how.aggregate(view, state, hidden).models.tolist() == (state.models + step).tolist()
    for parts in ({"deltas": np.ones((2, 2))}, {"losses": np.ones(2)}, {}):
        with pytest.raises(TypeError, match=r"^update: has no deltas or no losses of single hospitals; "):
            how.aggregate(view, state, Update(np.arange(2), one, **parts))


def test_what_is_hidden_is_summed_as_the_mean_over_the_cohort():
    """Secure and noisy sums take it for one of at most 1: each of n hospitals weighs 1/n, whoever else there is."""
    view = replace(view_of([hospital([1, 0])] * 5), hides=True)
    how = QFedAvg()
    for cohort in ([0, 1, 2, 4], [3], []):
        upload = how.problem(view, how.setup(view), np.array(cohort, dtype=np.int64)).upload
        assert upload.weight.tolist() == [1 / len(cohort) for _ in cohort]
        assert (upload.single, upload.losses) == (False, False)


def test_a_loss_of_zero_counts_as_the_smallest():
    """One hospital of loss 0 under q = 1/2, L = 10: w = 1e-5, and the step is L w d / (q 1e5 (L d)^2 + L w)."""
    view = view_of([hospital([1, 0])])
    object.__setattr__(view, "initial", np.array([0.7]))
    how = QFedAvg(q=0.5)
    update = Update(np.arange(1), np.zeros((1, 1)), deltas=np.array([[1e-4]]), losses=np.zeros(1))
    after = how.aggregate(view, how.setup(view), update)
    step = 10 * 1e-5 * 1e-4 / (0.5 * 1e5 * (10 * 1e-4) ** 2 + 10 * 1e-5)
    assert after.models[0, 0] - 0.7 == pytest.approx(step, rel=1e-4)


def test_losses_are_those_before_training(federation):
    """The initial model is zero, under which every row's loss is log 2; so one round is a step with equal losses."""
    seen = []

    class Watched(QFedAvg):
        def aggregate(self, view, state, update):
            seen.append(update)
            return super().aggregate(view, state, update)

    run_strategy(federation, Watched(q=1.0), rounds=1)
    assert seen[0].losses == pytest.approx([np.log(2)] * 6)
    assert seen[0].deltas.shape == (6, 4)


def test_participants_send_their_loss_beside_the_update(federation):
    outcome = run_strategy(federation, QFedAvg(), rounds=2, selection=Uniform(0.5, 2))
    size = outcome.layout.size
    assert [row.bytes_up for row in outcome.rounds] == [4 * 3 * (size + 2)] * 2
    assert [row.bytes_down for row in outcome.rounds] == [4 * 3 * size] * 2


def test_larger_q_helps_the_hospital_with_the_largest_loss(federate):
    federation = federate([60, 60, 60, 6], [20] * 4, features=5, seed=3)
    worst = []
    for q in (0.0, 5.0):
        outcome = run_strategy(federation, QFedAvg(q=q), rounds=30, learning_rate=0.5, batch_size=0)
        losses = []
        for h in range(4):
            rows = federation.rows(h, "train")
            margins = federation.X[rows].astype(np.float64) @ outcome.models[0, :-1] + outcome.models[0, -1]
            losses.append((np.logaddexp(0, margins) - federation.y[rows] * margins).mean())
        worst.append(max(losses) - min(losses))
    assert worst[1] < worst[0]


def test_a_negative_q_is_refused_by_name():
    with pytest.raises(ValueError, match=r"^q: "):
        QFedAvg(q=-0.1)
