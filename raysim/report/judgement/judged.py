"""How much evidence a page has: how many hospitals are judged, and how many events each has."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.words import counted
from raysim.metrics.labels import reporting
from raysim.report import svg

BINS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 10**12))
"""Ranges of events that are counted together, both ends included."""


def _of_seeds(hospitals: pd.DataFrame) -> list[pd.DataFrame]:
    """A table a seed with a row a hospital, under the first model listed."""
    if "seed" not in hospitals:
        return [hospitals.drop_duplicates("hospital")]
    return [table.drop_duplicates("hospital") for _, table in hospitals.groupby("seed", sort=False)]


def _has_events(table: pd.DataFrame) -> bool:
    """Whether the label has an event: more than two classes, and numbers, have none."""
    return "events_test" in table and bool(table["events_test"].notna().any())


def _means(tables: Sequence[pd.DataFrame], column: str) -> NDArray[np.float64]:
    """By hospital, the mean of a count over seeds."""
    stacked = pd.concat([table[["hospital", column]] for table in tables])
    return stacked.groupby("hospital", sort=False)[column].mean().to_numpy(np.float64)


def _alike(tables: Sequence[pd.DataFrame], column: str) -> bool:
    """Whether every hospital has the same count under all seeds."""
    stacked = pd.concat([table[["hospital", column]] for table in tables])
    return bool((stacked.groupby("hospital")[column].nunique(dropna=False) == 1).all())


def _range(counts: Sequence[float]) -> str:
    """A count, or a range where seeds differ."""
    low, high = min(counts), max(counts)
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"


def _judged(judged: Sequence[int], hospitals: int) -> str:
    """How many of the ``hospitals`` are ``judged``, by seed."""
    return f"{_range(judged)} of {counted(hospitals, 'hospital')} {'is' if max(judged) == 1 else 'are'} judged"


def sentence(hospitals: pd.DataFrame, part: str) -> str:
    """How many hospitals are judged, with how many rows and events; of several seeds, from the least to the most, and
    of a hospital the mean.
    """
    tables, kind = _of_seeds(hospitals), reporting(hospitals)
    judged = [int(np.isfinite(table[kind.headline].to_numpy(float)).sum()) for table in tables]
    rows = [float(table["n_test"].sum()) for table in tables]
    start = f"{_judged(judged, len(tables[0]))}, on {_range(rows)} {part} rows"
    by_seed = " (seeds differ in which rows these are)" if min(judged) < max(judged) or min(rows) < max(rows) else ""
    if not _has_events(hospitals):
        middle = np.median(_means(tables, "n_test"))
        return f"{start}{by_seed}; a hospital has {middle:,.0f} of these (median)."
    events = _means(tables, "events_test")
    few = int((events < 10).sum())
    of_seeds = "" if _alike(tables, "events_test") else f" in the mean of {len(tables)} seeds"
    return (
        f"{start} with {_events(tables)}{by_seed}. The median hospital has {number_of(np.nanmedian(events))} "
        f"{'event' if np.nanmedian(events) == 1 else 'events'}{of_seeds}, and none has more than "
        f"{number_of(np.nanmax(events))}; {few:,} have fewer than ten, and a figure of one such hospital says little."
    )


def in_short(hospitals: pd.DataFrame, part: str) -> str:
    """A short form of :func:`sentence`, for the card."""
    tables, kind = _of_seeds(hospitals), reporting(hospitals)
    judged = [int(np.isfinite(table[kind.headline].to_numpy(float)).sum()) for table in tables]
    start = _judged(judged, len(tables[0]))
    if not _has_events(hospitals):
        return f"{start}, on {_range([float(table['n_test'].sum()) for table in tables])} {part} rows"
    middle = np.nanmedian(_means(tables, "events_test"))
    return f"{start}, on {_events(tables)}: {number_of(middle)} at the median hospital"


def _events(tables: Sequence[pd.DataFrame]) -> str:
    """Events of all hospitals, by seed, such as ``15 to 16 events``."""
    counts = [float(np.nansum(table["events_test"].to_numpy(float))) for table in tables]
    return f"{_range(counts)} {'event' if max(counts) == 1 else 'events'}"


def number_of(events: float) -> str:
    """A number of events as text; the mean over seeds may not be whole.

    >>> number_of(3.0), number_of(1.4), number_of(1234.0)
    ('3', '1.4', '1,234')
    """
    return f"{events:,.0f}" if events == round(events) else f"{events:,.1f}"


def events_figure(hospitals: pd.DataFrame, part: str) -> list[svg.Figure]:
    """How many hospitals have how many events, the mean over seeds; none where there are no events."""
    tables = _of_seeds(hospitals)
    if not _has_events(hospitals):
        return []
    alike, means = _alike(tables, "events_test"), _means(tables, "events_test")
    events = np.floor(means + 0.5)
    bins = [(low, high) for low, high in BINS if low <= np.nanmax(events, initial=0.0)]
    counts = [int(((events >= low) & (events <= high)).sum()) for low, high in bins]
    texts = [str(low) if low == high else f"{low}+" if high > 10**9 else f"{low}–{high}" for low, high in bins]
    description = "; ".join(
        f"{text} {'event' if text == '1' else 'events'}: {counted(count, 'hospital')}"
        for text, count in zip(texts, counts, strict=True)
    )
    chart = svg.Chart(
        svg.names(f"events among a hospital's {part} rows", texts),
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
            "Events at each hospital",
            [chart],
            "An AUROC compares those with an event to those without. A hospital with one or two events has almost no "
            "figure of its own, whichever model serves it."
            + ("" if alike else f" Events are the mean of {len(tables)} seeds, rounded."),
        )
    ]
