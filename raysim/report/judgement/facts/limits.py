"""The decision card's lines on what is predicted and for whom, and on the limits of the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from raysim.core.words import counted, number
from raysim.metrics.labels import TaskKind
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import CHANCE, figure, json_number, sentences, some
from raysim.report.possible import NOTHING
from raysim.statistics.differences.paired import FEW_HOSPITALS, Limits, Paired

FEWEST = 3
"""A method is recommended only if the main metric is defined at this many hospitals or more."""

JUDGED_ROWS = 0.5
"""A method is recommended only if at least this share of evaluated rows is at hospitals with a defined main metric."""

SEVERAL_ROWS = 1.5
"""The text says that rows are taken as independent if a patient has at least this many evaluated rows on average."""

FEW_ROWS = 10
"""The text counts the hospitals that have fewer evaluated rows of the rarer class than this."""

NOT_OUTSIDE = Line(
    "unseen",
    "open",
    "Not tested at hospitals that took no part.",
    None,
    "leave each hospital out in turn (evaluation.unseen of raysim compare)",
    setting="evaluation.unseen=true",
)

NOT_OUTSIDE_OF_OTHERS = replace(
    NOT_OUTSIDE, remedy="add each hospital's predictions by models trained without it", setting=""
)
"""The line for predictions of other programs, whose models raysim cannot train."""


@dataclass(frozen=True)
class Data:
    """The data from which the metrics of a decision card were computed."""

    predicts: str
    """The predicted outcome, such as ``death in hospital``."""
    hospitals: int
    rows: int | None
    """The number of rows of all parts together; None if it is unknown or not public."""
    events: int | None
    """The number of rows with the event; None if it is unknown or not public, or if the label does not have two
    classes."""
    part: str
    """The evaluated part of the rows, such as ``test``."""
    judged: int
    """The number of hospitals with a defined main metric (AUROC or MAE)."""
    judged_share: float
    """The share of the evaluated rows that belong to hospitals with a defined main metric."""
    rarer: tuple[float, ...]
    """Each hospital's number of evaluated rows of the rarer class, the mean over seeds; empty if the label does not
    have two classes."""
    tested: tuple[float, ...] = ()
    """Each hospital's number of evaluated rows, the mean over seeds; empty if the label does not have two classes."""
    outside: tuple[str, ...] = ()
    """The evaluated hospitals without training or validation rows; empty if no hospital has training or validation
    rows, or if counts are not public.
    """

    trained: bool = True
    """Whether any training round was run; True for predictions of other programs."""
    trains: bool = True
    """Whether raysim trains the models; False for predictions of other programs."""
    per_patient: float = 1.0
    """The mean number of evaluated rows of a patient; 1 if unknown."""

    @property
    def lacking(self) -> str:
        """A clause on why the main metric is undefined at some hospitals; may be empty."""
        if not self.trained:
            return "no model was trained, as training.rounds is 0"
        one_class = sum(rows == 0 for rows in self.rarer)
        return f"{self.part} rows are of one class at {one_class:,} of {len(self.rarer):,}" if one_class else ""

    @property
    def in_short(self) -> str:
        """The predicted outcome with the numbers of hospitals, rows and events."""
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        events = "" if self.events is None else f" with {counted(self.events, 'event')}"
        return f"{self.predicts}, {counted(self.hospitals, 'hospital')}{rows}{events}"

    @property
    def recommends(self) -> bool:
        """Whether the main metric is defined at enough hospitals, with enough rows, to recommend a method."""
        return self.judged >= FEWEST and not self.judged_share < JUDGED_ROWS


def predicts(data: Data) -> Line:
    """Write the decision card's line on which outcome is predicted, and for which hospitals."""
    text = f"Predicts {data.in_short}; {data.judged:,} of these hospitals can be judged on {data.part} rows."
    numbers = {"hospitals": data.hospitals, "rows": data.rows, "events": data.events, "judged": data.judged}
    return Line("predicts", "ok", text, numbers)


def unseen(kind: TaskKind, data: Data, level: Paired, interval: Limits) -> Line:
    """Write the decision card's line on performance at hospitals that took no part in training.

    ``level`` is the mean main metric (AUROC or MAE) at these hospitals, with its ``interval``.
    """
    untested = NOT_OUTSIDE if data.trains else NOT_OUTSIDE_OF_OTHERS
    if not data.outside:
        return untested
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
        "unseen", state, f"{kind.title} at {where}: {value}.", numbers, untested.remedy, setting=untested.setting
    )


def limits(
    data: Data, pair: Paired | None, visible: Mapping[str, Sequence[float]] = MappingProxyType({}), digits: int = 3
) -> Line:
    """Write the decision card's line on what the data cannot show.

    ``pair`` is the recommended method's difference from another method; None if there is none. ``visible`` maps a
    phrase on the compared methods to the smallest differences detected with 80 % power (infinity: no difference can be
    detected). Differences are printed with ``digits`` decimals.
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
            f"the median hospital has {whole} of the rarer class, and {f'{rare:,}' if rare else 'none'} of "
            f"{len(data.rarer):,} {'have' if rare > 1 else 'has'} fewer than {FEW_ROWS}"
        )
    if data.per_patient >= SEVERAL_ROWS:
        parts.append(
            f"a patient has {number(data.per_patient, 1)} {data.part} rows on average: intervals and tests of single "
            "hospitals, calibration and groups of patients take them as independent, and claim too much"
        )
    parts += [_visible(between, sizes, digits) for between, sizes in visible.items() if sizes]
    if pair is not None and not pair.of_training:
        parts.append("one seed cannot compare methods")
    text = sentences(parts or ["all hospitals are judged"])
    return Line("limits", "open" if parts else "ok", text, numbers)


def _visible(between: str, sizes: Sequence[float], digits: int) -> str:
    finite = [size for size in sizes if np.isfinite(size)]
    if not finite:
        return f"no difference {between} could have been found"
    # Nearly equal models have smaller values; these are printed as the smallest printable difference.
    ends = list(dict.fromkeys(number(max(size, 10.0**-digits), digits) for size in (min(finite), max(finite))))
    return f"differences of {' to '.join(ends)} {between} could be found (80 % power)"
