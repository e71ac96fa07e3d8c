"""The tables of docs/studies/could_it_have_been_shown.md: could published gains have been demonstrated?

``python docs/studies/could_it_have_been_shown.py RESULTS IMPACT`` reads FLamby's own results of two tasks: a folder
with a CSV for each of five seeds, from its repository (github.com/owkin/FLamby). IMPACT is a CSV of the fifteen
studies, which R writes: ``data(impact, package = "metamisc"); write.csv(impact, "impact.csv", row.names = F)``.
Of the other papers it takes the numbers that they print, and says what it assumes. Markdown is printed.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.special import stdtrit

import raysim
from raysim.core.levels import ALPHA
from raysim.design.settings import Design, Many
from raysim.report.naming import interval, number
from raysim.statistics.design.power import differences
from raysim.statistics.differences.paired import paired

HERE = Path(__file__)
METHODS = {
    "FedAvg100": "FedAvg",
    "FedProx100": "FedProx",
    "Scaffold100": "SCAFFOLD",
    "Cyclic100": "cyclic",
    "FedAdam100": "FedAdam",
    "FedYogi100": "FedYogi",
    "FedAdagrad100": "FedAdagrad",
    "Pooled Training": "pooled training",
}
TASKS = {"heart_disease.heart": ("heart disease, accuracy", 104), "tcga_brca.tcga": ("TCGA-BRCA, C-index", None)}
"""Files of a task, with its name; the most test rows of a centre, where its metric is a share of them."""


SIGMA = 0.8
"""Assumed: the standard deviation of the logarithm of hospitals' sizes."""

TESTED = 0.2
"""Assumed: the share of rows that tests; of a cross-validation it is what one fold tests."""


@dataclass(frozen=True)
class Published:
    """A gain that a paper prints, with ``rows`` of all its hospitals and their ``auroc``. What is ``assumed`` the paper
    does not print.
    """

    claim: str
    gain: float
    hospitals: int
    rows: int
    prevalence: float
    auroc: float
    seeds: int
    assumed: tuple[str, ...]

    @property
    def test_rows(self) -> int:
        """Of the median hospital, as sizes are log-normal."""
        return round(TESTED * self.rows / self.hospitals / math.exp(SIGMA**2 / 2))

    @property
    def design(self) -> str:
        """The values of the simulated comparison; a star marks what is assumed."""
        stars = {name: "*" if name in self.assumed else "" for name in ("prevalence", "seeds")}
        events = plain(self.prevalence, 2) + stars["prevalence"]
        return f"{self.test_rows}*, {events}, {plain(self.auroc, 2)}, {self.seeds}{stars['seeds']}"


CHIP, GMC = "CHiP-FL, eICU mortality: ", "FedGMC, eICU kidney injury: "
BOTH = ("prevalence", "seeds")
PUBLISHED = (
    Published(CHIP + "FedProx over FedAvg", 0.0227, 208, 38_679, 0.10, 0.91, 3, BOTH),
    Published(CHIP + "clustered over FedAvg", 0.0020, 208, 38_679, 0.10, 0.91, 3, BOTH),
    Published(GMC + "FedGMC over FedAvg, regression", 0.0221, 20, 64_974, 0.10, 0.73, 5, ("prevalence",)),
    Published(GMC + "FedGMC over FedAvg, network", 0.0102, 20, 64_974, 0.10, 0.74, 5, ("prevalence",)),
    Published("Wichmann 2025: regression over local", 0.0546, 21, 17_022, 0.28, 0.81, 5, BOTH),
)
"""The papers print: CHiP-FL 208 hospital units with 30,943 training rows, which are four fifths, and one seed; FedGMC
20 hospitals with 64,974 stays and five folds; Wichmann 21 hospitals with 17,022 patients, AUROC .8117, 7.21 % above
local.
"""


def main(results: Path, impact: Path) -> None:
    rows = [row for task in TASKS for row in flamby(results, task)]
    parts = [
        "| task, 5 seeds | centres | compared with | method | difference (95 %) | "
        "difference demonstrated in 4 of 5 studies | demonstrated here |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "| claim | hospitals | gain | median test rows, share of events, AUROC, seeds | "
        "difference demonstrated in 4 of 5 studies | power for the gain |",
        "|---|---|---|---|---|---|",
        *map(published, PUBLISHED),
        "",
        *of_impact(impact),
    ]
    print("\n".join(parts))


