"""The decision card's line on federating: whether the recommended method is better than training alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from raysim.core.words import counted
from raysim.metrics.labels import TaskKind
from raysim.report.judgement.card import Federate, Line, State
from raysim.report.judgement.facts.wording import figure, json_number, sentences
from raysim.report.possible import NOTHING, difference
from raysim.statistics.differences.paired import EQUIVALENT, Limits, Paired, equivalent


class AtSome(NamedTuple):
    """The difference between a method and training alone at some of the hospitals."""

    pair: Paired
    """The main metric of the method minus that of training alone, at these hospitals."""
    alone: float
    """The mean main metric of training alone at these hospitals."""


STATES: dict[Federate, State] = {"yes": "ok", "no": "warn", "equal": "open", "not shown": "open"}

NOT_TESTED = Line(
    "federate",
    "open",
    "Whether federating helps was not tested: training alone was not run.",
    None,
    "compare it with training alone",
)


def federate(
    kind: TaskKind,
    name: str,
    alone: str,
    pair: Paired,
    limits: Limits,
    small: AtSome | None,
    level: float = math.nan,
    two_classes: tuple[int, AtSome] | None = None,
    hospitals: int = 0,
) -> tuple[Federate, Line]:
    """Decide whether a federated method is better than training alone, and write the decision card's line.

    - ``pair``: the main metric of the method minus that of training alone. ``limits``: its interval, joint over all
      methods. ``name`` and ``alone`` are display names.
    - ``small``: the comparison at the hospitals with fewer training rows than the median; None with too few such
      hospitals.
    - ``level``: the main metric (AUROC or MAE) of training alone.
    - ``two_classes``: the number of hospitals that trained on one class only, and the comparison at all other
      hospitals; None if no hospital trained on one class.
    - ``hospitals``: the number of hospitals at which the method's main metric is defined.
    """
    verdict = _verdict(kind, pair, limits)
    digits = kind.decimals([pair.difference])
    cut = difference(limits, kind.larger, level)
    better, worse = ("ranks better", "ranks worse") if kind.larger else ("has a smaller error", "has a larger error")
    text = {
        "yes": f"Federating {better} than training alone",
        "no": f"Federating {worse} than training alone",
        "equal": f"Federating and training alone are equal within {EQUIVALENT:g}",
        "not shown": "Not demonstrated that federating helps",
    }[verdict]
    value = f" {figure(pair.difference, cut, digits, sign=True)}"
    text += f": {name} against {alone}{', the interval says nothing' if cut == NOTHING else value}"
    if pair.hospitals < hospitals:
        text += f" over the {pair.hospitals:,} of {counted(hospitals, 'hospital')} at which both are defined"
    if verdict == "yes" and equivalent(limits) and kind.larger:
        text += f", better by less than {EQUIVALENT:g}"
    parts = [text]
    if not pair.of_training:
        parts.append("one seed cannot compare methods, so this applies only to these trained models")
    if small is not None:
        parts.append(f"at small hospitals: {_at_some(kind, small, digits)}")
    if two_classes is not None and two_classes[1].pair.hospitals < pair.hospitals:
        marked, others = two_classes
        without = _at_some(kind, others, digits) if others.pair.hospitals else "undefined"
        parts.append(f"without {counted(marked, 'hospital')} that trained on one class: {without}")
    remedy = {
        "yes": "",
        "no": f"take {alone}",
        "equal": "choose by calibration, and by whether hospitals will join later",
        "not shown": "more hospitals, patients or seeds" if pair.of_training else "run three seeds or more",
    }[verdict]
    figures: dict[str, Any] = {
        "difference": json_number(pair.difference),
        "low": json_number(limits.low),
        "high": json_number(limits.high),
        "hospitals": pair.hospitals,
        "against": alone,
    }
    return verdict, Line("federate", STATES[verdict], sentences(parts), figures, remedy)


def _verdict(kind: TaskKind, pair: Paired, limits: Limits) -> Federate:
    if not pair.of_training:
        return "not shown"
    if limits.shows:
        return "yes" if (limits.low > 0) == kind.larger else "no"
    return "equal" if pair.equal or (kind.larger and equivalent(limits)) else "not shown"


def _at_some(kind: TaskKind, some: AtSome, digits: int) -> str:
    pair, limits = some.pair, difference(some.pair.population(), kind.larger, some.alone)
    if limits == NOTHING:
        return "the interval says nothing"
    value = figure(pair.difference, limits, digits, sign=True)
    if not pair.of_training or not limits.shows:
        return f"{value}, not demonstrated"
    return f"{value}, {'better' if (limits.low > 0) == kind.larger else 'worse'}"
