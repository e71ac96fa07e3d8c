"""The geometric median of updates under secure aggregation: three sums a round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.engine.attacks.secure_geometric_median import NU, PASSES, Pass
from raysim.engine.client.local_training import CohortTraining
from raysim.engine.messages.memory import MODEL
from raysim.engine.messages.steps import EXTRAS, UPDATE, Leaving
from raysim.engine.pipeline.secure_sums import SecureSums
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.robust.centres import geometric_median
from raysim.secure import traffic
from raysim.strategies.base import Upload
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.adaptive import FedAdam
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from tests.conftest import job_of, run, run_and_resumed

SIZES = [12, 9, 0, 10, 11, 13, 8, 10, 9, 12]
ROWS = np.array([[1, 2], [1.2, 1.8], [0.9, 2.1], [1.1, 2.2], [0.8, 1.9], [1.3, 2], [-5, 9]], dtype=np.float64)


@pytest.fixture
def federation(federate):
    return federate(SIZES)


def median(federation, strategy, mode="model", secure=None, rule=None, **settings):
    section = AggregationSection(name="geometric_median", **rule or {})
    job = replace(job_of(federation, strategy, epochs=2, **settings), aggregation=section)
    job = replace(job, secure=SecureSection(mode=mode, **secure or {}))
    check_job(job, federation)
    return job


def sent_in_iteration(update, centres, group=0):
    """What a hospital sends in a pass, of an update for a sum."""
    leaving = Leaving(
        0, 0, Upload(np.ones(1), np.array([group]), 3), {UPDATE: update}, None, 1e9, float, list, {}, True
    )
    Pass(centres, trains=False).forward(leaving)
    return leaving.vectors[UPDATE], leaving.vectors[EXTRAS]


def test_three_iterations_by_secure_sums_are_those_of_the_server(monkeypatch):
    """Seven updates of which one is far away: with nu .1 the point is (.9865328924, 2.0537732707)."""
    from raysim.engine.attacks import secure_geometric_median as passes

    monkeypatch.setattr(passes, "NU", 0.1)
    point = np.zeros(2)
    for _ in range(PASSES):
        terms = [sent_in_iteration(row, point[None, :]) for row in ROWS]
        point = sum(vector for vector, _ in terms) / sum(numbers[0] for _, numbers in terms)
    assert point == pytest.approx([0.9865328924, 2.0537732707], abs=1e-10)


def test_a_hospital_weighs_its_update_by_its_distance_from_the_point_of_its_own_sum():
    """3, 4 from its centre are a distance of 5; an update on its centre has weight 0.01 / nu."""
    centres = np.array([[0.0, 0.0], [1.0, 1.0], [7.0, 7.0]])
    vector, numbers = sent_in_iteration(np.array([4.0, 5.0]), centres, 1)
    assert numbers == pytest.approx([0, 0.01 / 5, 0])
    assert vector == pytest.approx([0.01 / 5 * 4, 0.01 / 5 * 5])
    assert sent_in_iteration(np.array([7.0, 7.0]), centres, 2)[1] == pytest.approx([0, 0, 0.01 / 1e-6])


def deltas_of(federation, strategy, **settings):
    """The first round's updates, ``[h, P]``, and their ids."""
    received = {}

    class Watching(type(strategy)):
        def problem(self, view, state, ids):
            problem = super().problem(view, state, ids)
            return replace(problem, upload=replace(problem.upload, single=True))

        def aggregate(self, view, state, update):
            received.update(deltas=update.deltas, ids=update.ids)
            return super().aggregate(view, state, update)

    run(federation, job_of(federation, Watching(), epochs=2, rounds=1, **settings), 1)
    return received["deltas"], received["ids"]


@pytest.mark.parametrize("rule", [{}, {"weights": "capped", "cap": 10}])
def test_a_round_moves_the_model_to_the_median_of_the_updates(federation, rule):
    start = run(federation, job_of(federation, FedAvg(), rounds=0), 1).models[0]
    deltas, ids = deltas_of(federation, FedAvg())
    mass = np.minimum(np.array(SIZES)[ids], 10).astype(float) if rule else None
    by_hand = geometric_median(deltas, mass, nu=NU, passes=PASSES, start=np.zeros(deltas.shape[1])).update
    for mode in ("model", "execute"):
        models = run(federation, median(federation, FedAvg(), mode, rule=rule, rounds=1), 2).models[0]
        assert models - start == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize("strategy", [FedAvg(), Chip(clusters=2, alpha=1.0)])
