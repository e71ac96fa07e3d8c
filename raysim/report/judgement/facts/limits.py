"""What is predicted and for whom, and what these data cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raysim.core.words import counted, number
from raysim.metrics.labels import TaskKind
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import CHANCE, figure, json_number, sentences, some
from raysim.report.possible import NOTHING
from raysim.statistics.differences.paired import FEW_HOSPITALS, Limits, Paired

FEWEST = 3
"""Judged hospitals below which nothing is recommended."""

JUDGED_ROWS = 0.5
"""The share of evaluated rows below which nothing is recommended, if so few are at judged hospitals."""

FEW_ROWS = 10
"""Rows of the rarer class below which a figure of one hospital says little."""

NOT_OUTSIDE = Line(
    "unseen",
    "open",
    "Not tested at hospitals outside: whether it serves a hospital that took no part is open.",
    None,
    "leave each hospital out in turn (evaluation.unseen)",
    setting="evaluation.unseen=true",
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
    tested: tuple[float, ...] = ()
    """By hospital, in the same order, all its evaluated rows; empty where there are no events."""
    outside: tuple[str, ...] = ()
    """Hospitals that are evaluated and gave no rows to training, under any seed."""

    trained: bool = True
    """Whether any round was played."""

    @property
    def lacking(self) -> str:
        """Why hospitals cannot be judged, as a clause after a colon; empty where that is not known."""
        if not self.trained:
            return "no model was trained, as training.rounds is 0"
        one_class = sum(rows == 0 for rows in self.rarer)
        return f"{self.part} rows are of one class at {one_class:,} of {len(self.rarer):,}" if one_class else ""

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


def unseen(kind: TaskKind, data: Data, level: Paired, interval: Limits) -> Line:
    """What was found at the hospitals outside, where the model has this ``level`` with its ``interval``."""
    if not data.outside:
        return NOT_OUTSIDE
    where = f"{counted(len(data.outside), 'hospital')} that took no part ({some(data.outside)})"
    numbers = {
        kind.headline: json_number(level.difference),
        "low": json_number(interval.low),
        "high": json_number(interval.high),
        "hospitals": level.hospitals,
    }
    if not level.hospitals:
        return Line("unseen", "open", f"No {kind.title} is defined at the {where}.", numbers, "more events there")
    value = "its interval says nothing"
    if interval != NOTHING:
        value = figure(level.difference, interval, kind.decimals([level.difference]))
    state: State = "ok" if kind.larger and interval.low > CHANCE else "open"
    return Line(
        "unseen", state, f"{kind.title} at {where}: {value}.", numbers, NOT_OUTSIDE.remedy, setting=NOT_OUTSIDE.setting
    )


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
        text = sentences([f"nothing is recommended: {few}", *([data.lacking] if data.lacking else [])])
        remedy = "more hospitals, or more events at each" if data.trained else "train for some rounds"
        return Line("limits", "warn", text, numbers, remedy, True, few, "" if data.trained else "training.rounds=20")
    parts = []
    if data.judged < FEW_HOSPITALS:
        degrees = ""
        if pair is not None and np.isfinite(pair.df):
            degrees = f" ({np.floor(10 * pair.df) / 10:.1f} degrees of freedom)"
        parts.append(f"few hospitals: {data.judged}{degrees}")
    if data.rarer:
        middle, rare = float(np.nanmedian(data.rarer)), int((np.asarray(data.rarer) < FEW_ROWS).sum())
        whole = f"{number(middle, 0 if middle == round(middle) else 1)} {data.part} row{'s' * (middle != 1)}"
        parts.append(
            f"the median hospital has {whole} of the rarer class, and {rare:,} of {len(data.rarer):,} "
            f"{'has' if rare == 1 else 'have'} fewer than {FEW_ROWS}"
        )
    if visible:
        parts.append(_visible([size for size in visible if np.isfinite(size)]))
    if pair is not None and not pair.of_training:
        parts.append("one seed cannot compare methods")
    text = sentences(parts or ["all hospitals are judged"])
    return Line("limits", "open" if parts else "ok", text, numbers)


def _visible(sizes: Sequence[float]) -> str:
    if not sizes:
        return "no difference between methods could have been found"
    # Models that are all but equal would show less, which is printed as the least that is.
    ends = list(dict.fromkeys(number(max(size, 0.001), 3) for size in (min(sizes), max(sizes))))
    return f"differences of {' to '.join(ends)} between methods could be found (80 % power)"
