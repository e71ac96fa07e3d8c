"""What reaches MLflow from a run's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from raysim.tracking.client import Tracker, parameter_name


def test_names_of_hospitals_that_mlflow_refuses_are_recorded_apart(tmp_path: Path) -> None:
    """With characters that it does not take, at any depth, and again when the run goes on."""
    store = f"sqlite:///{tmp_path}/mlflow.db"
    tracker = Tracker(store, "raysim")
    names = ["St. Mary's", "St. Mary(s", "St. Mary\u2019s", "Ward [1/2]", "1/10", "a//b", "Z\u00fcrich: 1", "x" * 300]
    params = {
        "system": {"hospitals": {name: {"uplink": k} for k, name in enumerate(names)}},
        "resources": {"per_hospital": {name: {"cpus": k} for k, name in enumerate(names)}},
        "system.hospitals.St. Mary's.latency": 3,
    }
    run = tracker.start("r", params, {"raysim.run": "1"})
    assert tracker.go_on("r", params, {"raysim.run": "1"}) == run
    found = MlflowClient(tracking_uri=store).get_run(run).data.params
    assert len(found) == 2 * len(names) + 1
    for k, name in enumerate(names):
        assert found[parameter_name(f"system.hospitals.{name}.uplink")] == str(k)
    assert found["system.hospitals.1/10.uplink"] == "4"
    assert found["system.hospitals.Z\u00fcrich: 1.uplink"] == "6"


@pytest.mark.parametrize("key", ["training.rounds", "system.hospitals.St. Mary 1/2.uplink", "x" * 250])
def test_a_name_that_mlflow_takes_stays(key: str) -> None:
    assert parameter_name(key) == key
