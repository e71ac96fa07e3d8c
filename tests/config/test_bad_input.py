"""Bad input ends with exit code 2 and one line naming field, value and remedy; nothing is written, no Ray started."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import ray
from pydantic import ValidationError

from raysim.cli import main as cli
from raysim.config import loading
from raysim.config.checking import adapter
from raysim.core import registry
from raysim.storage.manifest import Manifest
from raysim.strategies.base import Strategy
from tests.commands import STRICT, refusal

SMALL = {"data.hospitals": 6, "data.rows": 300, "training.rounds": 2, "training.batch_size": 32}


@dataclass(frozen=True)
class HasName(Strategy):
    name: str = "mine"


@dataclass(frozen=True)
class HasArray(Strategy):
    towards: np.ndarray[Any, Any] | None = None


@dataclass(frozen=True)
class HasNoType(Strategy):
    rate: Nowhere = 1  # type: ignore[name-defined]  # noqa: F821


@dataclass(frozen=True)
class HasRate(Strategy):
    rate: float = 0.1


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where anything that is written would be seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the command line; check that it refuses properly, and return what it said."""
    before = {path for path in Path.cwd().iterdir() if path.name != "cache"}
    monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
    monkeypatch.setattr(time, "sleep", _waits)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 2, said
    lines = [line for line in said.err.strip().splitlines() if line != "reading data"]  # progress, which came before
    assert len(lines) == 1, said.err
    assert {path for path in Path.cwd().iterdir() if path.name != "cache"} == before
    assert not ray.is_initialized()
    return lines[0].removeprefix("raysim: ")


def _waits(seconds: float) -> None:
    raise AssertionError(f"an error must not wait, and this one would for {seconds} s")


