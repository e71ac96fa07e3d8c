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

    - ``listed [M]``: hospitals with the minimum of events, among which the ``lowest`` is looked for.
    - ``log_size [M]``: the logarithm of all rows of each hospital, in training, validation and test.
    """

    listed: NDArray[np.bool_]
    log_size: Floats

    def figures(self, auroc: Floats) -> dict[str, Floats]:
        """By name, each ``[...]``, of ``auroc [..., M]``.

        ``std`` (population) and ``gini``; ``lowest`` where a hospital is listed; ``worst_decile``, ``p10`` and
        ``size_bias`` (least squares, unweighted) from :data:`TENTH` hospitals on, the last where sizes differ. There is
        no figure for fewer than two hospitals.
        """
        hospitals = auroc.shape[-1]
        if hospitals < 2:
            return {}
        ordered = np.sort(auroc, axis=-1)
        ranks = 2.0 * np.arange(hospitals) - (hospitals - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            figures = {
                "std": auroc.std(axis=-1),
                "gini": np.maximum(ordered @ ranks, 0.0) / (hospitals * ordered.sum(axis=-1)),
            }
        if self.listed.any():
            figures["lowest"] = auroc[..., self.listed].min(axis=-1)
        if hospitals >= TENTH:
            figures["worst_decile"] = ordered[..., : -(-hospitals // 10)].mean(axis=-1)
            at = 0.1 * (hospitals - 1)
            below = int(at)
            figures["p10"] = ordered[..., below] + (at - below) * (ordered[..., below + 1] - ordered[..., below])
            if self.log_size.std() >= SAME_SIZE:
                x = self.log_size - self.log_size.mean()
                figures["size_bias"] = auroc @ x / (x @ x)
        return figures


WORSE_WHEN_LOWER = frozenset({"lowest", "worst_decile", "p10"})
"""Figures that are worse when lower; the others are worse when higher, but for ``size_bias``, which has two sides."""
