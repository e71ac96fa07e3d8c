"""What is said of an attack where results are read."""

from __future__ import annotations

import math

from raysim.adversaries.figures import AttackFigures


def sentence(figures: AttackFigures, title: str) -> str:
    """The attack and what it changed, in a line."""
    count = len(figures.bad)
    who = f"{count} bad hospital{'' if count == 1 else 's'}"
    headline = next(iter(figures.honest))
    said = (
        f"attack: {figures.attack} by {who} who know{'s' if count == 1 else ''} "
        f"{KNOWLEDGE[figures.knowledge]}; honest hospitals: mean {title} {_number(figures.honest[headline])}"
    )
    if math.isfinite(figures.change[headline]):
        said += f" ({figures.change[headline]:+.3f}), worst decile {_number(figures.honest['worst_decile'])} "
        said += f"({figures.change['worst_decile']:+.3f})"
        said += f"; harm beside bad hospitals {_number(figures.harm_in)}, elsewhere {_number(figures.harm_out)}"
    if math.isfinite(figures.success):
        said += f"; the trigger's success {figures.success:+.3f}"
    return said


KNOWLEDGE = {
    "own": "their own data alone",
    "colluders": "each other's updates",
    "all": "the updates of all",
}
"""What bad hospitals know, in words."""


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "undefined"
