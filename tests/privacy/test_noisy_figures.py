"""Figures of models that hospitals send with noise."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import raysim
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.local import Local
from tests.conftest import MakeFederation, job_of, run_and_resumed, store, with_patients
from tests.privacy.test_noisy_statistics import SIZES, noisy
from tests.privacy.test_patient import section

LINEAR = ModelSpec("linear_regression", None, {}, "default")


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def real(folder: Path, train: Sequence[int] = SIZES, test: Sequence[int] = (5, 6, 0, 8, 4, 3)) -> Federation:
    """Hospitals with a label that is a number."""
    rng = np.random.default_rng(7)
    stops = np.cumsum([(t, 0, e) for t, e in zip(train, test, strict=True)])
    X = rng.normal(size=(stops[-1], 3))
    bounds = np.concatenate([[0], stops])[np.arange(len(train))[:, None] * 3 + np.arange(4)]
    return store(folder, X, X @ [1.0, -0.5, 0.2] + 0.3 * rng.normal(size=len(X)), bounds, classes=0)


def figured(federation: Federation, strategy=None, job=None, **keys) -> Outcome:
    statistics = {"metrics": keys.pop("metrics", {"epsilon": 0.5})}
    public = {"sizes": "public", "declared_public": ("sizes",), "statistics": statistics}
    return noisy(federation, strategy, job=job, **public | keys)


def test_figures_with_hardly_any_noise_are_those_of_binned_scores(federate):
    full = federate([30, 40], [60, 80])
    exact = noisy(full, sizes="public", declared_public=("sizes", "metrics"), noise_multiplier=1.0)
    noisy_outcome = figured(full, metrics={"epsilon": 1e9}, noise_multiplier=1.0)
    assert noisy_outcome.figures["global"] == pytest.approx(exact.figures["global"], abs=0.05)
    assert (noisy_outcome.figures["global"][:, :2] == exact.figures["global"][:, :2]).all()
    assert noisy_outcome.metrics["global"]["pooled_auroc"] == pytest.approx(
        exact.metrics["global"]["pooled_auroc"], abs=0.02
    )
    assert noisy_outcome.metrics["global"].keys() == exact.metrics["global"].keys() - {
        name for name in exact.metrics["global"] if name.startswith("calibration") or "_gap" in name
    }
    assert (noisy_outcome.models == exact.models).all()


@pytest.mark.parametrize("classes", [3, 0], ids=["classes", "real"])
def test_figures_of_other_labels_with_hardly_any_noise_are_those_of_rows(federate, tmp_path, classes):
    full = federate([30, 40], [60, 80], classes=3) if classes else real(tmp_path, [30, 40], [60, 80])
    keys = {"noise_multiplier": 1.0, "job": {"model": None if classes else LINEAR}}
    exact = noisy(full, sizes="public", declared_public=("sizes", "metrics"), **keys)
    metrics = {"epsilon": 1e9} | ({} if classes else {"range": [-9.0, 9.0]})
    noisy_outcome = figured(full, metrics=metrics, **keys)
    assert noisy_outcome.figures["global"] == pytest.approx(exact.figures["global"], abs=0.05, nan_ok=True)
    assert (noisy_outcome.figures["global"][:, 0] == [60, 80]).all()
    assert (noisy_outcome.models == exact.models).all()
    assert noisy_outcome.privacy.covers == ("update", "metrics")
    assert noisy_outcome.privacy.not_private == ()
    noisy_names, names = noisy_outcome.metrics["global"].keys(), exact.metrics["global"].keys()
    assert noisy_names - names == ({"pooled_auroc", "pooled_auroc_bound"} if classes else set())
    assert not names - noisy_names
    width = 3 * 258 if classes else 6
    sent = [size for _, kind, _, size, _ in noisy_outcome.ledger.entries if kind == "metrics"]
    assert all((np.asarray(each) == 4 * width).all() for each in sent)
    assert len(sent) == 3


@pytest.mark.parametrize("classes", [3, 0], ids=["classes", "real"])
def test_figures_of_other_labels_are_the_same_for_any_number_of_actors(federate, tmp_path, classes):
    federation = federate(SIZES, [5, 6, 0, 8, 4, 3], classes=3) if classes else real(tmp_path)
    keys = {"noise_multiplier": 1.0, "job": {"model": None if classes else LINEAR}}
    keys["metrics"] = {"epsilon": 2.0} if classes else {"noise_multiplier": 2.0, "range": [-5.0, 5.0]}
    one, two = (figured(federation, actors=actors, **copy.deepcopy(keys)) for actors in (1, 2))
    np.testing.assert_array_equal(one.figures["global"], two.figures["global"])
    np.testing.assert_equal(one.metrics, two.metrics)
    assert one.privacy == two.privacy


def test_every_evaluation_is_released_once_with_its_own_noise_and_charged(federation):
    outcome = figured(federation, job={"rounds": 4}, noise_multiplier=9.0, metrics={"epsilon": 0.5})
    assert outcome.privacy.covers == ("update", "metrics")
    assert outcome.privacy.not_private == ()
    silent = noisy(
        federation, sizes="public", declared_public=("sizes", "metrics"), noise_multiplier=9.0, job={"rounds": 4}
    )
    assert outcome.privacy.epsilon == pytest.approx(silent.privacy.epsilon + 4 * 0.5)
    assert [row.training_loss for row in outcome.rounds] == [None] * 4
    assert outcome.convergence is None
    # Hospitals without test rows tell noise too, and another one each time.
    rows = [row.metrics["global"]["log_loss"] for row in outcome.rounds]
    assert len(set(rows)) == 4
    once = figured(federation, job={"rounds": 4, "every": 0}, noise_multiplier=9.0)
    assert once.privacy.epsilon == pytest.approx(silent.privacy.epsilon + 0.5)


def test_models_that_stay_at_hospitals_are_not_evaluated_with_noise(federation):
    """They are made of patients without noise, who are then in all figures of them."""
    assert list(figured(federation, FineTuning(), noise_multiplier=1.0).figures) == ["global"]
    for strategy in (Local(), FedPer()):
        with pytest.raises(ConfigError, match=r"privacy.statistics.metrics: .*stay at hospitals.*declare metrics"):
            figured(federation, strategy, noise_multiplier=1.0)


def test_an_epsilon_pays_for_all_evaluations(federation):
    guaranteed = figured(federation, epsilon=3.0, metrics={"epsilon": 0.25}).privacy
    assert guaranteed.epsilon == pytest.approx(3.0, abs=1e-2)
    with pytest.raises(ConfigError, match=r"cost epsilon 6 \(with metrics 3 times\).*evaluation.every"):
        figured(federation, epsilon=3.0, metrics={"epsilon": 2.0})


def test_a_run_under_noisy_figures_goes_on_bit_for_bit(federation):
    keys = {"mode": "local", "noise_multiplier": 1.0, "clip": 0.2, "statistics": {"metrics": {"epsilon": 0.5}}}
    job = replace(job_of(federation, FedAvg(), rounds=4), privacy=section(**keys | {"declared_public": ("sizes",)}))
    whole, resumed = run_and_resumed(federation, job)
    np.testing.assert_array_equal(resumed.figures["global"], whole.figures["global"])
    np.testing.assert_equal([row.metrics for row in resumed.rounds], [row.metrics for row in whole.rounds])
    assert resumed.privacy == whole.privacy


def test_noisy_figures_come_without_gaps_between_groups_of_patients(federation):
    known = with_patients(federation)
    keys = {"mode": "local", "noise_multiplier": 1.0, "clip": 0.2, "declared_public": ("sizes",)}
    noisy_figures = section(**keys, statistics={"metrics": {"epsilon": 0.5}})
    job = replace(job_of(known, FedAvg(), rounds=1, tests_groups=True), privacy=noisy_figures)
    *_, outcome = JobRun(LocalPool(Placement(balance(known.totals, 1), 1, 0), "cpu"), job).events()
    assert outcome.gaps == outcome.groups == {}


@pytest.mark.parametrize("kind", ["metrics", "metric"])
@pytest.mark.parametrize(
    ("keys", "classes", "line"),
    [
        ({"groups": ["sex"]}, 2, r"privacy.statistics.metrics: .*evaluation.groups .sex"),
        ({"predictions": True}, 2, r"privacy.statistics.metrics: .*evaluation.predictions"),
        (
            {"range": [0, 5]},
            3,
            r"privacy.statistics.metrics.range: .*data.label has 3 classes; remove the key",
        ),
        ({}, 0, r"privacy.statistics.metrics.range: not set, but data.label is a number.*\[0, 30\]"),
    ],
)
def test_figures_that_noisy_sums_do_not_give_are_refused(federate, tmp_path, keys, classes, line, kind):
    federation = with_patients(federate(SIZES, classes=classes) if classes else real(tmp_path))
    metrics = {name: value for name, value in keys.items() if name == "range"}
    others = {name: value for name, value in keys.items() if name != "range"}
    job = job_of(federation, FedAvg(), model=None if classes else LINEAR, **others)
    job = replace(job, privacy=section(mode="local", statistics={kind: metrics}, declared_public=("sizes",)))
    with pytest.raises(ConfigError, match=line):
        check_job(job, federation)


def test_a_run_of_a_real_label_with_noisy_figures_says_what_is_covered(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"site": rng.integers(0, 3, 90), "age": rng.uniform(20, 90, 90)})
    rows.assign(stay=rows["age"] / 10 + rng.normal(size=90)).to_csv(tmp_path / "stays.csv", index=False)
    statistics = {"metrics": {"epsilon": 50, "range": [0, 15]}}
    config = {
        "data": {
            "source": "table",
            "path": str(tmp_path / "stays.csv"),
            "silo": "site",
            "label": "stay",
            "task": "regression",
        },
        "model": "linear_regression",
        "training": {"rounds": 2},
        "evaluation": {"every": 0},
        "tracking": {"uri": "none"},
        "strategy": "fedavg",
        "privacy": {
            "unit": "example",
            "mode": "pooled",
            "epsilon": 60,
            "rate": 1,
            "delta": 1e-3,
            "declared_public": ["sizes", "preprocessing"],
            "statistics": statistics,
        },
        "selection": "all",
    }
    result = raysim.run(config, out=tmp_path / "run", in_process=True)
    assert set(result.summary["privacy"]["covers"]) == {"update", "metrics"}
    assert result.summary["privacy"]["not_private"] == []
    assert 0 < result.summary["mae"] < 15
    # A comparison says no floor of errors: that is made of the errors of all rows, which nobody has sent.
    strategies = {name: value for name, value in config.items() if name != "strategy"}
    raysim.compare(strategies | {"strategies": ["fedavg", "fedprox"]}, out=tmp_path / "both", in_process=True)
    assert (tmp_path / "both" / "report.html").exists()
    assert not list((tmp_path / "both").rglob("noise.csv"))
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert written["privacy"]["statistics"]["metrics"]["range"] == [0.0, 15.0]
