"""What the command line shows and hands to scripts: version, help, groups, keys, JSON, links, phases, time left."""

from __future__ import annotations

import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from raysim.cli import options
from raysim.cli.commands import compare_all, describe_data, run_one, show_plan
from raysim.cli.listing import show_kind, show_one
from raysim.config import reading
from raysim.config.listing import Key, example, in_groups, keys_of
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.core.package import __version__
from raysim.engine.job import Round
from raysim.metrics.declared import AT_HOSPITAL, OVER_HOSPITALS
from raysim.metrics.labels import KINDS
from raysim.report.terminal import progress
from raysim.report.terminal.progress import RunProgress, figure, phase, time_left

SMALL = ["data.hospitals=6", "data.rows=300", "training.rounds=1", "tracking.uri=none"]
ROOT = Path(__file__).parents[2]


def raysim(*arguments: str, **environment: str) -> str:
    program = "import sys; from raysim.cli.main import main; sys.argv[0] = 'raysim'; main()"
    command = [sys.executable, "-X", "importtime", "-c", program, *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if "_RAYSIM_COMPLETE" in environment:
        return done.stdout
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"ray", "mlflow", "pandas", "torch", "numpy", "pydantic"}), "slow to import"
    return done.stdout


def test_version_and_help_import_nothing_slow_and_no_line_is_cut():
    assert raysim("--version") == f"raysim {__version__}\n"
    said = raysim("-h", COLUMNS="80", TERMINAL_WIDTH="80")
    assert said == raysim("--help", COLUMNS="80", TERMINAL_WIDTH="80")
    assert "--install-completion" in said
    assert "..." not in said.partition("Commands:")[2]


def test_a_shell_completes_names():
    said = raysim(_RAYSIM_COMPLETE="complete_bash", COMP_WORDS="raysim list strategies fed", COMP_CWORD="3")
    assert set(said.split()) == {name for name in registry.entries("strategies") if name.startswith("fed")}


def test_strategies_are_listed_in_the_groups_of_the_readme():
    table = (ROOT / "README.md").read_text().partition("## Published systems")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")]
    stated = {title.strip(): set(re.findall(r"`(\w+)`", names)) for title, names in rows if title.strip()}
    listed = {title: {each.name for each in plugins} for title, plugins in in_groups("strategies").items()}
    assert listed == {title: names for title, names in stated.items() if title not in ("names", "selections")}
    assert list(listed) == [title for title in stated if title in listed]


def test_keys_have_a_type_default_range_and_meaning():
    keys = {key.key: key for key in keys_of(registry.load("strategies", "chip", "strategy"))}
    lam = "λ: the weight of the proximal term towards the cluster's model (equation 1)."
    assert keys["lam"] == Key("lam", "number", "0.5", "at least 0", lam)
    assert keys["alpha"].range == "0 to 1"
    assert keys["clusters"][1:4] == ("whole number or auto", "auto", "at least 1")
    assert keys["personalization.learning_rate"][1:4] == ("number", "0.03", "at least 0")
    rows = {key.key: key for key in keys_of(registry.load("sources", "synthetic", "source"))}["rows"]
    assert rows[1:] == ("whole number", "38700", "at least 1", "rows of all hospitals and parts together")
    layers = {key.key: key for key in keys_of(registry.load("models", "mlp", "model"))}["hidden"]
    assert layers[1:3] == ("list of whole numbers", "[256, 128]")
    decimal = {key.key: key for key in keys_of(registry.load("sources", "table", "source"))}["decimal"]
    assert decimal[1:] == ("'.', ','", "null", "", "the decimal mark of numbers; null: recognised")


@pytest.mark.parametrize("kind", ["strategies", "selections"])
def test_every_key_of_the_mathematics_says_its_meaning_and_numbers_their_range(kind: str):
    for name in registry.entries(kind):
        for key in keys_of(registry.load(kind, name, kind)):
            assert key.meaning, (name, key.key)
            if key.type in ("number", "whole number", "whole number or auto"):
                assert key.range, (name, key)


def test_lists_are_json_for_a_script(capsys: pytest.CaptureFixture[str]):
    show_kind("strategies", Console(stderr=True), json=True)
    first, *_ = json.loads(capsys.readouterr().out)
    assert first["group"] == "regressions"
    show_one("strategies", "chip", Console(stderr=True), json=True)
    printed = json.loads(capsys.readouterr().out)
    assert {key["key"]: key["default"] for key in printed["keys"]}["lam"] == "0.5"


