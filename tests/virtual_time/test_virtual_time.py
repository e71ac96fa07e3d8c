"""Virtual time and traffic until a target is reached, in tables, pictures and plans."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow.tracking import MlflowClient
from rich.console import Console

from raysim.cli import commands
from raysim.config import reading
from raysim.data.federation import Federation
from raysim.engine.job import Round
from raysim.engine.timing import Reached, figures, reached
from raysim.metrics.labels import CLASSIFICATION
from raysim.report.supplement.virtual_time import averaged
from raysim.storage.run_tables import rounds_table
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, empty_store, run_strategy
from tests.virtual_time.unreliable import CONFIG, SIZES, system


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_when_a_target_was_reached():
    values = [0.5, None, 0.7, float("nan"), 0.8, 0.6]
    rounds = [
        Round(
            t, 0.0, 1, 100, 10, {} if v is None else {"global": {"auroc": 0}, "own": {"auroc": v, "gini": v}}, 2.5 * t
        )
        for t, v in enumerate(values, start=1)
    ]
    assert reached(rounds, "auroc", 0.7, CLASSIFICATION) == Reached(3, 7.5, 330)
    assert reached(rounds, "auroc", 0.71, CLASSIFICATION) == Reached(5, 12.5, 550)
    assert reached(rounds, "gini", 0.55, CLASSIFICATION) == Reached(1, 2.5, 110)
    never = reached(rounds, "auroc", 0.9, CLASSIFICATION)
    assert never.round == 0
    assert np.isnan([never.virtual_seconds, never.bytes]).all()


def test_curves_of_several_seeds_stand_between_evaluations():
    seeds = [
        pd.DataFrame({"virtual_seconds": [1.0, 3.0, 9.0], "value": [0.1, 0.5, 0.9]}),
        pd.DataFrame({"virtual_seconds": [2.0, 4.0, 8.0], "value": [0.3, 0.7, 0.7]}),
    ]
    x, mean, band = averaged(seeds, "virtual_seconds")
    assert (x[0], x[-1]) == (2, 8)
    assert mean[0] == pytest.approx((0.1 + 0.3) / 2)
    assert mean[np.searchsorted(x, 3.5)] == pytest.approx((0.5 + 0.3) / 2)
    assert mean[-1] == pytest.approx((0.5 + 0.7) / 2)
    assert band[-1] == pytest.approx(np.std([0.5, 0.7], ddof=1))
    x, mean, band = averaged(seeds[:1], "virtual_seconds")
    assert (x.tolist(), mean.tolist(), np.isnan(band).all()) == ([1, 3, 9], [0.1, 0.5, 0.9], True)


def test_a_comparison_shows_time_and_targets(tmp_path, monkeypatch):
    monkeypatch.chdir(empty_store(tmp_path))
    (tmp_path / "c.yaml").write_text(CONFIG)
    commands.compare_all(
        reading.resolve(tmp_path / "c.yaml"), Console(), tmp_path / "out", in_process=True, verbose=False
    )
    table = pd.read_csv(tmp_path / "out" / "comparison.csv").set_index("strategy")
    assert table.loc["fedavg", "virtual_seconds"] > table.loc["fedbuff", "virtual_seconds"] > 0
    assert np.isnan(table.loc["centralized", "virtual_seconds"])
    assert table["log_loss_target_reached"].tolist() == [0, 0, 0]
    assert table["log_loss_target_seconds"].isna().all()
    assert table.loc["fedavg", "auroc_target_reached"] == 1
    assert table.loc["fedavg", "auroc_target_bytes"] > 0
    assert (tmp_path / "out" / "plots" / "virtual_time.svg").exists()
    assert "by virtual time and traffic" in (tmp_path / "out" / "report.html").read_text()
    folder = tmp_path / "out" / "runs" / "fedbuff" / "seed-1"
    rounds = pd.read_csv(folder / "rounds.csv")
    assert rounds["virtual_seconds"].is_monotonic_increasing
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["virtual_seconds"] == pytest.approx(rounds["virtual_seconds"].iloc[-1])
    assert summary["targets"]["log_loss"] == {"value": 0.0001, "round": None, "virtual_seconds": None, "bytes": None}
    frozen = yaml.safe_load((folder / "config.yaml").read_text())
    assert frozen["system"]["rows_per_second"] == {"lognormal": [50.0, 1.0]}
    client = MlflowClient("sqlite:///mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("raysim").experiment_id])
    fedbuff = next(run for run in runs if run.data.tags["mlflow.runName"] == "fedbuff, seed 1")
    history = client.get_metric_history(fedbuff.info.run_id, "time/virtual_seconds")
    assert {point.step for point in history} == {0, 1, 2, 3, 4}
    assert max(point.value for point in history) == pytest.approx(summary["virtual_seconds"])


def test_without_a_system_the_tables_are_what_they_were(federation):
    plain = run_strategy(federation, FedAvg())
    assert not {"virtual_seconds", "asked", "staleness"} & set(rounds_table(plain.rounds))
    assert {"virtual_seconds", "asked", "staleness"} <= set(
        rounds_table(run_strategy(federation, FedAvg(), system=system()).rounds)
    )
    assert figures(plain, None, CLASSIFICATION) == {}


def test_a_plan_says_how_long_a_round_takes(tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    console = Console(record=True, width=200)
    commands.show_plan(reading.resolve(tmp_path / "c.yaml"), "2 cpu", console)
    assert "virtual seconds" in console.export_text()
