"""The decision card's line on training: whether the models were trained to convergence."""

from __future__ import annotations

from collections.abc import Sequence

from raysim.core.words import capitalised
from raysim.report.judgement.card import Line
from raysim.report.judgement.facts.wording import some

SOLVED = "add rows or a ridge, or under privacy raise epsilon"
"""The remedies if only methods without a learning rate diverged."""


def training(
    falling: Sequence[tuple[str, float]], diverged: Sequence[str], measured: bool, rounds: int, *, by_steps: bool = True
) -> Line:
    """Write the decision card's line on whether the models were trained to convergence.

    - ``falling``: the methods that have not converged, with the recent fall of the training loss as a share of the
      initial loss (NaN: it was measured in too few rounds).
    - ``diverged``: the methods whose training loss grew.
    - ``by_steps``: whether any of ``diverged`` has a learning rate.
    """
    numbers = {"falling": {name: fall if fall == fall else None for name, fall in falling}, "diverged": list(diverged)}
    if not measured:
        return Line("training", "open", "Whether training has converged was not measured.", numbers)
    parts = []
    if diverged:
        parts.append(f"training diverged: {some(diverged)}")
    if falling:
        each = [f"{name} ({_fell(fall)})" for name, fall in falling]
        parts.append(f"not trained to the end: {some(each)}")
    if not parts:
        return Line("training", "ok", "Every method was trained to the end.", numbers)
    text = "; ".join(parts)
    setting = "" if diverged else f"training.rounds={2 * rounds}"
    mends = "lower training.learning_rate" if by_steps else SOLVED
    remedy = mends if diverged else f"try {setting}"
    named = [f"training diverged: {some(diverged)}"] if diverged else []
    named += [f"not trained to the end: {some([name for name, _ in falling])}"] if falling else []
    return Line("training", "warn", f"{capitalised(text)}.", numbers, remedy, short="; ".join(named), setting=setting)


def _fell(fall: float) -> str:
    return "too few rounds to tell" if fall != fall else f"loss still falling by {100 * fall:.2g} %"
