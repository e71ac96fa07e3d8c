"""Numbers in the decision card's sentences: with a leading zero, an interval, and an ASCII minus."""

from __future__ import annotations

import math
from collections.abc import Sequence

from raysim.core.words import capitalised, ends, listed, number
from raysim.report.possible import NOTHING, SAYS_NOTHING
from raysim.statistics.differences.paired import Limits

CHANCE = 0.5
"""The AUROC of guessing at random."""

SEVERAL = 4
"""The largest number of names in a sentence; the rest are counted."""


def figure(value: float, limits: Limits, digits: int = 3, *, sign: bool = False) -> str:
    """Format a number, with its interval if it has one.

    >>> figure(0.8123, Limits(0.79, 0.8341)), figure(-0.0004, Limits(-0.01, 0.02), sign=True)
    ('0.812 (0.790 to 0.834)', '0.000 (-0.010 to +0.020)')
    >>> figure(0.5, Limits(float("nan"), 1.0), 1), figure(0.5, NOTHING)
    ('0.5', 'says nothing')
    """
    if limits == NOTHING:
        return SAYS_NOTHING
    text = number(value, digits, sign=sign)
    if not (math.isfinite(limits.low) and math.isfinite(limits.high)):
        return text
    return f"{text} ({' to '.join(ends(*limits, digits, sign=sign))})"


def percent(share: float) -> str:
    """Format a share in per cent.

    >>> percent(0.2), percent(0.125)
    ('20 %', '12.5 %')
    """
    return f"{100 * share:.3g} %"


def some(names: Sequence[str]) -> str:
    """List the first :data:`SEVERAL` names, and say how many others there are."""
    return listed(names, SEVERAL)


def sentences(clauses: Sequence[str]) -> str:
    """Join clauses as sentences.

    >>> sentences(["few hospitals: 4", "one seed cannot compare methods"])
    'Few hospitals: 4. One seed cannot compare methods.'
    """
    return " ".join(f"{capitalised(clause)}." for clause in clauses)


def plain(name: str) -> str:
    """Return the name of a reference strategy without "(reference)" or a star.

    >>> plain("Training alone (reference)"), plain("local *")
    ('Training alone', 'local')
    """
    return name.removesuffix(" *").removesuffix(" (reference)")


def json_number(value: float) -> float | None:
    """Return a number for JSON; NaN and infinity become None."""
    return value if math.isfinite(value) else None
