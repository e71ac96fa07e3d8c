"""Federated averaging in which hospitals train with the strategy's own client program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import FederationView, Ids, LocalProblem, Needs, Program, Send, State, Training, Upload
from raysim.strategies.shared.weights import Weighted

OF_HOSPITALS = Needs.of_hospitals("trains with its own client program")


@dataclass(frozen=True)
class DeltaTraining(Program):
    """A program with which a hospital receives parameters ``theta [P]``, trains, and sends their change."""

    size: int
    """The number of parameters, P."""

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,))}


@dataclass(frozen=True, kw_only=True)
class ProgramAverage(Weighted):
    """A strategy whose participants train by :meth:`program`.

    The global model moves by the weighted mean of their changes.
    """

    needs = OF_HOSPITALS

    def program(self, view: FederationView) -> Program:
        """Return the program that each participant runs."""
        raise NotImplementedError

    def check_training(self, training: Training) -> None:
        check_plain(training, type(self).__name__)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(np.zeros_like(ids), Upload(self.weigh(view.sizes[ids])), program=self.program(view))


def alike(ids: Ids, program: Program) -> LocalProblem:
    """Return the local problem of hospitals ``ids``, which run ``program`` and have equal weights."""
    return LocalProblem(np.zeros_like(ids), Upload(np.full(len(ids), 1.0 / max(len(ids), 1))), program=program)


def check_plain(training: Training, name: str) -> None:
    """Raise ``ValueError`` unless the optimiser is plain SGD."""
    if training.optimizer != "sgd":
        raise ValueError(f"training.optimizer: {name} is defined for sgd, not for {training.optimizer}; use sgd")
