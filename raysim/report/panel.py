"""The headline figure of every model at every hospital and seed, laid out once for all pairs of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.streams import stream
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind, reporting
from raysim.statistics.differences.paired import Limits, Paired, paired
from raysim.statistics.differences.worst_decile import worst_decile_difference
from raysim.statistics.discrimination.sketches import patient_part

Floats = NDArray[np.float64]
Key = tuple[str, str]
"""A strategy and the model that it serves."""

MANY_HOSPITALS = 30
"""The fewest judged hospitals for which resampling them gives an interval of the worst decile's difference."""

FRONT_DRAWS = 1000
"""Draws of hospitals for each pair of strategies: the non-dominated set needs all pairs."""


class Alike(NamedTuple):
    """One model on the rows of another, which has fewer: its headline figure ``[H]``, and ``sums [H, B]``."""

    figure: Floats
    sums: NDArray[np.float32]


class Sketched(NamedTuple):
    """What hospitals, by their names, send of one model for its covariance with others: ``sums [H, B]``.

    ``beside``: other models on its rows, where it lacks rows that they have.
    """

    hospitals: tuple[str, ...]
    sums: NDArray[np.float32]
    beside: Mapping[Key, Alike] = MappingProxyType({})


Sent = Mapping[tuple[str, str, int], Sketched]
"""By strategy, model served and seed."""


def sent(results: Sequence[Result]) -> Sent:
    """What the hospitals of finished runs have sent."""
    return {
        (result.label, model, result.seed): Sketched(result.federation.hospitals, sums)
        for result in results
        for model, sums in result.outcome.sketches.items()
    }


