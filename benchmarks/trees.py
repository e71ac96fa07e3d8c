"""Speed of boosted trees over hospitals beside scikit-learn's on the pooled rows, measured in the same run.

    python -m benchmarks.trees [--rows 50000] [--columns 100] [--trees 100] [--depth 4] [--hospitals 208] [--processor]
        [--secure execute]

raysim grows the trees from sums over hospitals on Ray with two actors; evaluation is left out but for the last one.
scikit-learn's ``HistGradientBoostingClassifier`` grows as many of the same depth on the pooled rows with one thread. It
has 255 bins, as by default, and then as many as raysim. ``--processor`` plays both in this process, on one core, and
prints processor time, which means something on a busy machine too. With Ray the last line has the processor time of the
slower actor and of the coordinator: they wait for each other, so that their sum bounds the time on idle cores.
``--secure`` hides each hospital's sums, with masks that are counted (``model``) or made (``execute``).
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.resources import ResourcesSection
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation, write
from raysim.engine.job import Job
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.experiment.session import open_session
from raysim.strategies.selections.sampling import All
from raysim.strategies.trees.federated import FederatedTrees
from raysim.training.base import Optimizer

TESTED = 10
"""Test rows of each hospital."""


def made(folder: Path, rows: int, columns: int, hospitals: int) -> Federation:
    """Hospitals of about equal size; the label depends on ten columns, with an interaction."""
    rng = np.random.default_rng(0)
    total = rows + TESTED * hospitals
    X = rng.standard_normal((total, columns)).astype(np.float32)
    score = X[:, :10].sum(axis=1) / 3 + X[:, 0] * X[:, 1] - 1
    y = (score + rng.logistic(size=total) > 0).astype(np.int64)
    ends = np.linspace(0, total, hospitals + 1).astype(np.int64)
    bounds = np.stack([ends[:-1], ends[1:] - TESTED, ends[1:] - TESTED, ends[1:]], axis=1)
    meta = {
        "hospitals": [f"h{h}" for h in range(hospitals)],
        "features": [f"x{j}" for j in range(columns)],
        "classes": ["0", "1"],
        "attributes": {},
        "notes": [],
        "fingerprint": "benchmark",
        "preprocessing_scalars": 0,
    }
    write(folder, X=X, y=y, observed=np.ones(X.shape, np.bool_), bounds=bounds, patients={}, meta=meta)
    return Federation.open(folder)


def timed(clock: Callable[[], float], play: Callable[[], object]) -> float:
    """Seconds of ``clock`` that ``play`` takes."""
    began = clock()
    play()
    return clock() - began


def spent() -> dict[str, float]:
    """Return the largest processor time in seconds of this process's Ray actors, by class."""
    most: dict[str, float] = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            name, times = process.cmdline()[0].split(".")[0], process.cpu_times()
            most[name] = max(most.get(name, 0.0), times.user + times.system)
    return {name: most.get(f"ray::{name}", 0.0) for name in ("HospitalActor", "CoordinatorActor")}


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"rows": 50_000, "columns": 100, "trees": 100, "depth": 4, "hospitals": 208, "bins": 32}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--secure", choices=("model", "execute"))
    options = parser.parse_args()
    clock = time.process_time if options.processor else time.perf_counter
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        made(Path(other), 20 * options.hospitals, options.columns, options.hospitals)
        federation = made(Path(folder), options.rows, options.columns, options.hospitals)
        trained = np.concatenate([np.r_[federation.rows(h, "train")] for h in range(options.hospitals)])
        X, y = np.asarray(federation.X[trained]), np.asarray(federation.y[trained])
        theirs, processor = {}, {}
        with threadpool_limits(1):
            for bins in (255, options.bins):
                model = HistGradientBoostingClassifier(
                    max_iter=options.trees,
                    max_depth=options.depth,
                    max_leaf_nodes=None,
                    max_bins=bins,
                    early_stopping=False,
                )
                began = time.process_time()
                theirs[bins] = timed(clock, lambda model=model: model.fit(X, y))  # type: ignore[misc]
                processor[bins] = time.process_time() - began
                print(f"scikit-learn, {bins} bins, one thread{theirs[bins]:10.2f} s", flush=True)
        keys = {name: getattr(options, name) for name in ("trees", "depth", "bins")}
        job = Job(
            work=Work(
                federation=folder,
                model=ModelSpec("boosted_trees", None, keys, "default"),
                optimizer=Optimizer("sgd", 0.1, 0),
                epochs=1,
                seed=1,
                precision="float32",
            ),
            strategy=FederatedTrees(),
            selection=All(),
            rounds=options.trees,
            evaluation=EvaluationSection(every=0, loss_points=0),
            secure=None if options.secure is None else SecureSection(mode=options.secure),
        )
        with open_session(
            federation.totals, ResourcesSection(), in_process=options.processor, verbose=False
        ) as session:
            # Processes import what they need in their first job, of other rows.
            list(session.run(replace(job, work=replace(job.work, federation=other), rounds=1)))
            before = spent()
            seconds = timed(clock, lambda: list(session.run(job)))
            after = spent()
        print(
            f"raysim, {options.hospitals} hospitals{seconds:10.2f} s, "
            + ", ".join(f"{seconds / other:.2f} times that of {bins} bins" for bins, other in theirs.items())
        )
        if not options.processor:
            actor, coordinator = (after[name] - before[name] for name in after)
            print(
                f"processor time{actor:10.2f} s at an actor and {coordinator:.2f} s at the coordinator, "
                f"{(actor + coordinator) / processor[255]:.2f} times that of 255 bins"
            )


if __name__ == "__main__":
    main()
