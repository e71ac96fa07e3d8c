"""``raysim study`` from its file to its folder, and what its pictures show."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from raysim.cli import main as cli
from raysim.report.terminal.block import MOST, lines
from raysim.study import charts as study_charts
from raysim.study import predictors
from raysim.study.answer import block, headline
from raysim.study.page import lead
from raysim.study.settings import Study, metric_names

FILE = """
name: small
data: {source: digits, rows: 600}
study:
  alphas: [50, 1, 0.2]
  clients: [4, 60]
  seeds: [0, 1]
  metrics: [wpsi, hellinger]
  strategy: clust_psi
"""


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictors, "TREES", 10)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study: 60 clients of 10 rows each can seldom be."""
    home = tmp_path_factory.mktemp("study")
    (home / "study.yaml").write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setattr(sys, "argv", ["raysim", "study", "study.yaml", "--out", "out", "--json"])
        with (
            (home / "printed.json").open("w") as printed,
            contextlib.redirect_stdout(printed),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main()
    assert not ended.value.code
    return home / "out"


def test_json_is_the_table_of_importances(folder):
    printed = json.loads((folder.parent / "printed.json").read_text())
    assert (printed["folder"], printed["report"]) == ("out", "out/report.html")
    pd.testing.assert_frame_equal(pd.DataFrame(printed["rows"]), pd.read_csv(folder / "importances.csv"))


def test_it_leaves_tables_pictures_a_page_and_its_configuration(folder):
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        "config.yaml",
        "importances.csv",
        "manifest.json",
        "plots/clusters.svg",
        "plots/metrics.svg",
        "plots/shares.svg",
        "report.html",
        "study.csv",
    }
    table = pd.read_csv(folder / "study.csv")
    assert len(table) == 12
    assert set(metric_names()) <= set(table)
    assert table["feasible"].tolist() == [True] * 6 + [False] * 6
    assert table["wpsi"].notna().tolist() == table["feasible"].tolist()
    assert set(pd.read_csv(folder / "importances.csv")["metric"]) == {"wpsi", "hellinger"}


def test_the_page_is_one_file_that_says_what_was_found(folder):
    page = (folder / "report.html").read_text()
    assert re.search(r"predicts? ln alpha (best|equally well) \(R² 0\.\d+", page)
    assert "12, of which 6 are not feasible" in page
    assert "data:image/png" not in page
    for figure in ("metric-wpsi", "metric-hellinger", "shares-r2_alone", "shares-permutation", "clusters"):
        assert page.count(f'id="{figure}-title"') == 1, figure
    assert ">–</text>" in page, "60 clients of 10 rows are never feasible"
    assert not re.search(r"""\b(?:src|href)=(?!"data:)""", page)


def test_its_configuration_repeats_it(folder, tmp_path, monkeypatch):
    assert yaml.safe_load((folder / "config.yaml").read_text())["study"]["alphas"] == [50.0, 1.0, 0.2]
    monkeypatch.setattr(sys, "argv", ["raysim", "study", str(folder / "config.yaml"), "--out", str(tmp_path / "again")])
    with pytest.raises(SystemExit):
        cli.main()
    for name in ("study.csv", "importances.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "seed=7",
            "seed: has no effect in a study, which trains no model; study.seeds are the seeds of its partitions",
        ),
        ("seeds=[1]", "seeds: has no effect in a study"),
        ("training.rounds=3", "training: has no effect in a study, which trains no model; remove the key"),
        ("strategy=fedavg", "strategy: has no effect in a study"),
        ("data.minimum=3", "data.minimum: has no effect in a study, which only divides labels; remove the key"),
        ("data.preprocessing=none", "data.preprocessing: has no effect in a study"),
        ("data.split={train: 0.5, test: 0.5}", "data.split: has no effect in a study"),
        ("data.clients=3", "data.clients: the study's grid sets this key"),
        (
            "study.strategy={from: rec.yaml}",
            "study.strategy.from: only run, compare and plan accept this key ('rec.yaml')",
        ),
    ],
)
def test_what_would_change_nothing_is_refused(setting, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "study.yaml").write_text(FILE)
    monkeypatch.setattr(
        sys, "argv", ["raysim", "study", str(tmp_path / "study.yaml"), "--set", setting, "--out", str(tmp_path / "out")]
    )
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not (tmp_path / "out").exists()


