"""Whole sweeps on a real Ray: files, failures, stopping and going on, schedulers, and the commands."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
import yaml
from rich.console import Console

from raysim.cli import main as cli
from raysim.config import reading
from raysim.core import host
from raysim.core.errors import RaysimError
from raysim.experiment.session import open_session
from raysim.storage.resume import held
from raysim.tune import sweep as sweeps
from raysim.tune.choice import choose
from raysim.tune.journal import Finished
from raysim.tune.plan import make_plan
from raysim.tune.schedulers import make_scheduler
from tests.commands import started
from tests.conftest import shared_ray
from tests.fuzz.command import answer, limited
from tests.tune.conftest import small_tree

pytestmark = shared_ray("sweeps")

FILES = {
    *("journal.jsonl", "manifest.json", "pareto.csv", "plots", "recommended", "recommended.yaml"),
    *("report.html", "summary.json", "sweep.yaml", "trials.csv"),
}


def begin(path: Path, out: Path) -> tuple[int, str]:
    """Runs a sweep; gives its exit code and what it printed."""
    printed = io.StringIO()
    code = sweeps.begin(path, [], out, Console(file=printed, width=160), verbose=False)
    return code, printed.getvalue()


def go_on(out: Path, failed: bool = False) -> tuple[int, str]:
    printed = io.StringIO()
    code = sweeps.go_on(out, Console(file=printed, width=160), failed=failed, verbose=False)
    return code, printed.getvalue()


SAME = {"strategy.label": {"grid": ["a", "b"]}, "strategy.lam": {"grid": [0.1, 0.9]}}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, int]:
    """A finished sweep: its folder, exit code, what it printed, and how often hospitals were started.

    The label changes nothing but the name, so that trials of one ``lam`` are the same configuration.
    """
    folder = tmp_path_factory.mktemp("ended")
    tree = small_tree(seeds=[3, 4], sweep__space=SAME, sweep__searcher="grid", sweep__trials=None, sweep__concurrent=2)
    (folder / "sweep.yaml").write_text(yaml.safe_dump(tree))
    starts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "open_session", lambda *a, **k: starts.append(a) or open_session(*a, **k))
        code, said = begin(folder / "sweep.yaml", folder / "out")
    return folder / "out", code, said, len(starts)


def test_a_sweep_leaves_its_files_and_equal_configurations_equal_figures(ended):
    out, code, said, starts = ended
    assert (code, starts) == (0, 1)  # one standing federation for all trials
    assert {path.name for path in out.iterdir()} == FILES
    table = pd.read_csv(out / "trials.csv")
    assert len(table) == 4
    metrics = ["auroc", "worst_decile", "size_bias", "gini", "log_loss"]
    for _, same in table.groupby("strategy.lam"):
        assert (same[metrics].max() - same[metrics].min()).max() <= 1e-6
    assert table["auroc"].nunique() > 1
    assert "4/4 trials done" in said
    assert re.search(r"gives up|no trial of the set is better", said)


def test_the_recommended_configuration_run_by_itself_gives_the_test_figures_that_the_sweep_reports(ended, tmp_path):
    from raysim.cli.commands import run_one

    out, *_ = ended
    recommended = reading.resolve(out / "recommended.yaml")
    run_one(recommended, Console(file=io.StringIO()), tmp_path / "run", in_process=True, verbose=False)
    run = json.loads((tmp_path / "run" / "summary.json").read_text())
    kept = json.loads((out / "recommended" / "seed-3" / "summary.json").read_text())
    for name in ("auroc", "worst_decile", "size_bias", "gini"):
        assert run[name] == pytest.approx(kept[name], abs=1e-6)
    other = json.loads((out / "recommended" / "seed-4" / "summary.json").read_text())
    reported = json.loads((out / "summary.json").read_text())["recommended"]["test"]["auroc"]["mean"]
    assert reported == pytest.approx((run["auroc"] + other["auroc"]) / 2, abs=1e-6)


def test_runs_on_test_rows_have_the_files_of_any_run(ended, tmp_path):
    from raysim.cli.commands import run_one

    out, *_ = ended
    alone = tmp_path / "run"
    run_one(
        reading.resolve(out / "recommended.yaml"), Console(file=io.StringIO()), alone, in_process=True, verbose=False
    )
    to_go_on = {"resume.json", "checkpoints"}
    for seed in (3, 4):
        kept = out / "recommended" / f"seed-{seed}"
        assert {path.name for path in kept.iterdir()} == {path.name for path in alone.iterdir()} - to_go_on
    for key in ("model", "auroc", "bytes_down"):
        said = [json.loads((at / "summary.json").read_text())[key] for at in (alone, out / "recommended" / "seed-3")]
        assert said[0] == said[1]


def test_only_one_command_at_a_time_works_in_a_sweeps_folder(ended, sweep_file, tmp_path):
    with held(ended[0]), pytest.raises(RaysimError, match="another raysim is at work in it"):
        go_on(ended[0])
    with held(tmp_path / "new"):
        with pytest.raises(RaysimError, match="another raysim is at work in it"):
            begin(sweep_file(), tmp_path / "new")
        assert list((tmp_path / "new").iterdir()) == []


def test_a_sweep_goes_on_from_any_folder(ended, tmp_path, monkeypatch):
    """Relative paths, and the folder itself, mean what they meant where each command was typed."""
    out, seen = tmp_path / "out", []
    shutil.copytree(ended[0], out)
    begun, elsewhere = tmp_path / "begun", tmp_path / "elsewhere"
    begun.mkdir(), elsewhere.mkdir()
    lines = (out / "journal.jsonl").read_text().splitlines(keepends=True)
    assert json.loads(lines[0])["working"] == os.getcwd()
    header = json.loads(lines[0]) | {"working": str(begun)}
    (out / "journal.jsonl").write_text("".join([json.dumps(header) + "\n", *lines[1:]]))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sweeps, "make_plan", lambda tree: seen.append(Path.cwd()) or make_plan(tree))
    assert go_on(Path("..") / "out")[0] == 0
    assert (seen, Path.cwd()) == ([begun], elsewhere)
    begun.rmdir()
    assert go_on(out)[0] == 0
    assert seen[1:] == [elsewhere]


def test_square_brackets_of_values_and_labels_are_printed():
    plan, _ = make_plan(small_tree())
    metrics = dict.fromkeys(plan.sweep.names, 0.5)
    params = {"strategy.label": "mine [v2]", "strategy.signature": ["mean", "std"]}
    trial = Finished(1, params, "completed", finals={3: {"global": metrics}})
    printed = Console(file=io.StringIO(), width=160, record=True)
    printed.print(sweeps._table(choose({1: trial}, plan.sweep), dict.fromkeys(metrics, (0.5, 0.0))))
    text = printed.export_text()
    assert "mine [v2]" in text
    assert "['mean', 'std']" in text


def test_a_sweep_goes_on_where_it_stopped_and_repeats_nothing(ended, sweep_file, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(ended[0], out)
    with monkeypatch.context() as patch:  # nothing is left: nothing is started, and nothing changes
        patch.setattr(sweeps, "open_session", None)
        code, said = go_on(out)
        assert code == 0
        assert "starting Ray" not in said
    whole = pd.read_csv(out / "trials.csv").drop(columns="seconds")
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:99])  # killed while it wrote the third trial
    code, said = go_on(out)
    assert code == 0
    assert "2 trials of 2 seeds" in said
    assert (out / "journal.jsonl").read_bytes().startswith(b"".join(lines[:3]))
    assert len((out / "journal.jsonl").read_bytes().splitlines()) == 5
    pd.testing.assert_frame_equal(pd.read_csv(out / "trials.csv").drop(columns="seconds"), whole)

    (out / "sweep.yaml").write_text((out / "sweep.yaml").read_text().replace("name: small", "name: other"))
    with pytest.raises(RaysimError, match=r"sweep.yaml: changed since the sweep began"):
        go_on(out)
    with pytest.raises(RaysimError, match="holds a sweep; go on with 'raysim resume"):
        begin(sweep_file(), out)
    with pytest.raises(RaysimError, match="is not the folder of a sweep"):
        go_on(tmp_path)


PLAIN = {"strategy": {"name": "fedprox"}, "resources": {"hospitals_per_actor": 12}}
"""For sweeps in which it does not matter what is trained, nor where: little to import, and one process of hospitals."""

FAILING = {"training.learning_rate": {"grid": [0.1, 1e30]}, "strategy.mu": {"uniform": [0, 1]}}


def test_failed_trials_are_recorded_with_their_error_and_the_sweep_goes_on(sweep_file, tmp_path):
    out = tmp_path / "out"
    path = sweep_file(**PLAIN, sweep__space=FAILING, sweep__retries=1, sweep__concurrent=1)
    code, said = begin(path, out)
    assert code == 3
    assert "2 of 4 trials failed" in said
    table = pd.read_csv(out / "trials.csv").set_index("trial")
    assert table["status"].tolist() == ["completed", "failed"] * 2
    failed = table[table["status"] == "failed"]
    assert failed["error"].str.contains("training.learning_rate: 1e\\+30 made hospital .* diverge in round 1").all()
    assert (failed["attempts"] == 2).all()
    assert json.loads((out / "summary.json").read_text())["failed"] == 2
    assert go_on(out, failed=True)[0] == 3  # tried again, failed again
    lines = (out / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines[1:]] == [1, 2, 3, 4, 2, 4]


STOPS = """
import os, pathlib, signal
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx


