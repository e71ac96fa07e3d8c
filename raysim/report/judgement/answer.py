"""The answer of a comparison or a run in plain words: its decision card, and the sentences that do not fit on it.

:mod:`raysim.report.judgement.choice` and :mod:`raysim.report.judgement.compose` decide which method is recommended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raysim.core.words import capitalised, listed
from raysim.report.judgement.card import Card
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts.wording import figure, plain
from raysim.report.judgement.fairness import treated
from raysim.report.judgement.noise import Noise, size_sentence
from raysim.report.naming import Key
from raysim.report.possible import NOTHING, SAYS_NOTHING, difference
from raysim.statistics.differences.paired import Limits


@dataclass(frozen=True)
class Answer:
    """The conclusions of a comparison or a run: a decision card, and further sentences that give reasons."""

    card: Card
    """The recommendation and the findings that decide it."""
    reasons: tuple[str, ...]
    """Further sentences on the results."""
    caution: str
    """A sentence on the limits of the intervals; may be empty."""
    not_dominated: tuple[str, ...]
    """The names of the methods that no other method dominates on main metric and worst decile; empty if only one model
    was compared."""
    difference_shown: bool
    """Whether any method demonstrably differs from the reference strategy or, without it, from another method."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences: the headline, the lines of the card, further reasons, and a caution about intervals."""
        lines = (line.text for line in self.card.lines)
        return tuple(filter(None, (self.card.headline, *lines, *self.reasons, self.caution)))

    def as_json(self) -> dict[str, Any]:
        """The content of ``answer.json``."""
        return {
            "recommended": self.card.recommended,
            "difference_shown": self.difference_shown,
            "not_dominated": list(self.not_dominated),
            **self.card.as_json(),
            "reasons": list(self.sentences),
        }


def answer_from(
    card: Card,
    evidence: Evidence | None = None,
    noise: Mapping[Key, Noise] | None = None,
    before: Sequence[str] = (),
    names: Mapping[Key, str] | None = None,
) -> Answer:
    """Combine the decision ``card`` with further sentences into the conclusions of a comparison or a run.

    - ``evidence``: the paired differences between the compared strategies; None for a run, and if no main metric is
      defined.
    - ``noise``: by model, the differences between hospitals compared with chance.
    - ``before``: the first sentences, such as sentences on training and privacy.
    - ``names``: display names of the models in sentences.
    """
    of_taken = noise.get(card.rows[0].key) if noise and card.rows else None
    between = [] if of_taken is None else _between_hospitals(of_taken)
    if evidence is None:
        return Answer(card, (*before, *between), "", (), False)
    named = evidence if names is None else evidence.renamed(names)
    rest = [*_equal(named), *_worse(named), *_others(named), *_front(named), *_references(named)]
    front = tuple(evidence.entries[i].name for i in np.flatnonzero(evidence.front))
    compared = len(evidence.entries) > 1 or len(evidence.entries[0].members) > 1
    return Answer(
        card, (*before, *rest, *between), _caution(evidence), front if compared else (), evidence.difference_shown
    )


def _equal(evidence: Evidence) -> list[str]:
    groups = [entry.names for entry in evidence.entries if len(entry.members) > 1]
    return [
        f"{listed(names)} have the same {evidence.kind.title} at every hospital and count as one." for names in groups
    ]


def _worse(evidence: Evidence) -> list[str]:
    best, name = evidence.best, evidence.entries[evidence.best].name
    worse = [i for i in range(len(evidence.entries)) if i not in evidence.unbeaten]
    from_best = [f"{evidence.entries[i].name}: {_words(evidence, i, best)}" for i in worse if evidence.better[best, i]]
    others = [evidence.entries[i].name for i in worse if not evidence.better[best, i]]
    sentences = [f"Worse than {name}: {'; '.join(from_best)}."] if from_best else []
    if others:
        verb = "is" if len(others) == 1 else "are"
        sentences.append(
            f"{listed(others)} {verb} worse than at least one other method, though not measurably worse than {name}."
        )
    return sentences


