"""Is it fair within hospitals: does the model rank some group of patients better than another at the same hospital?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import figure, json_number, some
from raysim.statistics.differences.paired import Limits
from raysim.statistics.levels import ALPHA
from raysim.statistics.several import holm

NOT_TESTED = Line("fairness", "open", "Fairness between groups of patients was not tested for this run by itself.")


class GroupDifference(NamedTuple):
    """The difference between an attribute's groups of patients within hospitals."""

    attribute: str
    """Such as ``sex``."""
    groups: tuple[str, ...]
    """The groups that differ most, the better ranked one first; empty where there are more or none to name."""
    estimate: float
    """The difference of AUROC."""
    limits: Limits
    """Its interval; NaN for more than two groups."""
    p: float
    """Of groups that are ranked alike; NaN where no hospital tells."""


def fairness(differences: Sequence[GroupDifference]) -> Line:
    """The line on all attributes that were looked at; claims hold together over them (Holm)."""
    if not differences:
        return Line("fairness", "open", "Fairness between groups of patients was not tested: no group is known.")
    corrected = holm([each.p for each in differences])
    numbers = {
        each.attribute: {
            "difference": json_number(each.estimate),
            "low": json_number(each.limits.low),
            "high": json_number(each.limits.high),
            "p": json_number(each.p),
        }
        for each in differences
    }
    claims = [each for each, p in zip(differences, corrected, strict=True) if p <= ALPHA]
    untested = [each.attribute for each in differences if each.p != each.p]
    rest = [each for each in differences if each not in claims and each.p == each.p]
    parts = []
    if claims:
        parts.append(f"within hospitals the model ranks {'; '.join(map(_claimed, claims))}")
    if rest:
        parts.append(f"no difference demonstrated within hospitals by {some([_said(each) for each in rest])}")
    if untested:
        parts.append(f"it cannot be judged within hospitals by {some(untested)}")
    state: State = "warn" if claims else "ok" if rest and not untested else "open"
    text = "; ".join(parts)
    remedy = "look at each group's figures before use" if claims else ""
    short = parts[0] if claims else ""
    return Line("fairness", state, f"{text[:1].upper()}{text[1:]}.", numbers, remedy, short=short)


def _claimed(each: GroupDifference) -> str:
    value = figure(each.estimate, each.limits, sign=True)
    if len(each.groups) == 2:
        return f"{each.attribute} {each.groups[0]} better than {each.groups[1]} ({value})"
    return f"groups by {each.attribute} differently ({value})"


def _said(each: GroupDifference) -> str:
    return f"{each.attribute} ({figure(each.estimate, each.limits, sign=True)})"
