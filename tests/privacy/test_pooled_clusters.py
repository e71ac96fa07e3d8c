"""Pooled gradients with a model for each cluster of hospitals, and noisy steps from models that hospitals keep."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.engine.server.job_checks import check_job
from raysim.privacy.accountant import epsilon
from raysim.privacy.events import Gaussian
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from tests.conftest import MLP, job_of, run, run_and_resumed

SIZES = [9, 4, 13, 7, 0, 6, 8]


@pytest.fixture
def federation(federate):
    return federate(SIZES)


def guaranteed(federation, strategy, mode="pooled", secure=None, job=None, **keys):
    plain = {"unit": "patient", "mode": mode, "delta": 1e-4, "noise_multiplier": 0.0}
    if mode == "pooled":
        plain["rate"] = 1.0
    privacy = PrivacySection(**plain | keys)
    job = job_of(federation, strategy, **{"rounds": 3, "batch_size": 0} | (job or {}))
    job = replace(job, privacy=privacy, secure=secure)
    check_job(job, federation)
    return job


@pytest.mark.parametrize(
    "strategy", [Clustered(clusters=2), Chip(clusters=2, mu=0.3), Ifca(clusters=2, weights="samples", spread=2.0)]
)
def test_without_noise_each_cluster_descends_on_all_its_rows(federation, strategy):
    """A full-batch epoch of each hospital, averaged by rows, is a step on the rows of all of its cluster."""
    pooled = run(federation, guaranteed(federation, strategy, clip=1e9), 2)
    plain = run(federation, job_of(federation, strategy, rounds=3, batch_size=0), 1)
    assert isinstance(strategy, Ifca) or len(np.unique(np.delete(pooled.cluster, 4))) == 2
    assert pooled.models == pytest.approx(plain.models, abs=1e-10)


def test_one_cluster_has_the_bits_of_one_model(federation):
    keys = {"clip": 0.3, "noise_multiplier": 1.5, "rate": 0.5}
    one, model = (
        run(federation, guaranteed(federation, each, **keys), 2) for each in (Clustered(clusters=1), FedAvg())
    )
    assert (one.models[1] == model.models[0]).all()


def test_the_shares_of_each_cluster_hold_the_whole_noise(federate):
    """Clusters of five and two hospitals with as many patients: of each sum the noise is that of one model."""
    wide = federate([3] * 7, features=4000)

    class Uneven(Clustered):
        def setup(self, view):
            state = super().setup(view)
            return replace(
                state, models=np.repeat(state.models[:1], 3, axis=0), cluster=np.array([1, 1, 2, 1, 2, 1, 1])
            )

    keys = {"clip": 1e-6, "noise_multiplier": 2.0, "rate": 1e-3}
    models = run(wide, guaranteed(wide, Uneven(clusters=1), job={"rounds": 1, "learning_rate": 1.0}, **keys), 2).models
    for row, patients in ((1, 15), (2, 6)):
        assert models[row].std() == pytest.approx(2.0 * 1e-6 / (1e-3 * patients), rel=0.04)


def test_all_clusters_together_cost_what_one_sum_does(federation):
    guarantee = run(federation, guaranteed(federation, Clustered(clusters=2), noise_multiplier=5.0), 1).privacy
    assert guarantee.covered["outsider"] == pytest.approx(epsilon([Gaussian(5.0, 1.0, 3)], 1e-4))
    # A cluster may be of two hospitals, of which each knows its share; a message has a sixth of the noise at least.
    assert guarantee.covered["peer"] == pytest.approx(epsilon([Gaussian(5.0 * math.sqrt(1 / 2), 1.0, 3)], 1e-4))
    assert guarantee.covered["server"] == pytest.approx(epsilon([Gaussian(5.0 * math.sqrt(1 / 6), 1.0, 3)], 1e-4))
    assert (guarantee.covers, guarantee.not_private) == (("update",), ("size", "signature", "metrics"))
    secure = SecureSection(small_clusters="merge")
    guarantee = run(
        federation, guaranteed(federation, Clustered(clusters=2), secure=secure, noise_multiplier=5.0), 1
    ).privacy
    assert guarantee.covered["server"] == guarantee.covered["outsider"]
    assert guarantee.covered["peer"] == pytest.approx(epsilon([Gaussian(5.0 * math.sqrt(2 / 3), 1.0, 3)], 1e-4))


def test_choices_are_sent_exactly_and_named(federation):
    guarantee = run(federation, guaranteed(federation, Ifca(clusters=2), noise_multiplier=5.0), 1).privacy
    assert set(guarantee.not_private) == {"size", "choice", "metrics"}
    assert math.isinf(guarantee.epsilon)


@pytest.mark.parametrize("strategy", [Clustered(clusters=3), Ifca(clusters=2)])
def test_masks_change_no_bit_and_a_run_goes_on(federation, strategy):
    keys = {"clip": 0.2, "noise_multiplier": 1.0, "rate": 0.5, "job": {"rounds": 4}}
    model, execute = (
        guaranteed(federation, strategy, secure=SecureSection(mode=mode, small_clusters="merge"), **keys)
        for mode in ("model", "execute")
    )
    whole, resumed = run_and_resumed(federation, execute)
    assert (run(federation, model, 1).models == whole.models).all()
    assert (resumed.models == whole.models).all()


@pytest.mark.parametrize("strategy", [FedSoft(clusters=2), Ifca(clusters=2)])
def test_noisy_steps_from_models_that_hospitals_keep(federation, strategy):
    """Without noise they are the plain strategy; with noise its bits are the same on any number of actors."""
    plain = run(federation, job_of(federation, strategy, rounds=3, batch_size=0), 1)
    assert run(federation, guaranteed(federation, strategy, "local", clip=1e9), 2).models == pytest.approx(
        plain.models, abs=1e-10
    )
    noisy = guaranteed(federation, strategy, "local", clip=0.3, noise_multiplier=1.0)
    one, many = (run(federation, noisy, actors) for actors in (1, 4))
    assert (one.models == many.models).all()
    assert {"nearest_shares", "choice"} & set(one.privacy.not_private)


def test_models_of_which_parts_stay_at_hospitals_are_refused(federation):
    with pytest.raises(ConfigError, match=r"privacy.mode: pooled takes no steps at hospitals, but strategy 'FedPer'"):
        run(federation, guaranteed(federation, FedPer(), job={"model": MLP}), 1)
