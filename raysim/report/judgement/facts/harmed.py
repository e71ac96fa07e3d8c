"""The decision card's line on harm: the hospitals that demonstrably lose or gain by the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysim.core.words import counted
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import some
from raysim.statistics.differences.harm import Harm


def harmed(harm: Harm, hospitals: Sequence[str], against: str) -> tuple[dict[str, Any], Line]:
    """Return the content of ``harmed`` in ``answer.json``, and the decision card's line.

    ``hospitals`` are names; ``against`` is the name of the model with which the recommended one is compared.
    """
    losing, gaining = ([hospitals[h] for h in each.named] for each in (harm.losses, harm.gains))
    numbers: dict[str, Any] = {
        "against": against,
        "at_least": harm.losses.at_least,
        "of": harm.losses.of,
        "named": losing,
    }
    decided = harm.losses.of - harm.too_few
    if harm.losses.of == 0:
        return numbers, Line("harm", "open", f"No hospital can be judged against {against}.", numbers)
    short = ""
    of = counted(harm.losses.of, "judged hospital")
    if harm.losses.at_least:
        named = f" ({some(losing)})" if losing else " (which ones is open)"
        verb = "loses" if harm.losses.at_least == 1 else "lose"
        text = f"At least {harm.losses.at_least:,} of {of} {verb} against {against}{named}"
        state: State = "warn"
        short = text[:1].lower() + text[1:]
    else:
        text = f"No hospital of {harm.losses.of:,} demonstrably loses against {against}"
        state = "ok" if 2 * decided >= harm.losses.of else "open"
    if harm.gains.at_least:
        named = f" ({some(gaining)})" if gaining else ""
        text += f"; at least {harm.gains.at_least:,} {'gains' if harm.gains.at_least == 1 else 'gain'}{named}"
    if harm.too_few:
        text += f"; {counted(harm.too_few, 'hospital')} {'has' if harm.too_few == 1 else 'have'} too few events to tell"
    remedy = f"let these use {against}" if harm.losses.at_least else ""
    return numbers, Line("harm", state, f"{text}.", numbers, remedy, short=short)
