"""Sentences for reports on groups of patients. They ascribe only gaps within hospitals to the model.

A gap is the difference of AUROC (or error) between groups of patients. The gap over all rows mixes differences between
groups with differences between hospitals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from raysim.core import words
from raysim.core.levels import ALPHA
from raysim.report import possible
from raysim.report.naming import number, signed
from raysim.statistics.differences.paired import Limits
from raysim.statistics.patient_groups.within import WithinGap
from raysim.statistics.several import holm

CANNOT = "gaps within hospitals cannot be judged"


def sentences(gaps: Sequence[WithinGap]) -> list[str]:
    """Describe the gaps between groups of patients within hospitals, for each attribute that defines groups."""
    lines = [
        f"Within hospitals, by {gap.attribute}, the model {ranking(gap)}: {figures(gap)}."
        for gap in gaps
        if gap.demonstrated
    ]
    open_ones = [gap for gap in gaps if gap.judged and not gap.demonstrated]
    if len(open_ones) == 1:
        first, second = open_ones[0].groups
        lines.append(
            f"No difference between {first} and {second} demonstrated within hospitals ({figures(open_ones[0])})."
        )
    elif open_ones:
        listed = "; ".join(
            f"{gap.attribute}, {gap.groups[0]} minus {gap.groups[1]}: {figures(gap)}" for gap in open_ones
        )
        lines.append(f"No difference between groups of patients demonstrated within hospitals: {listed}.")
    without = [gap.attribute for gap in gaps if not gap.judged]
    if without:
        lines.append(f"Groups by {' and '.join(without)}: {CANNOT}, as no hospital has enough patients of two groups.")
    return [*lines, *treated(gaps)]


def ranking(gap: WithinGap) -> str:
    """Return a verb phrase on which of two groups of patients the model favours, for a demonstrated gap."""
    first_better = (gap.estimate > 0) == gap.larger
    better, worse = gap.groups if first_better else gap.groups[::-1]
    if gap.larger:
        return f"ranks better for {better} than for {worse}"
    return f"errs less for {better} than for {worse}"


def figures(gap: WithinGap) -> str:
    """Format a gap between groups of patients with its interval and p-value.

    If the gap is not demonstrated, the smallest gap that the data could have shown is added.
    """
    digits = _digits(gap)
    value = f"{signed(gap.estimate, digits)}, {interval(gap)}"
    if gap.demonstrated:
        return f"{value}; {chance(gap)}"
    size = gap.pair.visible
    found = f"; 80 % power for {number(size, digits)}" if possible.visible(size, gap.larger) else ""
    return f"{value}{found}"


def interval(gap: WithinGap) -> str:
    """Format the interval of a gap between patient groups."""
    if not np.isfinite([gap.low, gap.high]).all():
        return "no interval"
    if possible.difference(Limits(gap.low, gap.high), gap.larger) == possible.NOTHING:
        return f"the interval {possible.SAYS_NOTHING}"
    digits = _digits(gap)
    return f"{signed(gap.low, digits)} to {signed(gap.high, digits)}"


def chance(gap: WithinGap) -> str:
    """Format the p-value of a gap, never as 0."""
    return words.chance(gap.p)


def treated(gaps: Sequence[WithinGap]) -> list[str]:
    """Return a sentence for each attribute of which one group of patients demonstrably attends hospitals where the
    model performs better.
    """
    apart = holm([gap.composition.p for gap in gaps]) <= ALPHA
    return [_treated(gap) for gap, demonstrated in zip(gaps, apart, strict=True) if demonstrated]


def _treated(gap: WithinGap) -> str:
    of = gap.composition
    first, second = gap.groups
    side, digits = "higher" if of.estimate > 0 else "lower", _digits(gap)
    low, high = sorted((abs(of.low), abs(of.high)))
    figure = "AUROC" if gap.larger else "mean absolute error"
    return (
        f"{first} are treated at hospitals where the {figure} is {side} by {abs(of.estimate):.{digits}f} on average "
        f"than where {second} are ({low:.{digits}f} to {high:.{digits}f}). This difference lies between hospitals. "
        f"Over all patients they differ by {signed(gap.pooled, digits)}: {signed(gap.estimate, digits)} within "
        f"hospitals and {signed(gap.mixed, digits)} by where they are treated."
    )


def _digits(gap: WithinGap) -> int:
    if gap.larger:
        return 3
    largest = np.nanmax(np.abs([gap.estimate, gap.low, gap.high, 1e-12]))
    return int(max(0, 2 - np.floor(np.log10(largest))))
