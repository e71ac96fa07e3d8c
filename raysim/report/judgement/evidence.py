"""The evidence of a comparison: paired differences between strategies, and claims that hold jointly.

- Two models are compared by their main metric (AUROC or MAE) at the same hospitals, weighted by test rows. The interval
  of their difference allows for other hospitals of the same kind, other patients and other training seeds
  (:mod:`raysim.statistics.differences.paired`).
- A method is called better only if intervals that hold jointly for all pairs of strategies demonstrate it
  (:mod:`raysim.statistics.differences.simultaneous`), and only with more than one training seed.
- Models with an equal main metric at every hospital form one method (:class:`Entry`). A recalibrated model replaces its
  original.
- References, such as training alone, are left out of the pairs. Training alone is compared with every method, with
  intervals that hold jointly for all methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.levels import ALPHA
from raysim.metrics.labels import TaskKind, reporting
from raysim.report.judgement.choice import Choice, cheaper, choose
from raysim.report.judgement.facts.federate import AtSome
from raysim.report.panel import Key, Panel, Sent
from raysim.report.possible import NOTHING
from raysim.report.possible import difference as possible
from raysim.report.tables import KEYS, baseline_of, comparison, complete, labels, made_of
from raysim.statistics.differences.paired import Limits, Paired, equivalent
from raysim.statistics.differences.simultaneous import adjusted, not_dominated, tests

FEWEST_SMALL = 5
"""A difference at small hospitals is reported only if the metric is defined at this many of them or more."""


@dataclass(frozen=True)
class Entry:
    """A method of the comparison: one model, or several models with an equal main metric at every hospital."""

    name: str
    key: Key
    """The strategy and model among ``members`` that represents the method."""
    bytes: float
    """The bytes that the strategy exchanges, set-up included, the mean over seeds; NaN if unknown."""
    members: tuple[Key, ...]
    """All strategies and models whose main metric is equal at every hospital."""
    names: tuple[str, ...]
    level: Paired
    """The mean of the main metric over hospitals, in the form of a difference from 0."""
    learner: str = ""
    """The kind of model, from the column ``learner`` of tables; may be empty."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """The paired differences between ``E`` methods (entries), and what they demonstrate."""

    kind: TaskKind
    entries: tuple[Entry, ...]
    """The federated methods; all methods if every strategy is a reference."""
    references: tuple[Entry, ...]
    """Methods that are not federated, such as training alone."""
    differences: dict[tuple[int, int], Paired]
    """The differences in the main metric ``entries[i] - entries[j]``, by ``(i, j)`` with ``i < j``."""
    intervals: dict[tuple[int, int], Limits]
    """The simultaneous 95 % confidence intervals of ``differences``, by the same indices."""
    better: NDArray[np.bool_]
    """Whether method i is demonstrably better than method j, at ``[i, j]`` of ``[E, E]``."""
    front: NDArray[np.bool_]
    """Whether each method is dominated by no other on main metric and worst decile, ``[E]``.

    A method dominates another if it is demonstrably better on one of the two, and demonstrably worse on neither. The
    worst decile only counts with :data:`raysim.report.panel.MANY_HOSPITALS` hospitals or more.
    """
    base: int | None
    """The index of the reference strategy in ``entries``; None if it has no entry."""
    choice: Choice
    of_references: tuple[Paired, ...]
    """For each of ``references``, its main metric minus that of the recommended method."""
    same_rows: tuple[bool, ...]
    """For each of ``references``, whether its difference in ``of_references`` uses all test rows of both methods."""
    alone: int | None
    """The index of training alone in ``references``, the best if there are several; None if there is none."""
    over_alone: tuple[Paired, ...]
    """For each of ``entries``, its main metric minus that of training alone; empty if training alone was not run."""
    over_alone_intervals: tuple[Limits, ...]
    """The intervals of ``over_alone``. The intervals for all pairs of a method and a model trained alone hold
    jointly."""
    over_alone_small: AtSome | None
    """The recommended method's main metric minus that of training alone, at small hospitals.

    Small hospitals have fewer training rows than the median. None if fewer than :data:`FEWEST_SMALL` small hospitals
    have both metrics, if training rows are not counted, or if training alone was not run.
    """
    over_alone_two_classes: tuple[int, AtSome] | None
    """The number of hospitals that trained on one class only, and the recommended method's main metric minus that of
    training alone at all other hospitals.

    None if no hospital trained on one class only, or if training alone was not run.
    """
    learners: tuple[str, ...] = ()
    """The kinds of models, the simplest first; may be empty."""
    over_alone_tests: int = 0
    """The number of pairs of a method and a model trained alone. The intervals of all these pairs hold jointly."""

    @property
    def one_seed(self) -> bool:
        """Whether methods were compared with only one training seed, so that no difference can be demonstrated."""
        return bool(self.differences) and not any(pair.of_training for pair in self.differences.values())

    def renamed(self, names: Mapping[Key, str]) -> Evidence:
        """Return a copy with other display names for strategies and models."""

        def entry(original: Entry) -> Entry:
            return replace(original, name=names[original.key], names=tuple(names[key] for key in original.members))

        return replace(self, entries=tuple(map(entry, self.entries)), references=tuple(map(entry, self.references)))

    @property
    def levels(self) -> tuple[float, ...]:
        """Each method's mean main metric (AUROC or MAE)."""
        return tuple(entry.level.difference for entry in self.entries)

    @property
    def dominated(self) -> frozenset[Key]:
        """The strategies, each with its model, that another strategy and model dominate."""
        return frozenset(key for k in np.flatnonzero(~self.front) for key in self.entries[k].members)

    @property
    def unbeaten(self) -> list[int]:
        """The indices of the methods that no other method is demonstrably better than."""
        return [i for i in range(len(self.better)) if not self.better[:, i].any()]

    @property
    def best(self) -> int:
        """The index of the recommended method in ``entries``."""
        return self.choice.index

    @property
    def difference_shown(self) -> bool:
        """Whether any method demonstrably differs from the reference strategy or, without it, from another method."""
        if self.base is None:
            return bool(self.better.any())
        return bool(self.better[self.base].any() or self.better[:, self.base].any())

    def pair(self, i: int, j: int) -> Paired:
        """Return the difference of methods ``i`` and ``j``: the method with the smaller index minus the other."""
        return self.differences[min(i, j), max(i, j)]

    def between(self, i: int, j: int) -> tuple[float, Limits]:
        """Return the difference ``entries[i] - entries[j]`` of two methods with its interval."""
        if i < j:
            return self.differences[i, j].difference, self.intervals[i, j]
        return -self.differences[j, i].difference, _turned(self.intervals[j, i])

    def alone_less(self, i: int) -> tuple[float, Limits]:
        """Return the metric of training alone minus that of ``entries[i]``, with the interval as printed.

        An uninformative interval is :data:`raysim.report.possible.NOTHING`. The comparison must contain training alone.
        """
        assert self.alone is not None
        level = self.references[self.alone].level.difference
        cut = possible(self.over_alone_intervals[i], self.kind.larger, level)
        return -self.over_alone[i].difference, cut if cut == NOTHING else _turned(cut)

    def of_reference(self, r: int) -> Limits:
        """Return the interval of ``of_references[r]`` as printed."""
        if r == self.alone:
            return self.alone_less(self.best)[1]
        return possible(self.of_references[r].population(), self.kind.larger, self.levels[self.best])


