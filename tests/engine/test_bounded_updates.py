"""The norm bound where nobody sees single updates: each hospital shortens its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.engine.server.job_checks import check_job
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.adaptive import FedAdam
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold
from tests.conftest import job_of, run

HOSPITAL = PrivacySection(unit="hospital", noise_multiplier=0.0, delta=1e-3, clip=1e3)
OWN = PrivacySection(unit="patient", mode="local", noise_multiplier=0.0, delta=1e-4, clip=1e9)


@pytest.fixture
def federation(federate):
    return federate([12, 9, 0, 10, 11, 13, 8, 10, 9, 12])


def bounded(federation, strategy, bound=0.05, **sections):
    job = job_of(federation, strategy, epochs=2)
    job = replace(job, aggregation=AggregationSection(name="norm_bound", bound=bound), **sections)
    check_job(job, federation)
    return job


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam(), Chip(clusters=2)])
def test_hospitals_bound_as_the_server_would(federation, strategy):
    """Updates of which some are longer than the bound, and bits that masks do not change."""
    seen = run(federation, bounded(federation, strategy), 1).models
    assert np.abs(seen - run(federation, bounded(federation, strategy, 1e9), 1).models).max() > 1e-3
    attack = AdversarySection(attack="sign_flip", share=0.3, factor=30.0)
    for adversary in (None, attack):
        seen = run(federation, bounded(federation, strategy, adversary=adversary), 1).models
        model, execute = (
            run(
                federation, bounded(federation, strategy, adversary=adversary, secure=SecureSection(mode=mode)), 2
            ).models
            for mode in ("model", "execute")
        )
        assert (model == execute).all()
        assert model == pytest.approx(seen, abs=1e-10)


def test_bounds_go_with_guarantees(federation):
    """Without noise, and with clips that clip nothing, it is the rule alone."""
    uniform = FedAvg(weights="uniform")
    seen = run(federation, bounded(federation, uniform), 1).models
    assert run(federation, bounded(federation, uniform, privacy=HOSPITAL), 1).models == pytest.approx(seen, abs=1e-10)
    hidden = bounded(federation, uniform, privacy=HOSPITAL, secure=SecureSection())
    assert run(federation, hidden, 3).models == pytest.approx(seen, abs=1e-10)
    steps = [replace(bounded(federation, FedAvg(), **keys)) for keys in ({}, {"privacy": OWN})]
    full = [
        replace(job, work=replace(job.work, epochs=1, optimizer=replace(job.work.optimizer, batch_size=0)))
        for job in steps
    ]
    assert run(federation, full[1], 1).models == pytest.approx(run(federation, full[0], 1).models, abs=1e-10)


def test_the_shorter_of_bound_and_clip_counts(federation):
    """One round from zeros of updates that are all longer: the mean is at most as long as the shorter."""
    for bound, clip in ((0.01, 0.05), (0.05, 0.01)):
        privacy = HOSPITAL.model_copy(update={"clip": clip})
        job = replace(bounded(federation, FedAvg(weights="uniform"), bound, privacy=privacy), rounds=1)
        job = replace(job, work=replace(job.work, epochs=20))
        assert 0.003 < np.linalg.norm(run(federation, job, 1).models[0]) <= 0.01


def test_what_no_bound_goes_with_is_refused(federation):
    with pytest.raises(ConfigError, match=r"aggregation.name: 'norm_bound' .* privacy.mode: pooled"):
        bounded(federation, FedAvg(), privacy=PrivacySection(unit="patient", noise_multiplier=1.0, delta=1e-4))
    with pytest.raises(
        ConfigError, match=r"aggregation.name: strategy 'Scaffold' also averages further numbers .variate."
    ):
        run(federation, bounded(federation, Scaffold(), secure=SecureSection()), 1)
    mixed = AggregationSection(name="norm_bound", before="nnm")
    with pytest.raises(ConfigError, match=r"hides single updates, which aggregation.name: 'norm_bound' needs"):
        check_job(replace(bounded(federation, FedAvg(), secure=SecureSection()), aggregation=mixed), federation)
