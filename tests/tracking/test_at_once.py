"""Several commands that record in one store which none of them has made yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from mlflow.tracking import MlflowClient

from raysim.tracking.stores import opening
from tests.commands import started

SMALL = {
    "data": {"source": "synthetic", "hospitals": 3, "rows": 100, "features": 3},
    "training": {"rounds": 1, "batch_size": 32},
    "selection": "all",
    "strategy": "fedavg",
}


@pytest.mark.surroundings
def test_commands_that_make_a_store_at_once_are_all_recorded(tmp_path: Path) -> None:
    """MLflow makes the tables of a new database in many steps, which two processes must not do at once."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(SMALL))
    settings = {"RAYSIM_CACHE": str(tmp_path / "cache")}
    running = [started(["run", "c.yaml", "--out", f"out{k}", "--in-process"], tmp_path, settings) for k in range(3)]
    done = [each.wait() for each in running]
    assert [each.code for each in done] == [0] * len(running), done
    assert not [
        line for each in done for line in each.err.splitlines() if "MLflow" in line or line.startswith("raysim:")
    ]
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (experiment,) = (each for each in client.search_experiments() if each.name == "raysim")
    runs = client.search_runs([experiment.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * len(running)
    assert not list(tmp_path.glob(".mlflow.db*"))


def test_a_lock_that_cannot_be_made_does_not_keep_a_store_shut(tmp_path: Path) -> None:
    with opening(f"sqlite:///{tmp_path / 'missing' / 'mlflow.db'}"), opening("http://127.0.0.1:1"):
        pass
