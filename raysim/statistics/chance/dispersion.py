"""Figures of how differently hospitals are served, of one federation or of many drawn ones at once.

As in :mod:`raysim.metrics.equity`, over the judged hospitals, with the rules for few of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TENTH = 10
"""Hospitals below which there is no decile, and no slope on size."""

SAME_SIZE = 0.1
"""Standard deviation of the logarithm of hospitals' sizes below which there is no slope."""


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Which figures ``M`` hospitals have, and what they are.

    - ``listed [M]``: hospitals with enough rows, of the rarer class where there are two, among which the ``lowest`` is
      looked for.
    - ``log_size [M]``: the logarithm of all rows of each hospital, in training, validation and test.
    - ``larger``: whether larger values are better, as of an AUROC; of an error they are not.
    """

    listed: NDArray[np.bool_]
    log_size: Floats
    larger: bool = True

    @property
    def levels(self) -> frozenset[str]:
        """The figures that are values of the worst served: worse when lower, or of errors when higher."""
        return LEVELS if self.larger else ERROR_LEVELS

    def figures(self, values: Floats) -> dict[str, Floats]:
        """By name, each ``[...]``, of ``values [..., M]``.

        ``std`` (population) and ``gini``; ``lowest`` where a hospital is listed; ``worst_decile``, ``p10`` and
        ``size_bias`` (least squares, unweighted) from :data:`TENTH` hospitals on, the last where sizes differ. There is
        no figure for fewer than two hospitals. For errors, where more is worse, ``highest`` and ``p90`` replace
        ``lowest`` and ``p10``.
        """
        hospitals = values.shape[-1]
        if hospitals < 2:
            return {}
        ordered = np.sort(values, axis=-1)
        ranks = 2.0 * np.arange(hospitals) - (hospitals - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            figures = {
                "std": values.std(axis=-1),
                "gini": np.maximum(ordered @ ranks, 0.0) / (hospitals * ordered.sum(axis=-1)),
            }
        if self.listed.any():
            among = values[..., self.listed]
            figures["lowest" if self.larger else "highest"] = (among.min if self.larger else among.max)(axis=-1)
        if hospitals >= TENTH:
            tenth = -(-hospitals // 10)
            worst = ordered[..., :tenth] if self.larger else ordered[..., -tenth:]
            figures["worst_decile"] = worst.mean(axis=-1)
            at = (0.1 if self.larger else 0.9) * (hospitals - 1)
            below = int(at)
            under, over = ordered[..., below], ordered[..., below + 1]
            figures["p10" if self.larger else "p90"] = under + (at - below) * (over - under)
            if self.log_size.std() >= SAME_SIZE:
                x = self.log_size - self.log_size.mean()
                figures["size_bias"] = values @ x / (x @ x)
        return figures


LEVELS = frozenset({"lowest", "worst_decile", "p10"})
"""Figures that are worse when lower; the others are worse when higher, but for ``size_bias``, which has two sides."""

ERROR_LEVELS = frozenset({"highest", "worst_decile", "p90"})
"""Of errors; these are worse when higher."""
