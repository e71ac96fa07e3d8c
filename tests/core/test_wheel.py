"""An installed raysim in a folder whose files have the names of raysim's parts, of libraries and of Python's modules.

The wheel is built from this tree and installed into an environment of its own, which borrows the libraries of the one
that runs the tests; nothing is fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.surroundings

ROOT = Path(__file__).parents[2]

OURS = ("strategies/__init__.py", "tune/__init__.py")
"""What users call their own folders, too."""

OTHERS = ("raysim/__init__.py", "ray/__init__.py", "numpy.py", "yaml.py", "typing.py", "statistics.py", "secrets.py")
"""What stands in the way of everything where a working directory comes first."""

MINE = '''
"""A strategy of a user's, with a program and a state of its own, which travel to actors."""
from dataclasses import dataclass
from collections.abc import Mapping

import numpy as np

import beside
from raysim import Call, Context, Program, Reply, Send, Strategy, patient_encoder
from raysim.strategies.base import FederationView, Floats, State, Update


@dataclass(frozen=True)
class Rows(Program):
    name = "rows"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"rows": Send(how="each")}

    def run(self, at: Context) -> Reply:
        return Reply({"rows": len(at.rows.y) * beside.ONE})


@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(State):
    rows: Floats


@dataclass(frozen=True)
class Mine(Strategy):
    rate: float = 1.0

    def setup(self, view: FederationView) -> Counted:
        answers = view.call(Call(Rows(), {}, view.everyone))
        return Counted(models=view.initial[None, :].copy(), rows=answers.each["rows"])

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        assert isinstance(state, Counted) and (state.rows == view.sizes).all()
        return super().aggregate(view, state, update)


@patient_encoder
def encode(rows: Floats) -> Floats:
    return rows[:, :2]
