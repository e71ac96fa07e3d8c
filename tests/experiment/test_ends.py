"""How a command ends that is interrupted: by SIGTERM at any moment, and by a plug-in that leaves the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow.tracking import MlflowClient

from tests.commands import Done, raysim, refusal, said
from tests.conftest import empty_store

pytestmark = pytest.mark.faults

AT = """
import os, signal, sys
import importlib.abc


class At(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MOMENT:
            sys.meta_path.remove(self)
            open("reached", "w").close()
            os.kill(os.getpid(), signal.SIGTERM)


sys.meta_path.insert(0, At())
"""
"""SIGTERM arrives while the module ``MOMENT`` is looked for."""

INIT = """
import logging, os, signal, time
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # as raysim sets it before it imports ray
import ray


def init(*arguments, _init=ray.init, **options):
    open("reached", "w").close()
    os.kill(os.getpid(), signal.SIGTERM)
    while "RAY_AUTH_MODE" in os.environ:
        time.sleep(0)
    logging.getLogger("ray._private").warning("there is no token")
    return _init(*arguments, **options)


ray.init = init
"""
"""SIGTERM arrives as Ray is started, which goes on when what it was started with is taken back already."""

RUN = """
from raysim.cli.main import main

sys.argv = ["raysim", *ARGUMENTS]
main()
"""

MINE = """
import os, signal, sys
from dataclasses import dataclass
from pathlib import Path

from raysim import Strategy
{on_import}


class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):  # the handler runs in here
            pass


@dataclass(frozen=True)
class Mine(Strategy):
    mu: float = 0.0

    def __post_init__(self):
        {on_construction}

    def aggregate(self, view, state, update):
        Path("reached").touch()
        {in_round}
        return super().aggregate(view, state, update)
"""

GOES_ON = "stopped; continue with 'raysim resume out'"

SMALL = {
    "data": {"source": "synthetic", "hospitals": 6, "rows": 300, "features": 4},
    "training": {"rounds": 4, "batch_size": 32},
    "selection": "all",
}


def configured(folder: Path, *, uri: str = "none", **events: str) -> None:
    nothing = dict.fromkeys(("on_import", "on_construction", "in_round"), "pass")
    (folder / "mine.py").write_text(MINE.format(**nothing | events))
    section = {"class": "mine.Mine"} if events else "fedavg"
    tree = SMALL | {"strategy": section, "tracking": {"uri": uri}}
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))


def ran(folder: Path) -> Done:
    """``raysim run`` in a folder, without Ray."""
    settings = {"RAYSIM_CACHE": str(folder / "cache")}
    return raysim(["run", "c.yaml", "--out", "out", "--in-process"], folder, settings)


def program(folder: Path, text: str) -> Done:
    """A Python of its own that runs ``text``."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=environment | {"RAYSIM_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("moment", ["raysim.config.reading", "pandas._libs.lib", "raysim.experiment.run_page"])
def test_a_command_that_is_terminated_while_it_imports(moment: str, tmp_path: Path):
    configured(tmp_path)
    arguments = ["run", "c.yaml", "--out", "out", "--in-process"]
    done = program(tmp_path, f"MOMENT, ARGUMENTS = {moment!r}, {arguments!r}" + AT + RUN)
    assert (tmp_path / "reached").exists(), done
    assert (done.code, done.out) == (143, "")
    assert said(done.err) in ([], [GOES_ON])


def test_a_command_in_a_folder_that_has_been_removed_is_one_line(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = program(gone, "import os, sys\nos.rmdir(os.getcwd())\nARGUMENTS = ['run', '--in-process']" + RUN)
    assert done.code == 2, done
    assert done.err.splitlines()[-1] == "raysim: the working folder no longer exists; change to a folder that exists"
    assert "Traceback" not in done.err


def test_a_command_that_is_terminated_while_ray_starts(tmp_path: Path):
    configured(tmp_path)
    arguments = ["run", "c.yaml", "--set", "resources.head_start=false", "--out", "out"]
    done = program(tmp_path, f"import sys\nARGUMENTS = {arguments!r}" + INIT + RUN)
    assert (tmp_path / "reached").exists(), done
    lines = [line for line in said(done.err) if not line.startswith("raysim: waiting for another command")]
    assert (done.code, done.out, lines) == (143, "", [GOES_ON])


TERMINATE = "os.kill(os.getpid(), signal.SIGTERM)"

SWALLOWED = f"""try:
            {TERMINATE}
            len(str(0))
        except BaseException:
            pass"""


@pytest.mark.parametrize("how", [TERMINATE, SWALLOWED, "Lost()"], ids=["plainly", "swallowed", "in a destructor"])
def test_a_run_that_is_terminated_in_a_round_is_killed_in_mlflow_too(how: str, tmp_path: Path):
    uri = f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"
    configured(tmp_path, uri=uri, in_round=how)
    done = ran(tmp_path)
    assert (tmp_path / "reached").exists(), done
    assert (done.code, done.out, said(done.err)) == (143, "", [GOES_ON])
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("raysim").experiment_id])
    assert run.info.status == "KILLED"


def test_ctrl_c_is_130_and_killed(tmp_path: Path):
    uri = f"sqlite:///{empty_store(tmp_path) / 'mlflow.db'}"
    configured(tmp_path, uri=uri, in_round="os.kill(os.getpid(), signal.SIGINT)")
    done = ran(tmp_path)
    assert done.code == 130, done
    assert "Traceback" not in done.err
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("raysim").experiment_id])
    assert run.info.status == "KILLED"


def test_an_unknown_hospital_is_refused_in_this_process_too(tmp_path: Path):
    configured(tmp_path)
    with (tmp_path / "c.yaml").open("a") as file:
        file.write("resources: {per_hospital: {nowhere: {cpus: 1}}}\n")
    done = ran(tmp_path)
    assert done.code == 2, done
    assert refusal(done.err).startswith("resources.per_hospital.nowhere: no such hospital; known: ")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (
            "on_import",
            "strategy.class: 'mine.Mine' cannot be imported: module 'mine' called sys.exit(0); move the call",
        ),
        ("on_construction", "strategy: 'Mine' called sys.exit(0) when it was constructed; raise a ValueError"),
        ("in_round", "strategy 'Mine', round 1: aggregate called sys.exit(0); raise an error instead"),
    ],
)
def test_a_plug_in_that_leaves_the_process_is_an_error_that_names_it(event: str, message: str, tmp_path: Path):
    configured(tmp_path, **{event: "sys.exit(0)"})
    done = ran(tmp_path)
    assert done.code == 2, done
    assert refusal(done.err).startswith(message)


def test_whatever_else_leaves_the_process_is_named_by_its_file_and_line(tmp_path: Path):
    """Here what a strategy is asked before anything starts; there is no list of all that could be asked."""
    configured(tmp_path, in_round="pass")
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text + "\n    def check(self, names, sizes):\n        sys.exit()\n")
    line = len((tmp_path / "mine.py").read_text().splitlines())
    done = ran(tmp_path)
    assert done.code == 2, done
    assert refusal(done.err) == (
        f"{tmp_path / 'mine.py'}, line {line}: check called sys.exit(), which would have ended raysim; raise an error "
        "instead"
    )


def test_a_process_that_is_no_command_keeps_its_own_way_of_ending(tmp_path: Path):
    """Raysim imported by another program sets no handler there."""
    text = "import raysim, signal\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    assert program(tmp_path, text).out == "True\n"
