"""Counting what happened in simulated draws, in pieces that add up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


class Tally:
    """For each measure: how many draws had one, their sum and the sum of their squares."""

    def __init__(self, sums: Mapping[str, list[float]] | None = None) -> None:
        self.sums: dict[str, list[float]] = {name: list(values) for name, values in (sums or {}).items()}

    def add(self, name: str, value: float | bool) -> None:
        """One draw's value, a share or a yes or no; a NaN is none."""
        if not np.isnan(value):
            total = self.sums.setdefault(name, [0.0, 0.0, 0.0])
            for place, power in enumerate((0, 1, 2)):
                total[place] += float(value) ** power

    def covers(self, name: str, low: float, high: float, truth: float) -> None:
        """Whether an interval holds the truth; none where it is undefined."""
        self.add(name, float("nan") if np.isnan(low + high) else bool(low <= truth <= high))

    def merge(self, other: Mapping[str, list[float]]) -> None:
        """Add a piece's sums."""
        for name, values in other.items():
            mine = self.sums.setdefault(name, [0.0, 0.0, 0.0])
            for place, value in enumerate(values):
                mine[place] += value

    def mean(self, name: str) -> tuple[float, float, int]:
        """The mean over draws, its Monte-Carlo error, and the number of draws."""
        n, total, squares = self.sums[name]
        mean = total / n
        return mean, float(np.sqrt(max(squares / n - mean**2, 0.0) / n)), int(n)
