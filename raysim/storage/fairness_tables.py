"""``fairness.csv`` and ``risks_by_group.csv``: groups of patients within hospitals, under a run's headline model."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from raysim.statistics.patient_groups.within import NOTHING, PairGap, WithinGap


def fairness_table(model: str, gaps: Mapping[str, WithinGap]) -> pd.DataFrame:
    """Return one row per attribute and pair of its known groups; columns in ``docs/statistics.md``.

    The test, and the parts of the difference over all rows, are in the row of the pair that differs most.
    """
    return pd.DataFrame(
        {"model": model, "attribute": attribute} | _of_pair(pair) | (_of_test(gap) if pair.groups == gap.groups else {})
        for attribute, gap in gaps.items()
        for pair in gap.pairs or (NOTHING,)
    )


def _of_pair(pair: PairGap) -> dict[str, object]:
    return {
        "first": pair.groups[0],
        "second": pair.groups[1],
        "hospitals": pair.hospitals,
        "difference": pair.estimate,
        "low": pair.low,
        "high": pair.high,
        "se": pair.se,
        "like_low": pair.like_low,
        "like_high": pair.like_high,
        "visible": pair.visible,
    }


def _of_test(gap: WithinGap) -> dict[str, object]:
    of_hospitals, of_ratios = gap.composition, gap.composition_ratio
    return {
        "p": gap.p,
        "p_holm": gap.p_holm,
        "arrangements": gap.arrangements,
        "exact": gap.exact,
        "pooled": gap.pooled,
        "mixed": gap.mixed,
        "composition": of_hospitals.estimate,
        "composition_low": of_hospitals.low,
        "composition_high": of_hospitals.high,
        "composition_ratio": of_ratios.estimate,
        "composition_ratio_low": of_ratios.low,
        "composition_ratio_high": of_ratios.high,
    }


def risks_table(model: str, gaps: Mapping[str, WithinGap]) -> pd.DataFrame:
    """Return one row per attribute and known group; empty for a real label."""
    return pd.DataFrame(
        {"model": model, "attribute": attribute, **risk._asdict()}
        for attribute, gap in gaps.items()
        for risk in gap.risks
    )
