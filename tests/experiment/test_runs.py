"""A run and a comparison as a user sees them: files, MLflow and what is printed. One of each, on a real Ray."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from safetensors.numpy import load_file

from raysim.api import running
from raysim.experiment.entries import folder_of
from raysim.experiment.notes import headlines
from raysim.metrics.score_counts import score_counts
from raysim.report import tables
from raysim.storage.run_tables import hospitals_table
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.local import Local
from tests.commands import Done, raysim, said
from tests.conftest import empty_store, run_strategy, shared_ray

pytestmark = shared_ray("actors")

SMALL = {
    "data": {"source": "synthetic", "hospitals": 12, "rows": 900, "features": 6},
    "training": {"rounds": 3, "batch_size": 32},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
}


def environment(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """``raysim run`` of CHiP-FL on a Ray of its own, in a folder of its own, where nothing was before."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "c.yaml").write_text(yaml.safe_dump(SMALL | {"strategy": {"name": "chip", "clusters": 3}}))
    done = raysim(["run", "c.yaml", "--out", "out", "--details"], folder, environment(folder) | {"COLUMNS": "160"})
    assert done.code == 0, done.out + done.err
    return folder, done


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``raysim compare`` of three strategies with two seeds, on the Ray of this process."""
    folder = tmp_path_factory.mktemp("compare")
    strategies = ["fedavg", {"name": "chip", "clusters": 3}, "local"]
    resources = {"hospitals_per_actor": 6}
    tree = SMALL | {"strategies": strategies, "seeds": [1, 2], "resources": resources}
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(empty_store(folder))
        patch.setenv("RAYSIM_CACHE", str(folder / "cache"))
        running.compare("c.yaml", out="out")
    return folder


def test_a_run_prints_its_table_and_no_chatter(ran):
    _, done = ran
    assert "12 hospitals, 900 rows" in done.out
    assert "lowest hospital" in done.out, "of twelve fewer than ten have both classes, and no decile"
    for model in ("global", "cluster", "personal"):
        assert model in done.out
    assert said(done.err) == []


def test_the_files_of_a_run_agree_with_each_other(ran):
    folder = ran[0] / "out"
    hospitals = pd.read_csv(folder / "hospitals.csv")
    assert list(hospitals.columns[:7]) == ["hospital", "n_train", "n_test", "events_test", "cluster", "model", "auroc"]
    assert len(hospitals) == 3 * 12
    assert set(hospitals["cluster"]) == {0, 1, 2}
    rounds = pd.read_csv(folder / "rounds.csv")
    assert list(rounds.columns[:5]) == ["round", "seconds", "cohort_size", "bytes_down", "bytes_up"]
    assert rounds["round"].tolist() == [1, 2, 3]
    assert rounds["cohort_size"].tolist() == [6, 6, 6]
    summary = json.loads((folder / "summary.json").read_text())
    personal = hospitals[(hospitals["model"] == "personal") & hospitals["auroc"].notna()]
    mean = np.average(personal["auroc"], weights=personal["n_test"])
    assert summary["model"] == "personal"
    assert summary["auroc"] == pytest.approx(mean, abs=1e-12)
    assert summary["models"]["personal"]["worst_decile"] == summary["worst_decile"]
    assert rounds["personal_auroc"].iloc[-1] == pytest.approx(mean, abs=1e-12)
    assert summary["bytes_up"] == rounds["bytes_up"].sum()
    egress = pd.read_csv(folder / "egress.csv")
    assert set(egress["kind"]) == {"size", "preprocessing", "signature", "update", "metrics"}
    assert set(egress.loc[egress["program"].notna(), "kind"]) == {"signature"}
    assert set(egress.loc[egress["kind"] == "signature", "program"]) == {"signature"}
    assert egress.loc[egress["kind"] == "update", "bytes"].sum() == summary["bytes_up"]


def test_the_models_of_a_run_are_named_and_make_its_figures(ran):
    folder = ran[0] / "out"
    models = load_file(folder / "models.safetensors")
    hospitals = pd.read_csv(folder / "hospitals.csv")
    owners = {key.rpartition("/")[0] for key in models}
    assert {"global", "cluster/0", "cluster/1", "cluster/2"} <= owners
    assert {f"personal/{name}" for name in hospitals["hospital"]} <= owners
    assert models["global/weight"].dtype == np.float32
    assert models["global/bias"].shape == (1,)
    # The global model is the mean of the clusters by their training rows, from the files alone.
    one = hospitals[hospitals["model"] == "global"]
    rows = one.groupby("cluster")["n_train"].sum()
    mean = sum(models[f"cluster/{k}/weight"] * n for k, n in rows.items()) / rows.sum()
    np.testing.assert_allclose(models["global/weight"], mean, atol=1e-6)


def test_the_frozen_configuration_runs_again_to_the_same_numbers(ran, monkeypatch):
    folder, _ = ran
    monkeypatch.setenv("RAYSIM_CACHE", str(folder / "cache"))
    running.run(folder / "out/config.yaml", overrides=["tracking.uri=none"], out=folder / "again", in_process=True)
    for name in ("models.safetensors", "hospitals.csv", "egress.csv"):
        assert (folder / "again" / name).read_bytes() == (folder / "out" / name).read_bytes(), name
    assert (folder / "again" / "config.yaml").read_text().splitlines()[9:]


def test_without_rounds_no_model_has_figures(federate):
    federation = federate([9, 4, 0, 13])
    for strategy in (FedAvg(), Local(), FedSoft(clusters=1), FedSoft(clusters=2)):
        outcome = run_strategy(federation, strategy, rounds=0)
        (model,) = outcome.rounds[-1].metrics
        table = hospitals_table(federation, outcome, "test")
        assert table["model"].tolist() == [model] * 4
        assert table["trained"].tolist() == ["no"] * 4
        assert table[["auroc", "log_loss", "brier", "accuracy"]].isna().all().all()
        assert (table["n_test"] > 0).all()
        assert table["events_test"].notna().all()


def test_a_run_is_in_mlflow(ran):
    folder, _ = ran
    (run,) = runs(folder)
    assert run.info.status == "FINISHED"
    assert run.data.params["strategy.clusters"] == "3"
    assert run.data.params["training.rounds"] == "3"
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    history = client.get_metric_history(run.info.run_id, "personal/auroc")
    rounds = pd.read_csv(folder / "out" / "rounds.csv")
    assert [point.step for point in history] == [3]
    assert history[-1].value == pytest.approx(rounds["personal_auroc"].iloc[-1])
    curve = client.get_metric_history(run.info.run_id, "global/auroc")
    assert sorted(point.step for point in curve) == [1, 2, 3]
    artifacts = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert {"hospitals.csv", "config.yaml", "models.safetensors", "report.html"} <= artifacts


def test_a_comparison_has_a_row_for_every_strategy_and_model(compared):
    folder = compared / "out"
    table, hospitals = pd.read_csv(folder / "comparison.csv"), pd.read_csv(folder / "hospitals.csv")
    assert table.columns[0] == "strategy"
    assert {"auroc", "worst_decile", "gini", "std", "size_bias"} <= set(table.columns)
    assert {"auroc_std", "worst_decile_std", "gini_std", "std_std", "size_bias_std"} <= set(table.columns)
    assert list(zip(table["strategy"], table["model"], strict=True)) == [
        ("fedavg", "global"),
        ("chip", "global"),
        ("chip", "cluster"),
        ("chip", "personal"),
        ("local", "personal"),
    ]
    for _, row in table.iterrows():
        singles = [
            json.loads((folder / "runs" / row["strategy"] / f"seed-{seed}" / "summary.json").read_text())
            for seed in (1, 2)
        ]
        values = [single["models"][row["model"]]["auroc"] for single in singles]
        of = hospitals[(hospitals["strategy"] == row["strategy"]) & (hospitals["model"] == row["model"])]
        rows = of[of["auroc"].notna()].groupby("seed")["n_test"].sum()
        assert row["auroc"] == pytest.approx(np.average(values, weights=rows.loc[[1, 2]]))
        assert row["auroc_std"] == pytest.approx(np.std(values, ddof=1))


def test_a_comparison_leaves_plots_and_one_page(compared):
    folder = compared / "out"
    for name in ("by_size", "by_round", "forest", "caterpillar"):
        assert ElementTree.parse(folder / "plots" / f"{name}.svg").getroot().tag.endswith("svg")
    judged = pd.read_csv(folder / "comparison.csv")["judged"].max()
    assert (folder / "plots" / "trade_offs.svg").exists() == (judged >= 10), "it is about a decile and a slope"
    noise = pd.read_csv(folder / "noise.csv")
    assert {"excess", "excess_low", "excess_high", "true_low"} <= set(noise)
    page = (folder / "report.html").read_text()
    assert "chip" in page
    assert "raysim compare" in page
    assert set(pd.read_csv(folder / "hospitals.csv").columns[:3]) == {"strategy", "seed", "hospital"}


def test_a_comparison_is_nested_in_mlflow(compared):
    everything = runs(compared)
    parents = [run for run in everything if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in everything if "mlflow.parentRunId" in run.data.tags]
    assert len(parents) == 1
    assert len(children) == 6
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    assert {(run.data.tags["strategy"], run.data.tags["seed"]) for run in children} == {
        (strategy, seed) for strategy in ("fedavg", "chip", "local") for seed in ("1", "2")
    }
    client = MlflowClient(f"sqlite:///{compared / 'mlflow.db'}")
    stored = {artifact.path for artifact in client.list_artifacts(parents[0].info.run_id)}
    assert {"comparison.csv", "report.html", "plots"} <= stored


def test_the_record_of_a_comparison_has_the_figures_of_its_table(compared):
    """Hospitals' test rows differ between seeds, so the weighted mean is not the mean of the seeds' means."""
    (whole,) = [run.data.metrics for run in runs(compared) if "mlflow.parentRunId" not in run.data.tags]
    table = pd.read_csv(compared / "out" / "comparison.csv").drop_duplicates("strategy", keep="last")
    for name in ("auroc", "worst_decile"):
        for strategy, value in zip(table["strategy"], table[name], strict=True):
            assert whole[f"{name}/{strategy}"] == pytest.approx(value, abs=1e-12)


def test_the_record_of_a_comparison_has_the_figures_of_the_recommended_model(compared, tmp_path):
    """Its name includes the model if the strategy has several."""
    (folder := tmp_path / "out").mkdir()
    table = tables.read_csv(compared / "out" / "comparison.csv")
    table.to_csv(folder / "comparison.csv", index=False)
    (folder / "answer.json").write_text(json.dumps({"recommended": "chip (cluster)"}))
    cluster = table[(table["strategy"] == "chip") & (table["model"] == "cluster")].iloc[0]
    labels = {"cluster": [0, 0, 1, 1], "personal": [0, 1, 1, 1]}
    scores = {model: score_counts(np.zeros(4), y, [0, 4]) for model, y in labels.items()}  # risks of .5
    task = SimpleNamespace(headline="auroc")
    result = SimpleNamespace(
        label="chip", outcome=SimpleNamespace(scores=scores), federation=SimpleNamespace(task=task)
    )
    found = headlines(cast("Any", SimpleNamespace(folder=folder)), cast("Any", [result]))
    assert found["auroc"] == cluster["auroc"]
    assert found["worst_decile"] == cluster["worst_decile"]
    assert found["observed_over_expected"] == pytest.approx(1)


def runs(folder: Path) -> list[Run]:
    """All runs recorded in a folder's store."""
    assert sqlite3.connect(folder / "mlflow.db").execute("select count(*) from runs").fetchone()
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("raysim")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def test_a_comparison_takes_strategies_from_other_configurations(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    tuned = SMALL | {"training": {"rounds": 2, "batch_size": 16, "learning_rate": 0.2}, "strategy": "fedprox"}
    (tmp_path / "tuned.yaml").write_text(yaml.safe_dump(tuned))
    base = SMALL | {"strategies": ["fedavg", {"from": "tuned.yaml", "label": "tuned"}], "tracking": {"uri": "none"}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(base))
    running.compare(tmp_path / "c.yaml", seed=42, out=tmp_path / "out", in_process=True)
    assert pd.read_csv(tmp_path / "out" / "comparison.csv")["strategy"].tolist() == ["fedavg", "tuned"]
    frozen = yaml.safe_load((tmp_path / "out" / "runs" / "tuned" / "seed-42" / "config.yaml").read_text())
    assert frozen["strategy"]["name"] == "fedprox"
    assert frozen["training"]["learning_rate"] == 0.2
    assert len(pd.read_csv(tmp_path / "out" / "runs" / "tuned" / "seed-42" / "rounds.csv")) == 2
    assert len(pd.read_csv(tmp_path / "out" / "runs" / "fedavg" / "seed-42" / "rounds.csv")) == 3


@pytest.mark.parametrize(
    ("label", "folder"), [("..", "_"), (".", "_"), (".a/b", "_a_b"), ("μ = 0.1", "μ_0.1"), ("v1.", "v1.")]
)
def test_no_label_leads_out_of_the_folder_of_runs(label, folder):
    assert folder_of(label) == folder
