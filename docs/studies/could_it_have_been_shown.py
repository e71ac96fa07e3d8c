"""The tables of docs/studies/could_it_have_been_shown.md: could published gains have been demonstrated?

``python docs/studies/could_it_have_been_shown.py RESULTS IMPACT`` reads FLamby's own results of two tasks (a CSV for
each of five seeds, from its repository) and IMPACT's fifteen studies (a table of ``impact.rda`` of the package
metamisc). Of the other papers it takes the numbers that they print. Markdown is printed.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import stdtrit

import raysim
from raysim.design.settings import Design, Many
from raysim.report.naming import interval, number
from raysim.statistics.design.power import differences
from raysim.statistics.differences.paired import paired
from raysim.statistics.levels import ALPHA

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


@dataclass(frozen=True)
class Published:
    """A gain that a paper prints, and what it says of its data; ``test_rows``: of the median hospital."""

    claim: str
    gain: float
    hospitals: int
    test_rows: int
    prevalence: float
    auroc: float
    seeds: int
    assumed: str


CHIP, GMC = "CHiP-FL, eICU mortality: ", "FedGMC, eICU kidney injury: "
PUBLISHED = (
    Published(CHIP + "FedProx over FedAvg", 0.0227, 208, 27, 0.10, 0.91, 3, "test rows, prevalence, 3 seeds"),
    Published(CHIP + "clustered over FedAvg", 0.0020, 208, 27, 0.10, 0.91, 3, "test rows, prevalence, 3 seeds"),
    Published(GMC + "FedGMC over FedAvg, regression", 0.0221, 20, 650, 0.10, 0.73, 5, "prevalence"),
    Published(GMC + "FedGMC over FedAvg, network", 0.0102, 20, 650, 0.10, 0.74, 5, "prevalence"),
    Published("Wichmann 2025: regression over local", 0.0546, 21, 118, 0.28, 0.81, 5, "test rows, prevalence, seeds"),
)
"""The papers print: CHiP-FL 208 hospital units with 30,943 training rows and one seed; FedGMC 20 hospitals with 64,974
stays and five folds; Wichmann 21 hospitals with 17,022 patients, AUROC .8117, 7.21 % above local. A fifth tests."""


def main(results: Path, impact: Path) -> None:
    rows = [row for task in TASKS for row in flamby(results, task)]
    parts = [
        "| task, 5 seeds | centres | against | method | difference (95 %) | visible in 4 of 5 studies | demonstrated |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "| claim | hospitals | gain | visible in 4 of 5 studies | power for the gain | assumed |",
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
                f"| {name} | {wide.shape[1]} | {against} | {label} | {size} | {plain(pair.visible)} | {shown} |"
            )
    return found


def denominator(values: pd.Series, most: int) -> int:
    """The test rows of a centre: the fewest of which all its accuracies are shares."""
    shares = [Fraction(float(value)).limit_denominator(most) for value in values.dropna().unique()]
    return int(np.lcm.reduce([share.denominator for share in shares]))


def published(claim: Published) -> str:
    """The row of a published gain."""
    sites = Many(hospitals=claim.hospitals, median_rows=claim.test_rows, prevalence=claim.prevalence)
    design = Design(sites=sites, seeds=claim.seeds, auroc=claim.auroc)
    draws = differences(design.judged(), claim.seeds)
    cells = (
        claim.claim,
        claim.hospitals,
        short(claim.gain),
        plain(draws.visible(0.8)),
        f"{draws.power(claim.gain):.0%}",
    )
    return "| " + " | ".join(map(str, (*cells, claim.assumed))) + " |"


def of_impact(table: Path) -> list[str]:
    """What IMPACT's fifteen studies show of federating against training alone."""
    config = HERE.parents[2] / "experiments" / "small_hospitals.yaml"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        found = raysim.compare(config, overrides={"data.path": str(table.absolute())}, out=out, in_process=True)
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
    return [f"IMPACT: newton over training alone {size}; visible in 4 of 5 studies: {plain(visible)}."]


def ascii_minus(text: str) -> str:
    """As the documentation writes figures: -.017."""
    return text.replace("\N{MINUS SIGN}", "-").replace("0.", ".")


def plain(value: float) -> str:
    """As the documentation writes a figure: .017."""
    return ascii_minus(number(value, 3))


def short(value: float) -> str:
    return ascii_minus(number(value, 3, sign=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
