"""Hospitals of open data that are left out one by one, as in docs/unseen.md.

``python -m benchmarks.unseen FOLDER`` reads ``impact/impact.csv.gz``, ``flamby/heart_disease/processed.*.data``,
``flamby/tcga_brca/`` and ``eicu_demo/`` in FOLDER, and prints the Markdown tables.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

import raysim

EICU = Path(__file__).parents[1] / "experiments" / "eicu.yaml"
IMPACT = {"source": "table", "silo": "name", "label": "mort", "drop": ["type"]}
NEWTON, RIDGE, FEDAVG = {"name": "newton"}, {"name": "newton", "ridge": 10.0}, {"name": "fedavg"}
LABELLED, JOINING = [0, 10, 30, 100], ("recalibrate", "fine_tune")
HEART = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
"""The first ten columns of the files. The next three (``slope``, ``ca``, ``thal``) have many missing values."""


class LeftOut(NamedTuple):
    """Tables of a comparison: means over hospitals, single hospitals, and differences."""

    summary: pd.DataFrame
    hospitals: pd.DataFrame
    difference: pd.DataFrame


def main() -> None:
    """Print the tables."""
    folder = Path(sys.argv[1])
    impact = pd.read_csv(folder / "impact" / "impact.csv.gz", keep_default_na=False)
    print("IMPACT\n")
    studies(impact)
    print("\nIMPACT, labelled rows of the new study\n")
    labelled_rows(impact)
    print("\nOther data\n")
    other_data(folder)


def left_out(config: dict[str, Any], table: pd.DataFrame | None = None, **unseen: Any) -> LeftOut:
    """Compare strategies with hospitals left out one by one."""
    config = config | {"reference": config["strategies"][0]["name"], "tracking": {"uri": "none"}}
    config["evaluation"] = {"unseen": {"folds": "leave_one_out"} | unseen}
    with tempfile.TemporaryDirectory() as folder:
        raysim.compare(config, data=table, out=Path(folder) / "out", in_process=True)
        names = ("unseen_summary", "unseen", "unseen_difference")
        return LeftOut(*(pd.read_csv(Path(folder) / "out" / f"{name}.csv") for name in names))


def studies(impact: pd.DataFrame) -> None:
    """Print the means over studies and the intervals for the next study, of an exact regression."""
    found = left_out({"data": IMPACT, "strategies": [NEWTON], "seeds": [0, 1]}, impact)
    for figure in ("auroc", "observed_over_expected", "calibration_in_the_large", "calibration_slope"):
        print(f"| {figure} | {' | '.join(cells(found.summary, figure, 'newton'))} |")
    seen, ratios = found.difference.iloc[0], found.hospitals["observed_over_expected"]
    print(f"\nTaking part changes the AUROC by {seen['difference']:+.4f} ({seen['low']:+.4f} to {seen['high']:+.4f}).")
    print(f"Observed over expected deaths of single studies: {ratios.min():.2f} to {ratios.max():.2f}.")


def labelled_rows(impact: pd.DataFrame) -> None:
    """Print what labelled rows improve, by their number."""
    data = IMPACT | {"split": {"train": 0.6, "validation": 0.2, "test": 0.2}}
    config = {"data": data, "strategies": [NEWTON, {"name": "local", "solve": True}], "seeds": [0, 1]}
    ways = [left_out(config, impact, onboarding=LABELLED, held=0.2, joining=way) for way in JOINING]
    for k in LABELLED:
        row = [str(k)]
        for name, way in zip(JOINING, ways, strict=True):
            newton = way.hospitals.query("strategy == 'newton' and k == @k")
            error = np.abs(np.log(newton["observed_over_expected"])).mean()
            row += [f"{newton['log_loss'].mean():.3f}", f"{100 * error:.0f} %"]
            if name == "recalibrate":
                row.append(cells(way.summary, "observed_over_expected", "newton", k)[1])
        alone = cells(ways[0].summary, "auroc", "local", k)[0]
        row += [cells(way.summary, "auroc", "newton", k)[0] for way in ways]
        print(f"| {' | '.join(row)} | {alone} |")


def other_data(folder: Path) -> None:
    """Print AUROC and observed over expected events of each table and method, over hospitals and at the next one."""
    heart = heart_disease(folder)
    config = {"data": {"source": "table", "silo": "centre", "label": "disease"}, "seeds": [0, 1]}
    found = left_out(config | {"strategies": [NEWTON, FEDAVG]}, heart)
    show("heart disease", found)
    ratios = found.hospitals.groupby(["hospital", "strategy"])["observed_over_expected"].mean()
    print(ratios["switzerland"].to_string())
    brca = pd.read_csv(folder / "flamby" / "tcga_brca" / "brca.csv")
    regions = pd.read_csv(folder / "flamby" / "tcga_brca" / "centers.csv").drop_duplicates("TSS Code")
    brca["region"] = brca["pid"].str.split("-").str[1].map(regions.set_index("TSS Code")["Region"])
    brca = brca.drop(columns=["pid", "T"]).astype({"E": int})
    config = {"data": {"source": "table", "silo": "region", "label": "E"}, "seeds": [0, 1]}
    show("TCGA-BRCA", left_out(config | {"strategies": [RIDGE, FEDAVG]}, brca))
    config = yaml.safe_load(EICU.read_text()) | {"strategies": [FEDAVG, RIDGE], "seeds": [0]}
    del config["tune"]
    config["data"] |= {"path": str(folder / "eicu_demo"), "silo": "region_beds", "scores": ["apache_iv"]}
    found = left_out(config, trained_on="all")
    show("eICU demo", found)
    print(found.difference.query("comparison == 'less fedavg'").to_string(index=False))


def heart_disease(folder: Path, *further: str) -> pd.DataFrame:
    """The patients of four centres, with the columns ``HEART`` and those ``further`` of slope, ca and thal."""
    centres = sorted((folder / "flamby" / "heart_disease").glob("processed.*.data"))
    names = [*HEART, "slope", "ca", "thal", "num"]
    heart = pd.concat(
        [pd.read_csv(f, header=None, names=names, na_values="?").assign(centre=f.stem[10:]) for f in centres]
    )
    return heart[[*HEART, *further, "centre"]].assign(disease=(heart["num"] > 0).astype(int))


def show(title: str, found: LeftOut) -> None:
    """Print a row for each method."""
    for name in found.summary["strategy"].unique():
        of = found.summary[found.summary["strategy"] == name]
        figures = [*cells(of, "auroc", name), *cells(of, "observed_over_expected", name)]
        print(f"| {title} | {name} | {of['hospitals'].max()} | {' | '.join(figures)} |", flush=True)


def cells(summary: pd.DataFrame, figure: str, strategy: str, k: int = 0) -> tuple[str, str]:
    """A mean with its interval, and the interval for the next hospital."""
    of = summary.query("figure == @figure and strategy == @strategy and k == @k").iloc[0]
    return (
        f"{of['estimate']:.3f} ({of['low']:.3f} to {of['high']:.3f})",
        f"{of['next_low']:.2f} to {of['next_high']:.2f}",
    )


if __name__ == "__main__":
    main()
