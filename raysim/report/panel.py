"""The main metrics of all models, hospitals and seeds as arrays, from which pairs of models are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.core.streams import stream
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind, reporting
from raysim.statistics.differences.paired import Limits, Paired, paired
from raysim.statistics.differences.worst_decile import worst_decile_difference
from raysim.statistics.discrimination.sketches import patient_part

Key = tuple[str, str]
"""The label of a strategy, and the name of one of its models."""

MANY_HOSPITALS = 30
"""The fewest hospitals for which a difference of worst deciles has an interval."""

FRONT_DRAWS = 1000
"""The number of bootstrap samples of hospitals for the interval of the difference of two models' worst deciles."""


class Alike(NamedTuple):
    """A model's main metric and sums, computed only on the rows on which another model is evaluated.

    ``figure [H]`` is the main metric at each hospital, and ``sums [H, B]`` the ``B`` sums that each hospital sends (see
    :class:`Sketched`).
    """

    figure: Floats
    sums: NDArray[np.float32]


class Sketched(NamedTuple):
    """The sums that hospitals send about one model, from which covariances with other models are estimated.

    ``sums [H, B]`` has the ``B`` sums of each of ``H`` hospitals. If this model is evaluated on fewer rows than others,
    ``on_same_rows`` has the other models' main metric and sums on these rows.
    """

    hospitals: tuple[str, ...]
    sums: NDArray[np.float32]
    on_same_rows: Mapping[Key, Alike] = MappingProxyType({})


Sent = Mapping[tuple[str, str, int], Sketched]
"""The sums that hospitals sent about each model, by strategy, model and seed."""


def sent(results: Sequence[Result]) -> Sent:
    """Collect the sums that hospitals have sent about models."""
    return {
        (result.label, model, result.seed): Sketched(result.federation.hospitals, sums)
        for result in results
        for model, sums in result.outcome.sketches.items()
    }


