"""The computations and messages of hospitals for the gaps between groups of patients within hospitals.

For a permutation test, a hospital permutes the group labels of its own patients. For each permutation and pair of
groups, it sends its part of two sums over hospitals: the sum of weighted differences between the groups, and the sum of
the variances of these differences. The parts are integers, so that the order of hospitals does not change the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.streams import quick_stream
from raysim.data.federation import Federation
from raysim.engine.measuring.subgroups import UNKNOWN, Grouping, cells
from raysim.metrics.labels import REGRESSION
from raysim.metrics.segments import Segments
from raysim.statistics.patient_groups.arrangements import DRAWS, Labels, draws_for, every, permuted, within_limit
from raysim.statistics.patient_groups.contributions import Figures, averaged, contribution, pairs, ranked, weights
from raysim.statistics.patient_groups.risks import risk_sums
from raysim.statistics.patient_groups.within import AttributeSums
from raysim.strategies.base import Floats, Ids

FEW_ROWS = 10_000
"""The largest number of evaluated rows of a federation for which exact permutation tests are considered."""

CACHED_LABELS = 1 << 24
"""The largest number of permuted group labels that are cached for an attribute."""


@dataclass(frozen=True, eq=False)
class Rearranging:
    """The permutations of patients' group labels for which hospitals compute the gaps between groups."""

    draws: int
    """The number of random permutations at each hospital, not counting the observed labels."""
    strides: Mapping[str, tuple[int, Ids]]
    """For each attribute whose permutations are all enumerated: the number of permutations, and each hospital's stride
    ``[N]``. A stride is the number of consecutive permutations in which the hospital's labels do not change.
    """

    def exact(self, attribute: str) -> bool:
        """Return whether all permutations of an attribute's group labels are enumerated."""
        return attribute in self.strides

    def number(self, attribute: str) -> int:
        """Return the number of permutations of an attribute's group labels, including the observed labels."""
        return self.strides[attribute][0] if self.exact(attribute) else self.draws + 1

    def numbers(self, attribute: str, sent: AttributeSums) -> int:
        """Return the size of a hospital's message for an attribute, in units of four bytes. ``sent`` are the sums of
        all hospitals.

        For each permutation and pair of groups, the hospital sends two sums of eight bytes. For each group, it sends
        counts of four bytes, and numbers of eight bytes. With a real-valued label it also sends the scale of its
        errors, of four bytes.
        """
        groups, outcomes = sent.counts.shape[1:]
        of_groups = groups * (outcomes + 4) + (1 if sent.risks is None else 2 * groups * sent.risks.shape[2])
        return int(4 * len(pairs(groups)) * self.number(attribute) + of_groups)


def rearranging(grouping: Grouping, federation: Federation, part: str) -> Rearranging:
    """Return the permutations of the group labels of patients in ``part``: all of them if rows and permutations are
    few, else random ones.
    """
    rows, strides = int(federation.sizes(part).sum()), {}
    if rows <= FEW_ROWS:
        hospitals = range(len(federation.hospitals))
        for attribute, levels in grouping.levels:
            patients = _Patients.of(attribute, levels, federation, tuple(hospitals), part, grouping.bands)
            found = _strides(patients.counts)
            if found is not None:
                strides[attribute] = found
    return Rearranging(draws_for(rows), strides)


def _strides(counts: Ids) -> tuple[int, Ids] | None:
    """Return the number of joint permutations of all hospitals' group labels, and each hospital's stride. None if there
    are too many permutations. A stride is the number of consecutive joint permutations in which the hospital's labels
    do not change.
    """
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
    """Return, for each attribute of patients, the sums that ``hospitals`` send for the gaps between its groups.

    ``outputs [n]`` and ``y [n]`` are the model outputs and labels of the hospitals' rows of ``part``. Rows are ranked
    by ``ranked_by [n]``, the outputs before recalibration, because recalibration can create ties.
    """
    measured = {}
    for attribute, levels in grouping.levels:
        patients = _Patients.of(attribute, levels, federation, tuple(hospitals), part, grouping.bands)
        if federation.task is REGRESSION:
            measured[attribute] = _of_errors(patients, arrangements, outputs, y, seed)
        else:
            measured[attribute] = _of_scores(patients, arrangements, outputs, ranked_by, seed)
    return measured


