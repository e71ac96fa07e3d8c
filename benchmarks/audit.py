"""Does the audit catch what breaks a guarantee, and let right runs pass? Counted over seeds.

``python -m benchmarks.audit FOLDER [--seeds 20] [--canaries 200] [--only pooled]`` audits five guarantees on a small
synthetic federation, as they are and under three sabotages: the noise left out, a tenth of the noise, and no clip.
FOLDER gets ``audits.csv``, a row an audit; the table counts the audits whose bound exceeds the claim.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raysim.config import reading
from raysim.core.errors import PrivacyBroken
from raysim.experiment.audits.audit import audit
from raysim.privacy import clip, noise
from raysim.training.kernels import clipped, linear_clip

PUBLIC = ["size", "metrics", "preprocessing"]
HOSPITAL = {"unit": "hospital", "epsilon": 2.0, "delta": 1e-3, "clip": 0.3, "declared_public": PUBLIC}
PATIENT = {"unit": "patient", "epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "declared_public": PUBLIC}
GUARANTEES: dict[str, tuple[int, Any, dict[str, Any]]] = {
    "hospital, all": (20, "all", HOSPITAL),
    "hospital, poisson": (20, {"name": "poisson", "fraction": 0.3}, HOSPITAL),
    "hospital, local": (20, "all", HOSPITAL | {"mode": "local"}),
    "patient, pooled": (100, "all", PATIENT | {"mode": "pooled", "rate": 0.1}),
    "patient, local": (10, "all", PATIENT | {"mode": "local"}),
}
"""Rounds, selection and guarantee."""


@contextlib.contextmanager
def replaced(original: Any, by: Any) -> Iterator[None]:
    """Everywhere in raysim, ``by`` stands for a function."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("raysim")]
    places = [(module, name) for module in modules for name, value in list(vars(module).items()) if value is original]
    for module, name in places:
        setattr(module, name, by)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


@contextlib.contextmanager
def no_clip() -> Iterator[None]:
    """Neither updates nor gradients are clipped."""
    summed = clipped.clipped_sum
    with (
        replaced(clip.clipped, lambda vectors, length: list(vectors)),
        replaced(summed, lambda layers, patient, length: summed(layers, patient, np.inf)),
        replaced(clipped.factors, lambda lengths, length, dtype: np.ones_like(lengths)),
        replaced(linear_clip.largest, lambda length, lengths, dtype: np.full_like(lengths, np.inf)),
    ):
        yield


@contextlib.contextmanager
def noise_times(factor: float) -> Iterator[None]:
    """All noise is so many times as strong."""
    drawn, of_steps = noise.normals, noise.StepNormals

    def weak(*where: Any) -> Callable[[int, int], Any]:
        strong = of_steps(*where)
        return lambda step, size: factor * strong(step, size)

    with replaced(drawn, lambda *where: factor * drawn(*where)), replaced(of_steps, weak):
        yield


SABOTAGES: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "none": contextlib.nullcontext,
    "noise left out": lambda: noise_times(0.0),
    "noise x .1": lambda: noise_times(0.1),
    "clip off": no_clip,
}


def audited(guarantee: str, sabotage: str, seed: int, canaries: int) -> dict[str, Any]:
    """One audit: what it said of epsilon, and whether it ended with an error."""
    rounds, selection, privacy = GUARANTEES[guarantee]
    config = reading.checked(
        {
            "name": "audit",
            "seed": seed,
            "data": {"source": "synthetic", "hospitals": 20, "rows": 2000, "features": 12},
            "training": {"rounds": rounds},
            "selection": selection,
            "strategy": {"name": "fedavg"} | ({} if privacy.get("mode") == "pooled" else {"weights": "uniform"}),
            "evaluation": {"every": 0},
            "tracking": {"uri": "none"},
            "privacy": privacy,
        }
    )
    with tempfile.TemporaryDirectory() as folder, SABOTAGES[sabotage]():
        caught = False
        try:
            audit(config, Path(folder) / "audit", shadows=0, canaries=canaries, in_process=True, say=lambda text: None)
        except PrivacyBroken:
            caught = True
        one_run = json.loads((Path(folder) / "audit" / "audit.json").read_text())["one_run"]
    return {"guarantee": guarantee, "sabotage": sabotage, "seed": seed, "caught": caught, **one_run}


def main() -> None:
    """Play all, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--canaries", type=int, default=200)
    parser.add_argument("--only", default="", help="guarantees whose names have this in them")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "audits.csv"
    present = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["guarantee", "sabotage", "seed"])
    done = set(present[["guarantee", "sabotage", "seed"]].itertuples(index=False, name=None))
    for guarantee in GUARANTEES:
        for sabotage in SABOTAGES:
            for seed in range(given.seeds):
                if given.only in guarantee and (guarantee, sabotage, seed) not in done:
                    row = audited(guarantee, sabotage, seed, given.canaries)
                    pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
    table = pd.read_csv(path).groupby(["guarantee", "sabotage"], sort=False)
    print(
        table.agg(
            audits=("caught", "size"),
            caught=("caught", "sum"),
            claimed=("epsilon_claimed", "mean"),
            at_least=("epsilon_at_least", "median"),
            least=("epsilon_at_least", "min"),
            most=("epsilon_at_least", "max"),
            ceiling=("ceiling", "max"),
        )
        .round(2)
        .to_string()
    )


if __name__ == "__main__":
    main()