def evidence_from(
    per_seed: pd.DataFrame,
    hospitals: pd.DataFrame,
    reference: str,
    sent: Sent | None = None,
    alone: Collection[str] = (),
) -> Evidence | None:
    """Compute the differences between strategies of a comparison; None if the main metric is defined nowhere.

    - ``per_seed`` and ``hospitals``: tables as in :mod:`raysim.report.tables`.
    - ``reference``: the strategy that the others are compared with.
    - ``sent``: from :func:`raysim.report.panel.sent`. The variance due to patients is computed from it.
    - ``alone``: the labels of strategies in which hospitals train alone.
    """
    rows = complete(per_seed)
    table, kind = comparison(rows), reporting(per_seed)
    keys: list[Key] = list(zip(table["strategy"], table["model"], strict=True))
    names = dict(zip(keys, labels(table), strict=True))
    traffic = _bytes(rows, keys)
    reference_keys = [key for key, reference in zip(keys, table["yardstick"], strict=True) if reference]
    reference_keys = [] if len(reference_keys) == len(keys) else reference_keys
    panel = Panel.of(hospitals, sent)
    plain = {before: after for after, before in made_of(keys).items()}
    learners = dict(zip(keys, table["learner"].fillna(""), strict=True)) if "learner" in table else {}
    entries = _entries(
        panel, [key for key in keys if key not in reference_keys and key not in plain], names, traffic, reference
    )
    entries = [replace(entry, learner=str(learners.get(entry.key, ""))) for entry in entries]
    if not entries:
        return None
    pairs = list(combinations(range(len(entries)), 2))
    differences = {(i, j): panel.difference(entries[i].key, entries[j].key) for i, j in pairs}
    intervals = dict(zip(pairs, adjusted(list(differences.values())), strict=True))
    trained = [pair for pair in pairs if differences[pair].of_training]
    better = _better(kind, len(entries), {pair: intervals[pair] for pair in trained})
    deciles = {(i, j): panel.worst_decile(entries[i].key, entries[j].key, 1 - ALPHA / len(pairs)) for i, j in trained}
    worst = _better(kind, len(entries), deciles)
    against = baseline_of(table, reference)
    against = against if against is None else plain.get(against, against)
    base = next((i for i, entry in enumerate(entries) if against in entry.members), None)
    references = _entries(panel, [key for key in reference_keys if key not in plain], names, traffic, reference)
    in_order, sign = tuple(filter(None, dict.fromkeys(learners.values()))), 1 if kind.larger else -1
    choice = choose(
        [sign * entry.level.difference for entry in entries],
        better,
        _equal(kind, len(entries), {pair: intervals[pair] for pair in trained}),
        [entry.bytes for entry in entries],
        base,
        [in_order.index(entry.learner) for entry in entries] if all(entry.learner for entry in entries) else None,
    )
    alones = [i for i, entry in enumerate(references) if entry.key[0] in alone]
    by_itself = max(
        alones, key=lambda i: np.nan_to_num(sign * references[i].level.difference, nan=-np.inf), default=None
    )
    over_alone, small, two_classes = [], None, None
    over_alones = {i: [panel.difference(entry.key, references[i].key) for entry in entries] for i in alones}
    with_alone = [pair for i in alones for pair in over_alones[i]]
    limits = adjusted(with_alone)
    if by_itself is not None:
        taken, other = entries[choice.index].key, references[by_itself].key
        over_alone, begin = over_alones[by_itself], alones.index(by_itself) * len(entries)
        limits = limits[begin : begin + len(entries)]
        small = _at_small(hospitals, sent, taken, other)
        two_classes = _at_two_classes(hospitals, sent, taken, other)
    return Evidence(
        kind=kind,
        entries=tuple(entries),
        references=tuple(references),
        differences=differences,
        intervals=intervals,
        better=better,
        front=not_dominated(np.stack([better, worst], axis=2)),
        base=base,
        choice=choice,
        of_references=tuple(panel.difference(entry.key, entries[choice.index].key) for entry in references),
        same_rows=tuple(panel.same_rows(entry.key, entries[choice.index].key) for entry in references),
        alone=by_itself,
        over_alone=tuple(over_alone),
        over_alone_intervals=tuple(limits),
        over_alone_small=small,
        over_alone_two_classes=two_classes,
        learners=in_order,
        over_alone_tests=len(tests(with_alone)),
    )


