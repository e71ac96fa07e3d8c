"""A driver, or the Ray that it has started, is ended for real: what is left goes on, and no process stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pandas as pd
import psutil
import pytest
import yaml

from tests.commands import Running, in_a_process, raysim, started
from tests.waiting import until

pytestmark = pytest.mark.faults

HELD = """
import itertools, pathlib, time
from dataclasses import dataclass
from raysim.strategies.hospital_clusters.chip import Chip

AGGREGATED = itertools.count(1)


@dataclass(frozen=True)
class Held(Chip):
    hold: str = ""

    def aggregate(self, view, state, update):
        late = next(AGGREGATED) > 50
        while late and pathlib.Path(self.hold).exists():
            time.sleep(0.02)
        return super().aggregate(view, state, update)
"""
"""CHiP-FL whose server waits after 50 rounds for as long as the file ``hold`` is there."""

RUN = {
    "data": {"source": "synthetic", "hospitals": 8, "rows": 500, "features": 4},
    "training": {"rounds": 100, "batch_size": 32},
    "evaluation": {"every": 20},
    "selection": {"name": "inverse_sqrt", "fraction": 0.5, "minimum": 2},
    "checkpoint": {"every": 20},
    "resources": {"hospitals_per_actor": 8},
    "tracking": {"uri": "none"},
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the configuration and the files of its undisturbed run."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "held.py").write_text(HELD)
    strategy = {"class": "held.Held", "clusters": 2, "hold": str(folder / "hold")}
    (folder / "c.yaml").write_text(yaml.safe_dump(RUN | {"strategy": strategy}))
    done = raysim(["run", "c.yaml", "--out", "whole", "--in-process"], folder, environment(folder))
    assert done.code == 0, done.err
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Folders of its own."""
    return {"HOME": str(folder), "RAYSIM_CACHE": str(folder / "cache")}


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_driver_that_ends_leaves_a_folder_that_goes_on_and_no_process(
    undisturbed: Path, how: signal.Signals, code: int
):
    """Ctrl-C meets a comparison on Ray in ``tests/experiment/test_run_actors_ends.py``."""
    out, hold = undisturbed / how.name, undisturbed / "hold"
    hold.touch()
    driver = driven(undisturbed, out)
    family = psutil.Process(driver.pid).children(recursive=True)
    assert len(family) > 5
    os.kill(driver.pid, how)
    done = driver.wait()
    said = done.out + done.err
    assert done.code == code, said
    until(lambda: not any(map(alive, family)))
    if how is not signal.SIGKILL:
        assert f"continue with 'raysim resume {out.name}'" in said
        assert "SIGTERM received" not in said, "Ray's own trace"
    assert not (out / "models.safetensors").exists()
    hold.unlink()
    resumed = in_a_process(resume_here, [str(out)], undisturbed, environment(undisturbed))
    assert resumed.code == 0, resumed.err
    assert "resumes from round" in resumed.out
    for name in ("models.safetensors", "hospitals.csv", "egress.csv"):
        assert (out / name).read_bytes() == (undisturbed / "whole" / name).read_bytes(), name
    tables = [pd.read_csv(folder / "rounds.csv").drop(columns="seconds") for folder in (out, undisturbed / "whole")]
    pd.testing.assert_frame_equal(tables[0], tables[1], check_exact=True)


def test_a_ray_that_dies_under_a_run_is_an_error_in_one_line(undisturbed: Path):
    """Of its parts the GCS server; the raylet ends under a sweep in ``tests/tune/test_broken_sweeps.py``."""
    out, hold = undisturbed / "gcs_server", undisturbed / "hold"
    hold.touch()
    driver = driven(undisturbed, out)
    parts = [each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == "gcs_server"]
    max(parts, key=lambda each: each.create_time()).kill()  # a Ray that did not come up in time leaves some
    done = driver.wait()
    hold.unlink()
    assert done.code == 2, done
    *before, error = (done.out + done.err).splitlines()
    lines_before = ("reading data", "starting Ray", "8 hospitals, ", "Held: round", "raysim: Ray did not start in time")
    assert all(line.startswith(lines_before) for line in before), done
    assert error == (
        "raysim: resources: Ray itself has failed (gcs_server has ended); finished results are on disk; "
        "continue with 'raysim resume FOLDER'"
    )


def driven(folder: Path, out: Path) -> Running:
    """``raysim run`` on Ray in its 51st round, where it waits."""
    while True:
        driver = started(["run", "c.yaml", "--out", out.name], folder, environment(folder))
        until(lambda: len(list(out.glob("checkpoints/round-*"))) > 1 or driver.ended())  # noqa: B023
        if not driver.ended():
            return driver
        done = driver.wait()
        assert "timed out during startup" in done.err, done  # Ray takes half a minute at most, a busy machine longer


def resume_here(folder: str) -> None:
    """``raysim resume`` without Ray."""
    from rich.console import Console

    from raysim.cli.commands import resume_run

    resume_run(Path(folder), Console(width=200), in_process=True, verbose=False)


def alive(process: psutil.Process) -> str:
    """The name of a process that is there and no zombie, or nothing."""
    try:
        return process.name() if process.is_running() and process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.NoSuchProcess:
        return ""
