"""The headline figure of every model at every hospital and seed, laid out once for all pairs of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.streams import stream
from raysim.metrics.labels import TaskKind, reporting
from raysim.statistics.differences.paired import Limits, Paired, paired
from raysim.statistics.differences.worst_decile import worst_decile_difference

Floats = NDArray[np.float64]
Key = tuple[str, str]
"""A strategy and the model that it serves."""

MANY_HOSPITALS = 30
"""The fewest judged hospitals for which resampling them gives an interval of the worst decile's difference."""

FRONT_DRAWS = 1000
"""Draws of hospitals for each pair of strategies: the non-dominated set needs all pairs."""


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

    @staticmethod
    def of(hospitals: pd.DataFrame) -> Panel:
        """The panel of a table as in :mod:`raysim.report.tables`. Raises ``ValueError`` for a hospital that occurs
        twice.

        Without a column ``model`` all are global ones, without ``seed`` all of one seed.
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
        return Panel(kind, place, figure, rows, present)

    def sides(self, first: Key, second: Key) -> tuple[Floats, Floats, Floats]:
        """The figures of two models and the test rows, ``[S, H]`` each, for seeds and hospitals that both have."""
        if first not in self.place or second not in self.place:
            return np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0))
        one, other = self.place[first], self.place[second]
        both = self.present[one] & self.present[other]
        of = np.ix_(both.any(axis=1), both.any(axis=0))
        ours, theirs, rows = (
            np.where(both, values, np.nan)[of] for values in (self.figure[one], self.figure[other], self.rows[one])
        )
        return ours, theirs, rows

    def difference(self, first: Key, second: Key) -> Paired:
        """The difference ``first - second`` of the headline figure; over no hospital where none defines both."""
        return paired(*self.sides(first, second))

    def level(self, key: Key) -> Paired:
        """The mean headline figure of a model, as its difference from 0."""
        figures, _, rows = self.sides(key, key)
        return paired(figures, np.zeros_like(figures), rows)

    def worst_decile(self, first: Key, second: Key, level: float) -> Limits:
        """The interval of the difference ``first - second`` of two models' worst decile.

        NaN for fewer than :data:`MANY_HOSPITALS` that define both. Each pair has draws of its own.
        """
        sides = self.sides(first, second)
        if paired(*sides).hospitals < MANY_HOSPITALS:
            return Limits(float("nan"), float("nan"))
        rng = stream(0, f"front/{first}/{second}")
        return worst_decile_difference(*sides, rng, larger=self.kind.larger, draws=FRONT_DRAWS, level=level)
