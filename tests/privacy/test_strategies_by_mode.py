"""Every registered strategy under every guarantee and under secure aggregation: run, or refused in a line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.server.job_checks import check_job
from raysim.strategies.selections.sampling import All
from tests.conftest import fitting, job_of, run, with_patients
from tests.equality import same_models

SECURE = SecureSection(small_clusters="merge")
MODES: dict[str, tuple[dict[str, Any] | None, SecureSection | None]] = {
    "hospital": ({"unit": "hospital", "clip": 0.5}, None),
    "distributed": ({"unit": "hospital", "mode": "distributed", "clip": 0.5}, SECURE),
    "own": ({"unit": "hospital", "mode": "local", "clip": 0.5}, None),
    "pooled": ({"unit": "patient", "rate": 0.5}, None),
    "local": ({"unit": "patient", "mode": "local"}, None),
    "secure": (None, SECURE),
}
EVERYWHERE = set(MODES)
PROGRAMS = ("newton", "random_trees")
OTHERS: dict[str, Any] = {
    "weights": "floor",
    "minimum_weight": 0.3,
    "mu": 0.4,
    "mu_by_hospital": {"h0": 3.0},
    "straggler_epochs": {"h0": 3},
    "lam": 0.3,
    "prox": 0.2,
    "averaging": "gradient",
    "alpha": 0.5,
    "momentum": 0.2,
    "server_learning_rate": 0.4,
    "spread": 0.3,
}
"""Other values of settings than the defaults."""
RUNS = {
    **dict.fromkeys(("fedavg", "fedprox", "fedavgm", "fedadagrad", "fedyogi", "fedadam"), EVERYWHERE),
    **dict.fromkeys(("fine_tuning", "ditto", "local"), EVERYWHERE),
    "moon": EVERYWHERE - {"pooled"},
    "fedper": EVERYWHERE - {"pooled"},
    "fedrep": EVERYWHERE - {"pooled", "local"},
    **dict.fromkeys(("scaffold", "qfedavg"), EVERYWHERE - {"pooled", "local"}),
    **dict.fromkeys(("chip", "hierarchical", "clustered", "clust_psi"), EVERYWHERE),
    "ifca": EVERYWHERE,
    "fedsoft": {"local"},
    "fairfed": {"secure"},
    "afl": {"secure"},
    "centralized": {"secure"},
    "cfl": set(),
    "cs_rcfl": set(),
    **{name: {"pooled", "secure"} for name in PROGRAMS},
    **dict.fromkeys(("apfl", "pfedme", "per_fedavg", "fedsam"), EVERYWHERE - {"pooled", "local"}),
    **{name: {"secure"} for name in ("fednova", "feddyn", "rfa")},
    **{
        name: {"secure"} for name in ("meta_analysis", "odal", "own_intercepts", "random_intercepts", "federated_trees")
    },
    **{name: set() for name in ("ensemble", "trees_bagging", "trees_cyclic")},
    "fedbn": EVERYWHERE - {"pooled", "local"},
    **{name: set() for name in ("fedgmc", "kfed", "cbfl", "fedasync", "fedbuff")},
}


def guaranteed(job: Job, privacy: dict[str, Any] | None) -> PrivacySection | None:
    """The section of these keys; no patients are drawn for sums of client programs."""
    if privacy is None:
        return None
    keys = {key: value for key, value in privacy.items() if key != "rate" or not job.strategy.uses_programs()}
    return PrivacySection(noise_multiplier=1.0, delta=1e-3, **keys)


def test_every_strategy_is_in_the_table():
    assert set(registry.entries("strategies")) == set(RUNS)


def run_once(job: Job, federation: Federation) -> Outcome:
    check_job(job, federation)
    return run(federation, job, 2)


@pytest.mark.parametrize("name", RUNS)
def test_a_strategy_is_run_or_refused(federate, name):
    federation = with_patients(federate([12, 9, 10, 11, 13, 8, 10, 9, 12]))
    cls = registry.load("strategies", name, "strategy.name")
    settings: dict[str, object] = {"weights": "uniform"} if "weights" in cls.__dataclass_fields__ else {}
    settings |= {"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}
    plain = fitting(job_of(federation, cls(**settings), selection=All(), rounds=2), federation)
    for mode, (privacy, secure) in MODES.items():
        guarantee = guaranteed(plain, privacy)
        job = replace(plain, privacy=guarantee, secure=secure)
        if mode in RUNS[name]:
            outcome = run_once(job, federation)
            assert guarantee is None or "update" in outcome.privacy.covers or not outcome.ledger.sent(1), mode
            continue
        with pytest.raises(ConfigError) as refused:
            run_once(job, federation)
        (line,) = str(refused.value).splitlines()
        assert "strategy" in line or "model.name" in line, line
        assert "secure." in line or "privacy." in line, line


@pytest.mark.parametrize("name", [name for name in RUNS if "pooled" in RUNS[name] and name not in PROGRAMS])
def test_under_pooled_a_key_changes_the_models_or_is_declared_unused(federate, name):
    federation = with_patients(federate([12, 9, 10, 11, 13, 8, 10, 9, 12]))
    cls = registry.load("strategies", name, "strategy.name")
    clusters = {"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}

    def outcome(**training: Any) -> Outcome:
        settings = {key: training.pop(key) for key in list(training) if key in OTHERS}
        job = job_of(federation, cls(**clusters, **settings), selection=All(), rounds=2, **training)
        return run_once(replace(job, privacy=guaranteed(job, {"unit": "patient", "rate": 0.5})), federation)

    base, strategy, unused = outcome(), cls(), set()
    for key, value in {"batch_size": 0, "epochs": 2, **OTHERS}.items():
        if key in OTHERS and not hasattr(strategy, key):
            continue
        try:
            same_models(outcome(**{key: value}), base)
        except AssertionError:
            continue
        unused.add({"epochs": "local_epochs"}.get(key, key))
    assert unused == strategy.unused_when_pooled()
