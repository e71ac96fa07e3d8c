"""The answer of a comparison in plain words, from what its intervals show and never from means alone.

"No difference can be shown with these data" is an answer. Who is recommended is decided in
:mod:`raysim.report.judgement.evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from raysim.metrics.labels import reporting
from raysim.report.judgement.evidence import Evidence, evidence
from raysim.report.judgement.noise import Noise
from raysim.report.panel import Key
from raysim.report.possible import NOT_VISIBLE, NOTHING, SAYS_NOTHING, difference
from raysim.report.possible import visible as can_be
from raysim.statistics.differences.paired import Limits


@dataclass(frozen=True)
class Answer:
    """The answer of a comparison."""

    lead: str
    """One sentence."""
    reasons: tuple[str, ...]
    """The sentences behind it."""
    caution: str
    """What limits it; may be empty."""
    recommended: str | None
    """The label of the strategy (and model) to take: of those that no other is shown to be better than, the one that
    moves the fewest bytes. None where nothing can be compared."""
    not_dominated: tuple[str, ...]
    """The entries that no other is shown to dominate on the headline figure and the worst decile."""
    difference_shown: bool
    """Whether any strategy is shown to differ from the reference, or without one, from another."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences of the answer, in order."""
        return tuple(filter(None, (self.lead, *self.reasons, self.caution)))

    def as_json(self) -> dict[str, Any]:
        """The content of ``answer.json``."""
        return {
            "recommended": self.recommended,
            "difference_shown": self.difference_shown,
            "not_dominated": list(self.not_dominated),
            "reasons": list(self.sentences),
        }


def answer(
    per_seed: pd.DataFrame,
    hospitals: pd.DataFrame,
    reference: str,
    noise: Mapping[Key, Noise] | None = None,
) -> Answer:
    """The answer of a comparison; arguments as those of :func:`raysim.report.judgement.evidence.evidence`.

    ``noise`` as :func:`raysim.report.judgement.noise.noise` gives it, for sentences on differences between hospitals
    and between patients.
    """
    return answer_from(evidence(per_seed, hospitals, reference), reporting(per_seed).title, noise)


def answer_from(shown: Evidence | None, title: str, noise: Mapping[Key, Noise] | None = None) -> Answer:
    """The answer that follows from the evidence ``shown``; ``title`` is that of the headline figure."""
    if shown is None:
        lead = f"No {title} of this comparison is defined, so it says nothing about the strategies."
        return Answer(lead, (), "", None, (), False)
    best = shown.entries[shown.best].name
    if len(shown.entries) == 1 and len(shown.entries[0].members) == 1 and not shown.references:
        only = _plain(best)
        return Answer(f"Only {only} was run, so there is nothing to compare it with.", (), "", None, (), False)
    reasons = (
        *_equal(shown),
        *_price(shown),
        *_worse(shown),
        *_others(shown),
        *_front(shown),
        *_visible(shown),
        *_references(shown),
        *_noise(shown, noise or {}),
    )
    if len(shown.entries) == 1 and len(shown.entries[0].members) == 1:  # references are not what it is chosen among
        return Answer(_lead(shown), reasons, _caution(shown), None, (), False)
    front = tuple(shown.entries[i].name for i in np.flatnonzero(shown.front))
    return Answer(_lead(shown), reasons, _caution(shown), best, front, shown.difference_shown)


