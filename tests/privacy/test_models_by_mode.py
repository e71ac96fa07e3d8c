"""Every registered model under every guarantee, for a round: run, or refused in a line before anything starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.privacy import MODES, PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of, run, store, with_patients

TOKENS = 9
OPTIONS = {
    "boosted_trees": (4, {"trees": 2}),
    "cifar_cnn": (3 * 32 * 32, {"dense": 1}),
    "fashion_cnn": (28 * 28, {"dense": 1}),
    "linear_regression": (4, {}),
    "logistic_regression": (4, {}),
    "mlp": (4, {"hidden": [5]}),
    "poisson_regression": (4, {}),
    "text_dense": (6, {"vocabulary": TOKENS, "dimension": 2}),
    "text_lstm": (6, {"vocabulary": TOKENS, "dimension": 2}),
}
UNCLIPPABLE = {"text_lstm", "cifar_cnn"}
"""Models that draw random numbers when they train, so that a patient's gradient is not of its rows alone."""
WITHOUT_STEPS = {"boosted_trees": "cannot grow boosted trees", "poisson_regression": "without steps"}
"""Models that ``FedAvg`` cannot train, and what the refusal says."""
GUARANTEES = [(unit, mode) for unit, modes in MODES.items() for mode in modes if unit != "example"]
"""Patients of one row each are examples, bit for bit: see :mod:`tests.privacy.test_patient`."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> dict[str, Federation]:
    """A federation of three hospitals for each model, with six rows each."""
    rng, made = np.random.default_rng(0), {}
    bounds = 6 * np.arange(3)[:, None] + [0, 4, 4, 6]
    for name, (features, _) in OPTIONS.items():
        folder = tmp_path_factory.mktemp(name)
        X = rng.integers(0, TOKENS, (18, features)) if name.startswith("text") else rng.random((18, features))
        real = name in ("linear_regression", "poisson_regression")
        y = rng.integers(0, 5, 18).astype(float) if real else rng.integers(0, 2, 18)
        made[name] = with_patients(store(folder, X, y, bounds, 0 if real else 2))
    return made


def test_every_model_is_in_the_table():
    assert set(registry.entries("models")) == set(OPTIONS)


@pytest.mark.parametrize(("unit", "mode"), GUARANTEES)
def test_a_model_is_run_or_refused(tokens, unit, mode):
    secure = SecureSection() if mode == "distributed" else None
    rate = {"rate": 0.5} if mode == "pooled" else {}
    guarantee = PrivacySection(unit=unit, mode=mode, noise_multiplier=0.5, delta=1e-3, clip=0.5, **rate)
    for name, federation in tokens.items():
        job = job_of(
            federation,
            FedAvg(weights="uniform"),
            rounds=1,
            precision="float32",
            model=ModelSpec(name, None, OPTIONS[name][1], "default"),
        )
        job = replace(job, privacy=guarantee, secure=secure)
        if name in WITHOUT_STEPS:
            with pytest.raises(ConfigError) as refused:
                check_job(job, federation)
            assert WITHOUT_STEPS[name] in str(refused.value)
            continue
        if unit != "hospital" and name in UNCLIPPABLE:
            with pytest.raises(ConfigError) as refused:
                check_job(job, federation)
            (line,) = str(refused.value).splitlines()
            assert line.startswith(f"model.name: gradients of '{name}' are not clipped by patient"), line
            continue
        check_job(job, federation)
        outcome = run(federation, job, 1)
        assert "update" in outcome.privacy.covers, name
        assert np.isfinite(outcome.models).all(), name
