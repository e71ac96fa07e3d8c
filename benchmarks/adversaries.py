"""What bad hospitals cost the honest ones: shares of attackers by rule, attack and strategy, as a table and a picture.

``python -m benchmarks.adversaries experiments/adversaries.yaml FOLDER`` plays the grid of the file's sweep in this
process, every combination with every seed, and judges the models of honest hospitals on test rows. Into FOLDER it
writes ``adversaries.csv``, a row for each run, and ``adversaries.svg``.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import pandas as pd

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config import plugins, reading
from raysim.engine.coordinator import Coordinator
from raysim.engine.job import Outcome
from raysim.engine.job_checks import check_job
from raysim.engine.reception.attack_figures import attack_figures
from raysim.experiment.jobs import make_job


def outcome_of(config: Any, federation: Any, seed: int) -> tuple[Any, Outcome]:
    """The job of a configuration, and what it comes to."""
    strategy, selection = plugins.build_strategy(config.strategy), plugins.build_selection(config.selection)
    job = make_job(config, strategy, selection, federation.folder, seed)
    check_job(job, federation)
    *_, outcome = Coordinator(LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")).run(job)
    assert isinstance(outcome, Outcome)
    return job, outcome


def play(path: Path) -> pd.DataFrame:
    """A row for each run: the values of the grid, the seed, and figures over honest hospitals."""
    tree = reading.read_tree(path)
    grid = {key: entry["grid"] for key, entry in tree.pop("sweep")["space"].items()}
    seeds = tree.pop("seeds")
    rows = []
    for seed in seeds:
        base = reading.checked(tree)
        federation = plugins.build_federation(base.data, plugins.build_source(base.data), seed)
        clean: dict[tuple[str, str], Outcome] = {}
        played: dict[tuple[str, str], dict[str, Any]] = {}
        for values in product(*grid.values()):
            setting = dict(zip(grid, values, strict=True))
            config = reading.checked(_with(tree, setting))
            key = (setting["strategy.name"], setting["aggregation.name"])
            none = setting["adversary.share"] == 0
            if none and key in played:
                rows.append(played[key] | setting)
                continue
            job, outcome = outcome_of(config, federation, seed)
            if none:
                clean[key] = outcome
            told = attack_figures(job, outcome, clean.get(key), federation)
            row = {**setting, "seed": seed, **told.honest, "harm_in": told.harm_in, "harm_out": told.harm_out}
            row |= {"bad": len(told.bad), "largest_bad_share": told.largest_bad_share}
            row |= {name: outcome.facts[name] for name in ("rejecting_recall", "bad_share_admitted")}
            if none:
                played[key] = row
            rows.append(row)
        print(f"seed {seed}: {len(rows)} runs", flush=True)
    return pd.DataFrame(rows)


def _with(tree: dict[str, Any], setting: dict[str, Any]) -> dict[str, Any]:
    changed = dict(tree)
    for key, value in setting.items():
        section, name = key.split(".")
        changed[section] = {**changed.get(section, {}), name: value}
    return changed


def draw(table: pd.DataFrame, path: Path) -> None:
    """A panel for each strategy and attack: the honest mean AUROC against the share of attackers, a line a rule."""
    strategies, attacks = table["strategy.name"].unique(), table["adversary.attack"].unique()
    figure, axes = plt.subplots(
        len(strategies), len(attacks), figsize=(3 * len(attacks), 2.6 * len(strategies)), sharex=True, sharey=True
    )
    for (i, strategy), (j, attack) in product(enumerate(strategies), enumerate(attacks)):
        part = table[(table["strategy.name"] == strategy) & (table["adversary.attack"] == attack)]
        for rule, runs in part.groupby("aggregation.name", sort=False):
            means = runs.groupby("adversary.share")["auroc"].mean()
            axes[i, j].plot(means.index * 100, means, marker="o", markersize=3, label=rule)
        axes[i, j].set_title(f"{strategy}, {attack}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("bad hospitals, %")
    for axis in axes[:, 0]:
        axis.set_ylabel("honest mean AUROC")
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    made = play(given.config)
    made.to_csv(given.folder / "adversaries.csv", index=False)
    draw(made, given.folder / "adversaries.svg")
    shown = made.groupby(["strategy.name", "adversary.attack", "aggregation.name", "adversary.share"], sort=False)
    print(shown[["auroc", "worst_decile", "harm_in", "harm_out"]].mean().round(3).to_string())