@dataclass(frozen=True, kw_only=True)
class Stops(FedProx):
    once: str

    def aggregate(self, view, state, update):
        if view.round == 2 and pathlib.Path(self.once).exists():
            pathlib.Path(self.once).unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().aggregate(view, state, update)
"""
"""A strategy whose process stands still in its second round while there is a file, which it takes away."""


def test_a_trial_that_stands_still_is_ended_and_tried_again(sweep_file, tmp_path, monkeypatch):
    (once := tmp_path / "once").touch()
    path = sweep_file(
        strategy={"class": "stopping_trials.Stops", "once": str(once)},
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__trials=2,
        sweep__retries=5,
    )
    path.with_name("stopping_trials.py").write_text(STOPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweeps, "longest_silence", lambda resources: 6.0)
    said_by_ray: list[logging.LogRecord] = []
    (handler := logging.Handler()).emit = said_by_ray.append  # type: ignore[method-assign, assignment]
    monkeypatch.setattr(logging.getLogger("ray.tune"), "handlers", [handler])
    with limited(300):
        code, said = begin(path, tmp_path / "out")
    assert code == 0, said
    assert not once.exists()
    assert said_by_ray == []
    assert pd.read_csv(tmp_path / "out" / "trials.csv")["status"].tolist() == ["completed"] * 2


FILLS = """
import os, pathlib
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx


