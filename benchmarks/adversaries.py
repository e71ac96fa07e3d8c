"""What bad hospitals cost the honest ones: shares of attackers by rule, attack and strategy, as a table and a picture.

``python -m benchmarks.adversaries experiments/adversaries.yaml FOLDER`` plays the grid of the file's sweep in this
process, every combination with every seed, and judges the models of honest hospitals on test rows. Into FOLDER it
writes ``adversaries.csv``, a row for each run; ``harm.csv``, means over seeds with 95 % intervals; and
``adversaries.svg``. With ``--drawn`` it plays nothing, and goes by the runs that are there.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config import plugins, reading
from raysim.engine.attack_figures import attack_figures
from raysim.engine.job import Outcome
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.experiment.jobs import make_job
from raysim.report import svg

GRID = ["strategy.name", "adversary.attack", "aggregation.name", "adversary.share"]


def outcome_of(config: Any, federation: Any, seed: int) -> tuple[Any, Outcome]:
    """The job of a configuration, and what it comes to."""
    strategy, selection = plugins.build_strategy(config.strategy), plugins.build_selection(config.selection)
    job = make_job(config, strategy, selection, federation.folder, seed)
    check_job(job, federation)
    *_, outcome = JobRun(LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu"), job).events()
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
        federation = plugins.build_federation(base, plugins.build_source(base.data), seed)
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
            figures = attack_figures(job, outcome, clean.get(key), federation)
            row = {**setting, "seed": seed, **figures.honest, "harm_in": figures.harm_in, "harm_out": figures.harm_out}
            row |= {"bad": len(figures.bad), "largest_bad_share": figures.largest_bad_share}
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


def harm(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each strategy, attack, rule and share: what honest hospitals beside bad ones lost, over seeds.

    ``gain`` is by how much the rule's AUROC over honest hospitals is above that of ``mean`` under the same attack with
    the same seed. ``_low`` and ``_high`` are the ends of Student's 95 % interval over seeds.
    """
    rows = []
    for key, part in table.groupby(GRID, sort=False):
        given = dict(zip(GRID, key, strict=True))
        same = np.logical_and.reduce([table[name] == given[name] for name in GRID if name != "aggregation.name"])
        usual = table[same & (table["aggregation.name"] == "mean")].set_index("seed")["auroc"]
        each = part.set_index("seed")
        row: dict[str, Any] = given | {"seeds": len(each)}
        for name, values in (
            ("auroc", each["auroc"]),
            ("harm_in", each["harm_in"]),
            ("harm_out", each["harm_out"]),
            ("gain", each["auroc"] - usual.reindex(each.index)),
        ):
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), interval(values.to_numpy(float)), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """The mean of what is defined, and the ends of its 95 % interval; NaN where fewer than two are."""
    there = values[np.isfinite(values)]
    if len(there) < 2:
        return (float(there.mean()) if len(there) else np.nan), np.nan, np.nan
    half = float(student.ppf(0.975, len(there) - 1) * there.std(ddof=1) / np.sqrt(len(there)))
    return float(there.mean()), float(there.mean()) - half, float(there.mean()) + half


def draw(table: pd.DataFrame, path: Path) -> None:
    """A panel for each attack and strategy: the honest mean AUROC against the share of attackers, a line a rule.

    Vertical lines are 95 % intervals over seeds, which seeds' own differences are part of.
    """
    looks = {rule: svg.Style(2 * k, "circle") for k, rule in enumerate(table["aggregation.name"].unique())}
    x = svg.linear("Byzantine hospitals, %", 100 * table["adversary.share"])
    y = svg.linear("honest mean AUROC", table[["auroc", "auroc_low", "auroc_high"]], within=(0.0, 1.0))
    charts = []
    for attack, strategy in product(table["adversary.attack"].unique(), table["strategy.name"].unique()):
        title = f"{attack}, {strategy}"
        chart = svg.Chart(x, y, name=title, title=title, width=1.5 * svg.PANEL)
        part = table[(table["strategy.name"] == strategy) & (table["adversary.attack"] == attack)]
        for k, (rule, look) in enumerate(looks.items()):
            runs = part[part["aggregation.name"] == rule]
            at = runs["adversary.share"] * 100 + (k - 2) * 0.6
            chart.whiskers(runs["auroc_low"], runs["auroc_high"], at, look, upright=True)
            chart.line(at, runs["auroc"], look)
            chart.dots(at, runs["auroc"], look)
        charts.append(chart)
    title, caption = "AUROC of honest hospitals", "Intervals are at 95 %, over seeds."
    figure = svg.figure("adversaries", title, charts, caption, svg.legend([*looks.items()]))
    path.write_text(figure.standalone(), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--drawn", action="store_true", help="play nothing")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.drawn:
        made = pd.read_csv(given.folder / "adversaries.csv")
    else:
        made = play(given.config)
        made.to_csv(given.folder / "adversaries.csv", index=False)
    harms = harm(made)
    harms.to_csv(given.folder / "harm.csv", index=False)
    draw(harms, given.folder / "adversaries.svg")
    print(harms.round(3).to_string(index=False))
