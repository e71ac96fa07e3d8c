"""The rows of clinical tables on a page, from the folders of runs; several runs give means over seeds.

The interval of a mean allows for chance in both patients and seeds (:mod:`raysim.statistics.over_seeds`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from raysim.core.csv_files import cell, text_of
from raysim.engine.measuring.subgroups import EVERYWHERE
from raysim.report import svg
from raysim.report.naming import MODELS
from raysim.report.svg import Style
from raysim.statistics.over_seeds import OverSeeds, over_seeds
from raysim.storage.clinical_tables import CALIBRATION, FIGURES, NET_BENEFIT

RATIO = "observed_over_expected"

TEXTS = ("hospital", "model", "figure", "undefined")

_PARSED = {
    "read_options": pyarrow.csv.ReadOptions(use_threads=False),
    "parse_options": pyarrow.csv.ParseOptions(newlines_in_values=True),
    "convert_options": pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(TEXTS, pa.string()), null_values=["", "nan"], strings_can_be_null=False
    ),
}


@dataclass(frozen=True, eq=False)
class ClinicalRows:
    """The clinical metrics of one model, for all hospitals together."""

    label: str
    name: str
    style: Style
    seeds: int
    """The number of training seeds; with several, the rows have means and their intervals."""
    rows: str
    """A phrase with the numbers of rows and events on which the metrics are based."""
    figures: pd.DataFrame
    """The model's rows of ``clinical.csv``."""
    calibration: pd.DataFrame
    """The model's rows of ``calibration.csv``."""
    net_benefit: pd.DataFrame
    """The model's rows of ``net_benefit.csv``."""

    @cached_property
    def by_figure(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of ``figures`` as dictionaries, by the name of the metric."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.figures.to_dict("records"):
            rows.setdefault(str(row["figure"]), []).append({str(name): value for name, value in row.items()})
        return rows

    def row(self, figure: str, at: float | None = None) -> dict[str, Any] | None:
        """Return the first row of a metric at the threshold ``at`` (None: at any threshold)."""
        return next((row for row in self.by_figure.get(figure, ()) if at is None or row["at"] == at), None)

    def alerts(self, at: float | None) -> float:
        """Return the share of patients with a predicted risk of at least the threshold ``at``; NaN if unknown."""
        row = self.row("ppv", at)
        return float(row["of"]) / float(row["n"]) if row is not None and row["n"] else float("nan")

    def without_few(self, least: int) -> ClinicalRows | None:
        """Remove metrics based on fewer than ``least`` patients; return None if no overall metric, no bin or no curve
        remains.

        - A metric at a decision threshold needs at least ``least`` patients in each of four cells: above and below the
          threshold, with and without the event. Metrics at a chosen sensitivity or specificity are always removed.
        - A bin of the calibration plot needs at least ``least`` patients with the event, and at least ``least``
          without. An overall metric needs the same.
        - The curve of net benefit ends at the lower limit of the last remaining bin.
        """
        overall = self.figures[self.figures["at"].isna()]
        if overall.empty or min(overall["events"].min(), (overall["n"] - overall["events"]).min()) < least:
            return None
        enough = {at for at in self.figures["at"].dropna() if min(self._confusion(float(at))) >= least}
        by_threshold = ~self.figures["figure"].isin(["sensitivity_at_specificity", "specificity_at_sensitivity"])
        figures = self.figures[self.figures["at"].isna() | (self.figures["at"].isin(enough) & by_threshold)]
        bins = self.calibration
        large = bins[(bins["events"] >= least) & (bins["n"] - bins["events"] >= least)].reset_index(drop=True)
        end = float(large["from"].max()) if len(large) else 0.0
        curve = self.net_benefit[self.net_benefit["threshold"] <= end + 1e-9].reset_index(drop=True)
        if large.empty or curve.empty:
            return None
        return replace(self, figures=figures.reset_index(drop=True), calibration=large, net_benefit=curve)

    def _confusion(self, at: float) -> tuple[float, float, float, float]:
        """Return the numbers of true positives, false positives, false negatives and true negatives at the threshold
        ``at``; 0 if unknown.
        """
        rows = {name: row for name, each in self.by_figure.items() for row in each if row["at"] == at}
        if not {"sensitivity", "ppv"} <= set(rows) or np.isnan(rows["sensitivity"]["value"]):
            return 0.0, 0.0, 0.0, 0.0
        n, events, alerts = rows["ppv"]["n"], rows["ppv"]["events"], rows["ppv"]["of"]
        right = rows["sensitivity"]["value"] * events
        return right, alerts - right, events - right, n - alerts - (events - right)


def of_runs(runs: Sequence[tuple[str, str, Path]]) -> list[ClinicalRows]:
    """Return the clinical metrics of each strategy's main model, over all hospitals together.

    ``runs`` has the label, display name and folder of each run. Runs without clinical tables are left out.
    """
    folders: dict[tuple[str, str], list[Path]] = {}
    for label, name, folder in runs:
        if (folder / FIGURES).is_file():
            folders.setdefault((label, name), []).append(folder)
    last = {label: _models(seed_folders[0])[-1] for (label, _), seed_folders in folders.items()}
    styles = svg.styles(list(last.items()), among=[label for label, *_ in runs])
    return [
        _clinical_rows(at, name, len(seeds), _tables(seeds, {last[at]}), last[at], styles[at, last[at]])
        for (at, name), seeds in folders.items()
    ]


def of_run(label: str, folder: Path) -> list[ClinicalRows]:
    """Return the clinical metrics of every model of a run; empty if the run has no clinical tables."""
    if not (folder / FIGURES).is_file():
        return []
    models = _models(folder)
    styles = svg.styles([(label, model) for model in models])
    tables = _tables([folder], set(models))
    return [_clinical_rows(label, MODELS.get(model, model), 1, tables, model, styles[label, model]) for model in models]


def read_rows(paths: Sequence[Path], **wanted: Set[str]) -> pd.DataFrame:
    """Read and concatenate the rows in which each column of ``wanted`` has one of the given texts.

    Few of many rows are needed, so Arrow filters them before pandas converts them.
    """
    stacked = []
    for path in paths:
        table = pyarrow.csv.read_csv(path, **_PARSED)
        for name, texts in wanted.items():
            table = table.filter(pc.is_in(table[name], pa.array([cell(each) for each in texts], pa.string())))
        stacked.append(table)
    rows = pa.concat_tables(stacked, promote_options="permissive")
    return pd.DataFrame({name: _column(name, rows[name]) for name in rows.column_names})


def _column(name: str, cells: pa.ChunkedArray) -> list[str] | NDArray[Any]:
    if name not in TEXTS:
        return np.asarray((cells.cast(pa.float64()) if pa.types.is_null(cells.type) else cells).to_numpy())
    texts = {each: text_of(each) for each in cells.unique().to_pylist()}
    return [texts[each] for each in cells.to_pylist()]


def possible(figure: str) -> tuple[float, float]:
    """Return the lower and the upper limit to which intervals of a clinical metric are cut.

    >>> possible("ppv"), possible("observed_over_expected"), possible("calibration_slope")
    ((0.0, 1.0), (0.0, inf), (-inf, inf))
    """
    if figure.startswith(("sensitivity", "specificity", "ppv", "npv", "calibration_error", "observed")):
        return 0.0, np.inf if figure == RATIO else 1.0
    return -np.inf, np.inf


def _models(folder: Path) -> list[str]:
    together = read_rows([folder / FIGURES], hospital={EVERYWHERE})
    return list(dict.fromkeys(together["model"]))


def _tables(folders: Sequence[Path], models: Set[str]) -> list[pd.DataFrame]:
    """Return the rows on ``models`` over all hospitals together: clinical metrics, calibration and net benefit."""
    return [
        read_rows([folder / file for folder in folders], hospital={EVERYWHERE}, model=models)
        for file in (FIGURES, CALIBRATION, NET_BENEFIT)
    ]


def _clinical_rows(
    label: str, name: str, seeds: int, tables: Sequence[pd.DataFrame], model: str, style: Style
) -> ClinicalRows:
    figures, calibration, benefit = (table[table["model"] == model].reset_index(drop=True) for table in tables)
    return ClinicalRows(
        label,
        name,
        style,
        seeds,
        " with ".join(_range(figures[column], word) for column, word in (("n", "rows"), ("events", "events"))),
        _means(figures, ["figure", "at"]),
        _means(calibration, ["from", "to"]).sort_values("from"),
        _means(benefit, ["threshold"]),
    )


def _range(counts: pd.Series, word: str) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,} {word}" if low == high else f"{low:,} to {high:,} {word}"


