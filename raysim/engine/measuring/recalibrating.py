"""Recalibration after the last round: the request to hospitals, their fits on their own rows, and the merged result.

Rank-based metrics such as the AUROC use a model's margins (outputs before the sigmoid) before recalibration, because
rounding could create ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Floats, Ids

if TYPE_CHECKING:
    from raysim.metrics.score_counts import ScoreCounts
    from raysim.statistics.clinical.recalibration import Method, Prior, Shifts


@dataclass(frozen=True)
class Recalibrating:
    """A request to hospitals: each recalibrates its model on its own rows before evaluating it."""

    method: Method
    prior: Prior | None
    """The prior of hospitals' recalibration intercepts under method ``eb`` (empirical Bayes); None for other
    methods."""


@dataclass(eq=False)
class OwnShifts:
    """The recalibrations that the hospitals of one process have fitted."""

    shifts: Shifts
    """The recalibration of each of the ``h`` hospitals."""
    rows: Ids
    """The number of validation rows on which each hospital fitted its recalibration, ``[h]``."""
    events: Ids
    """The number of validation rows with the event (the positive class) at each hospital, ``[h]``."""

    @staticmethod
    def fitted(
        how: Recalibrating,
        margins: NDArray[Any],
        y: NDArray[Any],
        offsets: NDArray[np.int64],
        untrained: NDArray[np.bool_],
    ) -> OwnShifts:
        """Fit each hospital's recalibration. ``margins [n]`` and ``y [n]`` are the model outputs and labels of
        validation rows.

        Hospital ``i`` has rows ``offsets[i]:offsets[i + 1]``. Models marked in ``untrained [h]`` are left unchanged.
        """
        # Imported only here: the import takes a fifth of a second.
        from raysim.statistics.clinical.recalibration import UNTRAINED, fit, rows_of

        rows = np.diff(offsets)
        events = np.bincount(np.repeat(np.arange(len(rows)), rows), y, len(rows)).astype(np.int64)
        shifts = fit(rows_of(margins, y, offsets), how.method, how.prior)
        shifts.intercept[untrained], shifts.slope[untrained], shifts.reason[untrained] = 0.0, 1.0, UNTRAINED
        return OwnShifts(shifts, rows, events)

    def applied(self, margins: NDArray[Any], offsets: NDArray[np.int64]) -> Floats:
        """Return the recalibrated margin ``a + b * margin`` of each row; ``a`` and ``b`` are those of the row's
        hospital. Hospital ``i`` has rows ``offsets[i]:offsets[i + 1]``.
        """
        each = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return self.shifts.intercept[each] + self.shifts.slope[each] * margins.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """A model whose predicted probabilities ``p`` each hospital has recalibrated on its validation rows: ``logit p' = a
    + b logit p``.
    """

    of: str
    """The name of the model that was recalibrated."""
    shifts: Shifts
    """Each hospital's ``a`` and ``b``, ``[N]`` each, which stay at the hospital."""
    rows: Ids
    """The number of validation rows on which each hospital fitted ``a`` and ``b``, ``[N]``."""
    events: Ids
    """The number of validation rows with the event (the positive class) at each hospital, ``[N]``."""
    prior: Prior | None = None
    """The prior distribution of ``a`` under method ``eb`` (empirical Bayes); None for other methods. A hospital with a
    trained model but no validation rows gets the mean of this distribution as its ``a``."""

    @property
    def facts(self) -> dict[str, float]:
        """Return numbers that describe the recalibration for the summary of a finished run, by name."""
        known = {} if self.prior is None else {"mean": self.prior.mean, "sd": self.prior.variance**0.5}
        figures = known | {"rows": float(self.rows.sum()), "unchanged": float(self.shifts.unchanged.sum())}
        return {f"recalibration_{name}": value for name, value in figures.items()}


def estimated(counts: ScoreCounts) -> Prior:
    """Estimate the prior distribution of hospitals' recalibrations. ``counts`` has each hospital's number of validation
    rows by score.
    """
    from raysim.statistics.clinical.recalibration import estimated_prior
    from raysim.statistics.clinical.recalibration_benefit import from_counts

    return estimated_prior(from_counts(counts))


def gathered(of: str, parts: Sequence[OwnShifts], order: Ids, prior: Prior | None) -> Recalibrated:
    """Join the recalibrations that the processes have fitted. ``of`` names the recalibrated model, and ``order [N]``
    sorts the hospitals by id.
    """
    from raysim.statistics.clinical.recalibration import Shifts

    def joined(each: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(each)[order]

    shifts = [part.shifts for part in parts]
    return Recalibrated(
        of=of,
        shifts=Shifts(
            joined([each.intercept for each in shifts]),
            joined([each.slope for each in shifts]),
            joined([each.reason for each in shifts]),
        ),
        rows=joined([part.rows for part in parts]),
        events=joined([part.events for part in parts]),
        prior=prior,
    )