@dataclass(frozen=True, kw_only=True)
class Fills(FedProx):
    journal: str

    def aggregate(self, view, state, update):
        here = pathlib.Path(self.journal)
        if view.round == 2 and not here.with_suffix(".kept").exists():
            here.rename(here.with_suffix(".kept"))
            here.symlink_to("/dev/full")
        return super().aggregate(view, state, update)
"""
"""A strategy that puts a full device in the place of the sweep's journal."""


def test_a_full_disk_ends_a_sweep_in_one_line(sweep_file, tmp_path, monkeypatch):
    journal = tmp_path / "out" / "journal.jsonl"
    path = sweep_file(
        strategy={"class": "filling_trials.Fills", "journal": str(journal)},
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__trials=2,
        sweep__concurrent=1,
    )
    path.with_name("filling_trials.py").write_text(FILLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(host, "take", lambda: None)
    ended = answer(["sweep", str(path), "--out", "out"], tmp_path, seconds=300)
    assert ended.code == 2, ended.err
    *_, line = ended.err.splitlines()
    assert line.startswith("raysim: ")
    assert "No space left on device" in line
    assert "Traceback" not in ended.err
    journal.with_suffix(".kept").replace(journal)
    (tmp_path / "out" / "journal.kept").touch()
    assert go_on(tmp_path / "out")[0] == 0


def test_a_scheduler_stops_trials_that_fall_behind(sweep_file, tmp_path):
    space = {"training.learning_rate": {"grid": [0.2, 1e-7, 1e-8, 0.1]}}
    scheduler = {"name": "asha", "grace": 1, "reduction": 2}
    path = sweep_file(
        **PLAIN,
        sweep__space=space,
        sweep__scheduler=scheduler,
        sweep__objectives={"log_loss": "min"},
        sweep__concurrent=1,
        training__rounds=4,
    )
    code, said = begin(path, tmp_path / "out")
    assert code == 0
    table = pd.read_csv(tmp_path / "out" / "trials.csv").set_index("trial")
    stopped = table[table["status"] == "stopped"]
    assert {2, 3} <= set(stopped.index) <= {2, 3, 4}
    assert (stopped["rounds"] < 4).all()
    assert stopped["pareto"].isna().all()
    assert f"{len(stopped)} stopped" in said


def test_population_based_training_runs_every_trial_to_its_end(sweep_file, tmp_path):
    """Whether trials this small meet at all is up to the machine; what they do then is tested by itself below."""
    scheduler = {"name": "pbt", "objective": "auroc", "every": 2}
    path = sweep_file(
        sweep__space=RATES,
        sweep__scheduler=scheduler,
        sweep__concurrent=2,
        training__rounds=4,
        resources__hospitals_per_actor=12,
    )
    assert begin(path, tmp_path / "out")[0] == 0
    table = pd.read_csv(tmp_path / "out" / "trials.csv").set_index("trial")
    assert sorted(table.index) == [1, 2, 3, 4]
    assert (table["rounds"] == 4).all()
    assert table["training.learning_rate"].between(1e-6, 0.5).all()


RATES = {"training.learning_rate": {"loguniform": [1e-6, 0.5]}, "strategy.clusters": {"randint": [2, 4]}}


def test_population_based_training_perturbs_rates_within_their_range_and_nothing_else():
    scheduler = {"name": "pbt", "objective": "auroc", "every": 2}
    plan, _ = make_plan(small_tree(sweep__space=RATES, sweep__scheduler=scheduler))
    made = make_scheduler(plan.sweep, plan.space, 8, seed=0)
    config = {"trial": {"number": 3, "params": {"training.learning_rate": 0.49, "strategy.clusters": 3}}}
    rates = set()
    for _ in range(40):
        new, _ = made._get_new_config(None, SimpleNamespace(config=config))
        assert new["trial"]["params"]["strategy.clusters"] == 3
        rates.add(new["trial"]["params"]["training.learning_rate"])
    assert {0.5, 0.49 * 0.8} < rates  # 0.49 * 1.2 is cut off; resampled ones besides
    assert all(1e-6 <= rate <= 0.5 for rate in rates)


HELD = """
import itertools, pathlib, time
from dataclasses import dataclass
from raysim.strategies.one_model.fedprox import FedProx

AGGREGATED = itertools.count()


@dataclass(frozen=True)
class Held(FedProx):
    hold: str = ""

    def aggregate(self, view, state, update):
        late = next(AGGREGATED) >= 12
        while late and pathlib.Path(self.hold).exists():
            time.sleep(0.02)
        return super().aggregate(view, state, update)
"""
"""A strategy that waits after 12 rounds in a process, which are four trials, while the file ``hold`` is there."""


@contextlib.contextmanager
def in_mid_sweep(sweep_file, out, concurrent=1):
    """The process of a sweep of ten trials, of which three are in the journal and some will not end before it does."""
    hold = out.with_name("hold")
    hold.touch()
    path = sweep_file(
        strategy={"class": "held_trials.Held", "hold": str(hold)},
        resources__hospitals_per_actor=12,
        sweep__space={"strategy.mu": {"uniform": [0, 1]}},
        sweep__trials=10,
        sweep__concurrent=concurrent,
    )
    path.with_name("held_trials.py").write_text(HELD)
    process = started(["sweep", str(path), "--out", str(out)], path.parent, {})
    journal, limit = out / "journal.jsonl", time.monotonic() + 600
    while not (journal.exists() and journal.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < limit
        assert not process.ended(), process.wait()
        time.sleep(0.02)
    yield process
    hold.unlink()
    assert journal.read_bytes().count(b"\n") < 11


def test_a_killed_driver_loses_at_most_the_trials_that_were_running(sweep_file, tmp_path, monkeypatch):
    out, journal = tmp_path / "out", tmp_path / "out" / "journal.jsonl"
    with in_mid_sweep(sweep_file, out, concurrent=2) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    done = journal.read_bytes()
    whole = done[: done.rfind(b"\n") + 1]
    monkeypatch.chdir(tmp_path)  # code is taken from where the command is typed
    assert go_on(out)[0] == 0
    assert journal.read_bytes().startswith(whole)
    numbers = [json.loads(line)["number"] for line in journal.read_text().splitlines()[1:]]
    assert sorted(numbers) == list(range(1, 11))


def test_a_sweep_that_is_terminated_says_how_it_goes_on(sweep_file, tmp_path):
    with in_mid_sweep(sweep_file, tmp_path / "out") as process:
        os.kill(process.pid, signal.SIGTERM)
        done = process.wait()
    assert done.code == 143, done.err
    assert "SIGTERM received" not in done.err, "Ray's own trace"
    assert f"'raysim resume {tmp_path / 'out'}' goes on" in done.out


@pytest.mark.parametrize("part", ["gcs_server", "raylet"])
def test_a_ray_that_dies_under_a_sweep_is_an_error_in_one_line(part, sweep_file, tmp_path):
    with in_mid_sweep(sweep_file, tmp_path / "out") as process:
        family = psutil.Process(process.pid).children(recursive=True)
        (victim,) = [each for each in family if each.name() == part]
        victim.kill()
        done = process.wait()
    assert done.code == 2, done.err
    *before, error = done.err.splitlines()
    assert all(line.startswith("raysim: Ray did not come up in time") for line in before), done.err
    assert error == (
        f"raysim: resources: Ray itself has failed ({part} has ended); what is finished is on disk: 'raysim resume' "
        "with its folder goes on"
    )


def test_the_commands_are_there_and_say_what_is_wrong(monkeypatch, capsys, tmp_path):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        return exit_.value.code, capsys.readouterr()

    code, said = run("--help")
    assert code == 0
    assert all(f"\n  {name} " in said.out for name in ("sweep", "resume", "ui"))
    code, said = run("resume", str(tmp_path))
    assert (code, said.err.count("\n")) == (2, 1)
    code, said = run("ui", "--uri", f"sqlite:///{tmp_path}/none.db")
    assert (code, "does not exist; run something first" in said.err) == (2, True)
    code, said = run("ui", "--uri", "http://127.0.0.1:1")
    assert (code, "is a server already" in said.err) == (2, True)
