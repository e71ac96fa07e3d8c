"""The server's half of a step between hospitals' updates and what the strategy learns from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.messages.steps import HospitalStep
from raysim.strategies.base import Call, FederationView, Ids, LocalProblem, Update

if TYPE_CHECKING:
    from raysim.virtual_time.scheduling import ScheduledCohort


class Step:
    """The server's half of a step. A subclass overrides what it does; what is here changes nothing."""

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as the strategy learns from it."""
        return cohort

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """The cohort with its problem as hospitals receive it. Raises ``ConfigError`` for one that cannot be sent."""
        return cohort

    def half(self, round: int, problem: LocalProblem, ids: Ids) -> HospitalStep | None:
        """The half of hospitals ``ids`` that minimise the fitted ``problem``; None: they do nothing."""
        return None

    def called(self, round: int, call: Call, number: int, name: str) -> HospitalStep | None:
        """The half of the hospitals of a ``call`` of a client program; None: they do nothing.

        ``number`` calls came before in the round; ``name`` is what errors call it. Raises ``ConfigError`` for a call
        that cannot be made.
        """
        return None

    def heard(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums of the last call ``[n]`` in steps of their grids, from what the step after this one has made of
        them.
        """
        return units

    def opened(self, round: int, problem: LocalProblem, ids: Ids, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums ``[G, P]`` in steps of their grid, from what the step after this one has made of them."""
        return units

    def further(self, update: Update) -> LocalProblem | None:
        """The problem of a further pass over the round's updates, given that of the last; None: there is none."""
        return None

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update | None:
        """The update as the step before this one receives it; None where nothing can be learned from it.

        ``problem`` is the strategy's own.
        """
        return update

    def facts(self) -> dict[str, float]:
        """Figures of a finished run."""
        return {}

    @property
    def memory(self) -> Any:
        """What it carries from round to round, in plain values; None: nothing."""
        return None
