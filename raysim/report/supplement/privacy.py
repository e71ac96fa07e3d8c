"""Sentences on privacy: the guarantee of a run, and the joint cost of several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from raysim.engine.job import Result
from raysim.privacy.statement import SHARED, Statement, together


def of_run(result: Result) -> str:
    """Describe the privacy guarantee of one run, and what it does not cover; empty without a guarantee."""
    statement = result.outcome.privacy
    if statement is None:
        return ""
    guarantee = f"Privacy: {statement.sentence()}."
    return f"{guarantee} {_all((statement,), one_seed=True)}" if statement.further else guarantee


def sentences(results: Sequence[Result]) -> tuple[str, ...]:
    """Describe the privacy guarantee of each strategy, and the joint guarantee against an observer of all runs.

    With several seeds, the guarantee with the largest epsilon is described. The result is empty if no run has a
    guarantee.
    """
    statements = [(result.label, result.outcome.privacy) for result in results]
    by_label: dict[str, Statement] = {}
    for label, each in statements:
        if each is not None and (label not in by_label or each.epsilon > by_label[label].epsilon):
            by_label[label] = each
    if not by_label:
        return ()
    lines = [f"Privacy of one run of {label}: {each.sentence()}." for label, each in by_label.items()]
    without = sorted({label for label, each in statements if each is None})
    if without:
        return (*lines, f"All runs together have no guarantee, because {', '.join(without)} added no noise.")
    guaranteed = tuple(each for _, each in statements if each is not None)
    seeds = [result.seed for result in results if result.outcome.privacy is not None]
    # Auxiliary runs have the seed of the run that needed them.
    one_seed = len(set(seeds)) < len(seeds) or any(each.further for each in guaranteed)
    return (*lines, _all(guaranteed, one_seed=one_seed))


def figures(statement: Statement | None) -> dict[str, float]:
    """Return a run's privacy guarantee as numbers by name: ``epsilon_<adversary>`` if finite, and ``delta``."""
    if statement is None:
        return {}
    finite = {f"epsilon_{adversary}": value for adversary, value in statement.epsilons.items() if math.isfinite(value)}
    return finite | {"delta": statement.delta}


def _all(statements: tuple[Statement, ...], *, one_seed: bool) -> str:
    whole, delta, against = together(statements)
    runs = sum(len(each.all_runs) for each in statements)
    among = "" if runs == len(statements) else f" ({runs - len(statements)} of them trials or runs for comparison)"
    epsilon = "infinite" if math.isinf(whole) else f"{whole:.4g}"
    return (
        f"An observer of all {runs} runs of this page{among} learns more than from one: together epsilon = "
        f"{epsilon}, delta = {delta:.3g} for one {statements[0].unit} against the {against}"
        + (f"; this {SHARED}." if one_seed and any(each.noise == "seeded" for each in statements) else ".")
    )
