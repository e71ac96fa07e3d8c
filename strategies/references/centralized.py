"""All rows in one place: what federating gives up for privacy, as a reference. It can be beaten, and is no bound.

Trains on the pooled training rows of all hospitals, for the same number of epochs, in the usual way: rows are shuffled
in every epoch, and the optimiser keeps its state from round to round. Traffic: every training row leaves its hospital
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import POOLED, FederationView, Ids, LocalProblem, Needs, State, Strategy, Upload, Visit


@dataclass(frozen=True)
class Centralized(Strategy):
    """No hyper-parameters of its own."""

    title: ClassVar[str] = "All rows in one place"
    needs: ClassVar[Needs] = Needs.more("sends every row")

    yardstick: ClassVar[bool] = True

    def uses_selection(self) -> bool:
        return False

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return np.array([POOLED])

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(np.ones(1)), visit=Visit(carry=True))
