"""The common part of the federated regressions: all hospitals take part, and none trains by gradient steps."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    Answers,
    Call,
    Calls,
    FederationView,
    Ids,
    Mask,
    Needs,
    NonNegativeFloat,
    State,
    Strategy,
    Unfit,
)

ROWS_A_COLUMN, LEAST_ROWS = 5, 30
"""The smallest number of rows per column, and in total, with which a hospital may send its own sums to the server.
From sums of fewer rows, the rows could be reconstructed."""


def rows_needed(columns: int) -> int:
    """Return how many rows a hospital needs before it may send sums of products of ``columns`` columns."""
    return max(ROWS_A_COLUMN * columns, LEAST_ROWS)


class Lost(Exception):
    """Raised when a hospital did not answer a call; the round ends with ``state``."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state


def asked(call: Call, state: State) -> Generator[Call, Answers, Answers]:
    """Send a call to hospitals and return their answers. Raises :class:`Lost` with ``state`` if a hospital did not
    answer."""
    answers = yield call
    if len(answers.ids) < len(call.ids):
        raise Lost(state)
    return answers


class Exact(Strategy):
    """A strategy in which all hospitals with training rows run client programs, without learning rate, batches or
    epochs."""

    one_round: ClassVar[bool] = False
    """Whether the strategy is finished after its first round, however many rounds are configured."""

    def uses_selection(self) -> bool:
        return False

    def uses_training(self) -> bool:
        return False

    def unused_training(self) -> frozenset[str]:
        return super().unused_training() | ({"rounds"} if self.one_round else set())

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return view.trainable

    def round(self, view: FederationView, state: State) -> Calls:
        try:
            return (yield from self.steps(view, state, self.select(view, state, view.round)))
        except Lost as lost:
            return lost.state

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        """Run a round with hospitals ``ids``. A call that all hospitals must answer is sent with :func:`asked`."""
        raise NotImplementedError


@dataclass(frozen=True)
class HiddenSums(Exact):
    """A regression that the server fits to sums over all hospitals."""

    sums: Literal["secure", "clear"] = "secure"
    """How the server receives the sums.

    ``secure``: by secure aggregation, with default settings if the section ``secure`` is missing. ``clear``: the server
    receives the sums of each hospital. Every hospital must then have at least ``max(5 p, 30)`` rows for p columns, the
    intercept included. The limit does not apply if a section ``secure`` hides the sums, or ``privacy`` adds noise to
    them.
    """

    def hides_sums(self) -> bool:
        return self.sums == "secure"

    def _check_rows(self, view: FederationView) -> None:
        """Raise :class:`Unfit` if the server could reconstruct the rows of a small hospital from its sums."""
        if self.sums == "secure" or view.hides or view.noise is not None or not len(view.trainable):
            return
        fewest = int(view.trainable[np.argmin(view.sizes[view.trainable])])
        rows, columns = int(view.sizes[fewest]), len(view.initial)
        needed = rows_needed(columns)
        if rows < needed:
            raise Unfit(
                f"sums: clear would let the server reconstruct the {rows} rows of hospital '{view.names[fewest]}', "
                f"because a model of {columns} columns needs {needed} rows at each hospital; write sums: secure, or "
                "leave out small hospitals with data.minimum"
            )


@dataclass(frozen=True)
class PrivateIntercepts(HiddenSums):
    """A regression with common slopes, and a separate intercept for each hospital."""

    needs: ClassVar[Needs] = Needs.more("sends sums of second derivatives")

    ridge: NonNegativeFloat = 0.0
    """The weight of the penalty on squared slopes."""

    def private(self, view: FederationView) -> Mask | None:
        mask = np.zeros(len(view.initial), np.bool_)
        mask[view.parameters["bias"]] = True
        return mask

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        return {"personal": np.zeros(len(view.sizes), dtype=np.int64)}