'''

UNREAD = "mlflow.*,pandas.*,ray.*,scipy.*,sklearn.*,torch.*,raysim.api.*,raysim.config.*"
"""What mypy need not read to see whether what a strategy needs is typed."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, links and all."""
    source = tmp_path_factory.mktemp("source")
    for name in ("raysim", "strategies", "tune"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", "--wheel-dir", source / "made", source)
    (made,) = (source / "made").glob("raysim-*.whl")
    return made


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    libraries = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    (packages / "libraries.pth").write_text("\n".join(libraries))
    pip("--python", folder / "bin" / "python", "install", "--no-compile", wheel)
    return folder / "bin"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory with a user's strategy, and folders that have the names of ours."""
    (tmp_path / "good.py").write_text(MINE)
    (tmp_path / "beside.py").write_text("ONE = 1.0\n")
    add(tmp_path, *OURS)
    return tmp_path


def add(folder: Path, *decoys: str) -> None:
    for name in decoys:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"raise RuntimeError('{name} of the working directory was taken')\n")


def pip(*arguments: str | Path) -> None:
    offline = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    command, *rest = [str(argument) for argument in arguments]
    done = subprocess.run([sys.executable, "-m", "pip", command, *rest, *offline], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def said(folder: Path, *command: str | Path) -> str:
    """What the command says in a folder, in which it must end well."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = inherited | {"RAYSIM_CACHE": str(folder / "cache")}
    for _ in range(3):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder, env=environment)
        if "timed out during startup" not in done.stderr:  # Ray gives its own node 30 seconds, on a busy machine too
            break
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_raysim_and_nothing_beside_it(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].rpartition(".")[2] or name for name in names} == {"raysim", "dist-info"}
    for name in ("strategies/base.py", "strategies/one_model/fedavg.py", "tune/sweep.py", "py.typed"):
        assert zipfile.ZipFile(wheel).read(f"raysim/{name}") == (ROOT / "raysim" / name).read_bytes(), name
    kept = {path.relative_to(ROOT).as_posix() for path in (ROOT / "strategies").rglob("*.py")}
    assert {f"raysim/{name}" for name in kept} <= {*names}


@pytest.mark.parametrize("there", [True, False])
def test_a_checkout_without_links_says_so(tmp_path: Path, there):
    """As git leaves it where a file system has no links: a file that holds the link's target; or as nothing."""
    copied = tmp_path / "raysim"
    shutil.copytree(ROOT / "raysim", copied, symlinks=True, ignore=shutil.ignore_patterns("strategies", "__pycache__"))
    if there:
        (copied / "strategies").write_text("../strategies")
    done = subprocess.run([sys.executable, "-m", "raysim", "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: raysim/strategies is not a folder: this checkout has lost its symbolic links")


def test_folders_with_the_names_of_ours_are_not_taken_for_ours(programs: Path, here: Path):
    code = (
        "import raysim, raysim.tune.pareto as p, good; print(raysim.Strategy, good.Mine(), raysim.__file__, p.__file__)"
    )
    answer = said(here, programs / "python", "-c", code)
    assert "Mine(rate=1.0)" in answer
    assert answer.count(str(programs.parent)) == 2


def test_an_encoder_of_the_working_directory_is_taken_and_nothing_else_of_it(programs: Path, here: Path):
    add(here, *OTHERS)
    keys = {"data.hospitals": 4, "data.rows": 200, "data.features": 4, "training.rounds": 2, "tracking.uri": "none"}
    keys |= {"selection": "all", "strategy": "{name: cbfl, clusters: 2, encoder: good.encode}"}
    listed = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    assert "\nReport " in said(here, programs / "raysim", "run", "--in-process", *listed)


def test_python_dash_m_raysim_puts_the_working_directory_last(programs: Path, here: Path):
    """Where Python itself puts it first: what it has imported by then is taken from there, and nothing after."""
    add(here, *(name for name in OTHERS if name not in ("raysim/__init__.py", "typing.py")))
    assert "chip" in said(here, programs / "python", "-m", "raysim", "list", "strategies")
    add(here, *OTHERS)
    assert "chip" in said(here, programs / "python", "-P", "-m", "raysim", "list", "strategies")


def test_trials_and_actors_find_the_strategy_and_take_nothing_else(programs: Path, here: Path):
    add(here, *OTHERS)
    (here / "sweep.yaml").write_text(
        "data: {hospitals: 4, rows: 200, features: 4, split: {train: 0.6, validation: 0.2, test: 0.2}}\n"
        "training: {rounds: 1}\n"
        "selection: all\n"
        "strategy: {class: good.Mine}\n"
        "tracking: {uri: none}\n"
        "resources: {runs_at_once: 1, hospitals_per_actor: 4}\n"
        "sweep: {searcher: random, trials: 1, objectives: {auroc: max}, space: {strategy.rate: {choice: [0.5]}}}\n"
    )
    said(here, programs / "raysim", "sweep", "sweep.yaml", "--out", "out")
    assert ",completed," in (here / "out" / "trials.csv").read_text()


def test_a_users_file_is_checked_strictly_against_the_wheel(programs: Path, here: Path):
    """``raysim.strategies`` and ``raysim.tune`` are typed where they are installed, by the one ``py.typed``."""
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "mypy.ini").write_text(f"[mypy]\nstrict = True\n[mypy-{UNREAD}]\nfollow_imports = skip\n")
    (here / "elsewhere" / "user.py").write_text(
        "from raysim import LocalProblem, Strategy\n"
        "from raysim.strategies.base import FederationView, Ids, State\n"
        "from raysim.tune.pareto import hypervolume\n"
        "class Mine(Strategy):\n"
        "    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:\n"
        "        size: str = hypervolume([[1.0]], [True], [0.0])\n"
        "        return super().problem(view, state, ids)\n"
    )
    mypy = [sys.executable, "-m", "mypy", "--cache-dir", os.devnull]
    mypy += ["--python-executable", str(programs / "python"), "user.py"]
    done = subprocess.run(mypy, capture_output=True, text=True, cwd=here / "elsewhere")
    assert [line.partition("error:")[2].strip() for line in done.stdout.splitlines() if "error:" in line] == [
        'Incompatible types in assignment (expression has type "float", variable has type "str")  [assignment]'
    ], done.stdout + done.stderr
