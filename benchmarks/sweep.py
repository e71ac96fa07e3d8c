"""A hundred trials of the paper's job over one standing federation, against one process for each trial.

The job: 208 synthetic hospitals, logistic regression, 20 rounds, a tenth of the hospitals in each. Prints the seconds
of the sweep, of its trials' computing, and what Ray and Ray Tune cost besides, per trial; then one trial as a process
of its own (``raysim run``), measured ``--processes`` times. Run by hand on a quiet machine:

    python -m benchmarks.sweep --trials 100
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

CONFIG = {
    "name": "benchmark",
    "data": {"source": "synthetic", "split": {"train": 0.6, "validation": 0.2, "test": 0.2}},
    "model": {"name": "logistic_regression", "init": "zeros"},
    "training": {"rounds": 20, "batch_size": 512, "learning_rate": 0.05},
    "selection": {"name": "inverse_sqrt", "fraction": 0.1, "minimum": 10},
    "strategy": {"name": "chip"},
}
SPACE = {
    "strategy.lam": {"loguniform": [0.001, 10]},
    "strategy.mu": {"loguniform": [0.001, 1]},
    "strategy.alpha": {"uniform": [0, 1]},
    "strategy.clusters": {"randint": [2, 12]},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--processes", type=int, default=3, help="trials measured as processes of their own")
    parser.add_argument("--tracking", default="none", help="tracking.uri (default none; try sqlite:///mlflow.db)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="raysim-benchmark-") as folder:
        sweep = _sweep(Path(folder), options.trials, options.tracking)
        alone = _processes(Path(folder), options.processes)
    print(f"sweep of {options.trials} trials: {sweep['all']:.1f} s, to the last trial's end {sweep['trials']:.1f} s")
    print(f"a trial on its own, in one process without Ray: {sweep['compute']:.3f} s")
    print(f"Ray and Ray Tune besides, per trial: {sweep['overhead']:.3f} s")
    print(
        f"a trial as a process of its own: {alone:.1f} s, {alone * options.trials / sweep['all']:.1f} times the sweep"
    )


def _sweep(folder: Path, trials: int, tracking: str) -> dict[str, float]:
    """Seconds: of the whole command, from its checks to the last trial's end (Ray's start included), and per trial."""
    tree = CONFIG | {"tracking": {"uri": tracking}, "sweep": {"trials": trials, "space": SPACE}}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(tree))
    began = time.perf_counter()
    _raysim(folder, "sweep", "sweep.yaml", "--out", "swept")
    whole = time.perf_counter() - began
    lines = [json.loads(line) for line in (folder / "swept" / "journal.jsonl").read_text().splitlines()]
    written = {name: (folder / "swept" / name).stat().st_mtime for name in ("journal.jsonl", "sweep.yaml")}
    seconds = written["journal.jsonl"] - written["sweep.yaml"]
    compute = _compute(tree, [line["params"] for line in lines[1 : 1 + 10]])
    cores = len(os.sched_getaffinity(0))
    return {
        "all": whole,
        "trials": seconds,
        "compute": compute,
        "overhead": seconds / trials - compute / cores,
    }


def _compute(tree: dict, params: list[dict]) -> float:
    """Mean seconds of a trial in this process, hospitals and coordinator together."""
    from raysim.cluster.placement import Placement, balance
    from raysim.cluster.pool import LocalPool
    from raysim.data.federation import Federation
    from raysim.tune.plan import make_plan
    from raysim.tune.trial import Trial

    plan, _ = make_plan(tree)
    federation = Federation.open(next(iter(plan.folders.values())))
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    began = time.perf_counter()
    for each in params:
        report = Trial(pool, plan.jobs(each, "validation"), paced=False, retries=0).step()
        assert report.error is None, report.error
    return (time.perf_counter() - began) / len(params)


def _processes(folder: Path, count: int) -> float:
    """Mean seconds of ``raysim run`` on Ray, from its start to its end."""
    (folder / "run.yaml").write_text(yaml.safe_dump(CONFIG | {"tracking": {"uri": "none"}}))
    began = time.perf_counter()
    for i in range(count):
        _raysim(folder, "run", "run.yaml", "--out", f"run-{i}")
    return (time.perf_counter() - began) / max(count, 1)


def _raysim(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "raysim", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