def over_runs(stacked: pd.DataFrame, keys: Sequence[str], value: str = "value") -> tuple[pd.DataFrame, OverSeeds]:
    """Average rows of clinical tables over runs that differ only in their seed.

    Returns the first row of each group with equal ``keys``, and the group's mean of the column ``value`` with its
    interval. In ``stacked``, the columns ``low`` and ``high`` are the intervals of single runs.
    """
    groups = stacked.groupby(list(keys), sort=False, dropna=False)
    group, seed = groups.ngroup().to_numpy(), groups.cumcount().to_numpy()
    first = stacked[seed == 0].reset_index(drop=True)
    figures = np.full((3, seed.max(initial=0) + 1, len(first)), np.nan)
    figures[:, seed, group] = stacked[[value, "low", "high"]].to_numpy(float).T
    names = first["figure"].astype(str).tolist() if "figure" in first else [value] * len(first)
    lowest, highest = np.array([possible(name) for name in names]).reshape(-1, 2).T
    ratios = np.array([name == RATIO for name in names], dtype=bool)
    return first, over_seeds(*figures, within=(lowest, highest), ratio=ratios)


def _means(stacked: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    if not stacked.duplicated(keys).any():
        return stacked
    value = next(name for name in ("value", "observed") if name in stacked)
    row, estimates = over_runs(stacked, keys, value)
    groups = stacked.groupby(keys, sort=False, dropna=False)
    several = groups.size().to_numpy() > 1
    numbers = [str(name) for name in stacked.select_dtypes("number") if name not in keys]
    row[numbers] = np.where(several[:, None], groups[numbers].mean().to_numpy(float), row[numbers].to_numpy(float))
    row[value] = np.where(several, estimates.value, row[value])
    limited = several & ~np.isnan(
        estimates.low
    )  # a figure with only an upper limit, such as the chance floor, still has its mean
    for name, limit in (("low", estimates.low), ("high", estimates.high)):
        row[name] = np.where(limited, limit, row[name])
    return row
