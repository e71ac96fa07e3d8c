"""Messages about training: a rate that is far too large, and methods that a setting makes one and the same."""

from __future__ import annotations

import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from raysim.cli import commands
from raysim.config import reading

SMALL = [
    "data.hospitals=8",
    "data.rows=800",
    "data.features=4",
    "selection=all",
    "tracking.uri=none",
    "training.local_epochs=1",
    "seeds=[42]",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))


def said(command: Any, *overrides: str) -> str:
    """What a command prints, whose folder is ``out``."""
    console = Console(width=200, record=True, file=io.StringIO())
    command(
        reading.resolve(None, [*SMALL, *overrides]), console, Path("out"), in_process=True, verbose=False, details=True
    )
    return console.export_text()


def test_a_run_that_diverges_says_so_everywhere() -> None:
    printed = said(commands.run_one, "strategy=fedavg", "training.rounds=12", "training.learning_rate=500")
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["convergence"] == "diverged"
    assert summary["training_loss"] > summary["training_loss_before"]
    sentence = "it diverged. Lower training.learning_rate, or scale the features."
    assert sentence in printed
    assert sentence in html.unescape(Path("out/report.html").read_text())
    losses = pd.read_csv("out/rounds.csv")["training_loss"]
    assert losses.iloc[-1] == summary["training_loss"]


def test_a_comparison_of_what_diverges_says_so() -> None:
    strategies = "strategies=[fedavg, local]"
    printed = said(commands.compare_all, strategies, "training.rounds=12", "training.learning_rate=500")
    reasons = json.loads(Path("out/answer.json").read_text())["reasons"]
    (diverged,) = (text for text in reasons if text.startswith("Diverged, so figures are meaningless: "))
    assert ": FedAvg (training loss " in diverged
    assert " and Training alone (training loss " in diverged
    assert diverged in printed
    assert reasons[0].endswith("Do not use FedAvg: its training diverged.")
    page = html.unescape(Path("out/report.html").read_text())
    assert diverged in page
    for label in ("fedavg", "local"):
        summary = json.loads(Path(f"out/runs/{label}/seed-42/summary.json").read_text())
        assert summary["convergence"] == "diverged"


def test_one_step_on_all_rows_makes_fedprox_federated_averaging_and_one_entry_of_the_answer() -> None:
    """Where a hospital takes a single step from where it starts, the proximal term is zero, up to rounding."""
    strategies = "strategies=[fedavg, {name: fedprox, mu: 5.0}, scaffold]"
    printed = said(commands.compare_all, strategies, "training.rounds=6", "training.batch_size=0")
    models = [load_file(f"out/runs/{label}/seed-42/models.safetensors") for label in ("fedavg", "fedprox")]
    for name, tensor in models[0].items():
        np.testing.assert_allclose(models[1][name], tensor, atol=1e-6)
    reasons = json.loads(Path("out/answer.json").read_text())["reasons"]
    assert "FedAvg and FedProx have the same AUROC at every hospital and count as one." in reasons
    assert "FedAvg and FedProx have the same AUROC at every hospital and count as one." in printed


def test_two_steps_keep_them_apart() -> None:
    said(
        commands.compare_all,
        "strategies=[fedavg, {name: fedprox, mu: 5.0}]",
        "training.rounds=6",
        "training.batch_size=16",
    )
    assert "have the same AUROC" not in Path("out/answer.json").read_text()


def test_strategies_that_share_a_title_have_different_names_on_the_page() -> None:
    trees = ["model={name: boosted_trees, trees: 2, depth: 2}", "training.local_epochs=5", "reference=chip"]
    pair = "strategies=[{name: chip, clusters: 2}, {name: clust_psi, clusters: 2}]"
    assert "Boosted trees by cluster (clust_psi)" in said(commands.compare_all, pair, *trees)
    page = html.unescape(Path("out/report.html").read_text())
    for part in page.split("Boosted trees by cluster")[1:]:
        assert part.startswith((" (", " …"))  # the last where space is limited
