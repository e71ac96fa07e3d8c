"""The effect of recalibration in words: whether recalibration is worth its labelled rows, or what it changed.

For a model that was not recalibrated, the effect is estimated from halves of its validation rows
(:mod:`raysim.statistics.clinical.recalibration_benefit`). For a recalibrated model, the effect is measured on test
rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from raysim.core.levels import ALPHA
from raysim.core.streams import stream
from raysim.core.words import counted
from raysim.engine.job import Result
from raysim.metrics.score_counts import ScoreCounts
from raysim.report.judgement.card import Line
from raysim.report.judgement.facts.calibration import REMEDY
from raysim.report.panel import Key
from raysim.report.tables import made_of
from raysim.statistics.clinical.recalibration_benefit import ENOUGH_ROWS, benefit, enough, rarer_class

PRINTED = 0.5e-4
"""The smallest change of log loss that shows in four decimals."""

RAISED, WITHOUT = "recalibration raised log loss", "take it without recalibration"

MORE_ROWS = f"{REMEDY} with more labelled rows than here"
NO_ROWS = "set validation rows aside (data.split) and recalibrate it"
NO_ROWS_OF_OTHERS = f"{REMEDY} on labelled rows that were not used for training"


@dataclass(frozen=True)
class Proposal:
    """Whether to recalibrate a model, and why."""

    remedy: str
    """The recommended action: to recalibrate the model, or what recalibration needs first."""
    text: str
    """The reason, with the estimated effect and cost."""
    log_loss: float
    """The estimated change of log loss, the mean over seeds; NaN if validation rows do not suffice for an estimate."""
    labelled: float
    """The number of validation rows at the median hospital; if ``log_loss`` is NaN, the number of labelled rows that
    recalibration needs at a hospital.
    """


@dataclass(frozen=True)
class Effect:
    """The log loss on test rows without and with recalibration, averaged over seeds."""

    before: float
    """The log loss over all test rows without recalibration."""
    after: float
    """The log loss over all test rows with recalibration."""

    @property
    def harms(self) -> bool:
        """Whether recalibration raises log loss by :data:`PRINTED` or more."""
        return self.after - self.before >= PRINTED

    @property
    def text(self) -> str:
        """A sentence on how recalibration changed log loss."""
        if abs(self.after - self.before) < PRINTED:
            return f"Recalibration leaves log loss on test rows as it is ({self.after:.4f})."
        change = f"from {self.before:.4f} to {self.after:.4f}"
        if self.harms:
            return f"Recalibration raises log loss on test rows {change}: the model without it has better risks."
        return f"Recalibration lowers log loss on test rows {change}."


def with_recalibration(line: Line, results: Sequence[Result], key: Key, spread: float, *, trains: bool = True) -> Line:
    """Add to the card's calibration ``line`` how recalibration changed, or would change, the model's log loss.

    A recalibration that raised log loss forbids the use of risks. ``spread`` is the p-value of the hypothesis that
    calibration is equal at all hospitals. ``trains`` is False for predictions of other programs.
    """
    done = effect(results, key)
    if done is not None:
        told = replace(line, text=f"{line.text} {done.text}", setting="")
        if not done.harms:
            return replace(told, remedy="more labelled rows") if line.state == "warn" else told
        short = ", ".join(filter(None, [line.short, RAISED]))
        figure = line.figure and {**line.figure, "state": "warn"}
        return replace(told, state="warn", figure=figure, remedy=WITHOUT, forbids=True, short=short)
    proposed = proposal(results, key, spread) if line.state == "warn" else None
    if proposed is None:
        return line
    setting = line.setting if proposed.remedy == REMEDY else ""
    remedy = NO_ROWS_OF_OTHERS if proposed.remedy == NO_ROWS and not trains else proposed.remedy
    return replace(line, text=f"{line.text} {proposed.text}", remedy=remedy, setting=setting)


def proposal(results: Sequence[Result], key: Key, spread: float) -> Proposal | None:
    """Decide whether to propose recalibrating the model ``key``; None if no run has counts of rows by risk.

    ``spread`` is the p-value of the hypothesis that calibration is equal at all hospitals.
    """
    strategy, model = key
    outcomes = [result.outcome for result in results if result.label == strategy]
    tested = [outcome.scores[model] for outcome in outcomes if model in outcome.scores]
    if not tested:
        return None
    held = [outcome.validation_scores[model] for outcome in outcomes if model in outcome.validation_scores]
    needed = _needed(tested)
    if not held:
        text = (
            f"Recalibration needs validation rows, and there are none. {ENOUGH_ROWS} rows of the rarer class at each "
            f"hospital need about {needed:,} labelled rows, which are then not used for training."
        )
        return Proposal(NO_ROWS, text, math.nan, needed)
    each_seed = (benefit(counts, "eb", stream(0, "recalibration benefit")) for counts in held)
    estimates = [each for each in each_seed if each.hospitals]
    if not estimates:
        text = (
            "What recalibration would change cannot be estimated: validation rows have too few events. "
            f"{ENOUGH_ROWS} rows of the rarer class at each hospital need about {needed:,} labelled rows."
        )
        return Proposal(MORE_ROWS, text, math.nan, needed)
    change, off, after = (
        float(np.mean([getattr(each, name) for each in estimates])) for name in ("log_loss", "off", "off_after")
    )
    rarer = np.mean([rarer_class(counts) for counts in held], axis=0)
    labelled = float(np.median(np.mean([counts.rows for counts in held], axis=0)))
    text = (
        f"Shrunken recalibration on {counted(round(labelled), 'labelled row')} at the median hospital would "
        f"{_changed(change)}. In half of a hospital's validation rows, observed and expected events differ by a factor "
        f"of {math.exp(off):.2f} on average, chance included; after recalibration, of {math.exp(after):.2f}."
    )
    if np.median(rarer) < ENOUGH_ROWS:
        text += (
            f" The median hospital has {np.median(rarer):.3g} validation rows of the rarer class; {ENOUGH_ROWS} would "
            f"take about {needed:,} labelled rows."
        )
    elif not spread <= ALPHA:
        text = f"Hospitals do not demonstrably differ in calibration. {text}"
    return Proposal(REMEDY if enough(rarer) and change < 0 else MORE_ROWS, text, change, labelled)


def _changed(change: float) -> str:
    """Describe the change of log loss, as a verb phrase.

    >>> _changed(-0.0013), _changed(0.00001)
    ('lower log loss by 0.0013', 'leave log loss as it is')
    """
    if abs(change) < PRINTED:
        return "leave log loss as it is"
    return f"{'lower' if change < 0 else 'raise'} log loss by {abs(change):.4f}"


def effect(results: Sequence[Result], key: Key) -> Effect | None:
    """Measure how recalibration changed the log loss of the model ``key``; None if it was not recalibrated."""
    strategy, model = key
    pairs = []
    for result in results:
        before = made_of([(result.label, each) for each in result.outcome.figures]).get(key)
        if result.label == strategy and before is not None:
            columns = result.federation.task.figures
            rows, loss = columns.index("n"), columns.index("log_loss")
            pairs.append([_mean(result.outcome.figures[each], rows, loss) for each in (before[1], model)])
    return Effect(*np.mean(pairs, axis=0).tolist()) if pairs else None


def _mean(figures: NDArray[np.float64], rows: int, column: int) -> float:
    known = figures[:, rows] > 0
    return float(np.average(figures[known, column], weights=figures[known, rows]))


def _needed(tested: Sequence[ScoreCounts]) -> int:
    """Return how many rows are needed for :data:`ENOUGH_ROWS` of the rarer class, given its share of test rows."""
    events = sum(int(counts.events.sum()) for counts in tested)
    rows = sum(int(counts.rows.sum()) for counts in tested)
    share = min(events, rows - events) / rows if rows else 0.0
    return math.ceil(ENOUGH_ROWS / share) if share else rows