def test_results_are_json_for_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    captured = Console(file=io.StringIO())
    manner = {"in_process": True, "verbose": False, "json": True}
    run_one(reading.resolve(None, [*SMALL, "strategy=fedavg"], reads=()), captured, tmp_path / "run", **manner)
    printed = json.loads(capsys.readouterr().out)
    assert printed["models"].keys() == {"global"}
    assert Path(printed["report"]).is_file()
    several = reading.resolve(None, [*SMALL, "strategies=[fedavg, local]", "seeds=[42]"], reads=())
    compare_all(several, captured, tmp_path / "compared", **manner)
    printed = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in printed["rows"]] == ["fedavg", "local"]
    assert printed["rows"][0]["auroc_std"] is None, "one seed has no spread, and JSON no NaN"
    describe_data(several, captured, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["by_hospital"]) == len(printed["hospitals"]) == 6
    show_plan(several, "1x2cpu", captured, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert sum(actor["rows"] for actor in printed["actors"]) == 300
    assert printed["rounds"]["fedavg"]["parameters"] > 0
    assert "report:" in captured.file.getvalue()


@pytest.mark.parametrize("what", ["plan", "describe"])
def test_no_word_is_broken_on_80_columns(what: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    config = reading.resolve(None, ["data.hospitals=30", "data.rows=3000"], reads=())
    console = Console(file=io.StringIO(), width=80)
    if what == "plan":
        show_plan(config, "1x2cpu", console)
    else:
        describe_data(config, console)
    said = console.file.getvalue()
    assert "…" not in said
    words = (
        ("hierarchical", "centralized", "hospitals") if what == "plan" else ("mean_arterial_pressure_mean", "region")
    )
    assert all(word in said for word in words)


def test_the_report_is_a_link_in_a_terminal_alone_and_opens(tmp_path: Path, monkeypatch):
    (tmp_path / "report.html").write_text("")
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    terminal = Console(file=io.StringIO(), force_terminal=True, width=200)
    options.show_end(tmp_path, terminal, None, open_=True)
    assert f";{(tmp_path / 'report.html').as_uri()}\x1b\\" in terminal.file.getvalue()
    assert opened.read_text().strip() == (tmp_path / "report.html").as_uri()
    plain = Console(file=io.StringIO(), width=200)
    options.show_end(tmp_path / "without", plain, None, open_=True)
    assert "\x1b" not in plain.file.getvalue()
    assert "--open: there is no" in plain.file.getvalue()


def test_a_dashboard_belongs_to_ray():
    assert options.with_dashboard(["a=1"], True) == ["a=1", "resources.dashboard=true"]
    with pytest.raises(ConfigError, match="--in-process"):
        options.with_dashboard(None, True, in_process=True)


def test_phases_and_the_time_left_are_said_outside_of_a_terminal_too(monkeypatch):
    console = Console(file=io.StringIO(), width=100)
    with phase(console, "reading data"), RunProgress(console, 2, 4) as display:
        for label in ("a", "b"):
            display.begin(label, 2)
            display.round(Round(1, 0.1, 2, 0, 0))
            display.end(1.0, "done")
        display.conclude()
    first, a, b, last = console.file.getvalue().splitlines()
    assert (first, last) == ("reading data", "drawing pictures")
    assert re.fullmatch(r"\[1/2\] a: 1\.0 s, done; about \d+ s left", a)
    assert b == "[2/2] b: 1.0 s, done"


def test_a_line_of_progress_in_a_log_is_one_line_however_long():
    log = io.StringIO()
    with RunProgress(Console(file=log, width=20), 1, 1) as display:
        display.begin("a strategy of a long name", 1)
        display.end(1.0, "global mean AUROC 0.8000, lowest hospital 0.7000")
    line = "[1/1] a strategy of a long name: 1.0 s, global mean AUROC 0.8000, lowest hospital 0.7000"
    assert log.getvalue() == f"{line}\n"


def test_a_figure_that_is_undefined_is_said_to_be(monkeypatch):
    assert (figure(0.61237, 4), figure(math.nan, 4)) == ("0.6124", "undefined")
    monkeypatch.setattr(progress, "PLAIN_SECONDS", -1.0)
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=100), 1, 1) as display:
        display.begin("a", 1)
        display.round(Round(1, 0.1, 2, 0, 0, {"global": {"auroc": math.nan}}))
    assert printed.getvalue() == "a: round 1/1, AUROC undefined\n"


def test_the_time_left_is_that_of_all_rounds():
    assert time_left(60, 3, 9) == "about 2 min left"
    assert time_left(60, 3, 600) == "about 3 h 19 min left"
    assert (time_left(5, 1, 600), time_left(5, 12, 600)) == ("", "about 4 min left")  # actors have only just started
    assert time_left(10, 5, 9) == "about 8 s left"
    assert (time_left(1, 0, 9), time_left(1, 9, 9)) == ("", "")


@pytest.mark.parametrize("name", sorted(registry.entries("strategies")))
def test_the_example_of_a_strategy_is_taken_as_it_stands(name: str) -> None:
    keys = keys_of(registry.load("strategies", name, "strategies"))
    config = reading.resolve(yaml.safe_load(example(name, keys)))
    assert name in {section.name for section in config.strategies}


def test_every_metric_has_a_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    show_kind("metrics", Console(width=100, no_color=True))
    printed = capsys.readouterr().out
    for kind in KINDS.values():
        for names, meanings in ((kind.figures, AT_HOSPITAL), (kind.reported(), OVER_HOSPITALS)):
            assert set(names) <= set(meanings)
            assert all(f"{name} " in printed and meanings[name][:40] in printed for name in names)
    listed = {name for kind in KINDS.values() for name in (*kind.figures, *kind.reported())}
    assert listed == {*AT_HOSPITAL, *OVER_HOSPITALS}, "nothing is explained that is not there"
