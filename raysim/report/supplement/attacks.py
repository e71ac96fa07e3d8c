"""Sentences on attacks, for pages, tables and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from raysim.adversaries.attack_effect import AttackFigures
from raysim.core.levels import LEVEL
from raysim.core.words import capitalised, counted
from raysim.engine.job import Outcome, Result
from raysim.metrics.labels import TaskKind


def sentence(figures: AttackFigures, kind: TaskKind) -> str:
    """Describe an attack and its effect on honest hospitals; ``kind`` is the kind of the label."""
    headline = kind.headline
    mean, worst = figures.honest[headline], figures.honest["worst_decile"]
    change, cost = figures.change[headline], figures.price.get(headline, math.nan)
    digits, finer = kind.decimals([mean, worst]), kind.decimals(_differences(figures, kind))
    text = f"attack: {_attack(figures)}; honest hospitals: mean {kind.title} {_number(mean, digits)}"
    if math.isfinite(change):
        text += f" ({change:+.{finer}f}), worst decile {_number(worst, digits)} "
        text += f"({figures.change['worst_decile']:+.{finer}f})"
        text += f"; harm in clusters with Byzantine hospitals {_number(figures.harm_in, finer)}"
        text += f", elsewhere {_number(figures.harm_out, finer)}"
    if math.isfinite(cost):
        text += f"; cost of the rule without attack {cost:+.{finer}f}"
    if math.isfinite(figures.success):
        text += f"; success of the backdoor {figures.success:+.3f}"
    return text


def of_run(result: Result) -> str:
    """Describe the simulated attack on a run and its effect, for the run's page; empty without an attack."""
    attack = result.outcome.attack
    if attack is None:
        return ""
    text = capitalised(sentence(attack, result.federation.task))
    facts = _facts(result.outcome)
    return f"{text}; {facts}." if facts else f"{text}."


def sentences(results: Sequence[Result]) -> tuple[str, ...]:
    """Describe the effect of simulated attacks, in one sentence for each attacked strategy."""
    lines = []
    for label in dict.fromkeys(result.label for result in results):
        of_label = [result for result in results if result.label == label]
        runs = [result.outcome.attack for result in of_label if result.outcome.attack is not None]
        if not runs:
            continue
        first, kind = runs[0], of_label[0].federation.task
        headline, digits = kind.headline, kind.decimals([each for run in runs for each in _differences(run, kind)])
        heading = f"Attack on {label}: {_attack(first)}"
        parts = {
            f"change of honest hospitals' mean {kind.title}": [run.change[headline] for run in runs],
            "change of their worst decile": [run.change["worst_decile"] for run in runs],
            "harm in clusters with Byzantine hospitals": [run.harm_in for run in runs],
            "elsewhere": [run.harm_out for run in runs],
            "cost of the rule without attack": [run.price.get(headline, math.nan) for run in runs],
            "success of the backdoor": [run.success for run in runs],
        }
        measures = [
            f"{name} {_over_seeds(values, digits)}" for name, values in parts.items() if np.isfinite(values).any()
        ]
        lines.append("; ".join([heading, *measures]) + ".")
    return tuple(lines)


def _differences(figures: AttackFigures, kind: TaskKind) -> list[float]:
    """Return the differences in the main metric that :func:`sentence` prints."""
    change, cost = figures.change, figures.price.get(kind.headline, math.nan)
    return [change[kind.headline], change["worst_decile"], figures.harm_in, figures.harm_out, cost]


def _over_seeds(values: Sequence[float], digits: int) -> str:
    defined = np.array([value for value in values if math.isfinite(value)])
    mean = float(defined.mean())
    if len(defined) < 3:
        return f"{mean:+.{digits}f}"
    half_width = float(stdtrit(len(defined) - 1, (1.0 + LEVEL) / 2.0) * defined.std(ddof=1) / math.sqrt(len(defined)))
    low, high = mean - half_width, mean + half_width
    return f"{mean:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"


def _facts(outcome: Outcome) -> str:
    """Describe how a robust aggregation rule treated Byzantine updates; may be empty."""
    words = {
        "rejecting_precision": "Byzantine share of the rejected updates",
        "rejecting_recall": "rejected share of the Byzantine updates",
        "bad_share_admitted": "Byzantine share of the aggregated update",
        "largest_bad_share": "largest share of Byzantine hospitals in a sum",
        "largest_weight": "largest weight of one hospital in a sum",
    }
    facts = {name: float(value) for name, value in outcome.facts.items() if name in words}
    return ", ".join(f"{words[name]}: {value:.2f}" for name, value in facts.items() if math.isfinite(value))


KNOWLEDGE = {"own": "local data alone", "colluders": "each other's updates", "all": "the updates of all"}


def _attack(figures: AttackFigures) -> str:
    attackers = counted(len(figures.bad), "Byzantine hospital")
    return f"{figures.attack} by {attackers} with knowledge of {KNOWLEDGE[figures.knowledge]}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "undefined"
