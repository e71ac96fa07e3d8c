"""Faults of data, files, disks and stores."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np

from benchmarks.soak.cases import Case, Missed
from benchmarks.soak.subjects import open_checkpoints
from raysim.config import plugins
from raysim.config.schema import Config
from raysim.data.federation import Federation


def data_bad(case: Case) -> None:
    """a hospital's data turns to NaN"""
    tree = case.subject.configured(case.gate)
    federation = _federation(tree, case.stage.folder / "cache")
    path = federation.folder / "X.npy"
    good, rows = path.read_bytes(), np.load(path)
    hospital = int(case.stage.rng.choice(np.flatnonzero(federation.sizes("train"))))
    rows[federation.rows(hospital, "train")] = np.nan

    def overwrite(content: bytes) -> None:
        with path.open("r+b") as file:  # in place, as processes have mapped it
            file.write(content)

    try:
        with case.strike(data_bad.__name__, ends=True):
            overwrite(good[: len(good) - rows.nbytes] + rows.tobytes())
        ended = case.end()
    finally:
        overwrite(good)
    if ended.code == 0:  # what was left to train had its rows in memory, or did not select it
        raise Missed
    if case.subject.command == "sweep":
        case.expect(ended.code == 3, "exit code 3 was due", ended)
        case.go_on("--failed")
    else:
        name = federation.hospitals[hospital]
        named = f"'{name}' diverge" in ended.err or f"'{name}' failed" in ended.err
        case.expect(ended.code == 2 and ended.clear and named, "no clear error", ended)
        case.stores("FAILED", "FINISHED")
        case.go_on()


def _federation(tree: dict[str, object], cache: Path) -> Federation:
    config = Config.model_validate({"data": tree["data"]})
    before = os.environ.get("RAYSIM_CACHE")
    os.environ["RAYSIM_CACHE"] = str(cache)
    try:
        return plugins.build_federation(config, plugins.build_source(config.data), 1)
    finally:
        if before is None:
            del os.environ["RAYSIM_CACHE"]
        else:
            os.environ["RAYSIM_CACHE"] = before


def file_truncated(case: Case) -> None:
    """the last checkpoint (or line of the journal) is truncated after kill -9"""
    with case.strike(file_truncated.__name__, ends=True) as driver:
        os.kill(driver.pid, signal.SIGKILL)
        time.sleep(0.1)
    case.end()
    rng = case.stage.rng
    if case.subject.command == "sweep":
        path = case.out / "journal.jsonl"
        *_, last = path.read_bytes().splitlines()
        os.truncate(path, path.stat().st_size - 1 - int(rng.integers(len(last) - 1)))
    elif checkpoints := open_checkpoints(case.out):
        os.truncate(checkpoints[-1], int(rng.integers(checkpoints[-1].stat().st_size)))
        case.says["is damaged"] += 1
    case.go_on()


def disk_full(case: Case) -> None:
    """the disk is full"""
    filler = case.small / "filler"
    with case.strike(disk_full.__name__, ends=True):
        fill(filler)
    ended = case.end()
    filler.unlink()
    said = "No space left on device" in ended.err
    case.expect(ended.code == 2 and ended.clear and said, "no clear error", ended)
    case.go_on()


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def server_killed(case: Case) -> None:
    """the tracking server is killed"""
    assert case.server is not None
    with case.strike(server_killed.__name__):
        case.server.kill()