@dataclass(frozen=True, eq=False)
class Panel:
    """The main metric (AUROC or MAE) of ``K`` models at ``H`` hospitals under ``S`` seeds; hospitals and seeds are
    sorted.
    """

    kind: TaskKind
    place: Mapping[Key, int]
    figure: Floats
    """The main metric, ``[K, S, H]``; NaN if it is undefined or infinite."""
    rows: Floats
    """The number of test rows, ``[K, S, H]``; NaN where ``present`` is False."""
    present: NDArray[np.bool_]
    """Whether the table of hospitals has a row for the model, seed and hospital, ``[K, S, H]``."""
    sketches: Mapping[tuple[int, int], NDArray[np.float32]]
    """The sums ``[H, B]`` that hospitals sent, by the indices of model and seed."""
    alike: Mapping[tuple[int, int, int], Alike]
    """The main metric and sums of a first model on the rows of a second model that is evaluated on fewer rows, by the
    indices of first model, second model and seed.
    """
    names: tuple[str, ...] = ()

    @staticmethod
    def of(hospitals: pd.DataFrame, sent: Sent | None = None) -> Panel:
        """Build the panel from the table ``hospitals`` of :mod:`raysim.report.tables` and the sums that hospitals
        ``sent``.

        Without ``sent``, the variance due to patients alone is unknown. Raises ``ValueError`` if a model has two rows
        of one hospital and seed.
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
            for key, of in each.on_same_rows.items()
            if key in place
        }
        return Panel(kind, place, figure, rows, present, sketches, alike, tuple(order))

    def among(self, hospitals: NDArray[np.bool_]) -> Panel:
        """Restrict the panel to the hospitals for which ``hospitals [H]`` is True."""
        return replace(
            self,
            figure=self.figure[..., hospitals],
            rows=self.rows[..., hospitals],
            present=self.present[..., hospitals],
            sketches={key: sums[hospitals] for key, sums in self.sketches.items()},
            alike={key: Alike(of.figure[hospitals], of.sums[hospitals]) for key, of in self.alike.items()},
            names=tuple(name for name, selected in zip(self.names, hospitals, strict=True) if selected),
        )

    def sides(self, first: Key, second: Key) -> tuple[Floats, Floats, Floats]:
        """Return the main metrics of two models and the numbers of test rows.

        Each array has a row for each seed and a column for each hospital that both models have.
        """
        if first not in self.place or second not in self.place:
            return np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0))
        one, other = self.place[first], self.place[second]
        both = self.present[one] & self.present[other]
        of = np.ix_(both.any(axis=1), both.any(axis=0))
        fewer = other if any(key[:2] == (one, other) for key in self.alike) else one
        values = self._figure(one, other), self._figure(other, one), self.rows[fewer]
        ours, theirs, rows = (np.where(both, each, np.nan)[of] for each in values)
        return ours, theirs, rows

    def same_rows(self, first: Key, second: Key) -> bool:
        """Return whether :meth:`difference` uses all test rows of both models."""
        one, other = self.place[first], self.place[second]
        return not any(key[:2] in ((one, other), (other, one)) for key in self.alike)

    def _figure(self, one: int, other: int) -> Floats:
        each = (self.alike.get((one, other, s)) for s in range(self.figure.shape[1]))
        return np.stack([own if of is None else of.figure for of, own in zip(each, self.figure[one], strict=True)])

    def _sums(self, one: int, other: int, s: int) -> NDArray[np.float32]:
        """Return the sums ``[H, B]`` about model ``one`` on the rows that it shares with model ``other``, for seed
        ``s``.
        """
        of = self.alike.get((one, other, s))
        return self.sketches[one, s] if of is None else of.sums

    def difference(self, first: Key, second: Key) -> Paired:
        """Return the difference ``first - second`` of two models' main metric, over the hospitals where both are
        defined.
        """
        ours, theirs, rows = self.sides(first, second)
        counted = np.where(np.isfinite(ours - theirs), rows, 0.0)
        return paired(ours, theirs, rows, patients=self._patients(first, second, counted))

    def _patients(self, first: Key, second: Key | None, rows: Floats) -> Floats | None:
        """Return, for each hospital, the variance due to patients of a weighted sum of differences over seeds.

        A difference is the metric of ``first`` minus that of ``second``; without a ``second`` model, it is the metric
        of ``first``. ``rows`` are the weights by seed and hospital. Returns None if sketches are missing.
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
        """Return a model's mean main metric over hospitals, in the form of a difference from 0."""
        figures, _, rows = self.sides(key, key)
        counted = np.where(np.isfinite(figures), rows, 0.0)
        return paired(figures, np.zeros_like(figures), rows, patients=self._patients(key, None, counted))

    def worst_decile(self, first: Key, second: Key, level: float) -> Limits:
        """Return the interval of the difference ``first - second`` of two models' worst decile over hospitals.

        The limits are NaN if fewer than :data:`MANY_HOSPITALS` hospitals have a defined main metric under both models.
        """
        sides = self.sides(first, second)
        if paired(*sides).hospitals < MANY_HOSPITALS:
            return Limits(float("nan"), float("nan"))
        rng = stream(0, f"front/{first}/{second}")
        return worst_decile_difference(*sides, rng, larger=self.kind.larger, draws=FRONT_DRAWS, level=level)


def _in_order(hospitals: Sequence[str], values: NDArray[Any], order: Mapping[str, int]) -> NDArray[Any]:
    """Move the row of each hospital in ``values`` to its index in ``order``; hospitals without a row get NaN."""
    ordered = np.full((len(order), *values.shape[1:]), np.nan, dtype=values.dtype)
    known = [(order[name], h) for h, name in enumerate(hospitals) if name in order]
    to, of = np.array(known, dtype=np.int64).reshape(-1, 2).T
    ordered[to] = values[of]
    return ordered
