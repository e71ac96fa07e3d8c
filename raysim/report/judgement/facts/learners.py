"""The card's sentences on models (learners), for a comparison that crosses strategies with models."""

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
    """Sentences on the models; empty for one model, or for one seed, which cannot compare models."""

    whole: str = ""
    """A sentence comparing each other model with the recommended one, with figures."""
    short: str = ""
    """A clause for the headline on the more complex models that are not better."""


def learners(shown: Evidence) -> Learners:
    """Compare the models of a comparison; each other model is represented by its method with the best mean."""
    taken = shown.entries[shown.best]
    others = [name for name in shown.learners if name != taken.learner and _of(shown, name)]
    if shown.one_seed or not others:
        return Learners()
    compared, no_better, mine = [], [], of_learner(taken.learner)
    for name in others:
        best = max(_of(shown, name), key=lambda i: _rank(shown, i))
        value, interval = shown.between(best, shown.best)
        digits = shown.kind.decimals([value])
        limits = possible(interval, shown.kind.larger, shown.levels[shown.best])
        simpler = shown.learners.index(taken.learner) < shown.learners.index(name)
        if shown.better[shown.best, best]:
            verdict = "worse"
        elif shown.better[best, shown.best]:
            verdict = "better"
        elif simpler:
            verdict = "not demonstrably better"
            no_better.append(of_learner(name))
        else:
            verdict = "not demonstrably worse"
        gap = figure(value, limits, digits, sign=True) if limits != NOTHING else f"the interval {SAYS_NOTHING}"
        compared.append(f"{of_learner(name)} against {mine} ({shown.entries[best].name}): {gap}, {verdict}")
    if no_better:
        compared.append(f"take {mine}, the simpler model")
    short = [f"no gain over {mine} is demonstrated with {listed(no_better)}"] if no_better else []
    return Learners(sentences(compared), sentences(short))


def _of(shown: Evidence, learner: str) -> list[int]:
    return [i for i, entry in enumerate(shown.entries) if entry.learner == learner]


def _rank(shown: Evidence, i: int) -> float:
    """Return a number that is larger for a better mean, and smallest for an undefined one."""
    mean = shown.levels[i] if shown.kind.larger else -shown.levels[i]
    return -math.inf if math.isnan(mean) else mean
