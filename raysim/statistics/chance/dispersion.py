"""Figures of dispersion over hospitals, for one federation or many simulated federations at once.

The figures are defined as in :mod:`raysim.metrics.equity`, but some are computed only for at least ten hospitals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats

TENTH = 10
"""The smallest number of hospitals for which a worst decile and a slope on hospital size are computed."""

SAME_SIZE = 0.1
"""The smallest standard deviation of the logarithm of hospitals' sizes for which a slope on hospital size is
computed."""


@dataclass(frozen=True, eq=False)
class Dispersion:
    """Computes figures of dispersion over ``M`` hospitals.

    - ``listed [M]``: whether a hospital has enough rows (for AUROC: of the rarer class) to be reported as the
      ``lowest`` or ``highest``.
    - ``log_size [M]``: the logarithm of the number of all rows of each hospital, in training, validation and test.
    - ``larger``: whether larger values are better, as for an AUROC; False for an error.
    """

    listed: NDArray[np.bool_]
    log_size: Floats
    larger: bool = True

    @property
    def levels(self) -> frozenset[str]:
        """The names of the figures that describe the worst hospitals, such as the worst decile."""
        return LEVELS if self.larger else ERROR_LEVELS

    def figures(self, values: Floats) -> dict[str, Floats]:
        """Compute figures of dispersion over the hospitals, which are the last axis of ``values [..., M]``. The result
        maps the name of each figure to an array ``[...]``. It is empty for fewer than two hospitals.

        - ``std`` (population standard deviation) and ``gini``;
        - ``lowest``: the lowest value among the ``listed`` hospitals, if there are any;
        - ``worst_decile`` and ``p10``: for at least :data:`TENTH` hospitals;
        - ``size_bias`` (unweighted least-squares slope on ``log_size``): for at least :data:`TENTH` hospitals whose
          ``log_size`` has a standard deviation of at least :data:`SAME_SIZE`.

        A figure whose condition is not met is omitted. For errors, where larger is worse, ``highest`` and ``p90``
        replace ``lowest`` and ``p10``.
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
"""Names of the figures of dispersion that describe the hospitals with the lowest AUROCs; lower values are worse."""

ERROR_LEVELS = frozenset({"highest", "worst_decile", "p90"})
"""Names of the figures of dispersion that describe the hospitals with the largest errors; higher values are worse."""
