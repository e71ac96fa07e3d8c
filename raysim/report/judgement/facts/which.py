"""The decision card's line that compares the recommended method with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raysim.report.judgement.card import Line, MethodRow, Role
from raysim.report.judgement.evidence import Entry, Evidence
from raysim.report.judgement.facts.learners import learners
from raysim.report.judgement.facts.wording import figure, plain, some
from raysim.report.possible import NOTHING, SAYS_NOTHING
from raysim.report.possible import difference as possible
from raysim.statistics.differences.paired import EQUIVALENT, Limits, Paired, equivalent

ABOUT = 0.1
"""Two methods exchange about the same bytes if the ratio of their bytes differs from 1 by at most this."""

NAN = float("nan")

NONE = Limits(NAN, NAN)


def which(evidence: Evidence) -> Line:
    """Write the decision card's line on why the recommended method was chosen."""
    best, choice = evidence.entries[evidence.best], evidence.choice
    others = len(evidence.entries) - 1
    figures: dict[str, Any] = {
        "entries": len(evidence.entries),
        "unbeaten": len(evidence.unbeaten),
        "equal": len(choice.equals),
    }
    if not others:
        alike = f" ({some(best.names)} have the same {evidence.kind.title} at every hospital)"
        same = alike if len(best.members) > 1 else ""
        return Line("which", "open", f"{best.name} is the only method that was compared{same}.", figures)
    on_learners = learners(evidence).whole
    if on_learners:
        figures["learner"] = best.learner
    line = _between_methods(evidence, figures)
    return replace(line, text=f"{line.text} {on_learners}") if on_learners else line


def _between_methods(evidence: Evidence, figures: dict[str, Any]) -> Line:
    best, choice, others = evidence.entries[evidence.best], evidence.choice, len(evidence.entries) - 1
    if evidence.one_seed:
        text = f"One seed cannot compare methods: {best.name} {stands(evidence)}."
        return Line("which", "open", text, figures, "run three seeds or more")
    equals = _equals(evidence)
    if choice.instead_of is not None:
        other = evidence.entries[choice.instead_of]
        text = (
            f"{best.name} and {other.name} are equal within {EQUIVALENT:g}, and {best.name} moves "
            f"{best.bytes / other.bytes:.2g} times the bytes"
        )
        return Line("which", "ok", f"{text}.", figures)
    if choice.why == "better" and evidence.base is not None:
        value, interval = evidence.between(evidence.best, evidence.base)
        digits = evidence.kind.decimals([value])
        against = evidence.entries[evidence.base].name
        text = f"{best.name} is better than {against}: {figure(value, interval, digits, sign=True)}"
        return Line("which", "ok", f"{text}{equals}.", figures)
    if choice.why == "reference":
        than = f"better than {best.name}, the reference"
        text = f"None of {others} other methods is {than}" if others > 1 else f"The other method is not {than}"
        return Line("which", "ok" if choice.equals else "open", f"{text}{equals}.", figures)
    if choice.why == "simpler":
        text = f"{best.name} has the simplest model of the {len(evidence.unbeaten)} methods that no other method beats"
        return Line("which", "ok" if choice.equals else "open", f"{text}{equals}.", figures)
    text = f"{best.name} has the best mean of the {len(evidence.unbeaten)} methods that no other method beats"
    return Line("which", "open" if len(evidence.unbeaten) > 1 else "ok", f"{text}{equals}.", figures)


def stands(evidence: Evidence) -> str:
    """Return the reason for recommending the method, as a verb phrase such as "is the reference"."""
    if evidence.best == evidence.base:
        return "is the reference"
    if evidence.choice.instead_of is not None:
        return "moves the fewest bytes of the equivalent methods"
    if evidence.choice.why == "simpler":
        return "has the simplest model"
    return "is better than the reference" if evidence.choice.why == "better" else "has the best mean"


def _equals(evidence: Evidence) -> str:
    best = evidence.entries[evidence.best]
    equals = [evidence.entries[i] for i in evidence.choice.equals]
    if not equals:
        return ""
    about = best.bytes > 0 and all(abs(each.bytes / best.bytes - 1) <= ABOUT for each in equals)
    traffic = " at about the same bytes" if about else ""
    return f"; equal within {EQUIVALENT:g}{traffic}: {some([e.name for e in equals])}"


def method_rows(evidence: Evidence, *, alone_taken: bool = False) -> tuple[MethodRow, ...]:
    """Return the rows of the decision card's table: the recommended method, references, then other methods by their
    means.

    Differences are from the recommended method; with ``alone_taken``, from training alone.
    """
    sign = 1 if evidence.kind.larger else -1
    if alone_taken and evidence.alone is not None:
        rows = [_method_row(evidence.references[evidence.alone], "taken", NAN, NONE, "")]
        rows += [
            _method_row(entry, "reference", NAN, NONE, "")
            for i, entry in enumerate(evidence.references)
            if i != evidence.alone
        ]
        alone, larger = evidence.references[evidence.alone].level.difference, evidence.kind.larger
        others = [
            _method_row(
                entry, "method", pair.difference, possible(interval, larger, alone), _verdict(evidence, interval, pair)
            )
            for entry, pair, interval in zip(
                evidence.entries, evidence.over_alone, evidence.over_alone_intervals, strict=True
            )
        ]
    else:
        level, larger = evidence.levels[evidence.best], evidence.kind.larger
        rows = [_method_row(evidence.entries[evidence.best], "taken", NAN, NONE, "")]
        for i, (entry, pair) in enumerate(zip(evidence.references, evidence.of_references, strict=True)):
            interval = evidence.of_reference(i)
            row = _method_row(entry, "reference", pair.difference, interval, _verdict(evidence, interval, pair))
            rows.append(replace(row, same_rows=evidence.same_rows[i]))
        others = []
        for i in (i for i in range(len(evidence.entries)) if i != evidence.best):
            value, interval = evidence.between(i, evidence.best)
            verdict = _verdict(evidence, interval, evidence.pair(i, evidence.best))
            others.append(_method_row(evidence.entries[i], "method", value, possible(interval, larger, level), verdict))
    return (*rows, *sorted(others, key=lambda row: -sign * row.difference))


def _method_row(entry: Entry, role: Role, difference: float, interval: Limits, verdict: str) -> MethodRow:
    also = tuple(name for name in entry.names if name != entry.name)
    low, high = (NAN, NAN) if interval == NOTHING else interval
    text = SAYS_NOTHING if interval == NOTHING else verdict
    return MethodRow(plain(entry.name), entry.key, role, entry.level.difference, difference, low, high, text, also)


def _verdict(evidence: Evidence, interval: Limits, pair: Paired) -> str:
    if not pair.of_training:
        return "one seed"
    digits = evidence.kind.decimals([evidence.levels[evidence.best]])
    if max(abs(interval.low), abs(interval.high)) < 0.5 * 10.0**-digits:
        return "equal"  # equal with the printed digits
    if not interval.shows:
        return "equal" if evidence.kind.larger and equivalent(interval) else "no difference"
    return "better" if (interval.low > 0) == evidence.kind.larger else "worse"
