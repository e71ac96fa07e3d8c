"""The headline of the card, composed last: what to do, and each fact that forbids a use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.report.judgement.card import Federate, Line, Use


@dataclass(frozen=True)
class Verdict:
    """What a headline is made of."""

    taken: str
    """The name of the model that the card is about."""
    recommended: bool
    """Whether a method is recommended: a comparison with enough hospitals."""
    compared: bool
    """Whether it is of a comparison, and not of one run."""
    federate: Federate
    """Whether federating helps."""
    alone: str
    """The name of training alone; may be empty."""
    alone_taken: bool
    """Whether training alone is taken."""
    act_at: str
    """The threshold of acting, such as ``20 %``."""
    cautions: tuple[str, ...] = ()
    """Clauses that limit the headline without forbidding a use."""


def use_of(quality: Line, calibration: Line, recommends: bool) -> Use:
    """What the model may be used for."""
    if not recommends or by_rank(quality):
        return "none"
    return "ranking" if "warn" in (quality.state, calibration.state) else "risks"


def by_rank(quality: Line) -> bool:
    """Whether the model is not demonstrated to rank better than chance, whatever acting on it is worth."""
    figures = quality.figure or {}
    low = figures.get("low")
    return quality.state == "warn" and "auroc" in figures and (low is None or low <= 0.5)


def headline(verdict: Verdict, use: Use, lines: Sequence[Line]) -> str:
    """The headline, from the verdict and the lines of the card."""
    by_fact = {line.fact: line for line in lines}
    quality, calibration, limits = (by_fact[fact] for fact in ("quality", "calibration", "limits"))
    if limits.forbids:
        return limits.text
    if by_rank(quality):
        return f"Do not use {verdict.taken}: {_clause(quality.text)}."
    warns = calibration.state == "warn"
    parts = []
    if quality.state == "warn":
        parts.append(f"Do not act on it at {verdict.act_at}.")
    parts.append(_take(verdict, use, warns))
    if warns:
        parts.append(f"{_first(calibration.text)}.")
    parts += [f"{_first(line.text)}." for line in lines if line.forbids and line.fact not in ("quality", "calibration")]
    parts += [f"{caution[:1].upper()}{caution[1:]}." for caution in verdict.cautions]
    return " ".join(parts)


def _take(verdict: Verdict, use: Use, warns: bool) -> str:
    name = verdict.taken
    for_what = "for ranking, not for risks"
    if not verdict.compared:
        if use == "ranking":
            return f"{name} is {for_what}" + (": recalibrate it at each hospital first." if warns else ".")
        return f"Nothing found forbids the use of {name} at these hospitals; whether federating helps was not tested."
    if verdict.alone_taken:
        why = (
            "federating ranks worse" if verdict.federate == "no" else "federating gains nothing, and its risks are off"
        )
        base = f"Train alone: {why}"
        return f"{base}; even so, {for_what} before recalibration." if warns else f"{base}."
    if verdict.federate == "yes":
        if warns:
            return f"Take {name}, recalibrated at each hospital; not as it is ({for_what})."
        return f"Take {name}." if use == "risks" else f"Take {name} {for_what}."
    tail = f"; recalibrate it before its risks are used ({for_what})" if warns else ""
    if verdict.federate == "equal":
        return f"{name} and training alone rank alike (within 0.01): federating gains nothing in AUROC{tail}."
    if verdict.federate == "not shown":
        return f"No method demonstrably beats training alone; {name} is the reference{tail}."
    if warns:
        return f"Take {name}, recalibrated at each hospital; not as it is ({for_what}). Training alone was not tested."
    return f"Take {name}; whether federating helps was not tested."


def _first(text: str) -> str:
    """The first clause of a line."""
    return text.split("; ")[0].rstrip(".")


def _clause(text: str) -> str:
    short = _first(text)
    return short[:1].lower() + short[1:]