def settings(values: dict[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training.round": 3}, "training.round: unknown key; did you mean 'rounds'?"),
        ({"trainin.rounds": 3}, "trainin: unknown key; did you mean 'training'?"),
        ({"training.rounds": "many"}, "training.rounds: 'many' is not a whole number"),
        ({"training.rounds": -1}, "training.rounds: -1 is not at least 0"),
        ({"training.rounds": "null"}, "training.rounds: null is not a whole number"),
        ({"training.class_weights": "null"}, "training.class_weights: null is not none, balanced or a list"),
        ({"model": "{name: mlp, hidden: [null]}"}, "model.hidden: [null] is not a list of whole numbers"),
        ({"evaluation.age_bands": "{a: true}"}, "evaluation.age_bands: {a: true} is not a list"),
        ({"training.batch_size": -1}, "training.batch_size: -1 is not at least 0"),
        (
            {"training.stop": "{}"},
            "training.stop: no hospital has validation rows, which early stopping needs; give data.split.validation a "
            "share, such as 0.1, or leave training.stop out",
        ),
        ({"training.stop": "{patience: 0}"}, "training.stop.patience: 0 is not at least 1"),
        ({"training.stop.rounds": 5}, "training.stop.rounds: unknown key"),
        ({"training.weight_decay": -1}, "training.weight_decay: -1 is not at least 0"),
        ({"training.class_weights": "[1, -2]"}, "training.class_weights: -2 is not a number of at least 0"),
        (
            {"training.class_weights": "even"},
            "training.class_weights: 'even' is not none, balanced or a list with a weight for each class",
        ),
        (
            {"training.class_weights": "[1, 2, 3]"},
            "training.class_weights: [1.0, 2.0, 3.0] has 3 weights, but this label has 2 classes; give one for each",
        ),
        ({"training.learning_rate": 0}, "training.learning_rate: 0 is not greater than 0"),
        ({"training.learning_rate": ".nan"}, "training.learning_rate: nan is not a finite number"),
        ({"training.optimizer": "sdg"}, "training.optimizer: 'sdg' is not one of 'sgd', 'momentum' or 'adam'"),
        ({"seed": -1}, "seed: -1 is not at least 0"),
        ({"seed": 2**63}, "seed: 9223372036854775808 is not less than 9223372036854775808"),
        ({"data.seed": 2**63}, "data.seed: 9223372036854775808 is not less than"),
        ({"data.split": "{seed: -1}"}, "data.split.seed: -1 is not at least 0"),
        ({"evaluation.age_bands": "[.nan]"}, "evaluation.age_bands.0: nan is not a finite number"),
        ({"evaluation.age_bands": "[45, .inf]"}, "evaluation.age_bands.1: inf is not a finite number"),
        ({"strategy.name": "fedporx"}, "strategy.name: 'fedporx' is not a known name; did you mean 'fedprox'?"),
        ({"strategy": "{name: chip, lambda: 1}"}, "strategy.lambda: unknown key; did you mean 'lam'?"),
        ({"strategy": "{name: chip, lam: -1}"}, "strategy.lam: -1.0 is not at least 0"),
        ({"strategy": "{name: chip, alpha: 1.5}"}, "strategy.alpha: 1.5 is not between 0 and 1"),
        ({"strategy": "{name: chip, clusters: two}"}, "strategy.clusters: 'two' is not a whole number"),
        ({"strategy": "{name: chip, clusters: 7}"}, "strategy.clusters: 7 is more than the 6 hospitals with training"),
        (
            {"strategy": "{name: chip, personalization: {epoch: 1}}"},
            "strategy.personalization.epoch: unknown key; did you mean 'epochs'?",
        ),
        (
            {"strategy": "{name: chip, personalization: {epochs: -1}}"},
            "strategy.personalization.epochs: -1 is not at least 0",
        ),
        ({"strategy": "{name: fedprox, mu_by_hospital: {nowhere: 1}}"}, "strategy.mu_by_hospital: no hospital is call"),
        ({"strategy": f"{{class: {__name__}.HasName}}"}, "strategy.name: is a key of every strategy, and a field of"),
        ({"strategy": f"{{class: {__name__}.HasArray}}"}, "strategy: a field of 'HasArray' has a type that no key can"),
        ({"strategy": f"{{class: {__name__}.HasNoType}}"}, "strategy: a field of 'HasNoType' has a type that no key"),
        ({"selection": f"{{class: {__name__}.HasRate}}"}, f"selection: '{__name__}.HasRate' is not a Selection"),
        ({"strategy": "{class: nowhere.Mine}"}, "strategy.class: 'nowhere.Mine' cannot be imported"),
        ({"strategy": "{class: pathlib.Path}"}, "strategy: 'Path' takes no configuration; make it a dataclass"),
        ({"strategy": "{class: json.Mine}"}, "strategy.class: 'json.Mine' cannot be imported (module 'json' in "),
        ({"model.name": "logistic"}, "model.name: 'logistic' is not a known name; did you mean 'logistic_regression'?"),
        ({"model": "{name: mlp, hiden: [8]}"}, "model.hiden: "),
        ({"data.source": "eicuu"}, "data.source: 'eicuu' is not a known name; did you mean 'eicu'?"),
        ({"data.hospital": 3}, "data.hospital: unknown key; did you mean 'hospitals'?"),
        ({"data.minimm": 3}, "data.minimm: unknown key; did you mean 'minimum'?"),
        ({"strategy": "{name: fairfed, privileged: 3}"}, "strategy.privileged: 3 is not text"),
        ({"sweep.trials": 3}, "sweep: is read by 'raysim sweep'; use that command, or remove the section"),
        ({"data.hospitals": 0}, "data.hospitals: 0 is not at least 1"),
        ({"selection.fraction": 0.5}, "selection.fraction: 0.5 has no effect, because all has no key fraction"),
        ({"selection": {"name": "uniform", "fraction": 0}}, "selection.fraction: 0.0 is not in (0, 1]"),
        ({"selection": {"name": "uniform", "fraction": 1.5}}, "selection.fraction: 1.5 is not in (0, 1]"),
        ({"selection.name": "unifrom"}, "selection.name: 'unifrom' is not a known name; did you mean 'uniform'?"),
        ({"resources.gpus_per_actor": -1}, "resources.gpus_per_actor: -1 is not at least 0"),
        ({"resources.hospitals_per_actor": 0}, "resources.hospitals_per_actor: 0 is neither auto nor at least 1"),
        ({"evaluation.part": "validation"}, "evaluation.part: no hospital has validation rows"),
        ({"tracking.uri": "http://127.0.0.1:9"}, "tracking.uri: http://127.0.0.1:9 cannot be reached"),
        ({"tracking.uri": "sqlite:////nowhere/m.db"}, "tracking.uri: sqlite:////nowhere/m.db cannot be written"),
        (
            {"tracking.uri": "sqlite:////proc/x.db"},
            "tracking.uri: sqlite:////proc/x.db cannot be written (/proc/x.db: ",
        ),
        ({"tracking.uri": "postgresql://127.0.0.1:9/x"}, "tracking.uri: postgresql://127.0.0.1:9/x cannot be reached"),
        ({"tracking.uri": "mlflow.db"}, "tracking.uri: 'mlflow.db' is not a store"),
        ({"tracking.uri": "sqlite:mlflow.db"}, "tracking.uri: 'sqlite:mlflow.db' is not a store; use sqlite:///"),
        (
            {"tracking.uri": "http://localhost:abc"},
            "tracking.uri: 'http://localhost:abc' is not an address (Port could",
        ),
        (
            {"tracking.uri": "http://localhost:99999"},
            "tracking.uri: 'http://localhost:99999' is not an address (Port out",
        ),
        ({"tracking.uri": "'http://[::1'"}, "tracking.uri: 'http://[::1' is not an address (Invalid IPv6 URL); write"),
        ({"tracking.uri": "http://a..b:80"}, "tracking.uri: http://a..b:80 cannot be reached ("),
        ({"data.split": "{train: 0.8, test: 0.4}"}, "data.split"),
        (
            {"training.rounds": "true"},
            "training.rounds: is true or false (in YAML also yes, no, on, off), not a number; write a number",
        ),
        ({"data.features": "yes"}, "data.features: is true or false"),
        ({"training.learning_rate": "true"}, "training.learning_rate: is true or false"),
        ({"strategy": "{name: fedprox, mu: true}"}, "strategy.mu: is true or false"),
        ({"strategy": "{name: chip, personalization: {epochs: true}}"}, "strategy.personalization.epochs: is true or"),
        ({"selection": {"name": "uniform", "fraction": True}}, "selection.fraction: is true or false"),
        ({"checkpoint.every": "true"}, "checkpoint.every: is true or false"),
        ({"seeds": "[1, false]"}, "seeds.1: is true or false"),
        ({"evaluation.age_bands": "[true, 45]"}, "evaluation.age_bands.0: is true or false"),
        ({"data.signal": ".inf"}, "data.signal: inf is not a finite number"),
        ({"data.noise": ".inf"}, "data.noise: inf is not a finite number"),
        ({"data": "{source: patient_types, mixing: .inf}"}, "data.mixing: inf is not a finite number"),
        (
            {"data.split": "{folds: 3, train: 0.7}"},
            "data.split.folds: 3 decides the parts and cannot be combined with train; keep one",
        ),
        (
            {"data.split": "{folds: 3, test: 0.3}"},
            "data.split.folds: 3 decides the parts and cannot be combined with test; keep one",
        ),
        ({"name": '"a\\0b"'}, "--set name: the value: 'a\\x00b' holds a null byte, which no name or path may"),
        ({"data": '{source: table, path: "a\\0.csv"}'}, "--set data: path: 'a\\x00.csv' holds a null byte"),
        (
            {"strategy": "{name: fedprox, mu: 1, mu: 2}"},
            "--set strategy: line 1: key 'mu' occurs twice; keep one",
        ),
        ({"data.preprocessing": "zscore"}, "data.preprocessing: 'zscore' is not one of"),
        ({"name": "../up"}, "name: '../up' cannot name a folder"),
        ({"name": "n" * 101}, f"name: '{'n' * 101}' has 101 characters (101 bytes); at most 100 characters"),
        (
            {"name": "名" * 67},
            f"name: '{'名' * 67}' has 67 characters (201 bytes); at most 100 characters and 200 bytes",
        ),
        ({"name": '"a\\nb"'}, "name: 'a b' cannot name a folder"),
        ({"strategy": f"{{name: fedavg, label: {'n' * 300}}}"}, f"strategy.label: '{'n' * 39}…(222 characters)…"),
        ({"tracking.experiment": "n" * 251}, "tracking.experiment: 'nnn"),
        (
            {"data": '{source: synthetic, task: "a\\0b"}'},
            "--set data: task: 'a\\x00b' holds a null byte, which no name or path may contain; remove it",
        ),
        ({"resources.gpus_per_actor": ".inf"}, "resources.gpus_per_actor: inf is not a finite number"),
        ({"resources.cpus_per_actor": ".inf"}, "resources.cpus_per_actor: inf is not a finite number"),
        ({"resources.per_hospital": "{a: {gpus: .inf}}"}, "resources.per_hospital.a.gpus: inf is not a finite number"),
        ({"resources.timeout": ".inf"}, "resources.timeout: inf is not"),
        (
            {"model": "{name: mlp, hidden: [1000000000]}"},
            "model.hidden: [1000000000] makes a model of 71,000,000,002 parameters, and a run with 4 copies of it "
            "needs 2,272,000,000,064 bytes of memory, and this machine has",
        ),
        (
            {"model": "{name: mlp, hidden: [10000000000, 100000000000]}"},
            "model.hidden: [10000000000, 100000000000] makes a model of 1,000,000,000,",
        ),
        ({"model": "{name: text_dense, dimension: 1000000000000}"}, "model.dimension: 1000000000000 makes a model of"),
        ({"data.rows": 10**12}, "data.rows: 1,000,000,000,000 with 40 features needs"),
        ({"data.features": 10**9}, "data.rows: 300 with 1,000,000,000 features needs"),
        (
            {"data.hospitals": 10**11, "data.rows_per_hospital": 1, "data.rows": 38_700},
            "data.rows: 100,000,000,000 with 40 features",
        ),
        ({"data.groups": 10**9}, "data.groups: 1,000,000,000 with 40 features needs"),
        ({"training.rounds": "[" * 5000}, f"--set training.rounds: '{'[' * 39}…(4922 characters)…"),
        ({"training.rounds": "1" * 5000}, "--set training.rounds: '111"),
        ({"k" * 5000: 1}, f"{'k' * 40}…(4921 characters)…{'k' * 39}: unknown key; known: "),
        ({"training." + "k" * 5000: 1}, "training.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk…(4930 characters)…"),
    ],
    ids=lambda value: str(value)[:50] if isinstance(value, dict) else "",
)
def test_a_bad_setting(changes, message, capsys, monkeypatch):
    said = refused(["run", *settings(SMALL | changes)], capsys, monkeypatch)
    assert said.startswith(message), said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml: cannot be read (No such file or directory)"),
        (["run", "--set", "training.rounds"], "--set: 'training.rounds' is not key=value"),
        (["run", "--set", "name=2024-13-45"], "--set name: '2024-13-45' is not a YAML value; quote it"),
        (["run", "--out", "/proc/nowhere"], "--out: /proc/nowhere cannot be written into ("),
        (["compare", "--set", "reference=nobody"], "reference: 'nobody' is not among the strategies compared"),
        (["compare", "--set", "strategies=[chip, chip]"], "strategies.1.label: 'chip' names two strategies"),
        (
            ["compare", "--set", "strategies=[{name: fedavg, label: 'mu=0'}, {name: local, label: 'MU>0'}]"],
            "strategies.1.label: 'MU>0' and 'mu=0' would share the folder runs/MU_0; give one of them a label",
        ),
        (
            ["run", "--set", "strategies=[{name: fedprox, mu: 1}]", "--set", "strategy={name: fedprox, mu: -1}"],
            "strategy.mu: -1.0 is not at least 0",
        ),
        (["compare", "--set", "strategies=[{name: chip, lam: -2}]"], "strategies.0.lam: -2.0 is not at least 0"),
        (["compare", "--set", "seeds=[1, 2, 1]"], "seeds: [1, 2, 1] repeats a seed; name each once"),
        (["compare", "--set", "seeds=[1, -1]"], "seeds.1: -1 is not at least 0"),
        (["compare", "--set", "seeds=[9223372036854775808]"], "seeds.0: 9223372036854775808 is not less than"),
        (["describe", "--set", "data.rows=0"], "data.rows: 0 is not at least 1"),
        (
            ["describe", "--set", "strategies=[fedavg, chipp]"],
            "strategies.1.name: 'chipp' is not a known name; did you mean 'chip'?",
        ),
        (["describe", "--set", "strategies=[{name: fedprox, nu: 1}]"], "strategies.0.nu: unknown key; "),
        (["describe", "--set", "strategy=nobody"], "strategy.name: 'nobody' is not a known name; known: "),
        (["describe", "--set", "selection=nobody"], "selection.name: 'nobody' is not a known name; known: "),
        (["describe", "--set", "reference=nobody"], "reference: 'nobody' is not among the strategies compared"),
        (
            ["describe", "--table", "no/such.csv"],
            "--table: no/such.csv is a folder, or is in a folder that does not exist; name a file",
        ),
        (["describe", "--table", "n" * 300], f"{'n' * 40}…(221 characters)…{'n' * 39}: File name too long; name a"),
        (["run", "--out", "a/" + "n" * 300], "--out: a/nnn"),
        (["run", "--set", f"tracking.uri=sqlite:///{'n' * 300}"], "tracking.uri: sqlite:///nnn"),
        (["run", "--set", "data.source=table", "--set", f"data.path={'n' * 300}.csv"], "data"),
        (["plan", "--nodes", "100000000000x1cpu"], "--nodes: '100000000000x1cpu' describes more than 10,000 nodes,"),
        (["plan", "--nodes", f"{'9' * 5000}x1cpu"], f"--nodes: '{'9' * 39}…(4927 characters)…"),
        (["plan", "--nodes", f"1x{'9' * 400}cpu"], "--nodes: '1x999"),
        (["plan", "--nodes", ",".join(["9999x1cpu"] * 3)], "--nodes: '9999x1cpu,9999x1cpu,9999x1cpu' describes more"),
        (["describe", "--table", "/proc/nothing.csv"], "--table: /proc/nothing.csv cannot be written (No such file"),
    ],
)
def test_a_bad_command(arguments, message, capsys, monkeypatch):
    if arguments[1] != "nowhere.yaml":
        arguments = [*arguments, *settings({k: v for k, v in SMALL.items() if f"{k}=" not in str(arguments)})]
    said = refused(arguments, capsys, monkeypatch)
    assert said.startswith(message), said


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["run", "--foo"], ["--foo", "see 'raysim run --help'"]),
        (["--foo"], ["--foo", "see 'raysim --help'"]),
        (["trian"], ["'trian'", "see 'raysim --help'"]),
        (["run", "a.yaml", "b.yaml"], ["b.yaml", "see 'raysim run --help'"]),
        (["run", "--seed", "x"], ["'--seed': 'x' is not a whole number", "see 'raysim run --help'"]),
        (["audit", "a.yaml", "--shadows", "1.5"], ["'--shadows': '1.5' is not a whole number"]),
        (["audit", "a.yaml", "--canaries", "few"], ["'--canaries': 'few' is not a whole number"]),
        (["ui", "--port", "http"], ["'--port': 'http' is not a whole number"]),
        (["list", "strategy"], ["'strategy'", "strategies", "see 'raysim list --help'"]),
        (["list"], ["Missing argument", "strategies", "see 'raysim list --help'"]),
        (["run", "--out"], ["--out", "help'"]),
        (["run", "--json=3"], ["--json", "help'"]),
        (["predict"], ["RUN", "see 'raysim predict --help'"]),
    ],
)
def test_a_mistaken_command_line(arguments, messages, capsys, monkeypatch):
    said = refused(arguments, capsys, monkeypatch)
    assert all(message in said for message in messages), said


