"""The server's side of a step between hospitals' updates and the strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.messages.steps import HospitalStep
from raysim.strategies.base import Call, FederationView, Ids, LocalProblem, Update

if TYPE_CHECKING:
    from raysim.virtual_time.scheduling import ScheduledCohort


class Step:
    """The server's side of a step. By default each method leaves its input unchanged; subclasses override
    some methods.
    """

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the problem to which the strategy's update refers."""
        return cohort

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the problem as sent. Raises ``ConfigError`` for a problem that cannot be sent."""
        return cohort

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> HospitalStep | None:
        """Return the hospital's side of the step, for hospitals ``ids`` that minimise the fitted ``problem``; None
        means that hospitals do nothing.
        """
        return None

    def call_step(self, round: int, call: Call, number: int, name: str) -> HospitalStep | None:
        """Return the hospital's side of the step for a ``call`` of a client program; None means that hospitals do
        nothing.

        ``number`` is the number of earlier calls in the round. ``name`` is the call's name in errors. Raises
        ``ConfigError`` for a call that cannot be made.
        """
        return None

    def opened_call(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of the last call ``[n]``, in steps of their grids. ``units [n]`` are the sums after the next
        step of the pipeline has processed them."""
        return units

    def opened(self, round: int, problem: LocalProblem, ids: Ids, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums ``[G, P]`` of a round, in steps of their grid. ``units [G, P]`` are the sums after the next
        step of the pipeline has processed them."""
        return units

    def further(self, update: Update) -> LocalProblem | None:
        """Return the problem of a further pass over the round's updates, given the update of the last pass; None means
        no further pass."""
        return None

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update | None:
        """Return the update for the previous step of the pipeline; None if nothing can be learned from the round.

        ``problem`` is the strategy's problem before any change.
        """
        return update

    def facts(self) -> dict[str, float]:
        """Return the step's figures for a finished run, by name."""
        return {}

    @property
    def memory(self) -> Any:
        """Return the state carried from round to round, in plain values; None without state."""
        return None
