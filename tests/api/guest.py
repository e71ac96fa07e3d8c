"""A process that is somebody else's: runs raysim in it and says what was not as it was before.

``python -m tests.api.guest HOW FOLDER`` prints, as JSON, what changed. ``HOW`` is ``process``; ``loop``, on a Ray of
raysim's and inside of a running asyncio loop, as in a notebook; or ``thread``, on the host's own Ray and another
thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp.web  # noqa: F401  # libraries set filters of warnings when they are imported
import mlflow
import ray
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

import raysim

CONFIG = {
    "data": {"source": "synthetic", "hospitals": 4, "rows": 600},
    "training": {"rounds": 2},
    "resources": {"hospitals_per_actor": 2, "cpus_per_actor": 0.5},
}


@dataclass(frozen=True)
class Own(raysim.Strategy):
    """A strategy of this module, which no other process can import: here it is ``__main__``."""

    share: float = 0.5

    def aggregate(self, view: Any, state: Any, update: Any) -> Any:
        after = super().aggregate(view, state, update)
        return raysim.State(models=state.models + self.share * (after.models - state.models))


def state() -> dict[str, Any]:
    """What a host may have set, or counts on."""
    numbers = [number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)]
    return {
        # MLflow's telemetry takes its own variable away when it has read it.
        "environment": {name: value for name, value in os.environ.items() if "TELEMETRY" not in name},
        "folder": os.getcwd(),
        "path": list(sys.path),
        "signals": {number.name: str(signal.getsignal(number)) for number in numbers},
        "threads of libraries": {library["filepath"]: library["num_threads"] for library in threadpool_info()},
        "threads of torch": torch.get_num_threads(),
        "loggers": {
            name: (logging.getLogger(name).level, len(logging.getLogger(name).handlers))
            for name in ("", "ray", "ray.tune", "mlflow", "alembic", "py4j")
        },
        "warnings": [str(each) for each in warnings.filters],
        "tracking": mlflow.get_tracking_uri(),
        "active run": str(mlflow.active_run()),
        "ray": ray.is_initialized(),
        "excepthook": (str(sys.excepthook), str(threading.excepthook)),
        "recursion": sys.getrecursionlimit(),
        "standing threads": sorted(t.name for t in threading.enumerate() if not t.daemon),
    }


def work(folder: Path, how: str) -> None:
    """A comparison but on another thread, and a run but in a loop: each on Ray once, and both in this process."""
    options: dict[str, Any] = {"seed": 0, "in_process": how == "process"}
    if how != "thread":
        compared = raysim.compare(CONFIG, strategies=["fedavg", Own(1.0)], out=folder / "compared", **options)
        own = compared.run("Own")
        assert own.config.strategy.class_path == "__main__.Own"
        assert own.metrics["auroc"] == compared.run("fedavg").metrics["auroc"]
        assert len(raysim.load(folder / "compared").comparison) == 2
        assert all(compared.figures.values())
    if how != "loop":
        alone = {"resources.hospitals_per_actor": 4}
        run = raysim.run(CONFIG, overrides=alone, strategy=Own(1.0), out=folder / "own", **options)
        assert run.config.strategy.class_path == "__main__.Own"
        assert raysim.load(folder / "own").metrics.equals(run.metrics)
        assert run.metrics["auroc"] > 0.5
        assert all(run.figures.values())


def called(how: str, act: Callable[[], None]) -> None:
    if how == "loop":

        async def cell() -> None:
            act()

        asyncio.run(cell())
    elif how == "thread":
        failed: list[BaseException] = []

        def target() -> None:
            try:
                act()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
    else:
        act()


def main(how: str, folder: Path) -> None:
    LogisticRegression().fit([[0.0], [1.0]], [0, 1])  # loads the libraries that compute
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    if how == "thread":
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    before = state()
    called(how, lambda: work(folder, how))
    after = state()
    changed = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
    print(json.dumps({name: _differing(*pair) for name, pair in changed.items()}))
    if how == "thread":
        ray.shutdown()


def _differing(before: Any, after: Any) -> Any:
    if isinstance(before, dict):
        return {
            key: [before.get(key), after.get(key)] for key in {*before, *after} if before.get(key) != after.get(key)
        }
    return [before, after]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
