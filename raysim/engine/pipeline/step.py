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
    """The server's side of a step between hospitals and the strategy, such as clipping, compression or secure
    aggregation. By default each method leaves its input unchanged.
    """

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort. A step may change the cohort's local problem, for instance the weights under a privacy
        guarantee. The strategy receives the update for the changed problem.
        """
        return cohort

    def fitted(self, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with the local problem as hospitals receive it. Raises ``ConfigError`` if this step does
        not support the problem.
        """
        return cohort

    def hospital_step(self, round: int, problem: LocalProblem, ids: Ids) -> HospitalStep | None:
        """Return what this step does at the hospitals ``ids``, which minimise ``problem``; None means nothing."""
        return None

    def call_step(self, round: int, call: Call, number: int, name: str) -> HospitalStep | None:
        """Return what this step does at hospitals for a ``call`` of a client program; None means nothing.

        ``number`` is the number of earlier calls in the round. ``name`` is the call's name in errors. Raises
        ``ConfigError`` if this step does not support the call.
        """
        return None

    def opened_call(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Process and return the sums of the last call of a client program. ``units [n]`` are the sums as integers in
        fixed point.
        """
        return units

    def opened(self, round: int, problem: LocalProblem, ids: Ids, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Process and return the sums of a round. ``units [G, P]`` are ``G`` sums of ``P`` numbers, as integers in
        fixed point. Later steps of the pipeline have already processed them.
        """
        return units

    def further(self, update: Update) -> LocalProblem | None:
        """If hospitals must send this round's updates again, return the local problem that says how; None means that
        they send nothing more. ``update`` is what the server received last.
        """
        return None

    def learned(self, round: int, update: Update, problem: LocalProblem) -> Update | None:
        """Process the round's ``update`` and return it for the previous step of the pipeline. None means that nothing
        can be learned from the round.

        ``problem`` is the local problem as :meth:`posed` returned it.
        """
        return update

    def facts(self) -> dict[str, float]:
        """Return numbers on this step, by name, for the summary of a finished run."""
        return {}

    @property
    def memory(self) -> Any:
        """Return the state that is carried from round to round and stored in checkpoints; None without state."""
        return None
