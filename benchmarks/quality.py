"""What the checks before training find in open tables as they are, and in tables that were spoilt at one hospital.

``python -m benchmarks.quality FOLDER`` takes the folder of open data that tests take from ``RAYSIM_DATA``, and prints
what the rows of the two tables in docs/data.md give: suspect columns, and oddities with the share of damages found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raysim.data.checks import leaks, quality
from raysim.data.checks.suspects import Suspect
from raysim.data.raw_columns import RawColumns
from raysim.data.sources.bundled import BreastCancer
from raysim.data.sources.eicu.source import Eicu
from raysim.data.sources.patient_types import PatientTypes
from raysim.data.sources.synthetic import Synthetic
from raysim.data.sources.yaib import Yaib

Rows = tuple[pd.DataFrame, "np.ndarray[Any, Any]", "np.ndarray[Any, Any]", tuple[str, ...], Any]
"""Features, hospitals, labels, classes and patients."""

ROWS = 20  # a hospital that is spoilt has at least so many rows, and its column as many values
SPOILT = 40  # of each kind in each table at most


def checked(rows: Rows) -> tuple[Suspect, ...]:
    """What is odd in a table."""
    return quality.check(*_arguments(rows), rows[-1])


def suspects(rows: Rows) -> str:
    """The strongest column of a table, and the columns that may reveal the label."""
    found = leaks.check(*_arguments(rows))
    return "; ".join([found.note, *(f"{each.feature}: {each.level}" for each in found.suspects)])


def _arguments(rows: Rows) -> tuple[RawColumns, Any, Any, list[str], Any, tuple[str, ...]]:
    frame, silo, y, classes, _ = rows
    names, home = np.unique(silo.astype(str), return_inverse=True)
    return RawColumns.of(frame), np.arange(len(y)), home, names.tolist(), y, classes


def tables(folder: Path) -> Iterator[tuple[str, Rows]]:
    """Open tables by name."""
    impact = pd.read_csv(folder / "impact" / "impact.csv.gz", keep_default_na=False)
    yield "IMPACT, 15 studies", of_frame(impact, "name", "mort")
    centres = sorted((folder / "flamby" / "heart_disease").glob("processed.*.data"))
    heart = pd.concat([pd.read_csv(f, header=None, na_values="?").assign(centre=f.stem) for f in centres])
    heart.columns = [*map(str, range(13)), "num", "centre"]
    yield "heart disease, 4 centres", of_frame(heart.assign(num=heart["num"] > 0), "centre", "num")
    adult = pd.read_csv(folder / "adult" / "adult.data", header=None, skipinitialspace=True)
    adult.columns = [f"column {name}" for name in adult.columns]
    yield "Adult by occupation", of_frame(adult, "column 6", "column 14")
    yield "Adult by country", of_frame(adult, "column 13", "column 14")
    tcga = pd.read_csv(folder / "flamby" / "tcga_brca" / "brca.csv")
    tcga["site"] = tcga.pop("pid").str.split("-").str[1]
    yield "TCGA-BRCA, 40 sites", of_frame(tcga, "site", "E")
    for silo in ("hospital", "region_beds", "ward"):
        yield f"eICU demo, death, by {silo}", of_source(Eicu(path=folder / "eicu_demo", task="mortality", silo=silo))
    for task in ("mortality24", "los", "aki", "sepsis", "kidney_function"):
        path = folder / "eicu_demo_hourly" / task
        yield f"YAIB {task}", of_source(Yaib(path=path, eicu=folder / "eicu_demo"))
    yield "the synthetic federation", of_source(Synthetic())
    yield "patient types", of_source(PatientTypes())
    yield "breast cancer, 10 clients", of_source(BreastCancer(clients=10))


def of_frame(frame: pd.DataFrame, silo: str, label: str) -> Rows:
    """The rows of a data frame; its texts become categories."""
    features = frame.drop(columns=[silo, label])
    for name in features.select_dtypes(exclude="number"):
        features[name] = features[name].astype("category")
    y, classes = pd.factorize(frame[label], sort=True)
    return features, frame[silo].to_numpy(str), y, tuple(map(str, classes)), None


def of_source(source: Any) -> Rows:
    """The rows of a source."""
    records = source.read()
    return records.features, records.silo, records.y, records.classes, records.group


def scaled(factor: float, offset: float = 0.0) -> Callable[[pd.Series], pd.Series]:
    """A column in another unit."""
    return lambda values: values * factor + offset


def some_zero(values: pd.Series) -> pd.Series:
    """A column in which 0 stands for a third of the values."""
    return values.where(np.arange(len(values)) % 3 > 0, 0.0)


SPOILS: dict[str, Callable[[pd.Series], pd.Series]] = {
    **{f"times {factor:g}": scaled(factor) for factor in (1.8, 10, 18, 88.4, 1000)},
    "0 in a third": some_zero,
    "one value": lambda values: values * 0 + values.median(),
    "no value": lambda values: values * np.nan,
}


def spoilt(rows: Rows, rng: np.random.Generator) -> Iterator[tuple[str, bool]]:
    """Each way of spoiling a measurement at a hospital, and whether it is named."""
    frame, silo, y, classes, patients = rows
    before = {each.text for each in checked(rows)}
    measured = [str(name) for name in frame if frame[name].dtype.kind == "f" and frame[name].nunique() >= 20]
    counts = pd.Series(silo).value_counts()
    places = [(name, h) for name in measured for h in counts.index[counts >= ROWS]]
    places = [(name, h) for name, h in places if frame.loc[silo == h, name].notna().sum() >= ROWS]
    rng.shuffle(places)
    for name, h in places[:SPOILT]:
        for way, spoil in SPOILS.items():
            values = frame[name].astype(np.float64)
            values[silo == h] = spoil(values[silo == h])
            found = checked((frame[[name]].assign(**{name: values}), silo, y, classes, patients))
            yield way, any(each.feature == name and each.text not in before for each in found)


def main() -> None:
    """Print what is found in each table, and the share of spoilt measurements that are."""
    rng = np.random.default_rng(0)
    for title, rows in tables(Path(sys.argv[1])):
        rows[0].index = pd.RangeIndex(len(rows[0]))
        rows = (rows[0].apply(_single), *rows[1:])
        found = checked(rows)
        print(f"| {title} | {len(set(rows[1].tolist()))} | {rows[0].shape[1]} | {'; '.join(s.text for s in found)} |")
        print("    ", suspects(rows))
        ways: dict[str, list[bool]] = {}
        for way, named in spoilt(rows, rng):
            ways.setdefault(way, []).append(named)
        print("    ", {way: f"{np.mean(named):.2f} of {len(named)}" for way, named in ways.items()}, flush=True)


def _single(column: pd.Series) -> pd.Series:
    return column.astype(np.float32) if column.dtype.kind in "iufb" else column


if __name__ == "__main__":
    main()
