"""Differences between groups of patients that arise because the groups are treated at different hospitals.

For each group, the mean over hospitals of a figure, such as AUROC, is computed. A hospital's weight in this mean is the
number of the group's rows at the hospital.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raysim.core.levels import LEVEL

NAN = float("nan")

FEWEST = 10
"""Smallest number of hospitals for an interval of the difference between groups."""


class Composition(NamedTuple):
    """A difference between two means of hospitals' figures, with its 95 % interval. The first mean is weighted by the
    rows of one group of patients at each hospital, and the second by the rows of another group.
    """

    estimate: float
    low: float
    high: float
    hospitals: int

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference; NaN without an interval."""
        from scipy.special import stdtr, stdtrit  # actors start without it

        df, half_width = self.hospitals - 1, (self.high - self.low) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = stdtrit(df, (1 + LEVEL) / 2) * np.divide(abs(self.estimate), half_width)
        return float(2 * stdtr(df, -statistic))


NO_COMPOSITION = Composition(NAN, NAN, NAN, 0)


def composition(figure: ArrayLike, first: ArrayLike, second: ArrayLike) -> Composition:
    """Compute the mean of hospitals' figures weighted by the rows of a first group of patients, minus the mean weighted
    by the rows of a second group.

    ``figure [H]`` are the figures of ``H`` hospitals; ``first [H]`` and ``second [H]`` are the groups' numbers of rows
    at each hospital.

    Hospitals whose figure is not finite are left out. The interval is computed by the jackknife over hospitals, with
    Student's t. The difference is NaN if a group has no rows. Its limits are NaN for fewer than ten hospitals, or if a
    group is at one hospital only.
    """
    from scipy.special import stdtrit  # actors start without it

    of_hospital = np.asarray(figure, dtype=np.float64)
    rows = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)])
    judged = np.isfinite(of_hospital) & (rows.sum(axis=0) > 0)
    of_hospital, rows = of_hospital[judged], rows[:, judged]
    count, total = len(of_hospital), rows.sum(axis=1)
    if not (total > 0).all():
        return NO_COMPOSITION
    weighted = rows @ of_hospital
    estimate = float(_difference(weighted / total))
    left_out = total[:, None] - rows
    if count < FEWEST or (left_out <= 0).any():
        return Composition(estimate, NAN, NAN, count)
    without = _difference((weighted[:, None] - rows * of_hospital) / left_out)
    se = np.sqrt((count - 1) / count * np.square(without - without.mean()).sum())
    half_width = float(stdtrit(count - 1, (1 + LEVEL) / 2) * se)
    return Composition(estimate, estimate - half_width, estimate + half_width, count)


def _difference(of_two: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(of_two[0] - of_two[1])
