"""How a comparison ends whose runs are run side by side: by a signal, and by runs that fail."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from mlflow.tracking import MlflowClient
from rich.console import Console

import raysim
from tests.commands import started
from tests.conftest import empty_store, shared_ray
from tests.waiting import until

pytestmark = [*shared_ray("actors"), pytest.mark.faults]

MINE = """
import time
from dataclasses import dataclass
from pathlib import Path

from raysim import Strategy


@dataclass(frozen=True)
class Held(Strategy):
    hold: str = ""

    def aggregate(self, view, state, update):
        while view.round == 6 and Path(self.hold).exists():
            time.sleep(0.02)
        return super().aggregate(view, state, update)


@dataclass(frozen=True)
class Failing(Strategy):
    says: str = ""
    awaits: str = ""
    leaves: str = ""

    def aggregate(self, view, state, update):
        if view.round == 3:
            while self.awaits and not Path(self.awaits).exists():
                time.sleep(0.02)
            if self.leaves:
                Path(self.leaves).touch()
            raise ValueError(self.says)
        return super().aggregate(view, state, update)
"""

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 500, "features": 4},
    "training": {"rounds": 9, "batch_size": 32},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 2},
    "seeds": [1],
    "resources": {"runs_at_once": 2, "cpus_per_actor": 0.5},
}


def configured(folder: Path, strategies: list[Any], reference: str) -> dict[str, str]:
    """A comparison in a folder, with an MLflow of its own; returns the environment of its commands."""
    (folder / "ending_runs.py").write_text(MINE)
    tree = SMALL | {"strategies": strategies, "reference": reference}
    tree["tracking"] = {"uri": f"sqlite:///{empty_store(folder) / 'mlflow.db'}"}
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    return {"HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


def recorded(folder: Path) -> int:
    """How many runs MLflow's store has, whoever is writing it."""
    with contextlib.closing(sqlite3.connect(f"file:{folder / 'mlflow.db'}?mode=ro", uri=True)) as store:
        return int(store.execute("SELECT count(*) FROM runs").fetchone()[0])


def statuses(folder: Path) -> Counter[str]:
    """How often MLflow says each status of a run."""
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("raysim")
    assert experiment is not None
    return Counter(run.info.status for run in client.search_runs([experiment.experiment_id]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The comparison of the next test that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    environment = configured(folder, [*held(folder), "fedavg"], "one")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("RAYSIM_CACHE", environment["RAYSIM_CACHE"])
        raysim.compare("c.yaml", out="out", in_process=True)
    return folder / "out"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder, from which code is taken, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


def held(folder: Path) -> list[dict[str, str]]:
    """Two strategies that wait while there is a file ``hold`` in the folder."""
    return [{"class": "ending_runs.Held", "label": label, "hold": str(folder / "hold")} for label in ("one", "two")]


def test_ctrl_c_ends_all_runs_at_work_and_they_go_on(whole: Path, here: None, tmp_path: Path):
    """SIGKILL and SIGTERM meet a run on Ray in ``tests/cluster/test_driver_faults.py``."""
    hold = tmp_path / "hold"
    environment = configured(tmp_path, [*held(tmp_path), "fedavg"], "one")
    hold.touch()
    driver = started(["compare", "c.yaml", "--out", "out"], tmp_path, environment)
    runs = tmp_path / "out" / "runs"
    # A run's process may have written its checkpoint before the driver was informed that the run began.
    until(
        lambda: (
            (recorded(tmp_path) == 3 and len(list(runs.glob("*/seed-1/checkpoints/round-000004.*"))) == 2)
            or driver.ended()
        )
    )
    assert not driver.ended(), driver.wait()
    family = psutil.Process(driver.pid).children(recursive=True)
    os.killpg(driver.pid, signal.SIGINT)  # a terminal's signal goes to the whole group
    done = driver.wait()
    assert done.code == 130, done
    _, alive = psutil.wait_procs(family, timeout=600)
    assert not alive
    assert "Traceback" not in done.out + done.err
    assert not (runs / "fedavg").exists()
    assert "continue with 'raysim resume out'" in done.out + done.err
    assert statuses(tmp_path) == {"KILLED": 3}
    hold.unlink()
    console = Console(width=200, file=io.StringIO())
    raysim.resume("out", console=console)
    for label in ("one", "two"):
        assert f"{label}, seed 1 resumes from round 4 of 9" in console.file.getvalue()
    models = sorted(path.relative_to(whole) for path in whole.rglob("models.safetensors"))
    assert len(models) == 3
    for name in (*models, Path("hospitals.csv")):
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes(), name
    assert set(statuses(tmp_path)) == {"FINISHED"}


def test_of_runs_that_fail_the_first_in_order_is_reported(here: None, tmp_path: Path):
    """The second fails first; the first comes to its own end, and the third never begins."""
    mark = tmp_path / "mark"
    first = {"class": "ending_runs.Failing", "label": "one", "says": "the first", "awaits": str(mark)}
    second = {"class": "ending_runs.Failing", "label": "two", "says": "the second", "leaves": str(mark)}
    configured(tmp_path, [first, second, "fedavg"], "one")
    with pytest.raises(ValueError, match="the first") as together:
        raysim.compare("c.yaml", out="together")
    assert mark.exists()
    ended = statuses(tmp_path)
    # The second is stopped where the message of the first arrives before it.
    assert ended in ({"FAILED": 3}, {"FAILED": 2, "KILLED": 1})
    with pytest.raises(ValueError, match="the first") as in_order:
        raysim.compare("c.yaml", out="in_order", in_process=True)
    assert together.value.__notes__ == in_order.value.__notes__ == ["strategy 'one', round 3: raised by aggregate"]
    assert not (tmp_path / "together" / "runs" / "fedavg").exists()
