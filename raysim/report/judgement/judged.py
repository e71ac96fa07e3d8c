"""The number of hospitals with a defined main metric (AUROC or MAE), and hospitals' rows of the rarer class.

The rarer class determines the precision of an AUROC: 2 non-events among 25 rows give as little precision as 2 events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from raysim.core.words import counted, some
from raysim.metrics.labels import reporting
from raysim.report import svg
from raysim.report.naming import Key

NAMED = 5
"""The largest number of hospitals in a sentence; the rest are counted."""

BINS = ((0, 0), (1, 9), (10, 49), (50, 10**12))
"""Ranges of the number of rows of the rarer class, both ends included."""

FEW = 10
"""Lists of hospitals print the number of rows of the rarer class if it is below this."""


def rarer(events: ArrayLike, rows: ArrayLike) -> NDArray[np.float64]:
    """Return each hospital's number of rows of the rarer class.

    >>> rarer([23, 0, 5], [25, 9, 100]).tolist()
    [2.0, 0.0, 5.0]
    """
    m, n = np.asarray(events, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    return np.asarray(np.minimum(m, n - m))


def _of_seeds(hospitals: pd.DataFrame) -> list[pd.DataFrame]:
    """Return one table per seed, with one row for each hospital.

    A row is from the first model whose main metric is defined at the hospital or, if there is none, from the first
    model. If the label has an event, the column ``rarer`` is the number of rows of the rarer class.
    """
    undefined = ~np.isfinite(hospitals[reporting(hospitals).headline].to_numpy(float))
    table = hospitals.assign(place=np.arange(len(hospitals)), undefined=undefined).sort_values(
        "undefined", kind="stable"
    )
    if _has_events(table):
        table = table.assign(rarer=rarer(table["events_test"].to_numpy(float), table["n_test"]))
    seeds = [table] if "seed" not in table else [of for _, of in table.groupby("seed", sort=False)]
    return [of.drop_duplicates("hospital").sort_values("place") for of in seeds]


def _has_events(table: pd.DataFrame) -> bool:
    """Whether the label has an event: labels with two classes do, labels with more classes or numbers do not."""
    return "events_test" in table and bool(table["events_test"].notna().any())


def _means(tables: Sequence[pd.DataFrame], column: str) -> NDArray[np.float64]:
    stacked = pd.concat([table[["hospital", column]] for table in tables])
    return stacked.groupby("hospital", sort=False)[column].mean().to_numpy(np.float64)


def _alike(tables: Sequence[pd.DataFrame], column: str) -> bool:
    stacked = pd.concat([table[["hospital", column]] for table in tables])
    return bool((stacked.groupby("hospital")[column].nunique(dropna=False) == 1).all())


def _range(counts: Sequence[float]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _judged(judged: Sequence[int], hospitals: int) -> str:
    return f"{_range(judged)} of {counted(hospitals, 'hospital')} {'is' if max(judged) == 1 else 'are'} judged"


def sentence(hospitals: pd.DataFrame, part: str) -> str:
    """Describe at how many hospitals the main metric (AUROC or MAE) is defined, and on how many rows and events."""
    tables, kind = _of_seeds(hospitals), reporting(hospitals)
    judged = [int(np.isfinite(table[kind.headline].to_numpy(float)).sum()) for table in tables]
    rows = [float(table["n_test"].sum()) for table in tables]
    start = f"{_judged(judged, len(tables[0]))}, on {_range(rows)} {part} rows"
    by_seed = " (each seed splits rows differently)" if min(judged) < max(judged) or min(rows) < max(rows) else ""
    if not _has_events(hospitals):
        middle = np.median(_means(tables, "n_test"))
        return f"{start}{by_seed}; a hospital has {middle:,.0f} of these (median)."
    rows_of_rarer = _means(tables, "rarer")
    middle, few = np.nanmedian(rows_of_rarer), int((rows_of_rarer < FEW).sum())
    of_seeds = "" if _alike(tables, "rarer") else f" (mean of {len(tables)} seeds)"
    rest = (
        f"{few:,} of {len(rows_of_rarer):,} {'has' if few == 1 else 'have'} fewer than ten, so figures of single "
        "hospitals are uncertain"
    )
    return (
        f"{start} with {_events(tables)}{by_seed}. The median hospital has {number_of(middle)} "
        f"{'row' if middle == 1 else 'rows'} of the rarer class{of_seeds}, and none has more than "
        f"{number_of(np.nanmax(rows_of_rarer))}; {rest if few else 'none has fewer than ten'}."
    )


def marks(hospitals: pd.DataFrame) -> dict[str, str]:
    """Return a phrase on the number of rows of the rarer class, for each hospital with fewer than :data:`FEW`."""
    if not _has_events(hospitals):
        return {}
    tables = _of_seeds(hospitals)
    names = pd.concat([table["hospital"] for table in tables]).drop_duplicates()
    return {
        str(name): f" ({number_of(rows)} of the rarer class)"
        for name, rows in zip(names, _means(tables, "rarer"), strict=True)
        if rows < FEW
    }


def not_trained(hospitals: pd.DataFrame, names: Mapping[Key, str]) -> list[str]:
    """Return sentences on hospitals whose own model, with at least one seed, was not trained or was trained on one
    class only.

    ``names`` are the display names of strategies and models.
    """
    if "trained" not in hospitals:
        return []
    return [
        f"{lead}: {'; '.join(parts)}."
        for state, lead in (
            (
                "no",
                "Not trained, so figures are undefined and comparisons leave the hospital out",
            ),
            ("one class", "Trained on rows of one class only, and included"),
        )
        if (parts := _places(hospitals, state, names))
    ]


def _places(hospitals: pd.DataFrame, state: str, titles: Mapping[Key, str]) -> list[str]:
    of, parts = hospitals["hospital"].nunique(), []
    keyed = hospitals if "strategy" in hospitals else hospitals.assign(strategy="")
    for (strategy, model), theirs in keyed[keyed["trained"] == state].groupby(["strategy", "model"], sort=False):
        names = [str(name) for name in theirs["hospital"].unique()]
        name = titles.get((str(strategy), str(model)), f"{strategy} {model}".strip())
        parts.append(f"{name} at {len(names):,} of {counted(of, 'hospital')} ({some(names, NAMED)})")
    return parts


def _events(tables: Sequence[pd.DataFrame]) -> str:
    counts = [float(np.nansum(table["events_test"].to_numpy(float))) for table in tables]
    return f"{_range(counts)} {'event' if max(counts) == 1 else 'events'}"


def number_of(rows: float) -> str:
    """Format a number of rows; a mean over seeds may be fractional.

    >>> number_of(3.0), number_of(1.4), number_of(1234.0)
    ('3', '1.4', '1,234')
    """
    return f"{rows:,.0f}" if rows == round(rows) else f"{rows:,.1f}"


def events_figure(hospitals: pd.DataFrame, part: str) -> list[svg.Figure]:
    """Plot a histogram of hospitals by their rows of the rarer class; empty without events."""
    if not _has_events(hospitals):
        return []
    tables = _of_seeds(hospitals)
    alike, means = _alike(tables, "rarer"), _means(tables, "rarer")
    rows = np.floor(means + 0.5)
    bins = [(low, high) for low, high in BINS if low <= np.nanmax(rows, initial=0.0)]
    counts = [int(((rows >= low) & (rows <= high)).sum()) for low, high in bins]
    texts = [str(low) if low == high else f"{low}+" if high > 10**9 else f"{low}–{high}" for low, high in bins]
    description = "; ".join(
        f"{text} rows: {counted(count, 'hospital')}" for text, count in zip(texts, counts, strict=True)
    )
    chart = svg.Chart(
        svg.names(f"rows of the rarer class among a hospital's {part} rows", texts),
        svg.linear("hospitals", counts, include=(0.0,), within=(0.0, np.inf), count=4, whole=True, margin=0.12),
        name="events",
        description=f"{description}.",
        height=190.0,
        gridlines="y",
    )
    chart.bars(np.zeros(len(counts)), counts, np.arange(len(counts)), upright=True, thick=0.85)
    for i, count in enumerate(counts):
        chart.text(i, count, str(count), anchor="middle", dy=-4.0)
    return [
        svg.figure(
            "events",
            "Rows of the rarer class at each hospital",
            [chart],
            "AUROC compares patients with an event to patients without. With fewer than ten of either, a hospital's "
            "AUROC is very uncertain, whichever model is used."
            + ("" if alike else f" Rows are means over {len(tables)} seeds, rounded."),
        )
    ]
