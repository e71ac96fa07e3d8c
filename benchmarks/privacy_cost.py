"""What privacy costs: accuracy, the worst decile and size bias against epsilon, by guarantee and federation.

    python -m benchmarks.privacy_cost FOLDER [--seeds 5] [--first 0] [--data synthetic] [--eicu PATH] [--only hospital]
        [--epsilon 2]

Clips and rates are those of the tables below for all seeds; no test row was looked at to choose them. FOLDER gets
``runs.csv``, a row for each run, which a later call goes on with; ``costs.csv``, the differences from the same training
without noise, and of Newton from first-order methods at its epsilon, with their 95 % intervals over seeds; and
``privacy.svg``.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

import raysim
from raysim.report import svg

PUBLIC = ["sizes", "metrics", "preprocessing"]
EPSILONS = (0.5, 1, 2, 4, 8)
FIGURES = ("auroc", "pooled_auroc", "worst_decile", "size_bias", "log_loss")
FIRST_ORDER = ("patient, pooled", "patient, local")
"""What noisy Newton is compared with at the same epsilon: DP-SGD on pooled rows, and DP-FedAvg."""
GUARANTEES = ("hospital", "patient, pooled", "patient, local", "newton")
KEYS = ["data", "guarantee", "epsilon", "seed"]


@dataclass(frozen=True)
class Guarantee:
    """One way to guarantee something, and what its runs are compared with."""

    training: Mapping[str, Any]
    """The section ``training``."""
    privacy: Mapping[str, Any] = field(default_factory=dict)
    """The section ``privacy`` without epsilon; empty where nothing is guaranteed."""
    weights: str = "samples"
    """How hospitals count in the average."""
    against: tuple[str, ...] = ()
    """What it is compared with, without noise or at its own epsilon, that of the first tables first; empty: itself."""
    strategy: str = "fedavg"
    """Its name."""

    @property
    def priced(self) -> bool:
        """Whether it has an epsilon."""
        return bool(self.privacy) and "noise_multiplier" not in self.privacy


def guarantees(data: str) -> dict[str, Guarantee]:
    """Those of a federation: training in rounds of averages, and in rounds of pooled gradients.

    Noise is a matter of how many take part. The demo of eICU has 1,300 patients to train on where the synthetic
    federation has 27,000: there few rounds are played, all patients take part in each, and features do not say where
    values are missing. These settings were among the best on its validation rows at epsilon 1 (hospitals: 2), for
    seeds 10 to 29.
    """
    small = data == "eicu"
    averaged = {"rounds": 20, "local_epochs": 1, "batch_size": 32, "learning_rate": 0.2}
    rounds = averaged | ({"rounds": 2, "learning_rate": 1.0} if small else {})
    pooled = {"rounds": 2, "learning_rate": 1.0} if small else {"rounds": 200, "learning_rate": 3.0}
    patient = {"unit": "patient", "delta": 1e-5, "clip": 1.0, "declared_public": PUBLIC}
    sums = patient | {"mode": "pooled"} | ({"rate": 1.0, "clip": 2.0} if small else {"rate": 0.05})
    hospital = {"unit": "hospital", "delta": 1e-3, "clip": 0.3, "declared_public": PUBLIC}
    newton = {"rounds": 4}, patient | {"mode": "pooled", "clip": 4.0}
    steps = averaged | {"learning_rate": 0.5} | ({"rounds": 1} if small else {})
    return {
        "by rows": Guarantee(averaged),
        "uniform": Guarantee(averaged, weights="uniform"),
        "pooled, no noise": Guarantee(pooled, sums | {"noise_multiplier": 0.0}),
        "hospital, no noise": Guarantee(rounds, hospital | {"noise_multiplier": 0.0}, "uniform", ("uniform",)),
        "hospital": Guarantee(rounds, hospital, "uniform", ("uniform", "hospital, no noise")),
        "patient, pooled": Guarantee(pooled, sums, against=("pooled, no noise", "uniform")),
        "patient, local": Guarantee(steps, patient | {"mode": "local"}, against=("by rows",)),
        "newton": Guarantee(*newton, against=("exact", *FIRST_ORDER), strategy="newton"),
        "exact": Guarantee({"rounds": 25}, strategy="newton"),
    }


def main() -> None:
    """Play what is missing, and write tables and picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--data", default="synthetic", choices=("synthetic", "eicu"))
    parser.add_argument("--eicu", default="../eicu-collaborative-research-database-demo-2.0")
    parser.add_argument("--only", default="", help="guarantees whose names begin with this")
    parser.add_argument("--epsilon", type=float, choices=EPSILONS, help="this one alone; all where it is not given")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    seeds = range(given.first, given.first + given.seeds)
    epsilons = EPSILONS if given.epsilon is None else (given.epsilon,)
    runs = played(given.folder / "runs.csv", given.data, given.eicu, seeds, given.only, epsilons)
    table = costs(runs)
    table.to_csv(given.folder / "costs.csv", index=False)
    draw(table, given.folder / "privacy.svg")
    print(table.round(4).to_string(index=False))


