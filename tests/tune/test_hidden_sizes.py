"""Where sizes are released with noise, neither a sweep's files nor MLflow's store of it hold the exact ones."""

from __future__ import annotations

import html
import json

from mlflow.tracking import MlflowClient

import raysim
from tests.conftest import empty_store, shared_ray
from tests.privacy.test_hidden_sizes import exact, hidden_tree, numbers_in_files, stored
from tests.tune.sweeps import TWO

pytestmark = shared_ray("sweeps")


def test_no_file_of_a_sweep_holds_an_exact_size(tmp_path, monkeypatch, capsys):
    store = f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"
    tree = hidden_tree(tmp_path, monkeypatch) | {"tracking": {"uri": store}}
    tree["data"]["split"] = {"train": 0.7, "validation": 0.1, "test": 0.2}
    space = {"training.learning_rate": {"grid": [0.2]}}
    tree |= {"sweep": {"searcher": "grid", "space": space, "objectives": TWO}}
    tree |= {"resources": {"runs_at_once": 1, "hospitals_per_actor": 4}}
    raysim.sweep(tree, out=tmp_path / "out")
    hidden, files = exact(tmp_path), numbers_in_files(tmp_path / "out") | numbers_in_files(tmp_path / "mlartifacts")
    assert {"trials.csv", "journal.jsonl", "report.html", "recommended/seed-42/hospitals.csv"} <= files.keys()
    seen = files | stored(tmp_path / "mlflow.db")
    assert not {name: those & hidden for name, those in seen.items() if those & hidden}
    guarantee = json.loads((tmp_path / "out" / "summary.json").read_text())["privacy"]["statement"]
    assert f"Privacy: {guarantee}." in recorded_note(store)
    assert guarantee in html.unescape((tmp_path / "out" / "report.html").read_text())


def recorded_note(store: str) -> str:
    """The description of the sweep's run in MLflow."""
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("raysim")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.level = 'sweep'")
    return run.data.tags["mlflow.note.content"]
