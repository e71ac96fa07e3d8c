"""Tables on one hospital: calibration of every model, decisions at thresholds, and bytes sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.engine.job import Result
from raysim.report.hospital.clinical_rows import over_runs, read_rows
from raysim.report.naming import Key, with_interval
from raysim.report.supplement.protection import sent_in

ACTING = ("Sensitivity (95 % interval)", "Alerts per 100 patients", "Predictive value of an alert")
SENT = ("Took part", "Kinds and bytes")

PRINTED = ("observed_over_expected", "sensitivity", "ppv")
"""The metrics of ``clinical.csv`` that the tables print."""

At = tuple[str, str, str, float]
"""A strategy, one of its models, a hospital and a decision threshold (-1: none)."""


@dataclass(frozen=True, eq=False)
class Measured:
    """Calibration and decision metrics of each model at each hospital; empty if no run measured them."""

    keys: frozenset[Key] = frozenset()
    texts: Mapping[str, Mapping[At, str]] = field(default_factory=dict)
    """For each metric of :data:`PRINTED`, the texts of its values with their intervals."""
    alerts: Mapping[At, float] = field(default_factory=dict)
    """The share of patients whose predicted risk is at least the threshold."""
    thresholds: tuple[float, ...] = ()

    def calibration(self, key: Key, hospital: str) -> list[str]:
        """Return the table cell on observed over expected events; empty if no run measured calibration."""
        if not self.keys:
            return []
        return [self.texts["observed_over_expected"].get((*key, hospital, -1.0), "–")]

    def acting(self, key: Key, name: str, hospital: str) -> list[list[str]]:
        """Return one table row for each decision threshold."""
        rows = []
        for at in self.thresholds:
            where = (*key, hospital, at)
            if where in self.texts["sensitivity"]:
                alerts = f"{100 * self.alerts[where]:.0f}" if where in self.alerts else "–"
                cells = [self.texts["sensitivity"][where], alerts, self.texts["ppv"].get(where, "–")]
                rows.append([f"{at:.0%}, {name}", *cells])
        return rows


def measured(results: Sequence[Result], keys: Sequence[Key]) -> Measured:
    """Collect calibration and decision metrics of the models ``keys`` at all hospitals, as means over seeds."""
    stacked = []
    for label in dict.fromkeys(label for label, _ in keys):
        files = [result.folder / "clinical.csv" for result in results if result.label == label]
        written, models = [file for file in files if file.exists()], {model for of, model in keys if of == label}
        if written:
            stacked.append(read_rows(written, model=models, figure=set(PRINTED)).assign(strategy=label))
    if not stacked:
        return Measured()
    rows = pd.concat(stacked, ignore_index=True)
    rows = rows[rows["hospital"] != ""].reset_index(drop=True)
    names = ["strategy", "model", "hospital", "at"]
    first, estimates = over_runs(rows, [*names, "figure"])
    texts: dict[str, dict[At, str]] = {figure: {} for figure in PRINTED}
    where = first[names].fillna({"at": -1.0}).itertuples(index=False, name=None)
    columns = zip(first["figure"], *(each.tolist() for each in estimates), strict=True)
    for at, (figure, value, low, high, seeds) in zip(where, columns, strict=True):
        if seeds:
            texts[figure][at] = with_interval(value, low, high, 2)
    ppv = rows[rows["figure"] == "ppv"].groupby(names, sort=False)[["of", "n"]].sum()
    ppv = ppv[ppv["n"] > 0]
    alerts = dict(zip(ppv.index.tolist(), (ppv["of"] / ppv["n"]).tolist(), strict=True))
    thresholds = tuple(sorted(set(ppv.index.get_level_values("at"))))
    present = frozenset((str(a), str(b)) for a, b in first[["strategy", "model"]].drop_duplicates().to_numpy())
    return Measured(present, texts, alerts, thresholds)


def left(
    results: Sequence[Result], titles: Mapping[str, str], hospitals: pd.DataFrame
) -> Callable[[int], list[list[str]]]:
    """Return a function that builds a hospital's table of traffic from the hospital's index.

    A row is about one strategy. It has the number of rounds in which the hospital took part and the bytes that the
    hospital sent, both as ranges over seeds.
    """
    sent = {label: _ends([sent_in(result) for result in results if result.label == label]) for label in titles}
    took = participation(hospitals)
    names = results[0].federation.hospitals

    def rows(h: int) -> list[list[str]]:
        lines = []
        for label, kinds in sent.items():
            parts = [
                f"{kind.replace('_', ' ')} {_bytes(int(low[h]), int(high[h]))}"
                for kind, (low, high) in kinds.items()
                if high[h]
            ]
            lines.append([titles[label], took.get((label, names[h]), "–"), "; ".join(parts) or "nothing"])
        return lines

    return rows


def _ends(runs: Sequence[Mapping[str, NDArray[np.int64]]]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the fewest and most bytes that each hospital sent in any run, by kind of message, ``[H]`` each."""
    kinds = dict.fromkeys(kind for totals in runs for kind in totals)
    ends = {}
    for kind in kinds:
        nothing = np.zeros_like(next(totals[kind] for totals in runs if kind in totals))
        each = np.stack([totals.get(kind, nothing) for totals in runs])
        ends[kind] = each.min(axis=0), each.max(axis=0)
    return ends


def _bytes(low: int, high: int) -> str:
    """Format the lowest and the highest number of bytes over seeds, without rounding.

    >>> _bytes(1632, 1632), _bytes(0, 280)
    ('1,632 bytes', '0 to 280 bytes, by seed')
    """
    return f"{low:,} bytes" if low == high else f"{low:,} to {high:,} bytes, by seed"


def participation(hospitals: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return a phrase on the rounds in which each hospital took part, by strategy and hospital; empty if rounds are not
    counted.
    """
    if not {"participated", "rounds"} <= set(hospitals):
        return {}
    rows = hospitals.dropna(subset=["participated", "rounds"])
    ends = rows.groupby(["strategy", "hospital"])[["participated", "rounds"]].agg(["min", "max"])
    texts = {}
    for (strategy, hospital), (low, high, least, most) in zip(ends.index, ends.to_numpy(int).tolist(), strict=True):
        times, rounds = (f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ((low, high), (least, most)))
        by_seed = ", by seed" if low != high or least != most else ""
        texts[str(strategy), str(hospital)] = f"in {times} of {rounds} rounds{by_seed}"
    return texts
