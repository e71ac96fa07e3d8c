"""Whole sweeps on a real Ray: files, going on, schedulers, and the commands."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.api import running
from raysim.api.sweep_result import SweepResult
from raysim.cli import main as cli
from raysim.cli.commands import run_one
from raysim.config import reading
from raysim.core.errors import RaysimError, ResourceError
from raysim.experiment import session
from raysim.experiment.session import open_session
from raysim.storage.resume import held
from raysim.tune import sweep as sweeps
from raysim.tune.answer import table
from raysim.tune.choice import choose
from raysim.tune.journal import Finished
from raysim.tune.plan import make_plan
from raysim.tune.running import places
from raysim.tune.schedulers import make_scheduler
from tests.conftest import shared_ray
from tests.tune.conftest import small_tree
from tests.tune.sweeps import PLAIN, TWO, begin, go_on

pytestmark = shared_ray("sweeps")

FILES = {
    *("journal.jsonl", "manifest.json", "pareto.csv", "plots", "recommended", "recommended.yaml"),
    *("report.html", "summary.json", "sweep.yaml", "trials.csv"),
}


SAME = {
    "seeds": [3, 4],
    "sweep__space": {"strategy.label": {"grid": ["a", "b"]}, "strategy.lam": {"grid": [0.1, 0.9]}},
    "sweep__searcher": "grid",
    "sweep__trials": None,
    "sweep__concurrent": 2,
    "sweep__objectives": TWO,
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, int]:
    """A finished sweep: its folder, exit code, what it printed, and how often hospitals were started.

    The label changes nothing but the name, so that trials of one ``lam`` are the same configuration.
    """
    folder = tmp_path_factory.mktemp("ended")
    tree = small_tree(**SAME)
    (folder / "sweep.yaml").write_text(yaml.safe_dump(tree))
    starts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "open_session", lambda *a, **k: starts.append(a) or open_session(*a, **k))
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
    assert re.search(r"gives up|no trial of the set is better", (out / "recommended.yaml").read_text())


def journal(out: Path) -> list[Any]:
    """The trials of a sweep by number, without the seconds that they took."""

    def timeless(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: timeless(value) for key, value in tree.items() if key != "seconds"}
        return [timeless(value) for value in tree] if isinstance(tree, list) else tree

    _, *lines = (out / "journal.jsonl").read_text().splitlines()
    return sorted((timeless(json.loads(line)) for line in lines), key=lambda trial: trial["number"])


def test_trials_that_are_each_whole_in_a_process_have_the_figures_of_trials_that_share_hospitals(
    ended, tmp_path, monkeypatch
):
    """Bit for bit, their rounds and the recommended one's figures on test rows among them."""
    shared, _, said_of_shared, _ = ended
    tree = small_tree(**SAME, resources={"runs_at_once": 2})
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tree))
    started: list[Any] = []
    monkeypatch.setattr(session, "RayPool", lambda *a: started.append(a))
    code, said = begin(tmp_path / "sweep.yaml", tmp_path / "out")
    assert (code, started) == (0, []), "no actor of hospitals"
    assert "2 actors, 6 hospitals each; 2 trials at a time" in said_of_shared
    assert "2 trials at a time, a process each" in said
    assert journal(tmp_path / "out") == journal(shared)
    assert (tmp_path / "out" / "trials.csv").exists()
    for seed in ("seed-3", "seed-4"):
        of_both = [path / "recommended" / seed / "hospitals.csv" for path in (shared, tmp_path / "out")]
        assert of_both[0].read_bytes() == of_both[1].read_bytes()


def test_json_is_the_summary(ended, monkeypatch, capsys):
    monkeypatch.setattr(running, "sweep", lambda *a, **k: SweepResult(ended[0]))
    monkeypatch.setattr(sys, "argv", ["raysim", "sweep", "sweep.yaml", "--json"])
    with pytest.raises(SystemExit) as over:
        cli.main()
    printed = json.loads(capsys.readouterr().out)
    assert not over.value.code
    assert printed["folder"] == str(ended[0])
    assert printed["recommended"] == json.loads((ended[0] / "summary.json").read_text())["recommended"]


