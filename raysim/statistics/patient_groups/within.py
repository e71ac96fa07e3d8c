"""The gap between groups of patients within hospitals, and its test by permutation.

The gap is the difference between two groups' AUROC, or mean absolute error, within a hospital, averaged over hospitals
with the same weights for both groups. Groups that merely go to different hospitals therefore have no gap (Simpson's
paradox). For the test, group labels are permuted within hospital and outcome. In each permutation, the statistic is
divided by its standard error, so that the test keeps its level if groups differ only in their distributions of scores
(Janssen 1997). Definitions: ``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raysim.core.arrays import Floats, Ints
from raysim.core.levels import ALPHA, LEVEL, POWER, Z
from raysim.statistics.chance.inversion import SAME
from raysim.statistics.patient_groups.composition import NO_COMPOSITION, Composition
from raysim.statistics.patient_groups.contributions import FRACTION_BITS, pairs, weights
from raysim.statistics.patient_groups.risks import GroupRisk
from raysim.statistics.several import holm

NAN = float("nan")


@dataclass(frozen=True, eq=False)
class AttributeSums:
    """What ``H`` hospitals send about an attribute of patients, such as sex, with ``G`` known groups.

    - ``counts [H, G, 2]``: the numbers of rows with and without the event. For a real-valued label they are ``[H, G,
      1]``, the numbers of all rows.
    - ``value [H, G]``: the AUROC, or the mean absolute error, of a group's rows at a hospital; ``variance [H, G]``: the
      variance of ``value``.
    - ``risks [H, G, 4]``: see :func:`raysim.statistics.patient_groups.risks.risk_sums`; None for a real-valued label.
    - ``units``: sums over hospitals of :func:`~raysim.statistics.patient_groups.contributions.contribution`, ``[2,
      pairs, R]`` for ``R`` arrangements of group labels, the observed one first. There is one sum for each scale of
      errors (:func:`~raysim.statistics.patient_groups.contributions.averaged`), with the scale as key; 0 for AUROC.
    """

    counts: Ints
    value: Floats
    variance: Floats
    risks: Floats | None
    units: Mapping[int, Ints]

    def sums(self) -> tuple[Floats, Floats]:
        """Return for each pair of groups the sum over hospitals of weighted differences, and the variance of this sum:
        two arrays ``[pairs, R]`` for ``R`` arrangements.
        """
        first, second = np.zeros((2, len(pairs(self.counts.shape[1])), 1))
        for scale, units in sorted(self.units.items()):
            first = first + np.ldexp(units[0].astype(np.float64), scale - FRACTION_BITS)
            second = second + np.ldexp(units[1].astype(np.float64), 2 * scale - FRACTION_BITS)
        return first, second


def merged(parts: Sequence[AttributeSums], order: Ints) -> AttributeSums:
    """Combine the sums from all actors. ``order`` are the indices that sort the concatenated hospitals of all ``parts``
    by id.
    """
    units: dict[int, Ints] = {}
    for part in parts:
        for scale, each in part.units.items():
            units[scale] = units[scale] + each if scale in units else each
    risks = [part.risks for part in parts if part.risks is not None]
    return AttributeSums(
        np.concatenate([part.counts for part in parts])[order],
        np.concatenate([part.value for part in parts])[order],
        np.concatenate([part.variance for part in parts])[order],
        np.concatenate(risks)[order] if risks else None,
        units,
    )


@dataclass(frozen=True)
class PairGap:
    """The difference within hospitals between two groups' AUROC or mean absolute error, the first minus the second. All
    numbers except ``hospitals`` are NaN if no hospital has enough rows to compare the groups.
    """

    groups: tuple[str, str]
    estimate: float
    """The weighted mean over hospitals of the difference between the two groups."""
    se: float
    """The standard error of ``estimate``, for exactly these hospitals."""
    low: float
    """The lower 95 % limit of the difference at exactly these hospitals, simultaneous for all pairs of groups of an
    attribute."""
    high: float
    """The upper 95 % limit of the difference at exactly these hospitals, simultaneous for all pairs of groups of an
    attribute."""
    like_low: float
    """The lower 95 % limit of the mean difference in a population of similar hospitals; NaN for fewer than two
    hospitals."""
    like_high: float
    """The upper 95 % limit of the mean difference in a population of similar hospitals; NaN for fewer than two
    hospitals."""
    hospitals: int
    """The number of hospitals that have enough rows to compare the two groups."""
    visible: float
    """The smallest true difference that the test demonstrates with 80 % power."""


NOTHING = PairGap(("", ""), NAN, NAN, NAN, NAN, NAN, NAN, 0, NAN)


@dataclass(frozen=True, eq=False)
class WithinGap:
    """The difference within hospitals between groups' AUROC or mean absolute error, for the groups of an attribute such
    as sex.

    ``p`` is adjusted for all pairs of groups of the attribute, and ``p_holm`` also for all tested attributes. A gap is
    demonstrated if ``p_holm`` is at most .05. Both p-values are NaN if no hospital has enough rows to compare groups.
    """

    attribute: str
    larger: bool
    """Whether larger values are better: True for AUROC, False for the mean absolute error."""
    pair: PairGap = NOTHING
    """The pair of groups with the largest difference relative to its standard error. Without a test, it is the pair
    that the most hospitals can compare."""
    pairs: tuple[PairGap, ...] = ()
    """The differences of all pairs of known groups."""
    p: float = NAN
    p_holm: float = NAN
    arrangements: int = 0
    """The number of arrangements of group labels from which ``p`` was computed, including the observed one."""
    exact: bool = False
    """Whether all possible arrangements of group labels were used."""
    pooled: float = NAN
    """The difference between the two groups of ``pair`` over the rows of all hospitals together: the sum of
    ``estimate`` and ``mixed``."""
    composition: Composition = NO_COMPOSITION
    """The difference in AUROC, or mean absolute error, between the hospitals that treat the two groups of ``pair``."""
    composition_ratio: Composition = NO_COMPOSITION
    """The difference in the ratio of observed to predicted events between the hospitals that treat the two groups of
    ``pair``; NaN for a real-valued label."""
    risks: tuple[GroupRisk, ...] = ()
    """For each group, its number of events, compared with the number expected at its hospitals."""

    @property
    def groups(self) -> tuple[str, str]:
        """The names of the two groups that are compared."""
        return self.pair.groups

    @property
    def estimate(self) -> float:
        """The mean difference within hospitals between the two groups, the first minus the second."""
        return self.pair.estimate

    @property
    def low(self) -> float:
        """The lower 95 % limit of ``estimate``."""
        return self.pair.low

    @property
    def high(self) -> float:
        """The upper 95 % limit of ``estimate``."""
        return self.pair.high

    @property
    def hospitals(self) -> int:
        """The number of hospitals that have enough rows to compare the two groups."""
        return self.pair.hospitals

    @property
    def mixed(self) -> float:
        """``pooled`` minus ``estimate``."""
        return self.pooled - self.estimate

    @property
    def judged(self) -> bool:
        """Whether the difference between the groups could be tested."""
        return bool(np.isfinite([self.p, self.estimate]).all())

    @property
    def demonstrated(self) -> bool:
        """Whether a difference between the groups is demonstrated."""
        return self.p_holm <= ALPHA


def within_gap(
    attribute: str,
    groups: Sequence[str],
    sums: AttributeSums,
    *,
    larger: bool,
    exact: bool = False,
    attributes: int = 1,
) -> WithinGap:
    """Compute and test the differences within hospitals between the ``groups [G]`` of an attribute, from the hospitals'
    ``sums``. ``attributes`` is the number of attributes that are tested (:func:`testable`).
    """
    differences, variances = _over_pairs(sums.value, -1.0), _over_pairs(sums.variance, 1.0)
    weight = _weights(sums, differences)
    first, second = sums.sums()
    studentised = np.abs(_studentised(first, second))
    largest = studentised.max(axis=0, initial=0.0)
    total = weight.sum(axis=0)
    if not (total > 0).any():
        return WithinGap(attribute, larger)
    count = len(largest)
    tested = count > 1
    p = float((largest >= largest[0] - SAME * max(1.0, largest[0])).mean()) if tested else NAN
    # Intervals are at least as wide as normal ones: if all arrangements are alike, they do not determine a width.
    beyond, for_all = (max(Z, _critical(largest, alpha)) for alpha in (ALPHA, ALPHA / attributes))
    found = tuple(
        _pair((groups[a], groups[b]), weight[:, k], differences[:, k], variances[:, k], beyond, for_all, larger)
        for k, (a, b) in enumerate(pairs(len(groups)))
    )
    strongest = (
        found[int(np.argmax(np.where(total > 0, studentised[:, 0], -1.0)))]
        if tested
        else max(found, key=lambda pair: pair.hospitals)
    )
    return WithinGap(attribute, larger, strongest, found, p, p, count if tested else 0, exact and tested)


def testable(sums: AttributeSums) -> bool:
    """Whether the attribute can be tested: some hospital has enough rows to compare two groups, and there is at least
    one arrangement of group labels besides the observed one.
    """
    return bool(_weights(sums, _over_pairs(sums.value, -1.0)).any()) and sums.sums()[0].shape[1] > 1


def together(gaps: Sequence[WithinGap]) -> list[WithinGap]:
    """Return the gaps of all tested attributes, with ``p_holm``, the p-value adjusted for the number of attributes by
    Holm's procedure.
    """
    adjusted = holm([gap.p for gap in gaps])
    return [replace(gap, p_holm=float(p)) for gap, p in zip(gaps, adjusted, strict=True)]


def _weights(sums: AttributeSums, differences: Floats) -> Floats:
    """Return each hospital's weight for each pair of groups, ``[H, pairs]``. The weight is 0 if the hospital's entry in
    ``differences [H, pairs]`` is not finite.
    """
    return np.where(np.isfinite(differences), weights(sums.counts), 0.0)


def _over_pairs(values: Floats, sign: float) -> Floats:
    """Return for each pair of groups the first group's values plus ``sign`` times the second group's. ``values`` is
    ``[H, G]``, the result ``[H, pairs]``.
    """
    each = [values[:, a] + sign * values[:, b] for a, b in pairs(values.shape[1])]
    return np.stack(each, axis=1) if each else np.empty((len(values), 0))


def _studentised(first: Floats, second: Floats) -> Floats:
    """Return the differences ``first`` divided by their standard errors, the roots of ``second``. The result is 0 for a
    difference of 0. For any other difference with a standard error of 0, it is infinite.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = first / np.sqrt(second)
    return np.asarray(np.where(first == 0, 0.0, ratio))


