"""IFCA: identity 17, choices by hand, and clusters that are there to be found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.strategies.hospital_clusters.centres import initial_centres
from raysim.strategies.hospital_clusters.ifca import Ifca, Nearest
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.contexts import answered_by, hospital, sent, view_of
from tests.strategies.hospital_clusters.test_cfl import oppose
from tests.strategies.test_identities import SIZES, assert_different, assert_same

RUN = {"rounds": 3, "epochs": 2}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_17_one_cluster_is_fedavg(weights, federation):
    run = RUN | {"selection": Uniform(0.5, 2)}
    one, fedavg = Ifca(clusters=1, weights=weights), FedAvg(weights=weights)
    assert_same(
        run_strategy(federation, one, **run).models,
        np.repeat(run_strategy(federation, fedavg, **run).models, 2, axis=0),
    )
    assert_different(
        run_strategy(federation, Ifca(clusters=3), **run).models[1], run_strategy(federation, fedavg, **run).models[0]
    )


def test_17_equal_starts_leave_everybody_with_the_first(federation):
    outcome = run_strategy(federation, Ifca(clusters=3, spread=0.0), **RUN)
    assert set(outcome.serve["cluster"]) <= {1, 2, 3}
    assert_same(outcome.models[1], run_strategy(federation, FedAvg(weights="uniform"), **RUN).models[0])
    for row in (2, 3):
        assert outcome.models[row].tolist() == [0.0] * outcome.layout.size, "nobody chose it"


def test_option_one_with_full_batches_is_a_gradient_step_of_the_whole_cohort(federation):
    full = {"rounds": 4, "batch_size": 0}
    one = run_strategy(federation, Ifca(clusters=1, averaging="gradient"), epochs=5, **full)
    assert_same(one.models[1], run_strategy(federation, FedAvg(weights="uniform"), epochs=1, **full).models[0])


def test_option_one_divides_by_the_cohort_and_option_two_by_the_cluster():
    view = answered_by(view_of([hospital([n, 0]) for n in (2, 3, 5)]), lambda call, i: float(i == 1))
    weights = {}
    for averaging in ("model", "gradient"):
        how = Ifca(clusters=2, averaging=averaging)
        problem = how.problem(view, how.setup(view), np.arange(3))
        assert problem.start.tolist() == [1, 2, 1]
        weights[averaging] = problem.upload.weight
    assert weights["model"] == pytest.approx([1 / 2, 1, 1 / 2])
    assert weights["gradient"] == pytest.approx([1 / 3] * 3)
    by_rows = Ifca(clusters=2, weights="samples")
    assert by_rows.problem(view, by_rows.setup(view), np.arange(3)).upload.weight == pytest.approx([2 / 7, 1, 5 / 7])


def test_who_hides_weighs_by_its_own_rows():
    view = replace(view_of([hospital([n, 0]) for n in (2, 3, 5)]), hides=True)
    how = Ifca(clusters=2, weights="samples")
    problem = how.problem(view, how.setup(view), np.array([0, 2]))
    upload = problem.upload
    assert (upload.weight.tolist(), upload.sums) == (how.weigh(np.array([2, 5])).tolist(), 2)
    assert problem.extras == {"chosen": ("update", (2,))}


def test_the_choice_is_the_smallest_mean_loss_and_the_first_of_equals():
    rows = hospital([1, 1])
    for losses, expected in (([[1, 1], [0, 1], [1, 0]], 1), ([[0.5, 0.5], [0, 1]], 0)):
        assert sent(Nearest(), replace(rows, losses=np.array(losses, dtype=np.float64))) == expected
    assert sent(Nearest(), replace(hospital([0, 0]), losses=np.empty((3, 0)))) == 0


def test_before_training_all_hospitals_are_in_the_first_cluster_or_in_none_if_choices_are_hidden():
    view = view_of([hospital([2, 1])] * 3)
    assert Ifca(clusters=2).setup(view).cluster.tolist() == [1, 1, 1]
    assert Ifca(clusters=2).setup(replace(view, hides=True)).cluster is None


def test_centres_start_apart_and_one_alone_at_the_initial_model():
    view = view_of([hospital([1, 1])])
    object.__setattr__(view, "initial", np.full(2000, 3.0))
    centres = initial_centres(view, 3, 0.1)
    assert np.abs(centres - 3.0).mean() == pytest.approx(0.1 * np.sqrt(2 / np.pi), rel=0.05)
    assert len(np.unique(centres)) == 6000
    assert (initial_centres(view, 2, 0.1) == centres[:2]).all()
    assert centres[1] == pytest.approx(3.0 + 0.1 * view.rng("centre", 1).normal(size=2000), abs=1e-15)
    assert (initial_centres(view, 1, 0.1) == 3.0).all()


@pytest.mark.parametrize("selection", [Uniform(1.0, 1), Uniform(0.5, 1)])
def test_hospitals_that_disagree_find_each_other(selection, federate, tmp_path):
    opposed = oppose(federate, tmp_path / "opposed")
    outcome = run_strategy(opposed, Ifca(clusters=2), rounds=12, epochs=2, learning_rate=0.5, selection=selection)
    served = outcome.serve["cluster"]
    assert outcome.cluster is not None
    assert served.tolist() == outcome.cluster.tolist()
    assert len(set(served[[0, 2, 4]])) == len(set(served[[1, 3, 5]])) == 1
    assert served[0] != served[1]
    assert served[6] == 1, "without training rows the first"
    assert outcome.metrics["cluster"]["auroc"] > 0.8


def test_it_is_served_what_has_the_smallest_training_loss(federation):
    outcome = run_strategy(federation, Ifca(clusters=3), selection=Uniform(0.3, 1), **RUN)
    for h in range(len(SIZES)):
        rows = federation.rows(h, "train")
        X, y = federation.X[rows].astype(np.float64), federation.y[rows]
        margins = X @ outcome.models[1:, :-1].T + outcome.models[1:, -1]
        losses = (np.logaddexp(0, margins) - y[:, None] * margins).mean(axis=0)
        assert outcome.serve["cluster"][h] == 1 + losses.argmin()


def test_participants_get_all_models_and_send_one_and_evaluation_costs_nothing(federation):
    for every in (0, 1):
        outcome = run_strategy(federation, Ifca(clusters=3), selection=Uniform(0.5, 1), every=every, **RUN)
        size = outcome.layout.size
        for row in outcome.rounds:
            assert row.bytes_down == 4 * 3 * 3 * size
            assert row.bytes_up == 4 * 3 * (1 + size + 1)


@pytest.mark.parametrize("bad", [{"clusters": 0}, {"averaging": "mean"}, {"spread": -0.1}, {"weights": "rows"}])
def test_impossible_settings_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        Ifca(**bad)