@pytest.fixture(scope="module")
def alone(ended, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the configuration that the sweep recommends."""
    recommended, out = reading.resolve(ended[0] / "recommended.yaml"), tmp_path_factory.mktemp("alone") / "run"
    run_one(recommended, Console(file=io.StringIO()), out, in_process=True, verbose=False)
    return out


def test_the_recommended_configuration_run_by_itself_gives_the_test_figures_that_the_sweep_reports(ended, alone):
    out, *_ = ended
    run = json.loads((alone / "summary.json").read_text())
    stored = json.loads((out / "recommended" / "seed-3" / "summary.json").read_text())
    for name in ("auroc", "worst_decile", "size_bias", "gini"):
        assert run[name] == pytest.approx(stored[name], abs=1e-6)
    other = json.loads((out / "recommended" / "seed-4" / "summary.json").read_text())
    reported = json.loads((out / "summary.json").read_text())["recommended"]["test"]["auroc"]["mean"]
    assert reported == pytest.approx((run["auroc"] + other["auroc"]) / 2, abs=1e-6)


def test_runs_on_test_rows_have_the_files_of_any_run(ended, alone):
    out, *_ = ended
    to_go_on = {"resume.json", "checkpoints"}
    for seed in (3, 4):
        stored = out / "recommended" / f"seed-{seed}"
        assert {path.name for path in stored.iterdir()} == {path.name for path in alone.iterdir()} - to_go_on
    for key in ("model", "auroc", "bytes_down"):
        said = [json.loads((at / "summary.json").read_text())[key] for at in (alone, out / "recommended" / "seed-3")]
        assert said[0] == said[1]


def test_only_one_command_at_a_time_works_in_a_sweeps_folder(ended, sweep_file, tmp_path):
    with held(ended[0]), pytest.raises(RaysimError, match="another raysim command is using this folder"):
        go_on(ended[0])
    with held(tmp_path / "new"):
        with pytest.raises(RaysimError, match="another raysim command is using this folder"):
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
    printed.print(table(choose({1: trial}, plan.sweep), dict.fromkeys(metrics, (0.5, 0.0))))
    text = printed.export_text()
    assert "mine [v2]" in text
    assert "['mean', 'std']" in text


def test_a_sweep_goes_on_where_it_stopped_and_repeats_nothing(ended, sweep_file, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(ended[0], out)
    with monkeypatch.context() as patch:  # nothing is left: nothing is started, and nothing changes
        patch.setattr(sweeps, "open_places", None)
        code, said = go_on(out)
        assert code == 0
        assert "starting Ray" not in said
    whole = pd.read_csv(out / "trials.csv").drop(columns="seconds")
    lines = (out / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (out / "journal.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:99])  # killed while it wrote the third trial
    monkeypatch.setattr(sweeps, "data_warnings", lambda federations, _: [f"warning: {len(federations)} divisions"])
    code, said = go_on(out)
    assert code == 0
    assert said.count("warning: 2 divisions") == 1
    assert "2 trials of 2 seeds" in said
    assert (out / "journal.jsonl").read_bytes().startswith(b"".join(lines[:3]))
    assert len((out / "journal.jsonl").read_bytes().splitlines()) == 5
    pd.testing.assert_frame_equal(pd.read_csv(out / "trials.csv").drop(columns="seconds"), whole)

    (out / "sweep.yaml").write_text((out / "sweep.yaml").read_text().replace("name: small", "name: other"))
    with pytest.raises(RaysimError, match=r"sweep.yaml: changed since the sweep began"):
        go_on(out)
    with pytest.raises(RaysimError, match="holds a sweep; continue with 'raysim resume"):
        begin(sweep_file(), out)
    with pytest.raises(RaysimError, match="is not the folder of a sweep"):
        go_on(tmp_path)


@pytest.mark.parametrize("trials", [0, 2])
def test_what_the_machine_lacks_is_no_reason_to_go_on_where_no_trial_has_ended(ended, trials, tmp_path, monkeypatch):
    out, printed = tmp_path / "out", io.StringIO()
    shutil.copytree(ended[0], out)
    lines = (out / "journal.jsonl").read_text().splitlines(keepends=True)
    (out / "journal.jsonl").write_text("".join(lines[: 1 + trials]))

    def lacks(*_: Any, **__: Any) -> None:
        raise ResourceError("resources: there is none")

    monkeypatch.setattr(sweeps, "open_places", lacks)
    with pytest.raises(ResourceError):
        sweeps.go_on(out, Console(file=printed, width=160), failed=False, verbose=False)
    assert (f"stopped after {trials} of 4 trials" in printed.getvalue()) == bool(trials)


def test_a_scheduler_stops_trials_that_fall_behind(sweep_file, tmp_path):
    space = {"training.learning_rate": {"grid": [0.2, 1e-7, 1e-8, 0.1]}}
    scheduler = {"name": "asha", "grace": 1, "reduction": 2}
    path = sweep_file(
        **PLAIN | {"sweep__objectives": {"log_loss": "min"}},
        sweep__space=space,
        sweep__scheduler=scheduler,
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
    rates = {"training.learning_rate": RATES["training.learning_rate"]}
    path = sweep_file(
        **PLAIN,
        sweep__space=rates,
        sweep__scheduler=scheduler,
        sweep__trials=3,
        sweep__concurrent=2,
        training__rounds=4,
    )
    assert begin(path, tmp_path / "out")[0] == 0
    table = pd.read_csv(tmp_path / "out" / "trials.csv").set_index("trial")
    assert sorted(table.index) == [1, 2, 3]
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
    assert (code, "does not exist; make a run with this store first" in said.err) == (2, True)
    code, said = run("ui", "--uri", "http://127.0.0.1:1")
    assert (code, "is not a local store; name one" in said.err) == (2, True)
