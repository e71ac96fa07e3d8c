"""What privacy costs on the synthetic federation: accuracy, the worst decile and size bias against epsilon.

    python benchmarks/privacy_cost.py [--seeds 5] [--data synthetic]

Clips and rates are those of the table below for all seeds; no test row was looked at to choose them per seed. Each line
is the mean over seeds, with the difference from the same training without noise and clipping.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import raysim

PUBLIC = ["sizes", "metrics", "preprocessing"]
AVERAGED = {"rounds": 20, "local_epochs": 1, "batch_size": 32, "learning_rate": 0.2}
POOLED = {"rounds": 200, "learning_rate": 3.0}
HOSPITAL = {"unit": "hospital", "delta": 1e-3, "clip": 0.3, "declared_public": PUBLIC}
PATIENT = {"unit": "patient", "mode": "pooled", "delta": 1e-5, "rate": 0.05, "clip": 1.0, "declared_public": PUBLIC}
LOCAL = {"unit": "patient", "mode": "local", "delta": 1e-5, "clip": 1.0, "declared_public": PUBLIC}

RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "by rows": ("by rows", AVERAGED, None),
    "uniform": ("uniform", AVERAGED, None),
    **{f"hospital, epsilon {e}": ("uniform", AVERAGED, HOSPITAL | {"epsilon": e}) for e in (8, 4, 2, 1, 0.5)},
    "pooled, no noise": ("pooled, no noise", POOLED, PATIENT | {"noise_multiplier": 0.0}),
    **{f"pooled, epsilon {e}": ("pooled, no noise", POOLED, PATIENT | {"epsilon": e}) for e in (4, 1, 0.5)},
    "local, epsilon 1": ("by rows", AVERAGED | {"learning_rate": 0.5}, LOCAL | {"epsilon": 1}),
}
"""Each run: the one that it is compared with, its training, and its promise."""

FIGURES = ("auroc", "worst_decile", "size_bias")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--only", default="", help="runs whose names begin with this, and those they are compared with")
    given = parser.parse_args()
    chosen = {name for name in RUNS if name.startswith(given.only)} | {
        RUNS[name][0] for name in RUNS if name.startswith(given.only)
    }
    told: dict[str, np.ndarray] = {}
    print(f"{'run':24} " + " ".join(f"{figure:>24}" for figure in FIGURES) + "   epsilon   seconds", flush=True)
    for name in RUNS:
        if name not in chosen:
            continue
        began, figures, epsilon = time.perf_counter(), [], "-"
        for seed in range(given.seeds):
            summary = played(name, given.data, seed)
            figures.append([summary[figure] for figure in FIGURES])
            epsilon = str(summary.get("privacy", {}).get("epsilon", "-"))[:7]
        told[name] = np.array(figures, dtype=float)
        means, less = told[name].mean(axis=0), (told[name] - told[RUNS[name][0]])
        spread = less.std(axis=0, ddof=1) if given.seeds > 1 else np.full(len(FIGURES), np.nan)
        cells = [f"{m:8.4f} ({d:+.4f} ± {s:.4f})" for m, d, s in zip(means, less.mean(axis=0), spread, strict=True)]
        print(f"{name:24} " + " ".join(cells) + f"   {epsilon:>7}   {time.perf_counter() - began:7.1f}", flush=True)


def played(name: str, data: str, seed: int) -> Mapping[str, Any]:
    """The summary of one run."""
    _, training, privacy = RUNS[name]
    config: dict[str, Any] = {
        "seed": seed,
        "data": {"source": data},
        "training": copy.deepcopy(training),
        "selection": "all",
        "evaluation": {"every": 0},
        "checkpoint": {"every": 0},
        "tracking": {"uri": "none"},
        "strategy": {"name": "fedavg", "weights": "samples" if name == "by rows" else "uniform"},
    }
    if privacy is not None:
        config["privacy"] = privacy
        if privacy["unit"] == "patient":
            config["strategy"] = {"name": "fedavg"}
    with tempfile.TemporaryDirectory() as folder:
        result = raysim.run(config, out=Path(folder) / "run", in_process=True)
        return result.summary


if __name__ == "__main__":
    main()