def _critical(largest: Floats, alpha: float) -> float:
    """Return the largest statistic that is not rejected at level ``alpha``. ``largest`` has for each arrangement the
    largest statistic of all pairs. The result is infinite if there are too few arrangements.
    """
    rank = int(alpha * len(largest) + 1e-9)
    return float(np.sort(largest)[::-1][rank]) if rank > 0 else float("inf")


def _pair(
    names: tuple[str, str],
    weight: Floats,
    difference: Floats,
    variance: Floats,
    beyond: float,
    for_all: float,
    larger: bool,
) -> PairGap:
    from scipy.special import ndtri  # actors start without it

    counted = weight > 0
    if not counted.any():
        return replace(NOTHING, groups=names)
    share, difference = weight[counted] / weight.sum(), difference[counted]
    estimate = float(share @ difference)
    se = float(np.sqrt(np.square(share) @ variance[counted]))
    like = _like(share, difference - estimate, se)
    low, high = _limited(estimate, beyond * se if se > 0 else NAN, larger)
    like_low, like_high = _limited(estimate, like, larger)
    visible = (for_all + float(ndtri(POWER))) * se if se > 0 else NAN
    return PairGap(names, estimate, se, low, high, like_low, like_high, int(counted.sum()), visible)


def _like(share: Floats, residual: Floats, se: float) -> float:
    """Return the half-width of the 95 % interval of a gap for a population of similar hospitals; NaN for fewer than two
    hospitals.
    """
    from scipy.special import stdtrit  # actors start without it

    if len(share) < 2:
        return NAN
    spread = float((np.square(share * residual) / (1.0 - share)).sum())
    quantile = stdtrit(1.0 / float(np.square(share).sum()) - 1.0, (1 + LEVEL) / 2)
    return float(quantile * np.sqrt(max(spread, se * se)))


def _limited(estimate: float, half_width: float, larger: bool) -> tuple[float, float]:
    """Return the limits of an interval. If ``larger`` (True for AUROC), they are clipped to between -1 and 1. Otherwise
    they are NaN if ``half_width`` is infinite.
    """
    if np.isnan(half_width) or not (larger or np.isfinite(half_width)):
        return NAN, NAN
    low, high = estimate - half_width, estimate + half_width
    return (max(-1.0, low), min(1.0, high)) if larger else (low, high)
