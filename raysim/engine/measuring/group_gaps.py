"""Gaps between groups of patients within hospitals: what hospitals compute, what they send, and what comes of it.

A hospital permutes the labels of its own patients. What it sends of an arrangement is its part of two sums over
hospitals for each pair of groups; the sums are of whole numbers, so that any placement gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import quick_stream
from raysim.data.federation import Federation
from raysim.engine.measuring.subgroups import UNKNOWN, Grouping, cells
from raysim.metrics.labels import REGRESSION, TaskKind
from raysim.metrics.segments import Segments
from raysim.statistics.patient_groups.arrangements import DRAWS, Labels, drawn, draws_for, every, within_limit
from raysim.statistics.patient_groups.composition import composition
from raysim.statistics.patient_groups.contributions import Figures, averaged, contribution, pairs, ranked, weights
from raysim.statistics.patient_groups.risks import group_risks, ratios, risk_sums
from raysim.statistics.patient_groups.within import AttributeSums, WithinGap, together, within_gap

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW_ROWS = 10_000
"""Rows of a federation up to which it is looked at whether all arrangements can be taken."""


@dataclass(frozen=True, eq=False)
class Rearranging:
    """Which arrangements of patients' groups hospitals look at."""

    draws: int
    """How many each draws beside the observed one."""
    strides: Mapping[str, tuple[int, Ids]]
    """By attribute whose arrangements are all taken: how many there are, and over how many of them each hospital keeps
    one of its own, ``[N]``."""

    def exact(self, attribute: str) -> bool:
        """Whether all arrangements of an attribute are taken."""
        return attribute in self.strides

    def number(self, attribute: str) -> int:
        """How many arrangements are looked at, the observed one among them."""
        return self.strides[attribute][0] if self.exact(attribute) else self.draws + 1

    def numbers(self, attribute: str, groups: int) -> int:
        """Numbers of four bytes that a hospital sends of an attribute with so many known ``groups``.

        Per pair of groups two sums of eight bytes for each arrangement; per group two counts, a figure with its
        variance, and four sums of its risks, of eight bytes the last six.
        """
        return 4 * len(pairs(groups)) * self.number(attribute) + 14 * groups


def rearranging(grouping: Grouping, federation: Federation, part: str) -> Rearranging:
    """The arrangements for the patients of ``part``: all of them where there are few, else drawn ones."""
    rows, strides = int(federation.sizes(part).sum()), {}
    if rows <= FEW_ROWS:
        hospitals = range(len(federation.hospitals))
        y = np.concatenate([federation.y[federation.rows(h, part)] for h in hospitals])
        for attribute, levels in grouping.levels:
            patients = _Patients.of(attribute, levels, federation, tuple(hospitals), part, grouping.bands)
            if federation.task is REGRESSION:
                counts = patients.counts(np.ones(len(patients.order), dtype=bool))[:, :, :1]
            else:
                counts = patients.counts(y[patients.order] > 0)
            found = _strides(counts)
            if found is not None:
                strides[attribute] = found
    return Rearranging(draws_for(rows), strides)


def _strides(counts: Ids) -> tuple[int, Ids] | None:
    """How many arrangements ``counts [N, G, outcomes]`` have, and each hospital's stride; None for too many."""
    total, strides = 1, np.ones(len(counts), dtype=np.int64)
    for h in np.flatnonzero((weights(counts) > 0).any(axis=1)):
        strides[h] = total
        total *= within_limit(counts[h]) or DRAWS + 1
        if total > DRAWS:
            return None
    return total, strides


