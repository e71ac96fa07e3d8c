"""The decision card's sentences on learners (kinds of models), for a comparison of strategies with several models."""

from __future__ import annotations

import math
from typing import NamedTuple

from raysim.core.registry import of_learner
from raysim.core.words import listed
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.facts.wording import figure, sentences
from raysim.report.possible import NOTHING, SAYS_NOTHING
from raysim.report.possible import difference as possible


class Learners(NamedTuple):
    """Sentences that compare learners; empty if there is only one learner or one seed."""

    whole: str = ""
    """Sentences with the difference of every other learner from the learner of the recommended method."""
    short: str = ""
    """A sentence that names the more complex learners that are not demonstrably better."""


def learners(evidence: Evidence) -> Learners:
    """Compare every other learner with the learner of the recommended method.

    Each of the other learners is represented by its method with the best mean.
    """
    taken = evidence.entries[evidence.best]
    others = [name for name in evidence.learners if name != taken.learner and _of(evidence, name)]
    if evidence.one_seed or not others:
        return Learners()
    compared, no_better, mine = [], [], of_learner(taken.learner)
    for name in others:
        best = max(_of(evidence, name), key=lambda i: _rank(evidence, i))
        value, interval = evidence.between(best, evidence.best)
        digits = evidence.kind.decimals([value])
        limits = possible(interval, evidence.kind.larger, evidence.levels[evidence.best])
        simpler = evidence.learners.index(taken.learner) < evidence.learners.index(name)
        if evidence.better[evidence.best, best]:
            verdict = "worse"
        elif evidence.better[best, evidence.best]:
            verdict = "better"
        elif simpler:
            verdict = "not demonstrably better"
            no_better.append(of_learner(name))
        else:
            verdict = "not demonstrably worse"
        gap = figure(value, limits, digits, sign=True) if limits != NOTHING else f"the interval {SAYS_NOTHING}"
        compared.append(f"{of_learner(name)} against {mine} ({evidence.entries[best].name}): {gap}, {verdict}")
    if no_better:
        compared.append(f"take {mine}, the simpler model")
    short = [f"no gain over {mine} is demonstrated with {listed(no_better)}"] if no_better else []
    return Learners(sentences(compared), sentences(short))


def _of(evidence: Evidence, learner: str) -> list[int]:
    return [i for i, entry in enumerate(evidence.entries) if entry.learner == learner]


def _rank(evidence: Evidence, i: int) -> float:
    mean = evidence.levels[i] if evidence.kind.larger else -evidence.levels[i]
    return -math.inf if math.isnan(mean) else mean
