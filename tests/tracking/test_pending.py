"""Runs that MLflow did not accept, stored in the experiment's folder and sent later."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from raysim.config.schema import TrackingSection
from raysim.core.errors import TrainingDiverged
from raysim.engine.job import Round
from raysim.experiment import pending_mlflow
from raysim.storage.manifest import Manifest
from raysim.tracking import recording
from tests.conftest import empty_store


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9", "file:///dev/null/store"])
def test_a_run_that_failed_is_sent_later_as_failed(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a trial that diverged: it has no files, and a comparison goes on without it."""
    monkeypatch.setattr(recording, "CLOSING_SECONDS", 0.2)
    folder = tmp_path / "out"
    whole = Manifest.begin(folder, "compare")
    whole.text("answer.txt", "take fedavg")
    recorder = recording.Recorder(TrackingSection(uri=uri))
    with recorder, recorder.run("all", {}, {"raysim.run": "1"}) as parent:
        trial = recorder.run("trial", {"a": 3}, {"raysim.run": "2"}, parent)
        trial.round(Round(1, 0.5, 2, 10, 10))
        trial.__exit__(TrainingDiverged, TrainingDiverged("the loss is not finite"), None)
        parent.done({"auroc": 0.75}, whole.paths())
    warning = pending_mlflow.keep(folder, recorder, uri)
    assert warning is not None
    assert "did not accept 2 runs" in warning

    store = f"sqlite:///{empty_store(tmp_path)}/mlflow.db"
    section = TrackingSection(uri=store)
    assert pending_mlflow.send_pending(folder, section) == f"sent 2 runs to MLflow ({store})"
    assert pending_mlflow.send_pending(folder, section) is None
    client = MlflowClient(tracking_uri=store)
    (experiment,) = (each for each in client.search_experiments() if each.name == section.experiment)
    runs = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert {name: each.info.status for name, each in runs.items()} == {"all": "FINISHED", "trial": "FAILED"}
    assert runs["trial"].data.tags["error"] == "TrainingDiverged: the loss is not finite"
    assert runs["trial"].data.params == {"a": "3"}
    assert client.list_artifacts(runs["trial"].info.run_id) == []
    assert "answer.txt" in {each.path for each in client.list_artifacts(runs["all"].info.run_id)}
