"""How a comparison ends whose runs are played side by side: by a signal, and by runs that fail."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from mlflow.tracking import MlflowClient

from tests.cluster.test_driver_faults import resume_here
from tests.commands import in_a_process, raysim, started
from tests.conftest import empty_store
from tests.waiting import until

pytestmark = pytest.mark.faults

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
                time.sleep(0.5)
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
    (folder / "mine.py").write_text(MINE)
    tree = SMALL | {"strategies": strategies, "reference": reference}
    tree["tracking"] = {"uri": f"sqlite:///{empty_store(folder) / 'mlflow.db'}"}
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    return {"HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


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
    done = raysim(["compare", "c.yaml", "--out", "out", "--in-process"], folder, environment)
    assert done.code == 0, done
    return folder / "out"


def held(folder: Path) -> list[dict[str, str]]:
    """Two strategies that wait while there is a file ``hold`` in the folder."""
    return [{"class": "mine.Held", "label": label, "hold": str(folder / "hold")} for label in ("one", "two")]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_signal_ends_all_runs_at_work_and_they_go_on(how: signal.Signals, code: int, whole: Path, tmp_path: Path):
    """SIGTERM, which commands take as Ctrl-C but for the exit code, meets a run on Ray and a sweep in other tests."""
    hold = tmp_path / "hold"
    environment = configured(tmp_path, [*held(tmp_path), "fedavg"], "one")
    hold.touch()
    driver = started(["compare", "c.yaml", "--out", "out"], tmp_path, environment)
    runs = tmp_path / "out" / "runs"
    until(lambda: len(list(runs.glob("*/seed-1/checkpoints/round-000004.*"))) == 2 or driver.ended())
    assert not driver.ended(), driver.wait()
    family = psutil.Process(driver.pid).children(recursive=True)
    end = os.killpg if how is signal.SIGINT else os.kill  # a terminal's signal goes to the whole group
    end(driver.pid, how)
    done = driver.wait()
    assert done.code == code, done
    _, alive = psutil.wait_procs(family, timeout=600)
    assert not alive
    assert "Traceback" not in done.out + done.err
    assert not (runs / "fedavg").exists()
    if how is not signal.SIGKILL:
        assert "continue with 'raysim resume out'" in done.out + done.err
        assert statuses(tmp_path) == {"KILLED": 3}
    hold.unlink()
    # What a signal has left is gone on with on actors once; otherwise in one process, which takes half the time.
    if how is signal.SIGKILL:
        resumed = raysim(["resume", "out"], tmp_path, environment)
    else:
        resumed = in_a_process(resume_here, ["out"], tmp_path, environment)
    assert resumed.code == 0, resumed
    for label in ("one", "two"):
        assert f"{label}, seed 1 resumes from round 4 of 9" in resumed.out + resumed.err, resumed
    models = sorted(path.relative_to(whole) for path in whole.rglob("models.safetensors"))
    assert len(models) == 3
    for name in (*models, Path("hospitals.csv")):
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes(), name
    assert set(statuses(tmp_path)) <= {"FINISHED", "RUNNING" if how is signal.SIGKILL else "FINISHED"}


def test_of_runs_that_fail_the_first_is_told_as_if_they_had_been_played_in_their_order(tmp_path: Path):
    """The second fails first; the first comes to its own end, and the third never begins."""
    mark = tmp_path / "mark"
    first = {"class": "mine.Failing", "label": "one", "says": "the first", "awaits": str(mark)}
    second = {"class": "mine.Failing", "label": "two", "says": "the second", "leaves": str(mark)}
    environment = configured(tmp_path, [first, second, "fedavg"], "one")
    together = raysim(["compare", "c.yaml", "--out", "together"], tmp_path, environment)
    assert mark.exists(), together
    ended = statuses(tmp_path)
    # The second is stopped where the first is heard before it.
    assert ended in ({"FAILED": 3}, {"FAILED": 2, "KILLED": 1})
    in_order = raysim(["compare", "c.yaml", "--out", "in_order", "--in-process"], tmp_path, environment)
    assert "the first" in in_order.err
    errors = [done.err.splitlines()[-1] for done in (together, in_order)]
    assert (together.code, errors[0]) == (in_order.code, errors[1])
    assert not (tmp_path / "together" / "runs" / "fedavg").exists()
