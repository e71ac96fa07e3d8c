"""The decision card's line on quality: whether the model ranks better than chance, and has a net benefit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from raysim.core.words import counted, number
from raysim.metrics.labels import TaskKind
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import CHANCE, figure, json_number, percent, sentences
from raysim.report.possible import NOTHING
from raysim.statistics.clinical.usefulness import Usefulness
from raysim.statistics.differences.paired import Limits

LISTED = 2
"""The largest number of threshold ranges in a sentence."""


def quality(
    kind: TaskKind, value: float, limits: Limits, hospitals: int, useful: Usefulness | None, *, elsewhere: bool = True
) -> Line:
    """Write the decision card's line on the main metric (AUROC or MAE), and on the net benefit of acting on the model.

    - ``value``: the mean of the main metric; ``limits`` is its interval. ``hospitals``: the number of hospitals in the
      mean.
    - ``useful``: the net benefit; None if it was not measured.
    - ``elsewhere``: whether ``limits`` also covers other hospitals of the same kind.
    """
    figures: dict[str, Any] = {
        kind.headline: json_number(value),
        "low": json_number(limits.low),
        "high": json_number(limits.high),
        "hospitals": hospitals,
    }
    if not kind.larger:
        digits = kind.decimals([value])
        text = f"Mean absolute error {figure(value, limits, digits)} over {counted(hospitals, 'hospital')}."
        return Line("quality", "open", text, figures)
    over = counted(hospitals, "hospital")
    if limits == NOTHING:
        ranks = f"the interval of its AUROC over {over} says nothing"
    else:
        ranks = f"AUROC {figure(value, limits)} over {over}"
    if not elsewhere:
        ranks += ", for these hospitals and trained models only (elsewhere it may rank no better than chance)"
    if math.isnan(value):
        return Line("quality", "open", "The AUROC is undefined at every hospital.", figures)
    if useful is not None:
        figures |= {
            "act_at": useful.at,
            "net_benefit": json_number(useful.value),
            "net_benefit_low": json_number(useful.limits.low),
            "net_benefit_high": json_number(useful.limits.high),
            "worth_using": [list(each) for each in useful.worth],
            "worth_using_demonstrated": [list(each) for each in useful.demonstrated],
        }
    if not limits.low > CHANCE:
        remedy = "do not use it; try other features, more rounds or more hospitals"
        text = f"It is not demonstrated to rank better than chance: {ranks}."
        return Line("quality", "warn", text, figures, remedy, True, ranks)
    if useful is None:
        text = sentences([ranks, "whether acting on it is worth it was not measured"])
        return Line("quality", "open", text, figures)
    state, acting = _acting(useful)
    if state == "ok" and not elsewhere:
        state = "open"
    remedy = short = ""
    if state == "warn":
        remedy = _remedy(useful)
        short = f"at {percent(useful.at)} it does more harm than acting on {useful.default}"
    text = sentences([ranks, acting, _range(useful)])
    return Line("quality", state, text, figures, remedy, bool(short), short)


def _acting(useful: Usefulness) -> tuple[State, str]:
    """Return whether acting on the model at the decision threshold has a net benefit, as a state and a clause."""
    per_hundred = figure(100 * useful.value, Limits(*(100 * limit for limit in useful.limits)), 1, sign=True)
    at, other = percent(useful.at), f"acting on {useful.default}"
    if useful.limits.low > 0:
        return "ok", f"acting at {at} is worth it: {per_hundred} net true alarms per 100 patients against {other}"
    if useful.limits.high < 0:
        return "warn", f"acting at {at} does more harm than {other}: {per_hundred} net true alarms per 100 patients"
    return "open", f"whether acting at {at} beats {other} is open: {per_hundred} net true alarms per 100 patients"


def _range(useful: Usefulness) -> str:
    """Return a clause on the thresholds at which acting on the model has a net benefit."""
    if not useful.worth:
        return "at no threshold is it worth using"
    of = f" (mean of {useful.seeds} seeds)" if useful.seeds > 1 else ""
    where = _ranges(useful.demonstrated) if useful.demonstrated else "at no threshold"
    return f"it is worth using {_ranges(useful.worth)}{of}; this is demonstrated {where}"


def _ranges(ranges: Sequence[tuple[float, float]]) -> str:
    widest = sorted(sorted(ranges, key=lambda each: each[0] - each[1])[:LISTED])
    between = " and ".join(_between(low, high) for low, high in widest)
    return f"{'mostly ' if len(ranges) > LISTED else ''}{between}"


def _between(low: float, high: float) -> str:
    return f"at {percent(low)}" if low == high else f"between {number(100 * low, 0)} and {percent(high)}"


def _remedy(useful: Usefulness) -> str:
    if not useful.worth:
        return "do not act on it"
    low, high = max(useful.worth, key=lambda each: each[1] - each[0])
    return f"act {_between(low, high)} only"