def test_a_command_line_without_a_word_is_answered_with_help(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["raysim"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code in (0, 2)  # versions of typer differ
    said = capsys.readouterr()
    assert "Usage: raysim" in said.out + said.err


def test_a_table_of_hospitals_takes_no_result_s_place(tmp_path, capsys, monkeypatch):
    Manifest.begin(tmp_path, "run").text("hospitals.csv", "figures")
    said = refused(["describe", *settings(SMALL), "--table", str(tmp_path / "hospitals.csv")], capsys, monkeypatch)
    assert said.startswith(
        f"--table: {tmp_path}/hospitals.csv is one of the files that raysim wrote in {tmp_path}; name"
    )
    assert (tmp_path / "hospitals.csv").read_text() == "figures"


def test_with_verbose_a_traceback_stands_before_the_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["raysim", "run", "absent.yaml", "--verbose"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].startswith("raysim: ")
    assert "absent.yaml" in lines[-1]


def test_a_folder_whose_name_is_too_long(capsys, monkeypatch):
    assert "File name too long; name a shorter path" in refused(["resume", "n" * 300], capsys, monkeypatch)


def test_a_strategy_tuned_on_other_data(capsys, monkeypatch):
    Path("tuned.yaml").write_text("data: {hospitals: 7, rows: 300}\nstrategy: fedprox\n")
    tuned = ["compare", *settings(SMALL), "--set", "strategies=[fedavg, {from: tuned.yaml}]"]
    said = refused(tuned, capsys, monkeypatch)
    assert said.startswith("strategies.1.from: tuned.yaml has other data (data.hospitals is 7, here 6)")


@pytest.mark.parametrize(
    "text",
    [
        "seed: [",
        "- a\n- b",
        "\x00",
        "name: 2024-13-45",
        "name: " + "[" * 100_000,
        "seed: " + "1" * 5000,
        "name: !!timestamp x",
        "name: !!int ''",
        "name: &a [*a]",
        "name: a # " + "x" * (2 * 2**20),
    ],
)
def test_a_file_that_is_no_configuration(text, capsys, monkeypatch):
    Path("c.yaml").write_text(text)
    assert refused(["run", "c.yaml"], capsys, monkeypatch).startswith("c.yaml: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\ntraining: {rounds: 3}\nseed: 2\n", "c.yaml: line 3: key 'seed' occurs in line 1 already; keep one"),
        ("training:\n  rounds: 3\n  rounds: 4\n", "c.yaml: line 3: key 'rounds' occurs in line 2 already; keep one"),
        ("strategies:\n  - {name: fedprox, mu: 1, mu: 2}\n", "c.yaml: line 2: key 'mu' occurs twice; keep one"),
        ('name: "a\\0b"\n', "c.yaml: name: 'a\\x00b' holds a null byte, which no name or path may contain; remove it"),
        (
            'name: "a\\ud800b"\n',
            "c.yaml: name: 'a\\ud800b' holds an invalid Unicode character (a surrogate); remove it",
        ),
        ('"\\udc80": 1\n', "c.yaml: the value: '\\udc80' holds an invalid Unicode character"),
        ('strategies: [{name: fedavg, label: "\\0"}]\n', "c.yaml: strategies.0.label: '\\x00' holds a null byte"),
    ],
)
def test_a_file_in_which_something_would_be_lost(text, message, capsys, monkeypatch):
    Path("c.yaml").write_text(text)
    assert refused(["run", "c.yaml"], capsys, monkeypatch).startswith(message)