def _others(evidence: Evidence) -> list[str]:
    best = evidence.best
    rest = [f"{evidence.entries[i].name}: {_words(evidence, i, best)}" for i in evidence.unbeaten if i != best]
    if not rest:
        return []
    name = evidence.entries[best].name
    if evidence.one_seed:
        return [f"Differences from {name} for these trained models: {'; '.join(rest)}."]
    return [f"No difference from {name} was found: {'; '.join(rest)}."]


def _front(evidence: Evidence) -> list[str]:
    left = [evidence.entries[i].name for i in np.flatnonzero(evidence.front)]
    if len(left) == len(evidence.entries):
        return []
    return [f"Not dominated by another method on mean {evidence.kind.title} and worst decile: {listed(left)}."]


def _references(evidence: Evidence) -> list[str]:
    """Compare each reference (such as training alone, or on pooled rows) with the recommended method."""
    sentences = []
    for i, (entry, pair) in enumerate(zip(evidence.references, evidence.of_references, strict=True)):
        interval = evidence.of_reference(i)
        value = signed(pair.difference, interval, _digits(evidence))
        if not pair.of_training:
            verdict = "for these trained models, as one seed cannot compare methods"
        elif not interval.shows:
            verdict = "no difference was found"
        else:
            verdict = "better" if (interval.low > 0) == evidence.kind.larger else "worse"
        name = plain(entry.name)
        sentences.append(f"For reference, {name} against {evidence.entries[evidence.best].name}: {value}; {verdict}.")
    return sentences


def _between_hospitals(noise: Noise) -> list[str]:
    """Return sentences on whether performance differs beyond chance: between hospitals, with hospital size, and between
    groups of patients.
    """
    sentences = [noise.floor.sentence()]
    if np.isfinite(noise.slope.low):
        sentences.append(size_sentence(noise.slope))
    sentences += treated(list(noise.gaps.values()))
    return [f"Seed {noise.seed}: {sentence}" for sentence in sentences]


def _caution(evidence: Evidence) -> str:
    """Return caveats on the confidence intervals as one sentence; may be empty."""
    if not evidence.differences:
        notes = evidence.of_references[0].notes() if evidence.of_references else []
    else:
        against = next(iter({0, 1} - {evidence.best})) if evidence.base in (None, evidence.best) else evidence.base
        notes = evidence.pair(evidence.best, against).notes()
    if len(evidence.differences) > 1:
        notes.append(f"intervals are adjusted for all {len(evidence.differences)} pairs of methods (Holm's procedure)")
    text = "; ".join(notes)
    return f"{capitalised(text)}." if text else ""


def _digits(evidence: Evidence) -> int:
    pairs = evidence.differences.values() or evidence.of_references
    return evidence.kind.decimals([pair.difference for pair in pairs])


def _words(evidence: Evidence, i: int, j: int) -> str:
    value, interval = evidence.between(i, j)
    return signed(value, difference(interval, evidence.kind.larger, evidence.levels[j]), _digits(evidence))


def signed(value: float, interval: Limits, digits: int) -> str:
    """Format a difference with its interval.

    >>> signed(0.0031, Limits(0.0019, 0.0042), 3), signed(-0.0004, Limits(float("nan"), float("nan")), 3)
    ('+0.003 (+0.002 to +0.004)', '0.000, without an interval')
    """
    if interval == NOTHING:
        return SAYS_NOTHING
    if not np.isfinite(value):
        return "undefined"
    text = figure(value, interval, digits, sign=True)
    return text if np.isfinite(interval).all() else f"{text}, without an interval"


def plus_minus(mean: float, std: float, digits: int) -> str:
    """Format a mean and, if it is defined, its standard deviation.

    >>> plus_minus(0.9123, 0.0041, 3), plus_minus(0.9123, float("nan"), 3), plus_minus(float("nan"), 0.0, 3)
    ('0.912 ± 0.004', '0.912', 'undefined')
    """
    if not np.isfinite(mean):
        return "undefined"
    return f"{mean:.{digits}f} ± {std:.{digits}f}" if np.isfinite(std) else f"{mean:.{digits}f}"
