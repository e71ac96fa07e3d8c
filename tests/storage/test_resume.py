"""Runs and comparisons that are stopped and go on, and what they find in their folder. All in this process."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from mlflow.tracking import MlflowClient
from rich.console import Console
from safetensors.numpy import load_file

from raysim.cli import commands
from raysim.config import reading
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, ResourceError
from raysim.engine.job import Round
from raysim.experiment.curves import curve
from raysim.report.terminal.progress import RunProgress
from raysim.storage import encoding, resume
from raysim.storage.manifest import Manifest
from tests.conftest import MakeFederation, empty_store

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 400, "features": 4},
    "training": {"rounds": 7, "batch_size": 32},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 2},
}


FILES = ("models.safetensors", "hospitals.csv", "egress.csv")


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A working folder with an empty MLflow store, and a data cache that all tests of the module fill once."""
    monkeypatch.chdir(empty_store(tmp_path))
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))
    return tmp_path


def start(tree: dict[str, Any], out: str, *, compare: bool = False) -> None:
    Path(f"{out}.yaml").write_text(yaml.safe_dump(tree))
    command = commands.compare_all if compare else commands.run_one
    command(reading.resolve(Path(f"{out}.yaml")), Console(quiet=True), Path(out), in_process=True, verbose=False)


def go_on(folder: Path | str) -> str:
    console = Console(width=300, record=True, file=io.StringIO())
    commands.resume_run(Path(folder), console, in_process=True, verbose=False)
    return console.export_text()


def stop_at(monkeypatch, round: int, job: int = 1, error: BaseException | None = None) -> None:
    """Raise ``error``, without one that of Ctrl-C, as soon as this round of the ``job``-th job is reported."""
    begin, show, jobs = RunProgress.begin, RunProgress.round, [0]

    def counted(self: RunProgress, label: str, rounds: int) -> None:
        jobs[0] += 1
        begin(self, label, rounds)

    def stopped(self: RunProgress, row: Round) -> None:
        if jobs[0] == job and row.round == round:
            raise error or KeyboardInterrupt
        show(self, row)

    monkeypatch.setattr(RunProgress, "begin", counted)
    monkeypatch.setattr(RunProgress, "round", stopped)


def stopped(monkeypatch, tree: dict[str, Any], out: str, round: int, job: int = 1, *, compare: bool = False) -> None:
    """A run or comparison that is stopped by Ctrl-C; see :func:`stop_at`."""
    with monkeypatch.context() as patch:
        stop_at(patch, round, job)
        with pytest.raises(KeyboardInterrupt):
            start(tree, out, compare=compare)


def rounds(folder: str) -> pd.DataFrame:
    return pd.read_csv(Path(folder) / "rounds.csv").drop(columns="seconds")


