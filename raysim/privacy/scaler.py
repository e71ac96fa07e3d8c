"""The noise on the sums from which means and standard deviations of features are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats
from raysim.privacy.events import Laplace
from raysim.privacy.noisy_sums import Bounds, Hidden, Mechanism, noisy_sum, total_of

_SUMMED = ", in one secure sum"
"""The end of :attr:`ScalerNoise.named` if the server has learned only the secure sum over hospitals."""


def is_summed(named: str) -> bool:
    """Return whether the noise that ``named`` identifies (see :attr:`ScalerNoise.named`) is in one secure sum; False
    for an empty text.
    """
    return named.endswith(_SUMMED)


@dataclass(frozen=True)
class ScalerNoise:
    """How each hospital adds noise to the sums for means and standard deviations of features."""

    mechanism: Mechanism
    unit: Literal["patient", "example"]
    """The privacy unit, whose rows are clipped together: a patient, or an example (one row)."""
    rows: int
    """The largest number of rows of a privacy unit, as configured; 1 for an example."""
    shared: bool
    """Whether the server learns only the secure sum over hospitals, so that each hospital adds only a share of normal
    noise."""
    hidden: Hidden | None = None
    """The secure aggregation protocol. None means no masks, with the same result."""

    @property
    def named(self) -> str:
        """Return the text that a prepared federation stores to identify this noise."""
        return f"{self.mechanism.event!r}, {self.unit}, {self.rows}{_SUMMED if self.shared else ''}"

    @property
    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for two objects whose noise consists of the same random numbers."""
        return self.named, self.shared, self.mechanism.origin

    def sum_of(self, rows: Floats, unit: NDArray[np.int64], hospitals: int, seed: int, hospital: int) -> Floats:
        """Return the noisy sum ``[K]`` of a hospital's ``rows [n, K]``, whose entries must be from -1 to 1.

        The sum of the rows of each privacy unit is clipped to the largest norm that a single row can have. ``unit [n]``
        has the unit of each row. ``hospitals`` is the number of hospitals that send sums.
        """
        bounds = _of_a_row(rows.shape[1])
        return noisy_sum(rows, unit, self._at_each(hospitals), bounds, seed, "dp preprocessing", hospital)

    def total(self, sums: Sequence[Floats], seed: int) -> Floats:
        """Return the total of hospitals' noisy ``sums [K]``, which the server learns."""
        if not self.shared:
            return np.asarray(sum(sums, np.zeros(len(sums[0]))))
        return total_of(sums, self.hidden, seed)

    def deviation(self, width: int, hospitals: int) -> float:
        """Return the standard deviation of the noise that one hospital adds to each of ``width`` sums."""
        how = self._at_each(hospitals)
        spread = math.sqrt(2.0) if isinstance(how.event, Laplace) else 1.0
        return spread * how.event.multiplier * how.bound(_of_a_row(width))

    def _at_each(self, hospitals: int) -> Mechanism:
        return self.mechanism.in_shares(hospitals) if self.shared else self.mechanism


def _of_a_row(width: int) -> Bounds:
    """Return the largest 1-norm and 2-norm of a row of ``width`` numbers from -1 to 1."""
    return Bounds(float(width), math.sqrt(width))