def _at_two_classes(hospitals: pd.DataFrame, sent: Sent | None, taken: Key, alone: Key) -> tuple[int, AtSome] | None:
    """Compare two models, leaving out the hospitals at which one of them was trained on one class only.

    Returns the number of hospitals left out, and the difference ``taken - alone`` at the others; None if no hospital
    is left out.
    """
    if "trained" not in hospitals:
        return None
    compared = hospitals[[key in (taken, alone) for key in zip(hospitals["strategy"], hospitals["model"], strict=True)]]
    marked = compared.loc[compared["trained"] == "one class", "hospital"].unique()
    if not len(marked):
        return None
    return len(marked), _at_some(compared[~compared["hospital"].isin(marked)], sent, taken, alone)


def _at_small(hospitals: pd.DataFrame, sent: Sent | None, taken: Key, alone: Key) -> AtSome | None:
    """Compare the models ``taken`` and ``alone`` at the hospitals with fewer training rows than the median hospital.

    Returns None if the main metric is defined at too few of these hospitals, or if training rows are not counted.
    """
    if "n_train" not in hospitals:
        return None
    compared = hospitals[hospitals["strategy"].isin([taken[0], alone[0]])]
    sizes = compared.groupby("hospital")["n_train"].mean()
    small = sizes.index[sizes < sizes.median()]
    some = _at_some(compared[compared["hospital"].isin(small)], sent, taken, alone)
    return some if some.pair.hospitals >= FEWEST_SMALL else None


