"""The card's line on the choice of method: the recommended method compared with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raysim.report.judgement.card import Line, Role, Way
from raysim.report.judgement.evidence import Entry, Evidence
from raysim.report.judgement.facts.learners import learners
from raysim.report.judgement.facts.wording import figure, plain, some
from raysim.report.possible import NOTHING, SAYS_NOTHING
from raysim.report.possible import difference as possible
from raysim.statistics.differences.paired import EQUIVALENT, Limits, Paired, equivalent

ABOUT = 0.1
"""Numbers of bytes are reported as about the same if their ratio differs from 1 by at most this."""

NAN = float("nan")

NONE = Limits(NAN, NAN)


def which(shown: Evidence) -> Line:
    """Write the line on the choice of method."""
    best, choice = shown.entries[shown.best], shown.choice
    others = len(shown.entries) - 1
    figures: dict[str, Any] = {
        "entries": len(shown.entries),
        "unbeaten": len(shown.unbeaten),
        "equal": len(choice.equals),
    }
    if not others:
        alike = f" ({some(best.called)} have the same {shown.kind.title} at every hospital)"
        same = alike if len(best.members) > 1 else ""
        return Line("which", "open", f"{best.name} is the only method that was compared{same}.", figures)
    said = learners(shown).whole
    if said:
        figures["learner"] = best.learner
    line = _between_methods(shown, figures)
    return replace(line, text=f"{line.text} {said}") if said else line


def _between_methods(shown: Evidence, figures: dict[str, Any]) -> Line:
    """Write the line for several methods."""
    best, choice, others = shown.entries[shown.best], shown.choice, len(shown.entries) - 1
    if shown.one_seed:
        text = f"One seed cannot compare methods: {best.name} {stands(shown)}."
        return Line("which", "open", text, figures, "run three seeds or more")
    equals = _equals(shown)
    if choice.instead_of is not None:
        other = shown.entries[choice.instead_of]
        text = (
            f"{best.name} and {other.name} are equal within {EQUIVALENT:g}, and {best.name} moves "
            f"{best.bytes / other.bytes:.2g} times the bytes"
        )
        return Line("which", "ok", f"{text}.", figures)
    if choice.why == "better" and shown.base is not None:
        value, interval = shown.between(shown.best, shown.base)
        digits = shown.kind.decimals([value])
        text = (
            f"{best.name} is better than {shown.entries[shown.base].name}: {figure(value, interval, digits, sign=True)}"
        )
        return Line("which", "ok", f"{text}{equals}.", figures)
    if choice.why == "reference":
        than = f"better than {best.name}, the reference"
        text = f"None of {others} other methods is {than}" if others > 1 else f"The other method is not {than}"
        return Line("which", "ok" if choice.equals else "open", f"{text}{equals}.", figures)
    if choice.why == "simpler":
        text = f"{best.name} has the simplest model of the {len(shown.unbeaten)} methods that no other is better than"
        return Line("which", "ok" if choice.equals else "open", f"{text}{equals}.", figures)
    text = f"{best.name} has the best mean of the {len(shown.unbeaten)} methods that no other is better than"
    return Line("which", "open" if len(shown.unbeaten) > 1 else "ok", f"{text}{equals}.", figures)


def stands(shown: Evidence) -> str:
    """Return a verb phrase on why the method is recommended."""
    if shown.best == shown.base:
        return "is the reference"
    if shown.choice.instead_of is not None:
        return "moves the fewest bytes of equal ones"
    if shown.choice.why == "simpler":
        return "has the simplest model"
    return "is better than the reference" if shown.choice.why == "better" else "has the best mean"


def _equals(shown: Evidence) -> str:
    """Return a clause on the methods equivalent to the recommended one, with their bytes if these are about the
    same."""
    best = shown.entries[shown.best]
    equals = [shown.entries[i] for i in shown.choice.equals]
    if not equals:
        return ""
    about = best.bytes > 0 and all(abs(each.bytes / best.bytes - 1) <= ABOUT for each in equals)
    return (
        f"; equal within {EQUIVALENT:g}{' at about the same bytes' if about else ''}: {some([e.name for e in equals])}"
    )


def ways(shown: Evidence, *, alone_taken: bool = False) -> tuple[Way, ...]:
    """Return the rows of the card: the recommended method, references, then the other methods by their means.

    Differences are from the recommended method, or from training alone if this is recommended (``alone_taken``).
    """
    sign = 1 if shown.kind.larger else -1
    if alone_taken and shown.alone is not None:
        rows = [_way(shown.references[shown.alone], "taken", NAN, NONE, "")]
        rows += [
            _way(entry, "reference", NAN, NONE, "") for i, entry in enumerate(shown.references) if i != shown.alone
        ]
        alone, larger = shown.references[shown.alone].level.difference, shown.kind.larger
        others = [
            _way(entry, "method", pair.difference, possible(interval, larger, alone), _verdict(shown, interval, pair))
            for entry, pair, interval in zip(shown.entries, shown.over_alone, shown.over_alone_intervals, strict=True)
        ]
    else:
        level, larger = shown.levels[shown.best], shown.kind.larger
        rows = [_way(shown.entries[shown.best], "taken", NAN, NONE, "")]
        for i, (entry, pair) in enumerate(zip(shown.references, shown.of_references, strict=True)):
            interval = shown.of_reference(i)
            rows.append(_way(entry, "reference", pair.difference, interval, _verdict(shown, interval, pair)))
        others = []
        for i in (i for i in range(len(shown.entries)) if i != shown.best):
            value, interval = shown.between(i, shown.best)
            verdict = _verdict(shown, interval, shown.pair(i, shown.best))
            others.append(_way(shown.entries[i], "method", value, possible(interval, larger, level), verdict))
    return (*rows, *sorted(others, key=lambda way: -sign * way.difference))


def _way(entry: Entry, role: Role, difference: float, interval: Limits, verdict: str) -> Way:
    also = tuple(name for name in entry.called if name != entry.name)
    low, high = (NAN, NAN) if interval == NOTHING else interval
    said = SAYS_NOTHING if interval == NOTHING else verdict
    return Way(plain(entry.name), entry.key, role, entry.level.difference, difference, low, high, said, also)


def _verdict(shown: Evidence, interval: Limits, pair: Paired) -> str:
    if not pair.of_training:
        return "one seed"
    digits = shown.kind.decimals([shown.levels[shown.best]])
    if max(abs(interval.low), abs(interval.high)) < 0.5 * 10.0**-digits:
        return "equal"  # equal with the printed digits
    if not interval.shows:
        return "equal" if shown.kind.larger and equivalent(interval) else "no difference"
    return "better" if (interval.low > 0) == shown.kind.larger else "worse"