def measure(
    grouping: Grouping,
    arrangements: Rearranging,
    federation: Federation,
    hospitals: Sequence[int],
    part: str,
    outputs: NDArray[Any],
    ranked_by: NDArray[Any],
    y: NDArray[Any],
    seed: int,
) -> dict[str, AttributeSums]:
    """What ``hospitals`` send by attribute; their rows of ``part`` have ``outputs [n]`` and labels ``y [n]``.

    ``ranked_by [n]`` orders the rows of a hospital: outputs before they were shifted, which can make ties. ``seed``
    decides what is drawn, for each hospital apart.
    """
    measured = {}
    for attribute, levels in grouping.levels:
        patients = _Patients.of(attribute, levels, federation, tuple(hospitals), part, grouping.bands)
        if federation.task is REGRESSION:
            measured[attribute] = _of_errors(patients, arrangements, outputs, y, seed)
        else:
            measured[attribute] = _of_scores(patients, arrangements, outputs, ranked_by, y, seed)
    return measured


@dataclass(frozen=True, eq=False)
class _Patients:
    """The rows of some hospitals whose group is known, by hospital and group."""

    attribute: str
    hospitals: tuple[int, ...]
    groups: int
    """How many groups are known, ``G``."""
    order: Ids
    """Their places among all rows of these hospitals, ``[n]``."""
    offsets: Ids
    """Where each hospital's begin, and where the last one's end, ``[h + 1]``."""
    labels: NDArray[np.int8]
    """The group of each, ``[n]``."""

    @staticmethod
    @lru_cache(maxsize=16)
    def of(
        attribute: str,
        levels: tuple[str, ...],
        federation: Federation,
        hospitals: tuple[int, ...],
        part: str,
        bands: tuple[float, ...],
    ) -> _Patients:
        order, offsets = cells(federation, hospitals, part, attribute, levels, bands)
        groups = len(levels) - (UNKNOWN in levels)
        known = np.arange(len(levels)) < groups  # those not known stand last
        sizes = np.diff(offsets).reshape(-1, len(levels))
        labels = np.repeat(np.tile(np.arange(len(levels)), len(sizes)), sizes.ravel()).astype(np.int8)
        of_hospital = np.concatenate([[0], np.cumsum(sizes[:, known].sum(axis=1))])
        kept = labels < groups
        return _Patients(attribute, hospitals, groups, order[kept], of_hospital, labels[kept])

    def counts(self, outcome: NDArray[np.bool_]) -> Ids:
        """The rows of each hospital and group with the ``outcome [n]`` and without, ``[h, G, 2]``."""
        home = np.repeat(np.arange(len(self.hospitals)), np.diff(self.offsets))
        cell = (home * self.groups + self.labels) * 2 + ~outcome
        return np.bincount(cell, minlength=2 * self.groups * len(self.hospitals)).reshape(-1, self.groups, 2)

    def of_hospital(self, h: int) -> slice:
        """The place of its ``h``-th hospital's rows."""
        return slice(self.offsets[h], self.offsets[h + 1])

    def broken(self, values: Floats) -> NDArray[np.bool_]:
        """The hospitals where some of ``values [n]`` are not finite, ``[h]``."""
        return Segments(self.offsets, np.diff(self.offsets)).counts(~np.isfinite(values)) > 0


def _of_scores(
    patients: _Patients,
    arrangements: Rearranging,
    outputs: NDArray[Any],
    ranked_by: NDArray[Any],
    y: NDArray[Any],
    seed: int,
) -> AttributeSums:
    scores, event = ranked_by[patients.order], y[patients.order] > 0
    counts = patients.counts(event)
    total = _Total(patients, arrangements, counts, patients.broken(scores))
    for h in total.judged:
        mine = patients.of_hospital(h)
        labels = _arranged(patients, arrangements, h, (event[mine], ~event[mine]), seed)
        total.add(h, ranked(scores[mine], event[mine], (labels[0], labels[1]), patients.groups))
    return total.sums(risk_sums(outputs[patients.order], event, patients.offsets, patients.labels, patients.groups))


def _of_errors(
    patients: _Patients, arrangements: Rearranging, outputs: NDArray[Any], y: NDArray[Any], seed: int
) -> AttributeSums:
    errors = np.abs(outputs[patients.order].astype(np.float64) - y[patients.order])
    every_row = np.ones(len(errors), dtype=bool)
    counts = patients.counts(every_row)[:, :, :1]
    total = _Total(patients, arrangements, counts, patients.broken(errors))
    for h in total.judged:
        mine = patients.of_hospital(h)
        (labels,) = _arranged(patients, arrangements, h, (every_row[mine],), seed)
        total.add(h, *averaged(errors[mine], labels, patients.groups))
    return total.sums(None)