def test_a_stopped_run_ends_as_if_it_had_not_been(here: Path, monkeypatch):
    tree = SMALL | {"strategy": {"name": "chip", "clusters": 3}}
    start(tree, "whole")
    stopped(monkeypatch, tree, "stopped", 5)
    assert not Path("stopped/models.safetensors").exists()
    client = MlflowClient(f"sqlite:///{here / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("raysim")
    assert experiment is not None
    assert [run.info.status for run in client.search_runs([experiment.experiment_id])] == ["KILLED", "FINISHED"]
    strays = [Path("stopped") / f".{2**30}.hospitals.csv", Path("stopped/checkpoints") / f".{2**30}.x"]
    for each in strays:  # of a process that was killed: Linux has no number as high
        each.parent.mkdir(exist_ok=True)
        each.touch()
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir("/")  # relative paths mean what they meant
        said = go_on(here / "stopped")
    assert "chip resumes from round 4 of 7" in said
    assert not any(each.exists() for each in strays)
    for name in FILES:
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes(), name
    pd.testing.assert_frame_equal(rounds("whole"), rounds("stopped"))
    assert load_file("stopped/models.safetensors")
    assert "finished, nothing to resume" in go_on("stopped")

    recorded = client.search_runs([experiment.experiment_id])
    assert len(recorded) == 2
    for run in recorded:
        assert run.info.status == "FINISHED"
        assert "error" not in run.data.tags
        steps = [point.step for point in client.get_metric_history(run.info.run_id, "global/auroc")]
        assert sorted(steps) == [1, 2, 3, 4, 5, 6, 7]
        stored = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
        assert "models.safetensors" in stored
        assert not {"checkpoints", "resume.json"} & stored


@pytest.mark.parametrize("compare", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_a_run_of_another_version_is_refused_and_left_as_it_is(here: Path, monkeypatch, compare, changed):
    """Settings that this version adds or drops are not a change of the configuration."""
    tree = SMALL | ({"strategies": ["fedavg", "local"], "seeds": [1]} if compare else {"strategy": "fedavg"})
    with monkeypatch.context() as version:
        version.setattr("raysim.storage.encoding.FORMAT", encoding.FORMAT - 1)
        stopped(monkeypatch, tree, "stopped", 5, compare=compare)
    for path in Path("stopped").rglob(resume.FILE) if changed else ():
        content = json.loads(path.read_text())
        del content["settings"]["evaluation"]["importance"]
        path.write_text(json.dumps(content))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    with pytest.raises(ConfigError) as said:
        go_on("stopped")
    (line,) = str(said.value).splitlines()
    assert line.startswith("checkpoint: ")
    assert f"its format is {encoding.FORMAT - 1}, and this version reads {encoding.FORMAT})" in line
    assert before == {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_a_setting_that_another_version_lacked_is_named_with_what_can_be_done(here: Path, monkeypatch):
    tree = SMALL | {"strategy": "fedavg", "checkpoint": {"every": 0}}
    stopped(monkeypatch, tree, "stopped", 5)
    path = Path("stopped") / resume.FILE
    content = json.loads(path.read_text())
    del content["settings"]["evaluation"]["importance"]
    path.write_text(json.dumps(content))
    with pytest.raises(
        ConfigError,
        match=r"^evaluation\.importance: is 0, but was absent when the run was started; restore it, finish the run "
        r"with the version that started it, or start a new run$",
    ):
        go_on("stopped")


@pytest.mark.parametrize(
    ("tree", "round", "job", "stored"),
    [
        ({"strategy": "fedavg"}, 5, 1, True),
        ({"strategy": "fedavg"}, 1, 1, False),
        ({"strategy": "fedavg", "checkpoint": {"every": 2, "path": "file://HERE/there"}}, 1, 1, True),
        ({"strategies": ["fedavg", "local"], "seeds": [1], "checkpoint": {"every": 0}}, 1, 1, False),
        ({"strategies": ["fedavg", "local"], "seeds": [1], "checkpoint": {"every": 0}}, 1, 2, True),
    ],
)
def test_what_the_machine_lacks_is_no_reason_to_go_on_where_nothing_is_kept(
    tree: dict[str, Any], round: int, job: int, stored: bool, here: Path, monkeypatch
):
    lacks = ResourceError("resources: there is none")
    stop_at(monkeypatch, round, job, lacks)
    text = yaml.safe_dump(SMALL | {"tracking": {"uri": "none"}} | tree)
    Path("c.yaml").write_text(text.replace("HERE", str(here)))
    console = Console(width=300, file=io.StringIO())
    command = commands.compare_all if "strategies" in tree else commands.run_one
    with pytest.raises(ResourceError):
        command(reading.resolve(Path("c.yaml"), reads=()), console, Path("out"), in_process=True, verbose=False)
    said = console.file.getvalue()
    assert ("stopped; continue with 'raysim resume out'" in said) == stored, said


def test_a_run_stopped_before_its_first_checkpoint_starts_again(here: Path, monkeypatch):
    tree = SMALL | {"checkpoint": {"every": 0}, "strategy": "local", "selection": "all", "tracking": {"uri": "none"}}
    start(tree, "whole")
    stopped(monkeypatch, tree, "stopped", 5)
    assert "local resumes from the start" in go_on("stopped")
    for name in FILES:
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes(), name


@pytest.mark.faults
def test_a_stopped_comparison_repeats_no_finished_run_that_is_whole(here: Path, monkeypatch):
    tree = SMALL | {"strategies": ["fedavg", "fedprox", "local", {"name": "chip", "clusters": 3}], "seeds": [1]}
    start(tree | {"tracking": {"uri": "none"}}, "whole", compare=True)
    stopped(monkeypatch, tree, "stopped", 6, job=4, compare=True)
    runs = Path("stopped/runs")
    made = (runs / "local/seed-1/models.safetensors").stat().st_mtime_ns
    (runs / "fedavg/seed-1/summary.json").unlink()
    changed = runs / "fedprox/seed-1/summary.json"
    changed.write_text(changed.read_text().replace('"model"', '"mode"'))
    frozen = Path("stopped/config.yaml").read_bytes()
    said = go_on("stopped")
    assert Path("stopped/config.yaml").read_bytes() == frozen
    for label in ("fedavg", "fedprox"):
        assert f"{label}, seed 1 resumes from" in said
        for name in (f"runs/{label}/seed-1/summary.json", f"runs/{label}/seed-1/models.safetensors"):
            whole, again = (Path(folder, name).read_text(errors="replace") for folder in ("whole", "stopped"))
            assert _without_seconds(whole) == _without_seconds(again), name
    assert "chip, seed 1 resumes from round 6 of 7" in said
    assert (runs / "local/seed-1/models.safetensors").stat().st_mtime_ns == made
    for name in ("hospitals.csv", "noise.csv", "answer.json"):
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes(), name
    tables = [pd.read_csv(f"{folder}/comparison.csv") for folder in ("whole", "stopped")]
    timeless = [table.drop(columns=["seconds", "seconds_std"]) for table in tables]
    pd.testing.assert_frame_equal(timeless[0], timeless[1], check_exact=True)
    assert not list(Path("stopped").rglob("finished.safetensors"))
    client = MlflowClient(f"sqlite:///{here / 'mlflow.db'}")
    recorded = client.search_runs([client.get_experiment_by_name("raysim").experiment_id])
    assert len(recorded) == 5
    assert {run.info.status for run in recorded} == {"FINISHED"}


def _without_seconds(text: str) -> list[str]:
    return [line for line in text.splitlines() if "seconds" not in line]


@pytest.mark.faults
def test_a_stopped_curve_goes_on_to_its_table_and_picture(here: Path, monkeypatch):
    tree = SMALL | {"strategies": ["fedprox"], "reference": "fedprox, mu 0", "tracking": {"uri": "none"}}
    tree["curve"] = {"field": "mu", "values": [0, 1]}

    def begin(out: str) -> None:
        curve.begin(tree, [], Path(out), Console(quiet=True), in_process=True, verbose=False)

    begin("whole")
    with monkeypatch.context() as patch:
        stop_at(patch, 5, job=2)
        with pytest.raises(KeyboardInterrupt):
            begin("stopped")
    stored = Path("stopped/curve.json").read_text()
    for wrong in ("[]", '{"curve": {}, "lines": {}}', stored.replace('"mu"', "null")):
        Path("stopped/curve.json").write_text(wrong)
        with pytest.raises(ConfigError, match="curve"):
            go_on("stopped")
    Path("stopped/curve.json").write_text(stored)
    assert "fedprox, mu 1, seed 42 resumes from round 4 of 7" in go_on("stopped")
    assert Path("stopped/plots/curve.svg").exists()
    for name in ("curve.csv", "hospitals.csv", "curve.json"):
        assert Path("whole", name).read_bytes() == Path("stopped", name).read_bytes(), name


@pytest.mark.faults
def test_a_run_that_ends_early_goes_on_as_if_it_had_not_been_stopped(here: Path, monkeypatch):
    tree = SMALL | {"strategy": "fine_tuning", "tracking": {"uri": "none"}}
    tree["data"] = SMALL["data"] | {"split": {"train": 0.6, "validation": 0.2, "test": 0.2}}
    tree["training"] = {"rounds": 30, "batch_size": 32, "learning_rate": 5.0, "stop": {"patience": 3}}
    start(tree, "whole")
    stopped(monkeypatch, tree, "stopped", 3)
    assert "fine_tuning resumes from round 2" in go_on("stopped")
    assert Path("whole/models.safetensors").read_bytes() == Path("stopped/models.safetensors").read_bytes()
    whole, again = (json.loads(Path(folder, "summary.json").read_text()) for folder in ("whole", "stopped"))
    assert whole["stopped_at"] == whole["rounds"] == len(rounds("whole")) < 30
    assert whole["stopped_at"] == whole["served_round"] + 3
    for summary in (whole, again):
        del summary["seconds"], summary["seconds_rounds"]
    assert whole == again
    pd.testing.assert_frame_equal(rounds("whole"), rounds("stopped"))
    assert rounds("whole")["validation_loss"].notna().all()


def test_what_has_changed_since_the_start_is_named(here: Path, monkeypatch):
    tree = SMALL | {"strategy": "fedavg", "tracking": {"uri": "none"}}
    stopped(monkeypatch, tree, "out", 5)
    path = Path("out/config.yaml")
    text = path.read_text()
    path.write_text(text.replace("rounds: 7", "rounds: 9"))
    with pytest.raises(ConfigError, match=r"^training.rounds: is 9, but was 7 when the run was started; restore it"):
        go_on("out")
    path.write_text(text.replace("missing_flags: true", "missing_flags: false"))
    with pytest.raises(ConfigError, match=r"^data.missing_flags: is false, but was true when"):
        go_on("out")
    path.write_text(text.replace("rows: 400", "rows: 401"))
    with pytest.raises(ConfigError, match=r"^data.rows: is 401, but was 400"):
        go_on("out")
    path.write_text(text.replace("keep: 2", "keep: 3").replace("device: auto", "device: cpu"))
    assert "resumes from round 4" in go_on("out")
    with pytest.raises(ConfigError, match=r"has no run to resume \(resume.json: No such file"):
        go_on(here)


def test_a_ticket_of_no_command_is_refused(here: Path, monkeypatch):
    stopped(monkeypatch, SMALL | {"strategy": "local", "selection": "all", "tracking": {"uri": "none"}}, "run", 5)
    ticket = json.loads(Path("run/resume.json").read_text())
    Path("run/resume.json").write_text(json.dumps(ticket | {"kind": "contest"}))
    with pytest.raises(
        ConfigError, match=r"resume.json: kind 'contest' is not among those that this version resumes \(run"
    ):
        go_on("run")


def test_a_run_on_a_fold_goes_on(here: Path, monkeypatch):
    """Its written configuration names no fractions, which could not stand beside folds."""
    data = SMALL["data"] | {"split": {"folds": 3}}
    stopped(
        monkeypatch,
        SMALL | {"data": data, "strategy": "local", "selection": "all", "tracking": {"uri": "none"}},
        "run",
        5,
    )
    assert reading.read_tree(Path("run/config.yaml"))["data"]["split"] == {"folds": 3}
    assert "local resumes from round 4 of 7" in go_on("run")


def test_a_folder_at_work_is_left_alone(here: Path, monkeypatch):
    tree = SMALL | {"strategy": "fedavg", "tracking": {"uri": "none"}}
    show = RunProgress.round

    def second(self: RunProgress, row: Round) -> None:
        show(self, row)
        if row.round == 3:
            with pytest.raises(ConfigError, match="another raysim command is using this folder"):
                start(tree, "out")

    monkeypatch.setattr(RunProgress, "round", second)
    start(tree, "out")


def test_checkpoints_may_be_anywhere(here: Path, monkeypatch):
    tree = SMALL | {"strategy": "fedavg", "tracking": {"uri": "none"}}
    tree["checkpoint"] = {"every": 2, "path": (here / "store").as_uri()}
    stopped(monkeypatch, tree, "out", 5)
    assert not Path("out/checkpoints").exists()
    assert len(list(Path("store").glob("raysim-*/round-*"))) == 2
    assert "resumes from round 4" in go_on("out")
    with pytest.raises(ConfigError, match=r"checkpoint.path: nowhere://x cannot be used"):
        start(tree | {"checkpoint": {"path": "nowhere://x"}}, "other")
    with pytest.raises(ConfigError, match=r"checkpoint.path: /proc/x cannot be written"):
        start(tree | {"checkpoint": {"path": "/proc/x"}}, "other")


def test_what_begins_removes_the_results_of_before_and_nothing_else(federate: MakeFederation, tmp_path: Path):
    folder, others = tmp_path / "out", ("mine.csv", "plots/mine.png", "runs/local/seed-1/patients.csv", "rounds.csv")
    for name in (*others, "runs/local/seed-1/resume.json", "runs/fedavg/seed-1/resume.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("of someone else")
    whole, ended, stopped = (
        Manifest.begin(folder / name, kind)
        for name, kind in ((".", "compare"), ("runs/chip/seed-1", "run"), ("runs/fedavg/seed-1", "run"))
    )
    for manifest in (whole, ended, stopped):
        manifest.text("egress.csv", "of before")
        manifest.text("plots/curves.png", "of before")
    whole.add(ended)  # the other one was stopped before it was whole

    federation, frozen = federate([5, 5]), Config().frozen()
    with resume.opened("compare", folder, frozen, federation, "test", again=False) as run:
        left = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert left == {*others, "config.yaml", "resume.json", "manifest.json"}
        assert not (folder / "runs" / "chip").exists()
        run.manifest.text("comparison.csv", "of this one")

    with resume.opened("compare", folder, frozen, federation, "test", again=True) as run:
        assert run.again
        assert list(run.manifest.files) == ["config.yaml", "comparison.csv"]
        assert (folder / "comparison.csv").exists(), "one that goes on keeps what it has"


def test_a_folder_of_a_version_that_wrote_no_manifest_is_not_resumed(here: Path, monkeypatch):
    tree = SMALL | {"strategies": ["fedavg", "local"], "tracking": {"uri": "none"}}
    stopped(monkeypatch, tree, "out", 5, compare=True)
    Path("out/manifest.json").unlink()
    with pytest.raises(ConfigError) as error:
        go_on("out")
    said = str(error.value)
    assert said.startswith(f"{here / 'out'}: its manifest.json, which lists what raysim wrote there, cannot be read")
    assert "start again in another folder" in said
    assert len(said.splitlines()) == 1


def test_a_stop_between_two_files_leaves_none_that_is_not_listed(here: Path, monkeypatch):
    """A run that is stopped as it writes its models has neither listed its other results nor made them appear; who
    begins again in its folder finds none of them."""
    tree = SMALL | {"strategy": "fedavg", "tracking": {"uri": "none"}}
    with monkeypatch.context() as patch:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("safetensors.numpy.save_file", full)
        with pytest.raises(ResourceError, match="No space left on device"):
            start(tree, "out")
    manifest = Manifest.read(Path("out"))
    assert set(manifest.files) == {"config.yaml"}
    made = {path.name for path in Path("out").iterdir() if path.is_file()}
    assert made == {*manifest.files, "manifest.json", "resume.json"}
    start(tree | {"training": {"rounds": 0}}, "out")
    assert not Manifest.read(Path("out")).changed()
