"""What a page's figures rest on: how many hospitals are judged, and how many events each has."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raysim.metrics.labels import reporting
from raysim.report import svg

BINS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 10**12))
"""Numbers of events that are counted together."""


def first_seed(hospitals: pd.DataFrame) -> pd.DataFrame:
    """A row a hospital: of the first seed, under the first model listed."""
    table = hospitals if "seed" not in hospitals else hospitals[hospitals["seed"] == hospitals["seed"].iloc[0]]
    return table.drop_duplicates("hospital")


def _has_events(table: pd.DataFrame) -> bool:
    """Whether the label has an event: more than two classes, and numbers, have none."""
    return "events_test" in table and bool(table["events_test"].notna().any())


def sentence(hospitals: pd.DataFrame, part: str) -> str:
    """How many hospitals are judged, with how many rows and events; of the first seed."""
    table, kind = first_seed(hospitals), reporting(hospitals)
    judged = int(np.isfinite(table[kind.headline].to_numpy(float)).sum())
    rows = table["n_test"].to_numpy(float)
    said = f"{judged:,} of {len(table):,} hospitals are judged, on {rows.sum():,.0f} {part} rows"
    if not _has_events(table):
        return f"{said}; a hospital has {np.median(rows):,.0f} of these (median)."
    events = table["events_test"].to_numpy(float)
    middle, most = np.nanmedian(events), np.nanmax(events)
    few = int((events < 10).sum())
    return (
        f"{said} with {np.nansum(events):,.0f} events. A hospital has {middle:,.0f} "
        f"{'event' if middle == 1 else 'events'} (median; at most {most:,.0f}); {few:,} have fewer than ten, and a "
        "figure of one such hospital says little."
    )


def events_figure(hospitals: pd.DataFrame, part: str) -> list[svg.Figure]:
    """How many hospitals have how many events; none where there are no events."""
    table = first_seed(hospitals)
    if not _has_events(table):
        return []
    events = table["events_test"].to_numpy(float)
    there = [(low, high) for low, high in BINS if low <= np.nanmax(events, initial=0.0)]
    counts = [int(((events >= low) & (events <= high)).sum()) for low, high in there]
    texts = [str(low) if low == high else f"{low}+" if high > 10**9 else f"{low}–{high}" for low, high in there]
    said = "; ".join(f"{text} events: {count} hospitals" for text, count in zip(texts, counts, strict=True))
    chart = svg.Chart(
        svg.names(f"events among a hospital's {part} rows", texts),
        svg.linear("hospitals", counts, include=(0.0,), within=(0.0, np.inf), count=4, whole=True, margin=0.12),
        name="events",
        said=f"{said}.",
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
            "figure of its own, whichever model serves it.",
        )
    ]