def flamby(folder: Path, task: str) -> list[str]:
    """A row a method, against local training and against FedAvg."""
    name, most = TASKS[task]
    table = pd.concat(pd.read_csv(path) for path in sorted(folder.glob(f"{task}_seed*.csv")))
    table = table[table["Test"].str.startswith("client_test_")]
    wide = table.pivot_table(index=["Method", "seed"], columns="Test", values="Metric")
    weights = np.ones(wide.shape[1]) if most is None else np.array([denominator(wide[c], most) for c in wide])
    of = {method: wide.loc[method].to_numpy() for method in METHODS}
    own = np.stack([wide.loc[f"Local {h}"].to_numpy()[:, h] for h in range(wide.shape[1])], axis=1)
    found = []
    for against, theirs in (("local", own), ("FedAvg", of["FedAvg100"])):
        for method, label in METHODS.items():
            if label == against or (against == "FedAvg" and label == "pooled training"):
                continue
            pair = paired(of[method], theirs, np.broadcast_to(weights, theirs.shape))
            if pair.difference == 0 and not (of[method] - theirs).any():
                found.append(f"| {name} | {wide.shape[1]} | {against} | {label} | the same model | | |")
                continue
            limits = pair.population()
            several = pair.population(ALPHA / (len(METHODS) - 1))  # Bonferroni: so many methods are compared
            excluded = [each.low > 0 or each.high < 0 for each in (limits, several)]
            shown = "yes" if all(excluded) else "alone" if excluded[0] else "no"
            size = f"{short(pair.difference)} ({ascii_minus(interval(*limits, 3, sign=True))})"
            found.append(
                f"| {name} | {wide.shape[1]} | {against} | {label} | {size} | {plain(pair.visible())} | {shown} |"
            )
    return found


def denominator(values: pd.Series, most: int) -> int:
    """The test rows of a centre: the fewest of which all its accuracies are shares."""
    shares = [Fraction(float(value)).limit_denominator(most) for value in values.dropna().unique()]
    return int(np.lcm.reduce([share.denominator for share in shares]))


def published(claim: Published) -> str:
    """The row of a published gain."""
    sites = Many(hospitals=claim.hospitals, median_rows=claim.test_rows, prevalence=claim.prevalence, sigma=SIGMA)
    design = Design(sites=sites, seeds=claim.seeds, auroc=claim.auroc)
    draws = differences(design.judged(), claim.seeds)
    cells = (
        claim.claim,
        claim.hospitals,
        short(claim.gain),
        claim.design,
        plain(draws.visible(0.8)),
        f"{draws.power(claim.gain):.0%}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def of_impact(table: Path) -> list[str]:
    """What IMPACT's fifteen studies show of federating against training alone."""
    config = yaml.safe_load((HERE.parents[2] / "experiments" / "small_hospitals.yaml").read_text())
    names = {"silo": "name", "label": "mort", "drop": ["type"]}
    config["data"] = {"source": "table", "path": str(table.absolute()), "split": config["data"]["split"]} | names
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        found = raysim.compare(config, out=out, in_process=True)
        way = next(way for way in found.answer["ways"] if way["role"] == "reference")
        rows = pd.read_csv(out / "hospitals.csv")
        wide = [
            rows[rows["strategy"] == name].pivot_table(index="seed", columns="hospital", values=value).to_numpy()
            for name, value in (("newton", "auroc"), ("local", "auroc"), ("local", "n_test"))
        ]
    df = paired(*wide).df
    reach = (way["high"] - way["low"]) / 2
    visible = reach * (1 + stdtrit(df, 0.8) / stdtrit(df, 0.975))
    size = f"{short(-way['difference'])} ({ascii_minus(interval(-way['high'], -way['low'], 3, sign=True))})"
    return [f"IMPACT: newton over training alone {size}; difference demonstrated in 4 of 5 studies: {plain(visible)}."]


def ascii_minus(text: str) -> str:
    """As the documentation writes figures: -.017."""
    return text.replace("\N{MINUS SIGN}", "-").replace("0.", ".")


def plain(value: float, digits: int = 3) -> str:
    """As the documentation writes a figure: .017."""
    return ascii_minus(number(value, digits))


def short(value: float) -> str:
    return ascii_minus(number(value, 3, sign=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder of FLamby's results")
    parser.add_argument("impact", type=Path, help="the table of IMPACT")
    arguments = parser.parse_args()
    main(arguments.results, arguments.impact)