@dataclass(frozen=True, eq=False)
class Panel:
    """``K`` models at ``H`` hospitals, in the order of their names, with ``S`` seeds in ascending order."""

    kind: TaskKind
    """The kind of label, with its headline figure."""
    place: Mapping[Key, int]
    """The index of each model along ``K``."""
    figure: Floats
    """The headline figure, ``[K, S, H]``; NaN where undefined, and for an error that is not finite."""
    rows: Floats
    """Test rows, ``[K, S, H]``."""
    present: NDArray[np.bool_]
    """Whether the table has the model, seed and hospital at all, ``[K, S, H]``."""
    sketches: Mapping[tuple[int, int], NDArray[np.float32]]
    """What hospitals sent of a model in a seed, ``[H, B]`` by the indices along ``K`` and ``S``, where it is known."""
    alike: Mapping[tuple[int, int, int], Alike]
    """By model, model with fewer rows and seed: the first one on the rows of the second."""
    names: tuple[str, ...] = ()
    """The hospitals along ``H``."""

    @staticmethod
    def of(hospitals: pd.DataFrame, sent: Sent | None = None) -> Panel:
        """The panel of a table as in :mod:`raysim.report.tables`. Raises ``ValueError`` for a hospital that occurs
        twice.

        Without a column ``model`` all are global ones, without ``seed`` all of one seed. ``sent`` is what
        :func:`sent` gives: without it, as for a real label, the variance of patients alone is not known.
        """
        kind, count = reporting(hospitals), len(hospitals)
        models = hospitals["model"] if "model" in hospitals else np.full(count, "global", dtype=object)
        seeds = hospitals["seed"] if "seed" in hospitals else np.zeros(count, dtype=np.int64)
        model, keys = pd.MultiIndex.from_arrays([hospitals["strategy"], models]).factorize()
        seed, all_seeds = pd.factorize(np.asarray(seeds), sort=True)
        hospital, names = pd.factorize(hospitals["hospital"], sort=True)
        shape = len(keys), len(all_seeds), len(names)
        present = np.zeros(shape, dtype=bool)
        present[model, seed, hospital] = True
        if present.sum() < count:
            raise ValueError("hospitals: a model has two rows of one hospital and seed")
        figure, rows = np.full((2, *shape), np.nan)
        values = hospitals[kind.headline].to_numpy(float)
        figure[model, seed, hospital] = np.where(np.isfinite(values), values, np.nan)
        rows[model, seed, hospital] = hospitals["n_test"].to_numpy(float)
        place = {(str(strategy), str(served)): k for k, (strategy, served) in enumerate(keys)}
        order = {str(name): h for h, name in enumerate(names)}
        at = {int(each): s for s, each in enumerate(all_seeds)}
        sketches = {
            (place[strategy, model], at[of_seed]): _in_order(each.hospitals, each.sums, order)
            for (strategy, model, of_seed), each in (sent or {}).items()
            if (strategy, model) in place and of_seed in at
        }
        alike = {
            (place[key], place[strategy, model], at[of_seed]): Alike(
                _in_order(each.hospitals, of.figure[:, None], order)[:, 0], _in_order(each.hospitals, of.sums, order)
            )
            for (strategy, model, of_seed), each in (sent or {}).items()
            for key, of in each.beside.items()
            if key in place
        }
        return Panel(kind, place, figure, rows, present, sketches, alike, tuple(order))

    def among(self, hospitals: NDArray[np.bool_]) -> Panel:
        """The panel of those hospitals alone that are chosen, ``[H]``."""
        return replace(
            self,
            figure=self.figure[..., hospitals],
            rows=self.rows[..., hospitals],
            present=self.present[..., hospitals],
            sketches={key: sums[hospitals] for key, sums in self.sketches.items()},
            alike={key: Alike(of.figure[hospitals], of.sums[hospitals]) for key, of in self.alike.items()},
            names=tuple(name for name, kept in zip(self.names, hospitals, strict=True) if kept),
        )

    def sides(self, first: Key, second: Key) -> tuple[Floats, Floats, Floats]:
        """The figures of two models and the test rows, ``[S, H]`` each, for seeds and hospitals that both have."""
        if first not in self.place or second not in self.place:
            return np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0))
        one, other = self.place[first], self.place[second]
        both = self.present[one] & self.present[other]
        of = np.ix_(both.any(axis=1), both.any(axis=0))
        fewer = other if any(key[:2] == (one, other) for key in self.alike) else one
        values = self._figure(one, other), self._figure(other, one), self.rows[fewer]
        ours, theirs, rows = (np.where(both, each, np.nan)[of] for each in values)
        return ours, theirs, rows

    def _figure(self, one: int, other: int) -> Floats:
        """The figure of a model on the rows that it shares with another, ``[S, H]``."""
        each = (self.alike.get((one, other, s)) for s in range(self.figure.shape[1]))
        return np.stack([own if of is None else of.figure for of, own in zip(each, self.figure[one], strict=True)])

    def _sums(self, one: int, other: int, s: int) -> NDArray[np.float32]:
        """What hospitals sent of a model on the rows that it shares with another, ``[H, B]``."""
        of = self.alike.get((one, other, s))
        return self.sketches[one, s] if of is None else of.sums

    def difference(self, first: Key, second: Key) -> Paired:
        """The difference ``first - second`` of the headline figure; over no hospital where none defines both.

        Its variance of patients alone is NaN where a seed lacks what hospitals send for it.
        """
        ours, theirs, rows = self.sides(first, second)
        counted = np.where(np.isfinite(ours - theirs), rows, 0.0)
        return paired(ours, theirs, rows, patients=self._patients(first, second, counted))

    def _patients(self, first: Key, second: Key | None, rows: Floats) -> Floats | None:
        """The patients' part of the difference at the hospitals and seeds of :meth:`sides`, which count as ``rows``.

        Without a ``second`` model it is that of the first one's figure itself.
        """
        if not rows.size:
            return None
        one, other = self.place[first], self.place[first if second is None else second]
        both = self.present[one] & self.present[other]
        seeds, hospitals = np.flatnonzero(both.any(axis=1)).tolist(), np.flatnonzero(both.any(axis=0))
        if any((k, s) not in self.sketches for k in (one, other) for s in seeds):
            return None
        ours = [self._sums(one, other, s)[hospitals] for s in seeds]
        theirs = [self._sums(other, one, s)[hospitals] for s in seeds]
        return patient_part(ours, [np.zeros_like(each) for each in theirs] if second is None else theirs, rows)

    def level(self, key: Key) -> Paired:
        """The mean headline figure of a model, as its difference from 0."""
        figures, _, rows = self.sides(key, key)
        counted = np.where(np.isfinite(figures), rows, 0.0)
        return paired(figures, np.zeros_like(figures), rows, patients=self._patients(key, None, counted))

    def worst_decile(self, first: Key, second: Key, level: float) -> Limits:
        """The interval of the difference ``first - second`` of two models' worst decile.

        NaN for fewer than :data:`MANY_HOSPITALS` that define both. Each pair has draws of its own.
        """
        sides = self.sides(first, second)
        if paired(*sides).hospitals < MANY_HOSPITALS:
            return Limits(float("nan"), float("nan"))
        rng = stream(0, f"front/{first}/{second}")
        return worst_decile_difference(*sides, rng, larger=self.kind.larger, draws=FRONT_DRAWS, level=level)


def _in_order(hospitals: Sequence[str], values: NDArray[Any], order: Mapping[str, int]) -> NDArray[Any]:
    """The ``values`` of the hospitals in ``order`` of their names; NaN for one that sent none."""
    ordered = np.full((len(order), *values.shape[1:]), np.nan, dtype=values.dtype)
    known = [(order[name], h) for h, name in enumerate(hospitals) if name in order]
    to, of = np.array(known, dtype=np.int64).reshape(-1, 2).T
    ordered[to] = values[of]
    return ordered