def _lead(shown: Evidence) -> str:
    figure, best, name = f"mean {shown.kind.title}", shown.best, shown.entries[shown.best].name
    if len(shown.entries) == 1 and len(shown.entries[0].members) == 1:
        return f"{name} is the only way of federating that was run, and is compared with references alone."
    if len(shown.entries) == 1:
        return f"All ways of federating have the same {shown.kind.title} at every hospital; take {name}."
    if shown.one_seed:
        return (
            f"No difference in {figure} between the {len(shown.entries)} ways of federating can be shown with one "
            "training seed: how much the result hangs on it is unknown, so run 3 or more; "
            f"{name} moves the fewest bytes."
        )
    if not shown.better.any():
        return (
            f"No difference in {figure} between the {len(shown.entries)} ways of federating can be shown with these "
            f"data; {name} moves the fewest bytes."
        )
    if shown.base is not None and shown.better[best, shown.base]:
        return f"{name}: {_words(shown, best, shown.base)} {figure} against {shown.entries[shown.base].name}."
    if len(shown.unbeaten) == 1:
        return (
            f"{name} is shown to have a better {figure} than another way of federating, and none a better one than it."
        )
    return (
        f"{name}: no other way of federating is shown to have a better {figure}, and of the {len(shown.unbeaten)} of "
        "which that holds it moves the fewest bytes."
    )


def _equal(shown: Evidence) -> list[str]:
    groups = [entry.called for entry in shown.entries if len(entry.members) > 1]
    return [f"{listed(names)} have the same figure at every hospital and count as one." for names in groups]


def _price(shown: Evidence) -> list[str]:
    """The bytes of the recommended strategy, compared with the reference."""
    if shown.base is None or shown.base == shown.best:
        return []
    best, base = shown.entries[shown.best], shown.entries[shown.base]
    return [f"It moves {best.bytes / base.bytes:.2g} times the bytes of {base.name}."] if base.bytes > 0 else []


def _worse(shown: Evidence) -> list[str]:
    best, name = shown.best, shown.entries[shown.best].name
    beaten = [i for i in range(len(shown.entries)) if i not in shown.unbeaten]
    from_best = [f"{shown.entries[i].name}: {_words(shown, i, best)}" for i in beaten if shown.better[best, i]]
    others = [shown.entries[i].name for i in beaten if not shown.better[best, i]]
    sentences = [f"Shown to be worse than {name}: {'; '.join(from_best)}."] if from_best else []
    if others:
        sentences.append(f"Shown to be worse than some other, but not than {name}: {listed(others)}.")
    return sentences


def _others(shown: Evidence) -> list[str]:
    best = shown.best
    rest = [f"{shown.entries[i].name}: {_words(shown, i, best)}" for i in shown.unbeaten if i != best]
    if not rest:
        return []
    name = shown.entries[best].name
    if shown.one_seed:
        return [f"These trained models alone, against that of {name}: {'; '.join(rest)}."]
    return [f"Not shown to differ from {name}: {'; '.join(rest)}."]


def _front(shown: Evidence) -> list[str]:
    """The strategies that none dominates on accuracy and worst decile; empty where that is all of them."""
    left = [shown.entries[i].name for i in np.flatnonzero(shown.front)]
    if len(left) == len(shown.entries):
        return []
    return [f"Not dominated on mean {shown.kind.title} and worst decile, by intervals: {listed(left)}."]


def _visible(shown: Evidence) -> list[str]:
    """The smallest differences that would have been shown, beside a finding of none."""
    best, digits = shown.best, _digits(shown)
    sizes, none = [], []
    for i in shown.unbeaten:
        if i != best and not shown.one_seed:
            visible = shown.differences[min(best, i), max(best, i)].visible
            if not can_be(visible, shown.kind.larger, shown.levels[best]):
                none.append(shown.entries[i].name)
            else:
                least = 10.0**-digits
                size = f"{visible:.{digits}f}" if visible >= least else f"less than {least:.{digits}f}"
                sizes.append(f"{size} for {shown.entries[i].name}")
    name = shown.entries[best].name
    sentences = [f"Between {name} and {' or '.join(none)} {NOT_VISIBLE}."] if none else []
    if not sizes:
        return sentences
    return [
        *sentences,
        f"The smallest difference from {name} that four of five such comparisons would show by "
        f"itself: {listed(sizes)}.",
    ]