def played(
    path: Path, data: str, eicu: str, seeds: Iterable[int], only: str, epsilons: Sequence[float]
) -> pd.DataFrame:
    """The rows of ``path``, and of the runs that are not there yet."""
    runs = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEYS, *FIGURES, "seconds"])
    present = set(runs[KEYS].itertuples(index=False, name=None))
    for seed in seeds:
        for name, guarantee in guarantees(data).items():
            if not name.startswith(only):
                continue
            for epsilon in epsilons if guarantee.priced else (np.inf,):
                if (data, name, epsilon, seed) in present:
                    continue
                began = time.perf_counter()
                summary = summary_of(guarantee, epsilon, data, eicu, seed)
                figures = {figure: summary[figure] for figure in FIGURES}
                row = {"data": data, "guarantee": name, "epsilon": epsilon, "seed": seed, **figures}
                row["seconds"] = time.perf_counter() - began
                pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
                print(row, flush=True)
    return pd.read_csv(path)


def summary_of(guarantee: Guarantee, epsilon: float, data: str, eicu: str, seed: int) -> Mapping[str, Any]:
    """The summary of one run."""
    # Guarantees for patients need this split; all others have it to be compared with them.
    split = {"train": 0.7, "validation": 0.1, "test": 0.2, "independent": True}
    source: dict[str, Any] = {"source": data, "split": split}
    if data == "eicu":
        source |= {"path": eicu, "task": "mortality", "silo": "hospital", "missing_flags": False}
        source["split"] = source["split"] | {"by": "patient"}
    config: dict[str, Any] = {
        "seed": seed,
        "data": source,
        "training": dict(guarantee.training),
        "selection": "all",
        "evaluation": {"every": 0},
        "checkpoint": {"every": 0},
        "tracking": {"uri": "none"},
        "strategy": {"name": "fedavg", "weights": guarantee.weights},
    }
    if guarantee.privacy:
        config["privacy"] = copy.deepcopy(dict(guarantee.privacy))
        if guarantee.priced:
            config["privacy"]["epsilon"] = epsilon
        if guarantee.privacy["unit"] == "patient":
            config["strategy"] = {"name": guarantee.strategy}
    elif guarantee.strategy != "fedavg":
        config["strategy"] = {"name": guarantee.strategy}
    with tempfile.TemporaryDirectory() as folder:
        return dict(raysim.run(config, out=Path(folder) / "run", in_process=True).summary)


def costs(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each federation, guarantee and epsilon: means over seeds, and differences with 95 % intervals.

    A difference is taken seed by seed; the interval is Student's over seeds.
    """
    rows = []
    for (data, name, epsilon), part in runs.groupby(["data", "guarantee", "epsilon"], sort=False):
        each = part.set_index("seed")
        for without in guarantees(str(data))[str(name)].against or (str(name),):
            base = runs[(runs["data"] == data) & (runs["guarantee"] == without)]
            if guarantees(str(data))[without].priced:
                base = base[base["epsilon"] == epsilon]
            base = base.set_index("seed")
            seeds = each.index.intersection(base.index)
            if not len(seeds):
                continue
            row = {"data": data, "guarantee": name, "epsilon": epsilon, "against": without, "seeds": len(seeds)}
            for figure in FIGURES:
                change = (each.loc[seeds, figure] - base.loc[seeds, figure]).to_numpy(float)
                half = np.nan
                if len(seeds) > 1:
                    half = float(student.ppf(0.975, len(seeds) - 1) * change.std(ddof=1) / np.sqrt(len(seeds)))
                row |= {figure: each[figure].mean(), f"{figure}_change": change.mean()}
                row |= {f"{figure}_low": change.mean() - half, f"{figure}_high": change.mean() + half}
            rows.append(row)
    return pd.DataFrame(rows)


def draw(table: pd.DataFrame, path: Path) -> None:
    """A row of panels a federation: the mean AUROC, the pooled one and the worst decile against epsilon.

    Dotted: the same training without noise. Vertical lines: the 95 % interval of the difference from it.
    """
    shown = {
        "auroc": "mean AUROC of hospitals",
        "pooled_auroc": "AUROC of all patients",
        "worst_decile": "AUROC of the worst decile",
    }
    table = table[table["guarantee"].isin(GUARANTEES)].drop_duplicates(["data", "guarantee", "epsilon"])
    table = table.sort_values("epsilon", kind="stable")
    looks = {name: svg.Style(3 * k, "circle") for k, name in enumerate(table["guarantee"].unique())}
    charts = []
    for data, part in table.groupby("data", sort=False):
        for column, title in shown.items():
            level = part[column] - part[f"{column}_change"]
            low, high = level + part[f"{column}_low"], level + part[f"{column}_high"]
            y = svg.linear("", [*part[column], *level, *low, *high])
            name = f"{data}: {title}"
            chart = svg.Chart(svg.log("epsilon", EPSILONS), y, name=name, title=name, width=1.2 * svg.PANEL)
            for k, (guarantee, look) in enumerate(looks.items()):
                here = part["guarantee"] == guarantee
                at, values = part["epsilon"][here] * 1.04 ** (k - 1), part[column][here]
                chart.whiskers(low[here], high[here], at, look, upright=True)
                chart.line(at, values, look)
                chart.dots(at, values, look)
                chart.line(at, level[here], replace(look, form="open"))
            charts.append(chart)
    caption = "Dotted: without noise. Intervals of the difference from it are at 95 %."
    figure = svg.figure("privacy", "AUROC against epsilon", charts, caption, svg.legend([*looks.items()]))
    path.write_text(figure.standalone(), encoding="utf-8")


if __name__ == "__main__":
    main()
