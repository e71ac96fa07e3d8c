"""What one hospital's people ask: its rows and events, how each model serves it, its cluster, and what left it.

A card is plain data: headings and texts. The page has those of all hospitals in its one block of data, and shows the
one that is chosen; ``raysim report --hospital`` writes a page with one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.data.federation import PARTS
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind
from raysim.report.gains import Gains, Served, between, compared_with, served
from raysim.report.naming import Key, size, with_interval
from raysim.report.tables import read_csv

MORE_OFTEN = 2
"""So many attributes are told that a cluster's hospitals have more often than others."""

CLINICAL = {
    "calibration_slope": "Calibration slope (1 is right)",
    "calibration_in_the_large": "Calibration in the large (0 is right)",
    "observed_over_expected": "Observed over expected events",
    "calibration_error": "Calibration error (ECE)",
    "sensitivity_at_specificity": "Sensitivity, where all have specificity {at:g}",
    "ppv": "Predictive value of a risk of {at:.0%} or more",
}
"""Figures of ``clinical.csv`` that a card tells."""


def cards(
    results: Sequence[Result],
    names: Mapping[Key, str],
    reference: str,
    recommended: Key | None,
    part: str,
    hospitals: pd.DataFrame,
) -> dict[str, Any]:
    """``hospitals``: a card for each hospital of the federation, in its order; ``columns`` of their tables; ``seed``.

    ``results`` are those of the first seed, ``hospitals`` their table.
    """
    federation = results[0].federation
    kind = federation.task
    keys = [(r, model, (r.label, model)) for r in results for model in r.outcome.figures if (r.label, model) in names]
    figures = {key: served(result.outcome, model, kind) for result, model, key in keys}
    base = compared_with(results, reference, recommended or ("", ""))
    gains: dict[Key, Gains] = {}
    if base is not None:
        against = names[base[0].label, base[1]].removesuffix(" (reference)")
        gains = {
            key: between(result, model, base[0], base[1], (names[key], against))
            for result, model, key in keys
            if key != (base[0].label, base[1])
        }
    left = {result.label: _sent(result) for result in results}
    shared = [_clusters(result, names) for result in results]
    clinical = _clinical(results, recommended)
    rows = {name: federation.sizes(name) for name in PARTS}
    events = _events(hospitals)
    built = []
    for h, hospital in enumerate(federation.hospitals):
        facts = [[f"{name.capitalize()} rows", f"{int(count[h]):,}"] for name, count in rows.items()]
        if hospital in events:
            facts.append([f"Events among {part} rows", f"{events[hospital]:,.0f}"])
        facts += [[a.capitalize(), values[h] or "unknown"] for a, values in federation.attributes.items()]
        facts += [[f"Cluster of {name}", text] for name, texts in filter(None, shared) if (text := texts[h])]
        facts += clinical.get(hospital, [])
        built.append(
            {
                "name": hospital,
                "facts": facts,
                "rows": [_row(names[key], figures[key], gains, key, h, kind) for *_, key in keys],
                "sent": _told(left, names, h),
            }
        )
    heading = [f"{kind.title} (95 % interval)"] + ([f"Gain over {against}"] if gains else [])
    return {"hospitals": built, "columns": ["Model", *heading], "seed": results[0].seed}


def recommended_gains(
    results: Sequence[Result], names: Mapping[Key, str], reference: str, recommended: Key
) -> Gains | None:
    """The gains of the recommended model at each hospital; None where there is nothing to compare it with."""
    base = compared_with(results, reference, recommended)
    own = next((result for result in results if result.label == recommended[0]), None)
    if base is None or own is None:
        return None
    called = names[recommended], names[base[0].label, base[1]].replace(" (reference)", "").lower()
    return between(own, recommended[1], base[0], base[1], called)


def _row(name: str, figure: Served, gains: Mapping[Key, Gains], key: Key, h: int, kind: TaskKind) -> list[str]:
    digits = kind.decimals(figure.value)
    cells = [name, with_interval(float(figure.value[h]), float(figure.low[h]), float(figure.high[h]), digits)]
    if key in gains:
        gain = gains[key]
        low, high = float(gain.low[h]), float(gain.high[h])
        cells.append(with_interval(float(gain.value[h]), low, high, digits, sign=True))
    elif gains:
        cells.append("–")
    return cells


