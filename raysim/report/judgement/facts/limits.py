"""What is predicted and for whom, and what these data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysim.core.words import capitalised, counted, number
from raysim.report.judgement.card import Line
from raysim.statistics.differences.paired import FEW_HOSPITALS, Paired

FEWEST = 3
"""Judged hospitals below which nothing is recommended."""

JUDGED_ROWS = 0.5
"""The share of evaluated rows below which nothing is recommended, if so few are at judged hospitals."""

FEW_ROWS = 10
"""Rows of the rarer class below which a figure of one hospital says little."""

UNSEEN = Line(
    "unseen",
    "open",
    "Not tested at hospitals outside: whether it serves a hospital that took no part is open.",
    None,
    "leave whole hospitals out of training and test there",
)


@dataclass(frozen=True)
class Data:
    """What the figures are of."""

    predicts: str
    """What is predicted."""
    hospitals: int
    """All hospitals."""
    rows: int | None
    """All rows; None where that is not public."""
    events: int | None
    """Rows with the event; None for labels without one, or where that is not public."""
    part: str
    """The part of the rows that is evaluated."""
    judged: int
    """Hospitals with a defined headline figure."""
    judged_share: float
    """The share of evaluated rows that are at these."""
    rarer: tuple[float, ...]
    """By hospital, its evaluated rows of the rarer class, the mean over seeds; empty where there are no events."""

    @property
    def in_short(self) -> str:
        """What is predicted, for how many hospitals, rows and events."""
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        events = "" if self.events is None else f" with {counted(self.events, 'event')}"
        return f"{self.predicts}, {counted(self.hospitals, 'hospital')}{rows}{events}"

    @property
    def recommends(self) -> bool:
        """Whether enough is judged for a recommendation."""
        return self.judged >= FEWEST and not self.judged_share < JUDGED_ROWS


def predicts(data: Data) -> Line:
    """What is predicted, and for whom."""
    text = f"Predicts {data.in_short}; {data.judged:,} of these hospitals can be judged on {data.part} rows."
    numbers = {"hospitals": data.hospitals, "rows": data.rows, "events": data.events, "judged": data.judged}
    return Line("predicts", "ok", text, numbers)


def limits(data: Data, pair: Paired | None, visible: Sequence[float] = ()) -> Line:
    """What these data cannot tell.

    ``pair`` is the difference that the answer is about, for its degrees of freedom, and ``visible`` the smallest
    differences from the method taken that four of five such comparisons would show, infinite where that is impossible.
    """
    numbers = {"judged": data.judged, "hospitals": data.hospitals, "judged_share": float(data.judged_share)}
    if not data.recommends:
        few = f"{data.judged:,} of {counted(data.hospitals, 'hospital')} can be judged"
        if data.judged >= FEWEST:
            few += f", with {100 * data.judged_share:.0f} % of the {data.part} rows"
        text = f"Nothing is recommended: {few}."
        return Line("limits", "warn", text, numbers, "more hospitals, or more events at each", True, few)
    parts = []
    if data.judged < FEW_HOSPITALS:
        degrees = ""
        if pair is not None and np.isfinite(pair.df):
            degrees = f" ({np.floor(10 * pair.df) / 10:.1f} degrees of freedom)"
        parts.append(f"few hospitals: {data.judged}{degrees}")
    if data.rarer:
        middle, rare = float(np.nanmedian(data.rarer)), int((np.asarray(data.rarer) < FEW_ROWS).sum())
        whole = number(middle, 0 if middle == round(middle) else 1)
        parts.append(
            f"the median hospital has {whole} {data.part} rows of the rarer class, and {rare:,} of {len(data.rarer):,} "
            f"{'has' if rare == 1 else 'have'} fewer than {FEW_ROWS}"
        )
    if visible:
        parts.append(_visible([size for size in visible if np.isfinite(size)]))
    if pair is not None and not pair.of_training:
        parts.append("one seed cannot compare methods")
    text = "; ".join(parts) or "All hospitals are judged"
    return Line("limits", "open" if parts else "ok", f"{capitalised(text)}.", numbers)


def _visible(sizes: Sequence[float]) -> str:
    if not sizes:
        return "no difference between methods could have been found"
    # Models that are all but equal would show less, which is printed as the least that is.
    ends = list(dict.fromkeys(number(max(size, 0.001), 3) for size in (min(sizes), max(sizes))))
    return f"differences of {' to '.join(ends)} between methods could be found (80 % power)"
