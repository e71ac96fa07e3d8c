"""The decision card's line on fairness: whether the model ranks one group of patients better within hospitals.

A gap is the difference of AUROC between groups of patients. The state is ``ok`` only if every gap's interval lies
between minus and plus :data:`SMALL`: a wide interval that contains 0 may also contain a large gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from raysim.core.words import chance, counted
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.wording import figure, json_number, sentences, some
from raysim.report.judgement.fairness import CANNOT, figures, ranking
from raysim.report.possible import NOTHING, difference
from raysim.statistics.differences.paired import Limits
from raysim.statistics.patient_groups.within import WithinGap

SMALL = 0.05
"""A gap in AUROC between groups of patients is small if its whole interval is between minus and plus this value."""

NOT_TESTED = Line("fairness", "open", "Fairness between groups of patients was not tested for this run alone.")
SEVERAL_CLASSES = Line(
    "fairness",
    "open",
    "Fairness between groups of patients was not tested: the test needs a label of two classes, or a number.",
)


def fairness(gaps: Sequence[WithinGap]) -> Line:
    """Write the decision card's line on the gaps between groups of patients."""
    if not gaps:
        return Line("fairness", "open", "Fairness between groups of patients was not tested: no group is known.")
    demonstrated, judged = (
        [gap for gap in gaps if gap.demonstrated],
        [gap for gap in gaps if gap.judged and not gap.demonstrated],
    )
    without = [gap.attribute for gap in gaps if not gap.judged]
    claims = "; ".join(
        f"by {gap.attribute} the model {ranking(gap)} ({figures(gap)}; {counted(gap.hospitals, 'hospital')})"
        for gap in demonstrated
    )
    parts = [f"within hospitals {claims}"] if demonstrated else []
    informative = [gap for gap in judged if _limits(gap) != NOTHING]
    vague = [gap.attribute for gap in judged if _limits(gap) == NOTHING]
    if informative:
        parts.append(f"no gap within hospitals demonstrated: {some([_figure(gap) for gap in informative])}")
    wide = [gap.attribute for gap in informative if gap.larger and not _small(gap)]
    if vague:
        parts.append(f"gaps within hospitals by {some(vague)}: too few rows for an informative interval")
    if without:
        parts.append(f"groups by {some(without)}: {CANNOT}")
    state: State = "warn" if demonstrated else "ok" if all(map(_small, gaps)) else "open"
    numbers = {
        gap.attribute: {
            "groups": list(gap.groups),
            "difference": json_number(gap.estimate),
            "low": json_number(gap.low),
            "high": json_number(gap.high),
            "p": json_number(gap.p),
        }
        for gap in gaps
    }
    text = sentences(parts)
    remedy = f"judge {some(wide)} on more rows: gaps beyond {SMALL} are not ruled out" if wide else ""
    remedy = "look at each group before use" if demonstrated else remedy
    short = f"within hospitals it {'; '.join(map(ranking, demonstrated))}" if demonstrated else ""
    return Line("fairness", state, text, numbers, remedy, short=short)


def _figure(gap: WithinGap) -> str:
    limits = _limits(gap)
    # The interval is for this attribute alone; the p-value is corrected for all tested attributes.
    alone = f", {chance(gap.p_holm)} adjusted for all attributes" if limits.shows else ""
    return f"{gap.attribute} {figure(gap.estimate, limits, sign=True)}{alone}"


def _small(gap: WithinGap) -> bool:
    """Whether the interval rules out a gap larger than :data:`SMALL`; False for errors, because their unit varies."""
    limits = _limits(gap)
    return gap.larger and limits.low >= -SMALL and limits.high <= SMALL


def _limits(gap: WithinGap) -> Limits:
    return difference(Limits(gap.low, gap.high), gap.larger)