def _at_some(hospitals: pd.DataFrame, sent: Sent | None, taken: Key, alone: Key) -> AtSome:
    panel = Panel.of(hospitals, sent)
    return AtSome(panel.difference(taken, alone), panel.level(alone).difference)


def _turned(interval: Limits) -> Limits:
    return Limits(-interval.high, -interval.low)


def _better(kind: TaskKind, entries: int, intervals: Mapping[tuple[int, int], Limits]) -> NDArray[np.bool_]:
    """Return a matrix that says at ``[i, j]`` whether method i is demonstrably better than method j."""
    better = np.zeros((entries, entries), dtype=np.bool_)
    for (i, j), interval in intervals.items():
        if interval.shows:
            winner, loser = (i, j) if (interval.low > 0) == kind.larger else (j, i)
            better[winner, loser] = True
    return better


def _equal(kind: TaskKind, entries: int, intervals: Mapping[tuple[int, int], Limits]) -> NDArray[np.bool_]:
    """Return a matrix that says at ``[i, j]`` whether methods i and j are equivalent.

    Equivalence is defined for the AUROC alone, because the margin of an error would depend on its unit.
    """
    equal = np.zeros((entries, entries), dtype=np.bool_)
    for (i, j), interval in intervals.items():
        equal[i, j] = equal[j, i] = kind.larger and not interval.shows and equivalent(interval)
    return equal


def _entries(
    panel: Panel, keys: list[Key], names: dict[Key, str], traffic: dict[Key, float], reference: str
) -> list[Entry]:
    """Return an entry for each model with a defined main metric. Models with equal results share one.

    An entry of several models is named after the model of the strategy ``reference`` or, without it, after the first.
    If another of these models sends clearly fewer bytes, the entry is named after the one that sends fewest.
    """
    groups: list[list[Key]] = []
    for key in keys:
        if not panel.difference(key, key).hospitals:
            continue
        same = next((group for group in groups if _same(panel, group[0], key)), None)
        if same is None:
            groups.append([key])
        else:
            same.append(key)
    entries = []
    for group in groups:
        key = next((each for each in group if each[0] == reference), group[0])
        key = cheaper(group, key, traffic.__getitem__)
        entries.append(Entry(names[key], key, traffic[key], tuple(group), _names_of(group), panel.level(key)))
    return entries


def _same(panel: Panel, first: Key, second: Key) -> bool:
    """Whether two models have a defined main metric at the same hospitals, and equal values there."""
    pair = panel.difference(first, second)
    alone = [panel.difference(key, key).hospitals for key in (first, second)]
    return pair.equal and alone == [pair.hospitals] * 2


def _names_of(keys: Sequence[Key]) -> tuple[str, ...]:
    alone = len({strategy for strategy, _ in keys}) == len(keys)
    return tuple(strategy if alone else f"{strategy} ({model})" for strategy, model in keys)


def _bytes(rows: pd.DataFrame, keys: list[Key]) -> dict[Key, float]:
    """Return the bytes that each model's strategy exchanges, set-up included, the mean over seeds; NaN if unknown."""
    known = ("bytes_down", "bytes_up", "bytes_setup_down", "bytes_setup_up", "bytes")
    columns = [name for name in known if name in rows]
    if not columns:
        return dict.fromkeys(keys, float("nan"))
    means = (
        rows.assign(moved=rows[columns].astype(float).sum(axis=1, min_count=1))
        .groupby(KEYS, sort=False)["moved"]
        .mean()
    )
    return {key: float(means[key]) for key in keys}
