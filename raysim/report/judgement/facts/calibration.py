"""The decision card's line on calibration, over all rows and by hospital."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysim.core.levels import ALPHA
from raysim.core.words import chance, counted, number
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import figure, json_number, sentences, some
from raysim.statistics.clinical.by_hospital import TOLERATED, HospitalCalibration
from raysim.statistics.differences.paired import Limits
from raysim.statistics.several import Bound

ENOUGH_WITHIN = 0.8
"""The share of hospitals that must be demonstrably calibrated for the state ``ok``."""

REMEDY, SETTING = "recalibrate it", "recalibrate=both"

UNSETTLED = "use its risks only once more events show that they are right"

NOT_MEASURED = Line("calibration", "open", "Whether its risks are right was not measured.")


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one model, averaged over seeds."""

    estimate: float
    """The ratio of observed to expected events over all rows together."""
    limits: Limits
    """The 95 % interval of ``estimate``."""
    p: float
    """The p-value of the hypothesis that calibration in the large is equal at all hospitals; NaN if unknown."""
    by_hospital: HospitalCalibration

    @property
    def state(self) -> State:
        """The state of the decision card's line on calibration.

        - ``warn``: risks are wrong at some hospital or over all rows, or calibration differs between hospitals.
        - ``ok``: at a share of at least :data:`ENOUGH_WITHIN` of the tested hospitals, the interval of the ratio of
          observed to expected events lies within the tolerance.
        - ``open``: in all other cases.
        """
        if self.p <= ALPHA or self.by_hospital.bound.at_least or self.pooled_off:
            return "warn"
        return "ok" if self.by_hospital.share("within") >= ENOUGH_WITHIN else "open"

    @property
    def pooled_off(self) -> bool:
        """Whether risks over all rows are wrong by more than the tolerance, and by more than chance."""
        low, high = TOLERATED
        return not low <= self.estimate <= high and (self.limits.low > 1 or self.limits.high < 1)


def calibration(
    own: Calibration, hospitals: Sequence[str], others: Sequence[tuple[str, Calibration]] = ()
) -> tuple[dict[str, Any], Line]:
    """Return the content of ``calibration`` in ``answer.json``, and the decision card's line.

    ``hospitals`` has the hospitals' names. ``others`` has the names and calibrations of alternative models.
    """
    bound = own.by_hospital.bound
    named = [hospitals[h] for h in bound.named]
    numbers: dict[str, Any] = {
        "estimate": json_number(own.estimate),
        "low": json_number(own.limits.low),
        "high": json_number(own.limits.high),
        "state": own.state,
        "at_least": bound.at_least,
        "of": bound.of,
        "named": named,
    }
    warns = own.state == "warn"
    pooled = _pooled(own)
    if own.state == "open":
        pooled = f"it is not demonstrated that risks are right: {pooled}"
    parts = [pooled, _hospitals(own, named)]
    if warns and not own.pooled_off:
        parts.reverse()
    figures = {**numbers, "p": json_number(own.p)}
    text = sentences([*parts, *(_other(*other) for other in others)])
    remedy, short, setting = "", "", ""
    if warns:
        remedy, short, setting = REMEDY, _short(own), SETTING
    elif own.state == "open":
        remedy = UNSETTLED
    return numbers, Line("calibration", own.state, text, figures, remedy, warns, short, setting)


def off_by(estimate: float) -> str:
    """Describe how far predicted risks are off, from the ratio ``estimate`` of observed to expected events.

    >>> off_by(0.32), off_by(0.9), off_by(2.5)
    ('3.1 times too high', '1.1 times too high', '2.5 times too low')
    """
    if estimate <= 0:
        return "too high: no event was observed"
    return f"{1 / estimate:.1f} times too high" if estimate < 1 else f"{estimate:.1f} times too low"


def _short(own: Calibration) -> str:
    bound = own.by_hospital.bound
    far = [off_by(own.estimate)] if own.pooled_off else []
    where = [f"off at {_or_more(bound)}"] if bound.at_least else []
    return f"risks {', '.join([*far, *where])}" if far or where else "risks differ between hospitals"


def _or_more(bound: Bound) -> str:
    if bound.at_least == bound.of:
        return "the one hospital" if bound.of == 1 else f"all {bound.of:,} hospitals"
    return f"{bound.at_least:,} or more of {bound.of:,} hospitals"


def _pooled(own: Calibration) -> str:
    value = f"observed over expected events {figure(own.estimate, own.limits, 2)}"
    if np.isnan(own.estimate):
        return "no event is expected"
    return f"risks are {off_by(own.estimate)}: {value}" if own.pooled_off else f"{value} over all rows"


def _hospitals(own: Calibration, named: Sequence[str]) -> str:
    bound, between = own.by_hospital.bound, "" if np.isnan(own.p) else chance(own.p)
    if bound.at_least:
        ratios = own.by_hospital.ratio[list(bound.named)]
        ratios = ratios[np.isfinite(ratios)]  # undefined if no event is expected
        ends = sorted({number(float(end), 2) for end in (ratios.min(), ratios.max())}, key=float) if len(ratios) else []
        ratio = f"{' to '.join(ends)} times the events expected" if ends else ""
        reach = f" ({': '.join(filter(None, [some(named), ratio]))})" if named else ""
        return f"risks are off at {_or_more(bound)}{reach}"
    if own.p <= ALPHA:
        return f"risks differ between hospitals ({between}), but not demonstrably at a single one"
    within = own.by_hospital.state.count("within")
    return (
        f"risks are demonstrably off at none of {counted(bound.of, 'hospital')}, and demonstrably right (observed over "
        f"expected events within {TOLERATED[0]:g} to {TOLERATED[1]:g}) at {within:,}"
    )


def _other(name: str, other: Calibration) -> str:
    bound = other.by_hospital.bound
    count = f"{bound.at_least:,} or more" if bound.at_least else "none"
    return f"{name}: {figure(other.estimate, other.limits, 2)}, off at {count} of {bound.of:,}"
