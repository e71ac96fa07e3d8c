"""``raysim curve``: which runs it makes of a configuration, what it draws, and what it refuses."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.cli.curve import curve as command
from raysim.config.plugins import label
from raysim.core.errors import ConfigError
from raysim.experiment.curves.curve import Curve, begin, curve_table, figures_of, read
from raysim.experiment.curves.found import Found, found
from raysim.report.figures.curve import curve_figure
from raysim.statistics.differences.paired import paired
from raysim.statistics.differences.simultaneous import adjusted
from raysim.storage.run_tables import hospitals_table
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, run_strategy

SETTINGS: dict[str, Any] = {
    "name": "small",
    "data": {"source": "synthetic", "hospitals": 6, "rows": 400, "features": 4},
    "training": {"rounds": 1},
    "tracking": {"uri": "none"},
    "seeds": [3],
    "curve": {"field": "mu", "values": [0, 0.5], "figure": "log_loss"},
    "strategies": [{"name": "fedavg"}, {"name": "fedprox"}, {"name": "fedprox", "label": "far", "mu": 10}],
    "reference": "fedavg",
}


def write_config(folder: Path, **changes: object) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SETTINGS | changes))
    return path


def test_a_curve_is_a_comparison_with_a_table_and_a_picture_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    far = "a label that is longer than what the digest of a stream's purpose takes for its key"
    strategies = [{"name": "fedprox"}, {"name": "fedprox", "label": far, "mu": 10}]
    path = write_config(tmp_path, strategies=strategies, reference=far)
    begin(path, [], tmp_path / "out", Console(quiet=True), in_process=True, verbose=False)
    table = pd.read_csv(tmp_path / "out" / "curve.csv")
    hospitals = pd.read_csv(tmp_path / "out" / "hospitals.csv")
    assert table[["line", "mu", "seed"]].fillna(-1).values.tolist() == [
        ["fedprox", 0.0, 3],
        ["fedprox", 0.5, 3],
        [far, -1.0, 3],
    ]
    run = hospitals[(hospitals["strategy"] == "fedprox, mu 0.5") & (hospitals["n_test"] > 0)]
    row = table.iloc[1]
    assert row["mean"] == pytest.approx(run["log_loss"].mean())
    assert row["variance"] == pytest.approx(((run["log_loss"] - run["log_loss"].mean()) ** 2).mean())
    assert row["hospitals"] == len(run)
    assert (tmp_path / "out" / "comparison.csv").exists()
    page = (tmp_path / "out" / "report.html").read_text()
    answer = json.loads((tmp_path / "out" / "curve_answer.json").read_text())
    assert f'<p class="recommended">{answer["headline"]} ' in page, "the page begins with what the curve found"
    assert "<span>FedProx</span>" in page, "the line of the curve's own figure"
    assert "FedProx, mu 0.5" in page
    assert far in page, "a label that is the user's own stays"
    assert "fedprox, mu" not in page.partition('id="setting"')[0]

    other = ["curve.figure=accuracy"]
    before = (tmp_path / "out" / "plots" / "curve.svg").read_text()
    begin(path, other, None, Console(quiet=True), of=tmp_path / "out", in_process=True, verbose=False)
    again = (tmp_path / "out" / "plots" / "curve.svg").read_text()
    assert "log loss" in before
    assert ">Accuracy by mu<" in again
    assert ">FedProx<" in before
    assert ">FedProx<" in again, "people's names, as on the page of the comparison"
    drawn = pd.read_csv(tmp_path / "out" / "curve.csv")
    assert drawn["mean"].iloc[1] == pytest.approx(run["accuracy"].mean())
    for change, said in (
        ("curve.figure=hospital", "curve.figure: 'hospital' is not a numeric column of"),
        ("evaluation.part=validation", "evaluation.part: .* was not evaluated on validation rows"),
    ):
        with pytest.raises(ConfigError, match=said):
            begin(path, [change], None, Console(quiet=True), of=tmp_path / "out", in_process=True, verbose=False)
    with pytest.raises(ConfigError, match=r"--of: .*nowhere.* has no hospitals.csv"):
        begin(path, [], None, Console(quiet=True), of=tmp_path / "nowhere", in_process=True, verbose=False)
    one = next((tmp_path / "out" / "runs").glob("*/*"))
    with pytest.raises(ConfigError, match=r"^--of: .* holds no comparison; name the folder of a finished comparison$"):
        begin(path, [], None, Console(quiet=True), of=one, in_process=True, verbose=False)


def many(means: dict[float, float], seeds: int, figure: str = "log_loss", spread: float = 0.01) -> tuple[Any, Any]:
    """Twenty hospitals with these means of each value, and the lines of one strategy."""
    rng = np.random.default_rng(0)
    rows = [
        {"strategy": f"s, mu {v:g}", "model": "global", "seed": seed, "hospital": h, figure: m + spread * rng.normal()}
        for v, m in means.items()
        for seed in range(seeds)
        for h in range(20)
    ]
    return pd.DataFrame(rows), {f"s, mu {v:g}": ("s", v) for v in means}


@pytest.mark.parametrize(
    ("means", "seeds", "headline"),
    [
        (
            {0.1: 0.4, 1: 0.2, 10: 0.5},
            3,
            r"S: mu 1 is the best of 3 values: it has the lowest mean log loss, 0\.\d+\.",
        ),
        (
            {0.1: 0.3, 1: 0.3, 10: 0.5},
            3,
            r"S: mu [0.]*1 has the lowest mean log loss, 0\.\d+, but no difference from mu [0.]*1 was demonstrated\."
            r"( It is .*)?",
        ),
        (
            {0.1: 0.4, 1: 0.3, 10: 0.1},
            1,
            r"S: mu 10 .*, for these trained models; repeat with 3 seeds to compare values\. "
            r"It is the highest value tried: also try values beyond it\.",
        ),
        ({0: 0.1, 1: 0.3}, 3, r"S: mu 0 is the best of 2 values: .* 0\.\d+\."),  # 0 is a bound, no edge
        ({1: 0.3, math.inf: 0.1}, 3, r"S: mu inf is the best of 2 values: .* 0\.\d+\."),
    ],
)
def test_what_a_curve_found_in_words(means: dict[float, float], seeds: int, headline: str):
    hospitals, lines = many(means, seeds)
    answer = found(hospitals, "mu", "log_loss", lines, {"s": "S"})
    assert re.fullmatch(headline, answer.headline), answer.headline
    read = Found.read(json.loads(json.dumps(answer.as_json(), allow_nan=False)))
    assert read.as_json() == answer.as_json()
    assert [point.value for point in read.lines[0].points] == list(means)


def test_the_intervals_of_a_curve_are_those_of_all_pairs():
    hospitals, lines = many({0.1: 0.8, 1: 0.7, 10: 0.79}, 4, "auroc")
    (line,) = found(hospitals, "mu", "auroc", lines, {}).lines
    values = {
        v: hospitals[hospitals["strategy"] == f"s, mu {v:g}"]["auroc"].to_numpy().reshape(4, 20) for v in (0.1, 1, 10)
    }
    ones = np.ones((4, 20))
    pairs = [paired(values[a], values[b], ones) for a, b in ((0.1, 1), (0.1, 10), (1, 10))]
    limits = adjusted(pairs)
    assert line.best is not None
    assert line.best.value == 0.1
    _, other, last = line.points
    assert (other.difference, other.low, other.high) == pytest.approx(
        (-pairs[0].difference, -limits[0].high, -limits[0].low)
    )
    assert other.verdict == "worse"
    assert last.difference == pytest.approx(values[10].mean() - values[0.1].mean())
    assert line.edge == "lowest"


def test_a_figure_without_a_better_side_has_no_best_value():
    hospitals, lines = many({1: 0.1, 2: 0.3}, 2, "bias")
    answer = found(hospitals, "mu", "bias", lines, {"s": "S"})
    assert answer.headline == "S: mean bias is lowest at mu 1 and highest at 2."
    same = hospitals.assign(auroc=0.5)
    assert found(same, "mu", "auroc", lines, {"s": "S"}).headline == "S: mu has no effect on AUROC."


def test_the_command_prints_one_block_and_progress_elsewhere_or_the_rows_that_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COLUMNS", raising=False)
    command(write_config(tmp_path), out=tmp_path / "out", in_process=True, details=True)
    printed = capsys.readouterr()
    block, _, details = printed.out.partition("\n\n")
    assert len(block.splitlines()) <= 16
    sentence = json.loads((tmp_path / "out" / "curve_answer.json").read_text())["headline"]
    assert " ".join(block.split()).count(sentence) == 1
    assert printed.out.splitlines()[-1] == sentence, "and again at the end"
    assert "4 strategies: one seed" in details
    assert "reading data" in printed.err
    assert "reading data" not in printed.out

    command(tmp_path / "small.yaml", of=tmp_path / "out", json=True)
    drawn, table = json.loads(capsys.readouterr().out), pd.read_csv(tmp_path / "out" / "curve.csv")
    assert drawn["report"] == str(tmp_path / "out" / "report.html")
    assert [(row["line"], row["mean"]) for row in drawn["rows"]] == list(zip(table["line"], table["mean"], strict=True))


def test_strategies_that_set_the_field_are_level_lines(tmp_path: Path):
    _, _, lines = read(write_config(tmp_path), ["curve.values=[1]"])  # federated averaging has no such field
    assert lines == {"fedavg": ("fedavg", None), "fedprox, mu 1": ("fedprox", 1), "far": ("far", None)}
    config, curve, lines = read(
        write_config(tmp_path, strategies=SETTINGS["strategies"][1:]), ["curve.values=[1, 2.5]"]
    )
    assert curve == Curve(field="mu", values=(1, 2.5))
    assert lines == {"fedprox, mu 1": ("fedprox", 1), "fedprox, mu 2.5": ("fedprox", 2.5), "far": ("far", None)}
    assert [label(section) for section in config.strategies] == list(lines)
    assert [section.options()["mu"] for section in config.strategies] == [1, 2.5, 10]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"curve": {"field": "mu", "values": []}}, "curve.values"),
        (
            {"curve": {"field": "mu", "values": [0.5, 1, 1.0000001]}},
            "^curve.values: 1 appears twice when written with six digits; name each value once",
        ),
        ({"curve": {"field": "mu", "values": [1], "colour": "red"}}, "curve.colour: unknown key"),
        ({"strategies": [{"name": "fedprox", "mu": 1}]}, "strategies: each strategy lacks the key mu or sets it"),
        ({"curve": {"field": "mew", "values": [1]}}, "strategies: each strategy lacks the key mew or sets it"),
        (
            {"curve": {"field": "privacy.epsilon", "values": [1]}},
            "^curve.field: 'privacy.epsilon' is not a key of a strategy; vary other keys with raysim sweep and",
        ),
        ({"curve": {"field": "mu", "values": [1], "figure": "mae"}}, "curve.figure: 'mae' is not a metric"),
        (
            {"curve": {"field": "mu", "values": [1], "figure": "n"}},
            "curve.figure: 'n' is not a metric.*; name one of n_t",
        ),
    ],
)
def test_what_is_no_curve_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes, said):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    strategies = {"strategies": [{"name": "fedprox", "label": "fedavg"}], "reference": "fedavg, mu 1"}
    with pytest.raises(ConfigError, match=said):
        begin(
            write_config(tmp_path, **(strategies | changes)),
            [],
            tmp_path / "out",
            Console(quiet=True),
            in_process=True,
            verbose=False,
        )
    path = tmp_path / "none.yaml"
    path.write_text("name: none\n")
    with pytest.raises(ConfigError, match=r"curve: .* has no such section"):
        read(path, [])


def test_hospitals_without_the_figure_are_left_out_and_the_headline_model_counts():
    hospitals = pd.DataFrame(
        {
            "strategy": ["a, k 1"] * 4 + ["b"] * 2,
            "seed": 0,
            "model": ["global", "global", "cluster", "cluster", "global", "global"],
            "loss": [9.0, 9.0, 1.0, None, 2.0, 4.0],
        }
    )
    lines = {"a, k 1": ("a", 1), "b": ("b", None)}
    table = curve_table(hospitals, Curve(field="k", values=(1,), figure="loss"), lines)
    assert table["mean"].tolist() == [1.0, 3.0]
    assert table["variance"].tolist() == [0.0, 1.0]
    assert table["hospitals"].tolist() == [1, 2]
    drawn = curve_figure(table, "k", "loss")
    assert drawn.legend is not None
    assert [name for name, _ in drawn.legend.entries] == ["a", "b"]
    logarithmic = curve_figure(table.assign(variance=1.0), "k", "loss", "log")
    assert [chart.y.kind for chart in logarithmic.charts] == ["log", "log"]


@pytest.mark.parametrize("part", ["test", "validation"])
def test_what_may_be_drawn_are_columns_of_the_hospitals(federate: MakeFederation, part: str):
    federation = federate([8, 8])
    hospitals = hospitals_table(federation, run_strategy(federation, FedAvg(), rounds=1), part)
    figures = figures_of(federation.task, part)
    assert set(figures) <= set(hospitals)
    assert {f"n_{part}", f"events_{part}", "log_loss"} <= set(figures)
    hospitals = hospitals.assign(strategy="a", seed=0)
    table = curve_table(hospitals, Curve(field="k", values=(1,), figure=f"events_{part}"), {"a": ("a", None)})
    assert table["mean"].tolist() == [hospitals[f"events_{part}"].mean()]


def test_what_looks_like_mathematics_is_drawn_as_it_is():
    table = pd.DataFrame({"line": r"$\bar{$", "k": [1, 2], "seed": 0, "mean": [1.0, 2.0], "variance": 1.0})
    assert r"$\bar{$" in curve_figure(table, "k", "loss").standalone()


def test_values_are_compared_at_the_hospitals_that_all_of_them_serve():
    """Eight clusters leave the worst hospitals without a model; three are better at the others."""
    hospitals, lines = many({3: 0.85, 8: 0.8}, 3, "auroc")
    few = hospitals["hospital"] < 5
    hospitals.loc[few, "auroc"] -= 0.3
    hospitals.loc[few & (hospitals["strategy"] == "s, mu 8"), "auroc"] = np.nan
    answer = found(hospitals, "mu", "auroc", lines, {"s": "S"})
    three, eight = answer.lines[0].points
    assert (three.verdict, eight.verdict) == ("best", "worse")
    assert eight.difference == pytest.approx(eight.mean - three.mean)
    assert eight.high < 0


def test_a_difference_of_r2_below_minus_one_is_in_its_interval():
    hospitals, lines = many({1: -3.0, 2: 0.4}, 3, "r2")
    answer = found(hospitals, "mu", "r2", lines, {"s": "S"})
    assert re.fullmatch(r"-3\.40 \(-3\.4\d to -3\.39\)", answer.rows()[0][2])
