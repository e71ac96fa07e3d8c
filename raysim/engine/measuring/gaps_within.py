"""Gaps between groups of patients within hospitals, computed at the server from hospitals' sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from raysim.engine.measuring.group_gaps import Rearranging
from raysim.engine.measuring.subgroups import UNKNOWN, Grouping
from raysim.metrics.labels import REGRESSION, TaskKind
from raysim.statistics.patient_groups.composition import composition
from raysim.statistics.patient_groups.risks import group_risks, ratios
from raysim.statistics.patient_groups.within import AttributeSums, WithinGap, testable, together, within_gap
from raysim.strategies.base import Floats


def gaps(
    grouping: Grouping,
    arrangements: Rearranging,
    measured: Mapping[str, AttributeSums],
    groups: Mapping[str, tuple[Floats, Floats]],
    figures: Floats,
    task: TaskKind,
) -> dict[str, WithinGap]:
    """Return, for each attribute of patients, the gap between its groups within the same hospital.

    ``groups`` are the metrics of groups from :func:`raysim.engine.measuring.subgroups.merged`, and ``figures [N,
    columns]`` are the metrics of hospitals.
    """
    headline, found = task.figures.index(task.headline), []
    tested = sum(testable(measured[attribute]) for attribute, _ in grouping.levels)
    for attribute, levels in grouping.levels:
        sums, (of_hospitals, pooled) = measured[attribute], groups[attribute]
        known = [level for level in levels if level != UNKNOWN]
        gap = within_gap(
            attribute,
            known,
            sums,
            larger=task is not REGRESSION,
            exact=arrangements.exact(attribute),
            attributes=max(tested, 1),
        )
        if gap.judged:
            first, second = (known.index(name) for name in gap.groups)
            rows = np.nan_to_num(of_hospitals[:, :, 0])
            gap = replace(
                gap,
                pooled=float(pooled[first, headline] - pooled[second, headline]),
                composition=composition(figures[:, headline], rows[:, first], rows[:, second]),
            )
        if sums.risks is not None:
            gap = replace(gap, risks=group_risks(known, sums.risks))
            if gap.judged:
                gap = replace(gap, composition_ratio=composition(ratios(sums.risks), rows[:, first], rows[:, second]))
        found.append(gap)
    return {gap.attribute: gap for gap in together(found)}
