"""Regressions, boosted trees and networks on open data, as in docs/models.md and docs/trees.md.

``python -m benchmarks.which_model FOLDER`` reads ``impact/impact.csv.gz``, ``flamby/heart_disease/processed.*.data``
and ``eicu_demo/`` in FOLDER. It compares models without tuning, with early stopping, and with tuning, and prints a line
for each method: its mean AUROC, and the difference from the recommended method with the answer's interval. Before them
are the chosen settings.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import raysim
from benchmarks.unseen import IMPACT, heart_disease

SYNTHETIC = Path(__file__).parents[1] / "experiments" / "models.yaml"
SPLIT = {"split": {"train": 0.5, "validation": 0.2, "test": 0.3}}
MODELS = ["logistic_regression", "boosted_trees", {"name": "mlp", "hidden": [32]}]
UNTUNED = {"models": MODELS, "training": {"rounds": 20}}
STOPPED = {"models": MODELS[:2], "training": {"rounds": 100, "stop": {}}}
RATES = {"training.learning_rate": [0.03, 0.1, 0.5], "models": {"boosted_trees": {"model.rate": [0.05, 0.1, 0.3]}}}
TUNED = {"models": MODELS, "training": {"rounds": 30, "stop": {}}, "tune": {"seeds": 1} | RATES}


def main() -> None:
    """Print the lines."""
    for title, config, table in comparisons(Path(sys.argv[1])):
        show(title, config, table)


def comparisons(folder: Path) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame | None]]:
    """A title, a configuration whose first strategy is the reference, and the table if its source is one."""
    heart = heart_disease(folder, "slope", "ca", "thal")
    impact = pd.read_csv(folder / "impact" / "impact.csv.gz", keep_default_na=False)
    centres = {"source": "table", "silo": "centre", "label": "disease"}
    eicu = {"source": "eicu", "path": str(folder / "eicu_demo")}
    regions = eicu | {"silo": "region_beds"}
    for name, data, table in (("heart disease", centres, heart), ("IMPACT", IMPACT, impact), ("eICU", regions, None)):
        untuned = UNTUNED | {"data": data, "strategies": ["fedavg", "federated_trees", "local"]}
        yield f"{name}, untuned", untuned, table
        regression = "newton" if table is not None else "fedavg"
        stopped = STOPPED | {"data": data | SPLIT, "strategies": [regression, "federated_trees", "local"]}
        yield f"{name}, early stopping", stopped, table
        hospitals = data if table is not None else eicu
        tuned = TUNED | {"data": hospitals | SPLIT, "strategies": ["fedavg", "newton", "federated_trees"]}
        yield f"{name}, tuned", tuned, table
    synthetic = yaml.safe_load(SYNTHETIC.read_text())
    stopped = STOPPED | {"data": synthetic["data"], "strategies": ["newton", "federated_trees", "local"]}
    yield "synthetic, early stopping", stopped, None
    yield "synthetic, tuned", synthetic | {"strategies": ["fedavg", "newton", "federated_trees"]}, None


def show(title: str, config: dict[str, Any], table: pd.DataFrame | None) -> None:
    """Print a comparison."""
    config = {"seeds": [0, 1, 2], "reference": config["strategies"][0], "tracking": {"uri": "none"}} | config
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        raysim.compare(config, data=table, out=out, in_process=True)
        answer = json.loads((out / "answer.json").read_text())
        tuned = pd.read_csv(out / "tuning.csv").query("chosen") if "tune" in config else None
    print(f"\n{title}: {answer['what']}. {answer['headline']}\n")
    if tuned is not None:
        print(tuned.to_string(index=False))
    for way in answer["ways"]:
        difference = "" if way["low"] is None else f"{way['difference']:+.3f} ({way['low']:+.3f} to {way['high']:+.3f})"
        print(f"| {', '.join(way['key'])} | {way['mean']:.3f} | {difference} |", flush=True)


if __name__ == "__main__":
    main()
