"""What commands print beyond the main table: virtual time, patient groups, and all about one plug-in."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysim.cli.commands import compare_all, describe_data
from raysim.cli.listing import show_kind, show_one
from raysim.config import reading
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.engine.job import Round
from raysim.metrics.labels import REGRESSION
from raysim.report import svg
from raysim.report.sections import costs
from raysim.report.supplement import patient_clusters, patient_groups, virtual_time
from raysim.report.tables import read_csv
from raysim.report.terminal import progress
from raysim.report.terminal.tables import comparison_table, titled
from raysim.storage.manifest import Manifest
from tests.report.pages import Page


def text(shown: object, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    return console.file.getvalue()


def test_virtual_time_tells_when_and_for_how_many_seeds_a_target_was_reached():
    table = pd.DataFrame(
        {
            "strategy": ["chip", "chip", "fedavg", "centralized"],
            "model": ["global", "cluster", "global", "global"],
            "yardstick": [False, False, False, True],
            "seeds": 5,
            "virtual_seconds": [1234.4, 1234.4, 99.0, math.nan],
            "auroc_target_seconds": [600.0, 600.0, math.nan, math.nan],
            "auroc_target_bytes": [2.5e6, 2.5e6, math.nan, math.nan],
            "auroc_target_reached": [0.4, 0.4, 0.0, 1.0],
        }
    )
    lines = [line.split() for line in text(virtual_time.printed(table, {"auroc": 0.85})).splitlines()]
    assert ["strategy", "seconds", "until", "auroc", "0.85"] in lines
    assert ["chip", "1,234", "600", "s,", "2.5", "MB,", "2", "of", "5", "seeds"] in lines
    assert ["fedavg", "99", "0", "of", "5", "seeds"] in lines
    assert ["centralized", "*", "undefined", "5", "of", "5", "seeds"] in lines
    assert sum(line[:1] == ["chip"] for line in lines) == 1
    assert virtual_time.printed(table.drop(columns="virtual_seconds"), {}) is None


def test_figures_of_errors_are_in_the_unit_of_the_label(tmp_path: Path):
    """Virtual time, traffic and protocol of a model whose error ends at 8e-5."""
    rows = {"strategy": "fedavg", "model": "global", "seed": 1, "virtual_seconds": [1.0, 3.0], "bytes": [1e6, 2e6]}
    (figure,) = virtual_time.plots(pd.DataFrame(rows | {"value": [2e-4, 8e-5]}), REGRESSION)
    assert "fedavg ends at 0.0000800 after 3" in figure.charts[0].description
    rounds = [
        SimpleNamespace(round=t, bytes_down=1e6, bytes_up=0, metrics={"global": {"mae": mae}})
        for t, mae in ((1, 2e-4), (2, 8e-5))
    ]
    outcome = SimpleNamespace(setup=SimpleNamespace(both=0), rounds=rounds)
    run: Any = SimpleNamespace(outcome=outcome, label="fedavg", seed=1, federation=SimpleNamespace(task=REGRESSION))
    key = ("fedavg", "global")
    (figure,) = costs.by_bytes([run], {key: "FedAvg"}, svg.styles([key]))
    assert "FedAvg: 0.0000800 after 2.0 MB" in figure.charts[0].description
    protocol = {"strategy": ["fedavg"], "model": "global", "yardstick": False, "mae": 8e-5, "mae_margin": 2e-5}
    pd.DataFrame(protocol).to_csv(tmp_path / "protocol.csv", index=False)
    assert "0.00008000 ±0.00002000" in text(patient_clusters.printed(tmp_path, "local"))


def test_gaps_of_errors_are_in_the_unit_of_the_label():
    row = {"strategy": "fedavg", "model": "global", "mae": 8e-5, "sex_undefined": 0, "sex_unknown_rows": 4}
    gaps = {"sex_gap": 1.5e-5, "sex_gap_within": 2.5e-5, "sex_unknown": 9.12e-5}
    said = text(patient_groups.printed(pd.DataFrame([row | gaps]), 160))
    assert "0.0000150 (0.0000250)" in said
    assert "sex of 4 test rows (MAE 0.0000912)" in " ".join(said.split())


def test_patient_groups_break_no_figure_where_there_is_little_room():
    per_seed = pd.DataFrame(
        {
            "strategy": "fedavg",
            "model": "global",
            "seed": [0, 1],
            "yardstick": False,
            "auroc": 0.8,
            "sex_gap": [0.01, 0.03],
            "sex_gap_within": [0.1, 0.1],
            "sex_undefined": [3, 5],
        }
    )
    assert "0.020 ±0.014 (0.100 ±0.000)" in text(patient_groups.printed(per_seed, 160))
    narrow = text(patient_groups.printed(per_seed, 40), 40)
    assert "0.020 ±0.014 \n" in narrow
    assert "(0.100 ±0.000)" in narrow
    assert "5 by sex" in narrow


@pytest.mark.parametrize("kind", ["strategies", "selections", "models", "sources"])
def test_every_plug_in_tells_of_itself(kind):
    console = Console(file=io.StringIO(), width=160)
    show_kind(kind, console)
    listed = console.file.getvalue()
    for name in registry.entries(kind):
        screen = Console(file=io.StringIO(), width=160)
        show_one(kind, name, screen)
        first, *_ = said = screen.file.getvalue().splitlines()
        assert f"{name} " in listed
        assert first.strip() in listed
        assert first.strip() not in ("", "undocumented")
        assert "``" not in "".join(said)
    with pytest.raises(ConfigError, match="is not a known name"):
        show_one(kind, "no such thing", console)


def test_keys_are_listed_with_their_defaults():
    console = Console(file=io.StringIO(), width=160)
    show_one("strategies", "fedprox", console)
    assert ["mu", "number", "0.01"] in [line.split()[:3] for line in console.file.getvalue().splitlines()]


def test_names_in_brackets_are_printed_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A comparison on validation rows, of labels, features, hospitals and groups that others would read as markup."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"b [/dl]": rng.normal(size=240), "site": rng.choice(["007", "73", "None", "[/x]"], 240)})
    table["sex"] = rng.choice(["None", "[m]"], 240)
    table["died"] = (rng.random(240) < 0.5).astype(int)
    table.to_parquet(tmp_path / "t.parquet")
    labels = ["prox [mu=0.1]", "prox [/mu]"]
    settings = [
        f"data={{source: table, path: {tmp_path / 't.parquet'}, silo: site, label: died, sex: sex, "
        "split: {train: 0.6, validation: 0.2, test: 0.2}}",
        "evaluation.part=validation",
        "training={rounds: 1, batch_size: 0}",
        f"strategies=[{{name: fedprox, label: '{labels[0]}'}}, {{name: fedavg, label: '{labels[1]}'}}]",
        f"reference='{labels[1]}'",
        "seeds=[42]",
        "tracking.uri=none",
    ]
    config, out = reading.resolve(None, settings), tmp_path / "out"
    console = Console(file=io.StringIO(), width=200)
    describe_data(config, console)
    compare_all(config, console, out, in_process=True, verbose=False, details=True)
    said = console.file.getvalue()
    assert "b [/dl]" in said
    assert all(said.count(label) > 2 for label in labels)
    assert "pairs of hospital and group with validation rows but undefined AUROC" in " ".join(said.split())
    patients = read_csv(out / "patients.csv")
    assert set(patients["hospital"]) <= {"", "007", "73", "None", "[/x]"}
    assert set(patients["group"]) == {"None", "[m]"}
    whole = Manifest.read(out)
    runs = {f"runs/{folder}/seed-42/manifest.json" for folder in ("prox_mu_0.1_", "prox_mu_")}
    assert {name for name in whole.files if name.startswith("runs/")} == runs
    for manifest in (whole, *whole.below()):
        made = {path.relative_to(manifest.folder).as_posix() for path in manifest.folder.rglob("*") if path.is_file()}
        made = {name for name in made if manifest is not whole or not name.startswith("runs/")}
        listed = {name for name in manifest.files if not name.startswith("runs/")}
        assert made == {*listed, "manifest.json", "resume.json"}, "what is not listed would outlast the comparison"
        assert not manifest.changed()
    summary = json.loads((out / "runs" / "prox_mu_0.1_" / "seed-42" / "summary.json").read_text())
    assert summary["part"] == "validation"
    assert "test rows" not in Page((out / "report.html").read_text()).text.lower()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_label_in_brackets_is_shown_while_it_runs(terminal: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    console = Console(file=io.StringIO(), width=120, force_terminal=terminal)
    with progress.RunProgress(console, 1, 2) as display:
        display.begin("prox [/mu]", 2)
        display.round(Round(1, 0.1, 2, 0, 0))
    assert "prox [/mu]" in console.file.getvalue()


def test_titles_are_no_markup():
    table = titled("over [/mu]")
    table.add_column("strategies that were compared")
    assert "over [/mu]" in text(table)


def test_an_infinite_log_loss_is_printed_as_such():
    row = {"strategy": "a", "model": "global", "seeds": 1, "undefined": 4, "yardstick": False, "auroc": math.nan}
    figures = dict.fromkeys(("accuracy", "ad", "sdad"), 0.5) | {"log_loss": math.inf}
    frame = pd.DataFrame([row | figures | {f"{name}_std": math.nan for name in figures}])
    assert " inf" in text(comparison_table(frame, "a", 160))


def test_a_narrow_table_says_nothing_of_a_column_that_it_has_no_room_for():
    figures = {"auroc": 0.8, "worst_decile": 0.6, "gini": 0.1, "std": 0.1, "size_bias": 0.02}
    limits = {"auroc_difference": 0.01, "auroc_difference_std": 0.0, "auroc_low": 0.0, "auroc_high": 0.02}
    spreads = {f"{name}_std": 0.01 for name in figures}
    rows = [
        {"strategy": name, "model": "global", "seeds": 2, "undefined": 0, "judged": 20, "yardstick": False}
        for name in ("fedavg", "chip")
    ]
    frame = pd.DataFrame(rows).assign(**figures, **spreads, **limits)
    assert "[95 %]: for other hospitals" in text(comparison_table(frame, "fedavg", 160))
    assert "[95 %]" not in text(comparison_table(frame, "fedavg", 80), 80)


def test_describe_shows_the_parts_of_the_first_seed_that_is_compared(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    data = "data={source: synthetic, hospitals: 5, rows: 300}"

    def said(*settings: str) -> str:
        console = Console(file=io.StringIO(), width=160)
        describe_data(reading.resolve(None, [data, *settings], reads=()), console)
        return console.file.getvalue()

    assert "seed 7" in said("seed=7")
    several = said("seed=7", "seeds=[3, 4, 5]")
    assert "seed 3" in several
    assert "the split is for seed 3; other seeds split the rows differently: 4, 5" in several
    assert "again" not in said("seeds=[3, 4]", "data.split={seed: 1}"), "all seeds have one split"
    folds = said("seeds=[0, 1]", "data.split={folds: 2}")
    assert "differently: 1" in folds