class _Total:
    """Adds up what hospitals contribute."""

    def __init__(self, patients: _Patients, arrangements: Rearranging, counts: Ids, broken: NDArray[np.bool_]) -> None:
        self._patients, self._arrangements, self._counts = patients, arrangements, counts
        self._weight = weights(counts)
        self._weight[broken] = 0.0
        self._value, self._variance = np.full((2, *counts.shape[:2]), np.nan)
        self._units = {0: self._none()}
        self.judged: list[int] = np.flatnonzero((self._weight > 0).any(axis=1)).tolist()
        """The hospitals that have something to contribute."""

    def _none(self) -> NDArray[np.int64]:
        number = self._arrangements.number(self._patients.attribute)
        return np.zeros((2, len(pairs(self._patients.groups)), number), dtype=np.int64)

    def add(self, h: int, figures: Figures, scale: int = 0) -> None:
        """Add the ``figures`` of the ``h``-th hospital, in units of 2 to the power of ``scale``."""
        self._value[h] = np.ldexp(figures.value[:, 0], scale)
        self._variance[h] = np.ldexp(figures.variance[:, 0], 2 * scale)
        units, (attribute, hospitals) = contribution(figures, self._weight[h]), self._names()
        if self._arrangements.exact(attribute):
            number, strides = self._arrangements.strides[attribute]
            units = units[:, :, np.arange(number) // strides[hospitals[h]] % units.shape[2]]
        if scale not in self._units:
            self._units[scale] = self._none()
        self._units[scale] += units

    def _names(self) -> tuple[str, tuple[int, ...]]:
        return self._patients.attribute, self._patients.hospitals

    def sums(self, risks: Floats | None) -> AttributeSums:
        """What the hospitals send, with their groups' ``risks``."""
        return AttributeSums(self._counts, self._value, self._variance, risks, self._units)


def _arranged(
    patients: _Patients, arrangements: Rearranging, h: int, strata: tuple[NDArray[np.bool_], ...], seed: int
) -> list[Labels]:
    """The arrangements of the ``h``-th hospital's labels, within each of the ``strata`` of its rows."""
    codes = [patients.labels[patients.of_hospital(h)][rows] for rows in strata]
    attribute, hospital = patients.attribute, patients.hospitals[h]
    if not arrangements.exact(attribute):
        rng = quick_stream(seed, f"patient groups/{attribute}", hospital)
        return [drawn(each, arrangements.draws, rng) for each in codes]
    # The last stratum's arrangements come one after the other, for each of the others' in turn.
    orders, repeated = [every(each) for each in codes], 1
    found: list[Labels] = []
    for order in reversed(orders):
        size = int(np.prod([other.shape[1] for other in orders]))
        which = np.arange(size) // repeated % order.shape[1]
        found.insert(0, order[:, which])
        repeated *= order.shape[1]
    return found


def gaps(
    grouping: Grouping,
    arrangements: Rearranging,
    measured: Mapping[str, AttributeSums],
    groups: Mapping[str, tuple[Floats, Floats]],
    figures: Floats,
    task: TaskKind,
) -> dict[str, WithinGap]:
    """The gaps within hospitals by attribute, from the sums over all hospitals.

    ``groups`` are the figures of groups as :func:`raysim.engine.measuring.subgroups.merged` gives them, ``figures``
    those of hospitals, ``[N, columns]``.
    """
    headline, found = task.figures.index(task.headline), []
    for attribute, levels in grouping.levels:
        sums, (of_hospitals, pooled) = measured[attribute], groups[attribute]
        known = [level for level in levels if level != UNKNOWN]
        gap = within_gap(
            attribute,
            known,
            sums,
            larger=task is not REGRESSION,
            exact=arrangements.exact(attribute),
            attributes=len(grouping.levels),
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