@dataclass(frozen=True, eq=False)
class _Patients:
    """The rows of patients with a known group at some hospitals, sorted by hospital and group."""

    attribute: str
    hospitals: tuple[int, ...]
    groups: int
    """The number of known groups, ``G``."""
    order: Ids
    """The positions of the ``n`` sorted rows among all rows of the hospitals, ``[n]``."""
    offsets: Ids
    """The position in ``order`` at which each hospital's rows begin, followed by ``n``, ``[h + 1]``."""
    labels: NDArray[np.int8]
    """The index of the group of each sorted row, ``[n]``."""
    outcome: NDArray[np.bool_] | None
    """Whether each sorted row has the event (the positive class), ``[n]``. None if the label is a real number."""

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
        known = np.arange(len(levels)) < groups  # unknown groups are last
        sizes = np.diff(offsets).reshape(-1, len(levels))
        labels = np.repeat(np.tile(np.arange(len(levels)), len(sizes)), sizes.ravel()).astype(np.int8)
        of_hospital = np.concatenate([[0], np.cumsum(sizes[:, known].sum(axis=1))])
        ordered = order[labels < groups]
        outcome = None
        if federation.task is not REGRESSION:
            y = np.concatenate([federation.y[federation.rows(h, part)] for h in hospitals])
            outcome = y[ordered] > 0
        return _Patients(attribute, hospitals, groups, ordered, of_hospital, labels[labels < groups], outcome)

    @cached_property
    def counts(self) -> Ids:
        """Return the number of rows by hospital, group and outcome (event first), ``[h, G, 2]``; ``[h, G, 1]`` if the
        label is a real number.
        """
        home = np.repeat(np.arange(len(self.hospitals)), np.diff(self.offsets))
        cell = (home * self.groups + self.labels) * 2 + (0 if self.outcome is None else ~self.outcome)
        counts = np.bincount(cell, minlength=2 * self.groups * len(self.hospitals)).reshape(-1, self.groups, 2)
        return counts[:, :, : 1 if self.outcome is None else 2]

    def strata(self, h: int) -> list[NDArray[np.int8]]:
        """Return the group labels of the rows of the hospital at position ``h``, as one array for each outcome."""
        mine = self.of_hospital(h)
        if self.outcome is None:
            return [self.labels[mine]]
        return [self.labels[mine][rows] for rows in (self.outcome[mine], ~self.outcome[mine])]

    def of_hospital(self, h: int) -> slice:
        return slice(self.offsets[h], self.offsets[h + 1])

    def broken(self, values: Floats) -> NDArray[np.bool_]:
        """Return a mask ``[h]`` of the hospitals where some of ``values [n]`` are not finite."""
        return Segments(self.offsets, np.diff(self.offsets)).counts(~np.isfinite(values)) > 0


def _of_scores(
    patients: _Patients, arrangements: Rearranging, outputs: NDArray[Any], ranked_by: NDArray[Any], seed: int
) -> AttributeSums:
    scores, event = ranked_by[patients.order], patients.outcome
    assert event is not None
    total = _Total(patients, arrangements, patients.broken(scores))
    for h, (of_events, of_others) in _arranged(patients, arrangements, total.judged, seed):
        mine = patients.of_hospital(h)
        total.add(h, ranked(scores[mine], event[mine], (of_events, of_others), patients.groups))
    return total.sums(risk_sums(outputs[patients.order], event, patients.offsets, patients.labels, patients.groups))


def _of_errors(
    patients: _Patients, arrangements: Rearranging, outputs: NDArray[Any], y: NDArray[Any], seed: int
) -> AttributeSums:
    errors = np.abs(outputs[patients.order].astype(np.float64) - y[patients.order])
    total = _Total(patients, arrangements, patients.broken(errors))
    for h, (labels,) in _arranged(patients, arrangements, total.judged, seed):
        total.add(h, *averaged(errors[patients.of_hospital(h)], labels, patients.groups))
    return total.sums(None)