def test_a_key_that_is_merged_in_may_be_set_again():
    text = "x: &x {rounds: 3, batch_size: 8}\ny: {<<: *x, rounds: 4}\n"
    assert loading.load(text)["y"] == {"rounds": 4, "batch_size": 8}


def test_no_source_of_data_takes_an_infinite_number():
    """But for the table's, which has none: a draw with it would be made of infinite or undefined rows."""
    tried = 0
    for name, entry in registry.entries("sources").items():
        source = entry.load()
        for field, hint in get_type_hints(source).items():
            if hint is float:
                with pytest.raises(ValidationError) as refusal:
                    adapter(source).validate_python({field: math.inf})
                assert (field,) in [error["loc"] for error in refusal.value.errors()], (name, field)
                tried += 1
    assert tried > 10


TABLES = {
    "missing": (None, "data.path: "),
    "empty": ("site,label,x\n", "data.path: "),
    "one class": ("site,label,x\na,0,1\nb,0,2\na,0,3\n", "data: all 3 rows are of one class"),
    "no label column": ("site,died,x\na,0,1\nb,1,2\n", "data.label: "),
    "blank label": ("site,label,x\na,0,1\nb,,2\na,1,2\n", "data.label: "),
    "infinite label": ("site,label,x\na,0,1\nb,inf,2\na,1,2\n", "data.label: "),
    "ragged": ("site,label,x\na,0,1\nb,1,2,3,4\na,1,3\n", "data.path: "),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_bad_table(case, capsys, monkeypatch):
    text, message = TABLES[case]
    if text is not None:
        Path("t.csv").write_text(text)
    said = refused(
        ["run", *settings({"data.source": "table", "data.path": "t.csv", "data.silo": "site", "data.label": "label"})],
        capsys,
        monkeypatch,
    )
    assert said.startswith(message), said


def test_a_text_column_where_numbers_are_asked(capsys, monkeypatch):
    Path("t.csv").write_text("site,label,x\na,0,low\nb,1,high\na,1,low\n")
    data = {"data.source": "table", "data.path": "t.csv", "data.silo": "site", "data.label": "label"}
    said = refused(["run", *settings(data | {"data.numeric": "[x]"})], capsys, monkeypatch)
    assert said.startswith("data.numeric: "), said
    assert "'x'" in said


def test_a_corrupt_gzip(capsys, monkeypatch):
    whole = gzip.compress(b"site,label,x\n" + b"a,0,1\nb,1,2\n" * 500)
    Path("t.csv.gz").write_bytes(whole[: len(whole) // 2])
    data = {"data.source": "table", "data.path": "t.csv.gz", "data.silo": "site", "data.label": "label"}
    assert refused(["run", *settings(data)], capsys, monkeypatch).startswith("data.path: ")


def test_divergence_names_round_and_hospital_and_leaves_no_results(capsys, monkeypatch):
    monkeypatch.setattr(
        sys,
        "argv",
        ["raysim", "run", "--in-process", "--out", "out", *settings(SMALL | {"training.learning_rate": 1e30})],
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = refusal(capsys.readouterr().err)
    assert ended.value.code == 2
    assert said.startswith("training.learning_rate: 1e+30 made hospital ")
    assert "in round 1; lower it" in said
    assert not Path("out").exists()


def test_the_module_and_the_command_are_the_same():
    script = Path(sys.executable).with_name("raysim")
    answers = [
        subprocess.run([*command, "run", "--set", "seed=-1"], capture_output=True, text=True)
        for command in ([str(script)], [sys.executable, *STRICT, "-m", "raysim"])
    ]
    assert answers[0].returncode == answers[1].returncode == 2
    assert answers[0].stderr == answers[1].stderr == "raysim: seed: -1 is not at least 0\n"


@pytest.mark.parametrize("command", ["run", "compare", "curve", "sweep", "study"])
def test_a_folder_with_files_of_others_is_left_alone(command, capsys, monkeypatch):
    Path("mine").mkdir()
    Path("mine/hospitals.csv").write_text("my own\n")
    configurations = {
        "curve": "strategies: [fedavg, fedprox]\ncurve: {field: mu, values: [0.1]}\n",
        "sweep": "data: {split: {train: 0.6, validation: 0.2, test: 0.2}}\n"
        "sweep: {searcher: random, trials: 1, space: {training.learning_rate: {uniform: [0.1, 0.2]}}}\n",
        "study": "data: {source: digits}\nstudy: {clients: [4], alphas: [1.0, 0.5], seeds: [1, 2]}\n",
    }
    Path("c.yaml").write_text(configurations.get(command, "tracking: {uri: none}\n"))
    small = [] if command == "study" else settings(SMALL)
    said = refused([command, "c.yaml", *small, "--out", "mine"], capsys, monkeypatch)
    assert said == (
        "--out: mine holds a file that raysim did not write ('hospitals.csv'), and results could replace it; name "
        "another folder"
    )
    assert Path("mine/hospitals.csv").read_text() == "my own\n"