def test_a_pool_of_one_class_is_refused(tmp_path, monkeypatch, capsys):
    lines = [f'"4","{i}","date","NO_QUERY","user","good day number {i}"' for i in range(40)]
    (tmp_path / "training.1600000.processed.noemoticon.csv").write_text("\n".join(lines))
    (tmp_path / "study.yaml").write_text(
        FILE.replace("source: digits, rows: 600", f"source: sent140, path: {tmp_path}")
    )
    monkeypatch.setattr(sys, "argv", ["raysim", "study", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("raysim: data: all 40 rows are of one class (")
    assert not (tmp_path / "out").exists()


def test_its_configuration_holds_what_decides_it_and_no_more(folder):
    tree = yaml.safe_load((folder / "config.yaml").read_text())
    assert list(tree) == ["name", "data", "study"]
    assert tree["data"] == {"source": "digits", "rows": 600}


@pytest.fixture
def table() -> pd.DataFrame:
    """Two alphas, two numbers of clients, three seeds; 20 clients at alpha 1 cannot be."""
    rows = [
        {"clients": clients, "alpha": alpha, "seed": seed, "feasible": clients == 10 or alpha == 5}
        for clients in (10, 20)
        for alpha in (1.0, 5.0)
        for seed in range(3)
    ]
    table = pd.DataFrame(rows)
    table["wpsi"] = np.where(table["feasible"], 1 / table["alpha"] + table["seed"] / 100, np.nan)
    table["hellinger"] = table["wpsi"] ** 2
    table["clusters"] = np.where(table["feasible"], 2.0 + table["seed"] * (table["alpha"] == 1), np.nan)
    return table


def test_the_figure_of_clusters_has_means_ranges_and_dashes(table):
    drawn = study_charts.clusters(table).standalone()
    assert re.findall(r'class="value"[^>]*>([^<]+)<', drawn) == ["3", "2", "–", "2"]
    assert "10 clients, alpha 1: 3 (2–4); 10 clients, alpha 5: 2; 20 clients, alpha 1: –" in drawn


def test_the_figure_of_metrics_has_a_line_for_each_number_of_clients(table):
    figure = study_charts.metrics_by_alpha(table, ["wpsi", "hellinger"])
    assert len(re.findall(r'class="c\d+ line"', str(figure.charts[0].markup()))) == 2
    assert figure.legend is not None
    assert [name for name, _ in figure.legend.entries] == ["10 clients", "20 clients"]


def test_words_name_the_metric_that_is_best_alone(table, folder):
    importance = pd.read_csv(folder / "importances.csv")
    importance["r2_alone"] = np.where(importance["metric"] == "hellinger", 0.9, 0.5)
    said = lead(table, importance, Study())
    assert said[0] == "Hellinger predicts ln alpha best (R² 0.900), followed by WPSI (0.500)."
    assert said[-1] == "Over 9 partitions, 2 to 4 clusters were chosen, 2 in the median."


@pytest.mark.parametrize(
    ("r2", "said"),
    [
        (
            {"emd_tv": 0.988, "hellinger": 0.988, "wpsi": 0.4},
            " and Hellinger predict ln alpha equally well (R² 0.988).",
        ),
        ({"emd_tv": 0.988, "hellinger": 0.981, "wpsi": 0.4}, " predict ln alpha equally well (R² 0.981 to 0.988)."),
        ({"wpsi": 0.7}, "WPSI predicts ln alpha best (R² 0.700)."),
        ({"wpsi": -0.2, "hellinger": -0.3}, "No metric predicts ln alpha better than its mean does (R² -0.200)."),
        ({"wpsi": np.nan}, "No metric predicts ln alpha: R² is undefined."),
    ],
)
def test_metrics_that_hardly_differ_are_called_equal(r2: dict[str, float], said: str):
    shares = pd.DataFrame({"clients": "all", "model": "ridge", "metric": list(r2), "r2_alone": list(r2.values())})
    assert headline(shares, "log_alpha").endswith(said)


def test_a_study_prints_one_block(folder):
    shares = pd.read_csv(folder / "importances.csv")
    printed = lines(block(folder, shares, "3 s", "out/report.html", "raysim study study.yaml --details"))
    assert len(printed) <= MOST
    assert printed[0] == "small: 12 partitions of 2 seeds, 3 s"
    assert " ".join(printed).count(headline(shares, "log_alpha")) == 1
    assert any("6 of 12 partitions are not feasible." in line for line in printed)
    assert sum(line.startswith("    ") and "R² 0." in line for line in printed) == 2