class _Total:
    """The sums over hospitals from which the gaps between the groups of one attribute are computed."""

    def __init__(self, patients: _Patients, arrangements: Rearranging, broken: NDArray[np.bool_]) -> None:
        counts = patients.counts
        self._patients, self._arrangements, self._counts = patients, arrangements, counts
        self._weight = weights(counts)
        self._weight[broken] = 0.0
        self._value, self._variance = np.full((2, *counts.shape[:2]), np.nan)
        self._units = {0: self._none()}
        self.judged: list[int] = np.flatnonzero((self._weight > 0).any(axis=1)).tolist()
        """The positions of the hospitals whose rows can contribute to a gap between groups."""

    def _none(self) -> NDArray[np.int64]:
        number = self._arrangements.number(self._patients.attribute)
        return np.zeros((2, len(pairs(self._patients.groups)), number), dtype=np.int64)

    def add(self, h: int, figures: Figures, scale: int = 0) -> None:
        """Add the ``figures`` of the hospital at position ``h``. In ``figures``, values are in units of ``2**scale``,
        and variances in units of ``4**scale``.
        """
        self._value[h] = np.ldexp(figures.value[:, 0], scale)
        self._variance[h] = np.ldexp(figures.variance[:, 0], 2 * scale)
        units, attribute = contribution(figures, self._weight[h]), self._patients.attribute
        if self._arrangements.exact(attribute):
            number, strides = self._arrangements.strides[attribute]
            units = units[:, :, np.arange(number) // strides[self._patients.hospitals[h]] % units.shape[2]]
        if scale not in self._units:
            self._units[scale] = self._none()
        self._units[scale] += units

    def sums(self, risks: Floats | None) -> AttributeSums:
        """Return what this process's hospitals send. ``risks [h, G, 4]`` are as in :class:`AttributeSums`."""
        return AttributeSums(self._counts, self._value, self._variance, risks, self._units)


def _arranged(
    patients: _Patients, arrangements: Rearranging, judged: Sequence[int], seed: int
) -> Iterator[tuple[int, list[Labels]]]:
    """Yield the position of each hospital in ``judged``, with the permutations of its patients' group labels. Labels
    are permuted only among patients with the same outcome.
    """
    if arrangements.exact(patients.attribute):
        yield from ((h, _every(patients.strata(h))) for h in judged)
    elif patients.offsets[-1] * arrangements.draws <= CACHED_LABELS:
        cached = _cache(patients, arrangements.draws, seed)
        for h in judged:
            if h not in cached:
                cached[h] = _permuted(patients, h, arrangements.draws, seed)
            yield h, cached[h]
    else:
        yield from ((h, _permuted(patients, h, arrangements.draws, seed)) for h in judged)


@lru_cache(maxsize=4)
def _cache(patients: _Patients, draws: int, seed: int) -> dict[int, list[Labels]]:
    """Return a cache of the hospitals' random permutations, which the next model on the same rows uses again."""
    return {}


def _permuted(patients: _Patients, h: int, draws: int, seed: int) -> list[Labels]:
    rng = quick_stream(seed, f"patient groups/{patients.attribute}", patients.hospitals[h])
    return [permuted(each, draws, rng) for each in patients.strata(h)]


def _every(strata: Sequence[NDArray[np.int8]]) -> list[Labels]:
    """Return all permutations of a hospital's group labels, one array for each outcome. Each permutation for one
    outcome occurs together with each permutation for the other.
    """
    orders = [every(each) for each in strata]
    size, repeated, found = int(np.prod([order.shape[1] for order in orders])), 1, list[Labels]()
    for order in reversed(orders):
        found.insert(0, order[:, np.arange(size) // repeated % order.shape[1]])
        repeated *= order.shape[1]
    return found