def _references(shown: Evidence) -> list[str]:
    """How references compare: training alone or on pooled rows, which are neither federated nor bounds."""
    sentences = []
    for entry, pair in zip(shown.references, shown.of_references, strict=True):
        interval = pair.population()
        value = signed(pair.difference, possible(interval, shown, shown.levels[shown.best]), _digits(shown))
        if not pair.of_training:
            verdict = "one seed shows no difference"
        elif not interval.shows:
            verdict = "no difference is shown"
        else:
            verdict = "it is better" if (interval.low > 0) == shown.kind.larger else "it is worse"
        name = _plain(entry.name)
        sentences.append(f"For reference, {name} against {shown.entries[shown.best].name}: {value}; {verdict}.")
    return sentences


def _plain(name: str) -> str:
    """The name of a reference without what tables mark it with."""
    return name.removesuffix(" *").removesuffix(" (reference)")


def _noise(shown: Evidence, noise: Mapping[Key, Noise]) -> list[str]:
    """Whether the recommended model serves hospitals and patients differently, beyond what test noise explains."""
    entry = shown.entries[shown.best]
    model_noise = noise.get(entry.key)
    if model_noise is None:
        return []
    of = entry.name if shown.one_seed else f"{entry.name}, seed {model_noise.seed} alone"
    return [f"{of}: {sentence}" for sentence in model_noise.sentences()]


def _caution(shown: Evidence) -> str:
    """Notes on the interval that the lead is about, and on all intervals together.

    Where only one way of federating was run, on the interval of the first reference.
    """
    if not shown.differences:
        notes = shown.of_references[0].notes() if shown.of_references else []
    else:
        against = next(iter({0, 1} - {shown.best})) if shown.base in (None, shown.best) else shown.base
        notes = shown.differences[min(shown.best, against), max(shown.best, against)].notes()
    if len(shown.differences) > 1:
        notes.append(f"intervals hold together for all {len(shown.differences)} pairs, by Holm's procedure")
    text = "; ".join(notes)
    return text[:1].upper() + text[1:] + "." if text else ""


def _digits(shown: Evidence) -> int:
    pairs = shown.differences.values() or shown.of_references
    return shown.kind.decimals([pair.difference for pair in pairs])


def _words(shown: Evidence, i: int, j: int) -> str:
    value, interval = shown.between(i, j)
    return signed(value, possible(interval, shown, shown.levels[j]), _digits(shown))


def possible(interval: Limits, shown: Evidence, reference: float = float("nan")) -> Limits:
    """An interval cut to possible values (:func:`raysim.report.possible.difference`); ``reference`` is the AUROC of
    what is subtracted.
    """
    return difference(interval, shown.kind.larger, reference)


def signed(value: float, interval: Limits, digits: int) -> str:
    """A difference with its interval.

    >>> signed(0.0031, Limits(0.0019, 0.0042), 3), signed(-0.0004, Limits(float("nan"), float("nan")), 3)
    ('+0.003 (+0.002 to +0.004)', '0.000, without an interval')
    """
    if interval == NOTHING:
        return SAYS_NOTHING
    if not np.isfinite(value):
        return "undefined"
    if not np.isfinite(interval).all():
        return f"{_with_sign(value, digits)}, without an interval"
    return f"{_with_sign(value, digits)} ({_with_sign(interval.low, digits)} to {_with_sign(interval.high, digits)})"


def _with_sign(value: float, digits: int) -> str:
    """A figure with its sign; none for what rounds to 0."""
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text


def listed(names: Sequence[str]) -> str:
    """Names as a phrase.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def plus_minus(mean: float, std: float, digits: int) -> str:
    """A mean and its deviation, as far as they are defined.

    >>> plus_minus(0.9123, 0.0041, 3), plus_minus(0.9123, float("nan"), 3), plus_minus(float("nan"), 0.0, 3)
    ('0.912 ± 0.004', '0.912', 'undefined')
    """
    if not np.isfinite(mean):
        return "undefined"
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if np.isfinite(std) else f"{mean:.{digits}f}"
