"""The headline of the decision card: the recommendation, and findings that forbid a use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysim.core.words import capitalised
from raysim.metrics.labels import TaskKind
from raysim.report.judgement.card import Federate, Line, Use
from raysim.report.judgement.facts.wording import CHANCE


@dataclass(frozen=True)
class Verdict:
    """The facts from which a headline is composed."""

    taken: str
    """The display name of the model that the card is about."""
    compared: bool
    """Whether methods were compared; if not, no method is recommended."""
    federate: Federate
    """Whether federating is better than training alone: ``yes``, ``no``, ``equal`` (equivalent), ``not shown``
    (undecided) or ``not tested`` (training alone was not run)."""
    one_seed: bool
    alone_taken: bool
    act_at: str
    """The lowest risk at which one would act, such as ``20 %``; empty if net benefit was not measured."""
    cautions: tuple[str, ...] = ()
    """Clauses that limit the recommendation without forbidding a use."""
    recalibrated: bool = False
    larger: bool = True
    """Whether larger values of the main metric are better."""
    stands: str = "is the reference"
    """The reason for recommending a method that is not demonstrably better than training alone, as a verb phrase."""
    models: str = ""
    """A sentence on more complex models that are not demonstrably better; may be empty."""


def use_of(kind: TaskKind, lines: Sequence[Line], recommends: bool) -> Use:
    """Return what the model may be used for: risks, only ranking patients, values of a numeric label, or nothing."""
    by_fact = {line.fact: line for line in lines}
    quality, calibration = by_fact["quality"], by_fact["calibration"]
    if not recommends or by_rank(quality) or _diverged(by_fact):
        return "none"
    if not kind.larger:
        return "values"
    return "risks" if quality.state != "warn" and calibration.state == "ok" else "ranking"


def by_rank(quality: Line) -> bool:
    """Return whether the line on quality warns that the model may rank patients no better than chance."""
    figures = quality.figure or {}
    low = figures.get("low")
    return quality.state == "warn" and "auroc" in figures and (low is None or low <= CHANCE)


def _diverged(by_fact: Mapping[str, Line]) -> bool:
    return "training" in by_fact and by_fact["training"].forbids


def headline(verdict: Verdict, use: Use, lines: Sequence[Line]) -> str:
    """Compose the headline from the recommendation and the decision card's ``lines``."""
    by_fact = {line.fact: line for line in lines}
    quality, calibration, limits = (by_fact[fact] for fact in ("quality", "calibration", "limits"))
    if limits.forbids:
        return limits.text
    sentences = []
    if by_rank(quality):
        sentences += [
            f"Do not use {verdict.taken}: it is not demonstrated to rank better than chance ({quality.short})."
        ]
    if _diverged(by_fact):
        sentences += [f"Do not use {verdict.taken}: its training diverged."]
    if not sentences:
        sentences += (
            [f"Do not act on {verdict.taken} at a risk of {verdict.act_at}."] if quality.state == "warn" else []
        )
        ranking = use == "ranking" and "warn" in (quality.state, calibration.state)
        sentences += _take(verdict, ranking, calibration.short)
        sentences += [verdict.models] if verdict.models and not verdict.alone_taken else []
    others = [line for line in lines if line.forbids and line.fact not in ("quality", "calibration", "training")]
    for clause in (*(line.short for line in others), *verdict.cautions):
        key = "." in clause.split(" ", 1)[0]  # a configuration key, whose case must not change
        sentences.append(f"{clause if key else capitalised(clause)}.")
    return " ".join(sentences)


def _take(verdict: Verdict, ranking: bool, off: str) -> list[str]:
    """Return sentences on which method to use, and for what.

    ``ranking`` says whether, because of a fault, the model may only be used for ranking. ``off`` is a clause on wrong
    risks; may be empty.
    """
    name = verdict.taken
    only = f"for ranking, not for risks ({off})" if off else "for ranking, not for risks"
    mends = bool(off) and not verdict.recalibrated
    tail = [f"Use it {only}{', until it is recalibrated' * mends}."] if ranking or off else []
    untested = "Whether federating helps was not tested."
    if not verdict.compared:
        if ranking:
            return [f"{name} is {only}{': recalibrate it at each hospital' * mends}.", untested]
        return [f"No reason was found against using {name} at these hospitals.", untested]
    if verdict.alone_taken and verdict.federate == "no":
        return [f"Train alone: federating {'ranks worse' if verdict.larger else 'errs more'}.", *tail]
    if verdict.alone_taken:
        return ["Train alone: it ranks as well as federating, and its risks are not off.", *tail]
    if verdict.federate == "equal":
        return [f"{name} and training alone rank alike (within 0.01): federating gains nothing in AUROC.", *tail]
    if verdict.federate == "not shown":
        why = "One seed cannot compare methods" if verdict.one_seed else "No method demonstrably beats training alone"
        return [f"{why}; {name}{',' * verdict.recalibrated} {verdict.stands}.", *tail]
    after = [untested] if verdict.federate == "not tested" else []
    if mends:
        return [f"Take {name}, recalibrated at each hospital. Before that, use it {only}.", *after]
    return [f"Take {name}{',' * verdict.recalibrated} {only}." if ranking or off else f"Take {name}.", *after]