def test_a_lost_hospital_changes_no_median_of_another_cluster(federation, strategy, monkeypatch):
    """Each cluster moves to the median of the updates that arrived, however many others have lost."""
    deltas, ids = deltas_of(federation, strategy)
    gone: set[int] = set()

    def lost(self, round, stage, chance, ids):
        return frozenset(gone & set(ids.tolist()) if chance else ())

    monkeypatch.setattr(SecureSums, "_lost", lost)
    secure = {"threshold": 2, "minimum": 3, "drop": {"mask": 0.5}}
    job = median(federation, strategy, secure=secure, rounds=1)
    cluster = run(federation, job, 1).cluster
    of = np.zeros(len(SIZES), dtype=int) if cluster is None else cluster
    gone.add(int(ids[of[ids] == np.bincount(of[ids]).argmax()][0]))
    start = run(federation, replace(job, rounds=0), 1).models
    moved = run(federation, job, 1).models - start
    for row in np.unique(of[ids]):
        left = (of[ids] == row) & ~np.isin(ids, list(gone))
        by_hand = geometric_median(deltas[left], nu=NU, passes=PASSES, start=np.zeros(deltas.shape[1])).update
        assert moved[row] == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam(), Ditto(), Chip(clusters=2)])
def test_masks_change_no_bit(federation, strategy):
    """Hospitals that remember models of their own remember what one training gives."""
    model, execute = (run(federation, median(federation, strategy, mode), 3) for mode in ("model", "execute"))
    assert (model.models == execute.models).all()
    assert model.own_models.keys() == execute.own_models.keys()
    for hospital, theta in model.own_models.items():
        assert (theta == execute.own_models[hospital]).all()
    assert model.facts["secure_sums"] == 3 * PASSES * (3 if isinstance(strategy, Chip) else 2)
    if isinstance(strategy, Ditto):
        mean = run(federation, replace(job_of(federation, strategy, epochs=2, rounds=1)), 1)
        once = run(federation, median(federation, strategy, rounds=1), 1)
        assert all((once.own_models[hospital] == theta).all() for hospital, theta in mean.own_models.items())


@pytest.mark.parametrize("strategy", [FedAvg(), Ditto()])
def test_hospitals_train_once_a_round_and_forget_their_updates(federation, strategy, monkeypatch):
    trained = []

    def counting(self, phase, tasks, some, train=CohortTraining._trained):
        trained.extend(int(self._plan.ids[j]) for j in some if phase.upload is not None)
        return train(self, phase, tasks, some)

    monkeypatch.setattr(CohortTraining, "_trained", counting)
    job = median(federation, strategy, rounds=2)
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(1))
    assert np.bincount(trained).tolist() == [2, 2, 0, 2, 2, 2, 2, 2, 2, 2]
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 1]
    held = {what for vectors in (stood.states or {}).values() for what in vectors}
    assert held == ({MODEL} if isinstance(strategy, Ditto) else set())


def test_one_update_far_away_moves_it_less_than_the_mean(federation):
    attack = AdversarySection(attack="scale", share=0.2, factor=50.0)
    honest = run(federation, job_of(federation, FedAvg(weights="uniform"), epochs=2), 1).models
    mean = replace(job_of(federation, FedAvg(weights="uniform"), epochs=2), adversary=attack)
    robust = replace(median(federation, FedAvg()), adversary=attack)
    apart = [np.linalg.norm(run(federation, job, 1).models - honest) for job in (robust, mean)]
    assert apart[0] < apart[1] / 10


def test_each_pass_is_counted_and_a_run_goes_on(federation):
    drop = {"threshold": 3, "drop": {"mask": 0.15}}
    job = median(federation, FedAvg(), "execute", secure=drop, rounds=4)
    undisturbed, resumed = run_and_resumed(federation, job)
    assert (resumed.models == undisturbed.models).all()
    assert resumed.facts == undisturbed.facts
    whole = run(federation, median(federation, FedAvg(), rounds=1), 1)
    up = traffic.up(4, 8) + traffic.up(1, 8)
    assert whole.rounds[0].bytes_up == PASSES * 9 * up


def test_settings_that_cannot_be_combined_with_the_secure_median_are_refused(federation):
    with pytest.raises(ConfigError, match=r"'QFedAvg' also averages further numbers .steepness."):
        run(federation, median(federation, QFedAvg()), 1)
    mixed = AggregationSection(name="geometric_median", before="nnm")
    with pytest.raises(ConfigError, match=r"hides single updates, which aggregation.name: 'geometric_median' needs"):
        check_job(replace(median(federation, FedAvg()), aggregation=mixed), federation)
    privacy = PrivacySection(unit="hospital", noise_multiplier=1.0, delta=1e-3)
    with pytest.raises(
        ConfigError, match=r"'geometric_median' needs single updates, but the guarantee of privacy.unit: 'hospital'"
    ):
        check_job(replace(median(federation, FedAvg(weights="uniform")), privacy=privacy), federation)
