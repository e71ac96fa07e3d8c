"""Ditto: identity 21, and hospitals' own models by hand."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.strategies.base import OWN
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, run_strategy, store
from tests.strategies.contexts import hospital, view_of
from tests.strategies.one_model.test_scaffold import gradient
from tests.strategies.test_identities import SIZES, assert_different, assert_same


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


@pytest.mark.parametrize("lam", [0.0, 1.0, 30.0])
def test_21_the_federated_model_is_that_of_fedavg(lam, federation):
    run = {"rounds": 4, "epochs": 2, "selection": Uniform(0.5, 2)}
    outcome = run_strategy(federation, Ditto(lam=lam, epochs=3, learning_rate=0.02), **run)
    assert_same(outcome.models[0], run_strategy(federation, FedAvg(), **run).models[0])
    assert_same(outcome.models[1], np.zeros(4))
    assert set(outcome.metrics) == {"global", "personal"}


def test_models_of_their_own_by_hand(federation):
    """``v <- v - eta (grad L_i(v) + lam (v - w))`` with full batches, in the rounds in which a hospital takes part."""
    lam, rate, steps = 0.7, 0.2, 3
    run = {"batch_size": 0, "selection": Uniform(0.5, 2)}
    w = [np.zeros(4)] + [run_strategy(federation, FedAvg(), rounds=t, **run).models[0] for t in (1, 2, 3)]
    personal = {}
    outcome = run_strategy(federation, Ditto(lam=lam, epochs=steps, learning_rate=rate), rounds=4, **run)
    for t, ids in cohorts(outcome):
        for h in ids:
            v = personal.get(h, np.zeros(4))
            for _ in range(steps):
                v = v - rate * (gradient(federation, h, v) + lam * (v - w[t - 1]))
            personal[h] = v
    assert outcome.own_models.keys() == personal.keys()
    for h, v in personal.items():
        assert_same(outcome.own_models[h], v)
        assert_different(outcome.own_models[h], outcome.models[0])


def cohorts(outcome):
    """Who took part, by round, as the ledger says."""
    return [(t, ids.tolist()) for t, kind, ids, _, _ in outcome.ledger.entries if kind == "update"]


def test_21_without_a_proximal_term_it_is_local_training_with_its_own_batches(federation):
    outcome = run_strategy(federation, Ditto(lam=0.0), rounds=3, selection=Uniform(0.5, 2))
    personal = {}
    for t, ids in cohorts(outcome):
        for h in ids:
            v = personal.get(h, np.zeros(4))
            rows = federation.rows(h, "train")
            n = rows.stop - rows.start
            order = np.arange(n) if n <= 4 else stream(1, "batch 1", t, h, 0).permutation(n)
            for low in range(0, n, 4):
                batch = rows.start + order[low : low + 4]
                X = np.column_stack([federation.X[batch].astype(np.float64), np.ones(len(batch))])
                v = v - 0.1 * X.T @ (1 / (1 + np.exp(-X @ v)) - federation.y[batch]) / len(batch)
            personal[h] = v
    assert outcome.own_models.keys() == personal.keys()
    for h, v in personal.items():
        assert_same(outcome.own_models[h], v)


def test_a_proximal_term_has_no_gradient_in_one_step_from_the_received_model(federation):
    """In round 1 a hospital's own model starts where the received one is."""
    run = {"rounds": 1, "batch_size": 0}
    ends = [run_strategy(federation, Ditto(lam=lam), **run).own_models for lam in (0.0, 5.0)]
    assert ends[0].keys() == ends[1].keys() == set(range(len(SIZES)))
    for h, v in ends[0].items():
        assert_same(v, ends[1][h])
    two = [run_strategy(federation, Ditto(lam=lam), **run | {"rounds": 2}).own_models for lam in (0.0, 5.0)]
    assert_different(two[0][0], two[1][0])


def test_the_proximal_term_alone_reaches_its_quadratics_closed_form(tmp_path):
    """Rows of zeros with as many events as not have no gradient at bias 0, so ``v_E = w + (1 - eta lam)^E (v - w)``.

    The other hospital moves w in round 1, in its weight alone: it has a row of each class at opposite places.
    """
    X = np.array([[0.0], [0.0], [0.0], [0.0], [2.0], [-2.0], [0.0]])
    y = np.array([0, 1, 0, 1, 1, 0, 0])
    federation = store(tmp_path, X, y, [[0, 4, 4, 4], [4, 6, 6, 7]])
    lam, rate, steps = 0.8, 0.3, 5
    outcome = run_strategy(federation, Ditto(lam=lam, epochs=steps, learning_rate=rate), rounds=2, batch_size=0)
    w = run_strategy(federation, FedAvg(), rounds=1, batch_size=0).models[0]
    assert w[0] > 0.01
    assert w[1] == 0.0
    assert outcome.own_models[0] == pytest.approx(w - (1 - rate * lam) ** steps * w, abs=1e-12)


def test_who_never_took_part_has_no_figures_and_who_has_no_rows_those_of_the_federated_model(federate):
    federation = federate([9, 8, 0, 7], [5, 6, 4, 8])
    outcome = run_strategy(federation, Ditto(), rounds=1, selection=Uniform(0.1, 1))
    (took_part,) = outcome.own_models
    assert outcome.serve["personal"].tolist() == [OWN, OWN, 0, OWN]
    for h in {0, 1, 3} - {took_part}:
        assert np.isnan(outcome.figures["personal"][h][log_loss()])  # not log 2, the loss of the common start
    assert outcome.untrained["personal"].tolist() == [h in {0, 1, 3} - {took_part} for h in range(4)]
    assert outcome.figures["personal"][2].tolist() == outcome.figures["global"][2].tolist()


def log_loss() -> int:
    from raysim.metrics.measures import FIGURES

    return FIGURES.index("log_loss")


def test_a_model_of_ones_own_costs_no_traffic(federation):
    run = {"rounds": 2, "selection": Uniform(0.5, 2)}
    outcome, fedavg = run_strategy(federation, Ditto(), **run), run_strategy(federation, FedAvg(), **run)
    for name in ("bytes_down", "bytes_up"):
        assert [getattr(row, name) for row in outcome.rounds] == [getattr(row, name) for row in fedavg.rounds]


@pytest.mark.parametrize("bad", [{"lam": -1.0}, {"epochs": -1}, {"learning_rate": -0.1}, {"weights": "rows"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        Ditto(**bad)


def test_one_row_is_enough_for_a_model_of_ones_own():
    view = view_of([hospital(counts) for counts in ([2, 0], [1, 0], [0, 0])])
    ditto = Ditto()
    served = ditto.serve(view, ditto.setup(view))
    assert served["personal"].tolist() == [OWN, OWN, 0]
    assert served["global"].tolist() == [0, 0, 0]
    assert ditto.mixture(view, ditto.setup(view)).tolist() == [[0.0, 1.0]] * 3