def _events(hospitals: pd.DataFrame) -> dict[str, float]:
    if "events_test" not in hospitals:
        return {}
    # Labels of more than two classes have no events.
    once = hospitals.drop_duplicates("hospital").dropna(subset="events_test")
    return {str(name): float(count) for name, count in once[["hospital", "events_test"]].to_numpy()}


def _clinical(results: Sequence[Result], recommended: Key | None) -> dict[str, list[list[str]]]:
    """By hospital, the calibration of the recommended model, or of the run's, where the run has told it."""
    label, model = recommended or (results[0].label, list(results[0].outcome.figures)[-1])
    file = next(result.folder for result in results if result.label == label) / "clinical.csv"
    if not file.exists():
        return {}
    table = read_csv(file)
    told: dict[str, list[list[str]]] = {}
    for row in table[table["model"] == model].to_dict("records"):
        heading = CLINICAL.get(str(row["figure"]))
        if heading is not None:
            text = with_interval(float(row["value"]), float(row["low"]), float(row["high"]), 2)
            if isinstance(row["undefined"], str):
                text = f"undefined: {row['undefined']}"
            told.setdefault(str(row["hospital"]), []).append([heading.format(at=float(row["at"])), text])
    return told


def _sent(result: Result) -> dict[str, NDArray[np.int64]]:
    """Bytes that left each hospital, by kind, ``[H]``: of the ledger, or where a run was resumed, of its file."""
    totals: dict[str, NDArray[np.int64]] = {}
    count = len(result.federation.hospitals)
    if result.outcome.ledger.entries:
        for _, kind, ids, sent in result.outcome.ledger.entries:
            np.add.at(totals.setdefault(kind, np.zeros(count, dtype=np.int64)), ids, sent)
        return totals
    if not (result.folder / "egress.csv").exists():
        return totals
    table = read_csv(result.folder / "egress.csv")
    place = {name: h for h, name in enumerate(result.federation.hospitals)}
    for name, group in table.groupby("kind", sort=False):
        sums = np.zeros(count, dtype=np.int64)
        np.add.at(sums, group["hospital"].map(place).to_numpy(np.int64), group["bytes"].to_numpy(np.int64))
        totals[str(name)] = sums
    return totals


def _told(left: Mapping[str, Mapping[str, NDArray[np.int64]]], names: Mapping[Key, str], h: int) -> list[list[str]]:
    """For each strategy, what left this hospital by kind."""
    lines = []
    for label, kinds in left.items():
        name = next(names[key] for key in names if key[0] == label).partition(",")[0]
        parts = [f"{kind.replace('_', ' ')} {size(int(sent[h]))}" for kind, sent in kinds.items() if sent[h]]
        lines.append([name, "; ".join(parts) or "nothing"])
    return lines


def _clusters(result: Result, names: Mapping[Key, str]) -> tuple[str, list[str]] | None:
    """For each hospital, its cluster in a run and what that one's hospitals have more often than others."""
    rows = result.outcome.cluster
    if rows is None:
        return None
    rows = np.asarray(rows)
    attributes = result.federation.attributes
    texts = {}
    for cluster in np.unique(rows[rows > 0]).tolist():
        inside = rows == cluster
        excess = []
        for attribute, values in attributes.items():
            for level in sorted(set(values) - {""}):
                has = np.array([value == level for value in values])
                here, elsewhere = has[inside].mean(), has[~inside].mean() if (~inside).any() else 0.0
                excess.append((here - elsewhere, f"{attribute} {level} ({here:.0%}; elsewhere {elsewhere:.0%})"))
        excess.sort(key=lambda pair: -pair[0])
        more = [text for difference, text in excess[:MORE_OFTEN] if difference > 0]
        others = int(inside.sum()) - 1
        shares = f", which more often have {' and '.join(more)}" if more and others else ""
        texts[cluster] = f"{cluster}, with {others} other {'hospital' if others == 1 else 'hospitals'}{shares}"
    name = next(names[key] for key in names if key[0] == result.label).partition(",")[0]
    return name, [texts.get(row, "none: the global model serves it") for row in rows.tolist()]
