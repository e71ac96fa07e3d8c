"""Recalibration after the last round: what hospitals are asked for, what they fit on their own rows, and what it costs.

Shifts are in double precision, and figures of ranks come from the margins that were there before: a shift changes no
order within a hospital, but adding it in single precision could make ties.
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
    """What each hospital does to the model that serves it before it measures it."""

    method: Method
    """How it fits its shift."""
    prior: Prior | None
    """What shifts are drawn to under ``eb``: two numbers that travel to every hospital."""


@dataclass(eq=False)
class OwnShifts:
    """What the hospitals of one process have fitted, in its order."""

    shifts: Shifts
    """Their shifts, ``[h]``."""
    rows: Ids
    """Their labelled rows, ``[h]``."""
    events: Ids
    """The events among them, ``[h]``."""

    @staticmethod
    def fitted(
        how: Recalibrating,
        margins: NDArray[Any],
        y: NDArray[Any],
        offsets: NDArray[np.int64],
        untrained: NDArray[np.bool_],
    ) -> OwnShifts:
        """The shifts by ``margins [n]`` and labels ``y [n]`` of the rows ``offsets[h]:offsets[h + 1]`` held back.

        Models that are ``untrained [h]`` are left as they are.
        """
        # Only now: it takes a fifth of a second to import.
        from raysim.statistics.clinical.recalibration import UNTRAINED, fit, rows_of

        rows = np.diff(offsets)
        events = np.bincount(np.repeat(np.arange(len(rows)), rows), y, len(rows)).astype(np.int64)
        shifts = fit(rows_of(margins, y, offsets), how.method, how.prior)
        shifts.intercept[untrained], shifts.slope[untrained], shifts.reason[untrained] = 0.0, 1.0, UNTRAINED
        return OwnShifts(shifts, rows, events)

    def applied(self, margins: NDArray[Any], offsets: NDArray[np.int64]) -> Floats:
        """Each hospital's ``a + b margin``, ``[n]``; the rows of hospital ``h`` are ``offsets[h]:offsets[h + 1]``."""
        each = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return self.shifts.intercept[each] + self.shifts.slope[each] * margins.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """The model served that hospitals made of another, by their validation rows, as ``logit p' = a + b logit p``."""

    of: str
    """The model that it was made of."""
    shifts: Shifts
    """Each hospital's ``a`` and ``b``, ``[N]``; they stay there."""
    rows: Ids
    """The labelled rows that each hospital spent, ``[N]``."""
    events: Ids
    """The events among them, ``[N]``."""
    prior: Prior | None = None
    """What all hospitals' shifts are drawn to, under ``eb``; its mean is that of a hospital without rows."""

    @property
    def facts(self) -> dict[str, float]:
        """Figures of a finished run beside its models."""
        known = {} if self.prior is None else {"mean": self.prior.mean, "sd": self.prior.variance**0.5}
        figures = known | {"rows": float(self.rows.sum()), "unchanged": float(self.shifts.unchanged.sum())}
        return {f"recalibration_{name}": value for name, value in figures.items()}


def estimated(counts: ScoreCounts) -> Prior:
    """What hospitals' shifts have in common, by their ``counts`` of validation rows."""
    from raysim.statistics.clinical.recalibration import estimated_prior
    from raysim.statistics.clinical.recalibration_benefit import from_counts

    return estimated_prior(from_counts(counts))


def gathered(of: str, parts: Sequence[OwnShifts], order: Ids, prior: Prior | None) -> Recalibrated:
    """What all hospitals have fitted for the model ``of``, those of the processes brought into ``order [N]``."""
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
