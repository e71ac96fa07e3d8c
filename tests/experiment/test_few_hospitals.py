"""The default comparison on tables of one to four hospitals, as someone new would run it."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysim.cli.commands import compare_all, describe_data, run_one, show_plan
from raysim.config import reading
from raysim.core.errors import ConfigError
from raysim.experiment.audits.audit import audit
from raysim.report.terminal.progress import say
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.shared.clustering import number_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


def table(hospitals: int) -> dict[str, object]:
    """A table of so many hospitals, as a configuration; all else is the default but for fewer rounds."""
    rng = np.random.default_rng(hospitals)
    rows = 60 * hospitals
    age = rng.normal(60, 12, rows)
    frame = pd.DataFrame({"site": np.arange(rows) % hospitals, "age": age, "lactate": rng.gamma(2, 1, rows)})
    frame["died"] = rng.random(rows) < 1 / (1 + np.exp(5 - 0.07 * age))
    frame.to_csv("stays.csv", index=False)
    return {
        "data": {"source": "table", "path": "stays.csv", "silo": "site", "label": "died"},
        "training": {"rounds": 2},
        "seeds": [42],
        "tracking": {"uri": "none"},
    }


def test_the_default_strategies_are_compared():
    config, console = reading.resolve(table(1), reads=()), Console(file=io.StringIO(), width=200)
    compare_all(config, console, Path("out"), in_process=True, verbose=False)
    said = console.file.getvalue()
    line = "hierarchical, clustered, chip: clusters: 1 in place of 5, one for each hospital with training rows"
    assert said.count(line) == 1
    assert "1 hospital, 60 rows, 2 features; " in said
    answer = json.loads(Path("out/answer.json").read_text())
    assert answer["difference_shown"] is False
    clusters = pd.read_csv("out/hospitals.csv").query("strategy == 'clustered'")["cluster"]
    assert clusters.nunique() == 1


def test_a_run_warns_too_and_five_hospitals_cause_no_warning():
    for hospitals, words in ((4, "chip: clusters: 4 in place of 5"), (5, "")):
        console = Console(file=io.StringIO(), width=200)
        run_one(reading.resolve(table(hospitals), ["strategy=chip"]), console, None, in_process=True, verbose=False)
        said = console.file.getvalue()
        assert ("in place of" in said) == bool(words)
        assert words in said


def test_how_many_clusters_that_is():
    sizes = np.array([10, 0, 3, 5])
    assert number_of("auto", sizes) == 3, "a hospital without training rows is in no cluster of its own"
    assert number_of("auto", np.ones(6, int)) == 5
    assert number_of(2, sizes) == 2
    assert Ifca().remark(sizes).startswith("clusters: 3 in place of 5")
    assert Chip(clusters=3).remark(sizes) == "", "said by the user, and not by the data"
    with pytest.raises(ValueError, match="clusters: 0 is not at least 1"):
        Chip(clusters=0)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"name": "chip", "clusters": 4, "label": "mine"},
            r"strategies\.1\.clusters: 4 is more than the 3 hospitals with training rows; lower it \(strategy 'mine'\)",
        ),
        ("scaffold", r"training\.optimizer: .* \(strategy 'scaffold'\)"),
    ],
)
def test_an_error_in_a_comparison_names_the_strategy(section, message):
    config = table(3) | {"strategies": ["fedavg", section], "training": {"rounds": 1, "optimizer": "adam"}}
    with pytest.raises(ConfigError, match=message):
        compare_all(reading.resolve(config, reads=()), Console(), None, in_process=True, verbose=False)


def test_a_warning_of_the_data_is_printed_once_by_a_command_whether_they_are_cached_or_not():
    warning = "warning: all rows are of one hospital ('0'): there is nothing to federate; see data.silo"
    tree = table(1) | {"strategies": ["fedavg"]}
    several = reading.resolve(tree | {"seeds": [1, 2]}, reads=())
    alone = reading.resolve(tree | {"strategy": "fedavg"})
    for number in range(2):
        for command in (
            lambda console, out: compare_all(several, console, out, in_process=True, verbose=False),
            lambda console, out: run_one(alone, console, out, in_process=True, verbose=False),
            lambda console, _: show_plan(several, "1x1cpu", console),
            lambda console, out: audit(alone, out, shadows=0, canaries=0, in_process=True, say=partial(say, console)),
        ):
            console = Console(file=io.StringIO(), width=200)
            command(console, Path(f"out-{number}"))
            assert console.file.getvalue().count(warning) == 1
        console = Console(file=io.StringIO(), width=200)
        describe_data(several, console)
        assert console.file.getvalue().count(warning.removeprefix("warning: ")) == 1
