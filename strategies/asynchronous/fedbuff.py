"""FedBuff: the server collects asynchronous updates in a buffer, and takes a step when the buffer is full.

J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba: *Federated Learning with Buffered
Asynchronous Aggregation*, AISTATS 2022, Algorithm 1.

At most ``concurrency`` hospitals train at the same time. When one has finished, another starts from the current model.
Once the buffer has K deltas (changes of hospitals' parameters in training), the server's model x takes the step
``x <- x + eta_g / K sum_i s(tau_i) delta_i``. Here η_g is the server's learning rate, and
``s(tau) = (1 + tau)^-exponent`` (the paper's ``exponent`` is 0.5). The staleness τ is how often the server's model has
changed since hospital i received it. Deltas are not weighted by rows.

Choices: a hospital is not called again while its delta is in the buffer. If K exceeds the number of hospitals with
training rows, the buffer is full when all of these have sent their deltas. The configured selection samples the next
hospital among those that are available and not training. The virtual clock (``system``) decides when a hospital has
finished; without a clock all hospitals are equally fast. A round is one full buffer.

Traffic for each hospital's update: the server sends the model's P scalars to the hospital, which sends back P scalars
and the number of its training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.asynchronous.staleness import polynomial, staleness_of
from raysim.strategies.base import (
    Asynchrony,
    FederationView,
    Ids,
    LocalProblem,
    Needs,
    NonNegativeFloat,
    PositiveInt,
    State,
    Strategy,
    Upload,
)


@dataclass(frozen=True)
class FedBuff(Strategy):
    """Buffered asynchronous aggregation (FedBuff); the fields are its settings."""

    needs: ClassVar[Needs] = Needs.more("merges updates of few hospitals as they arrive")

    buffer: PositiveInt = 10
    """K: the number of updates that the server collects before each step."""
    server_learning_rate: NonNegativeFloat = 1.0
    """η_g: step size of the server."""
    exponent: NonNegativeFloat = 0.5
    """a: the exponent in the weight ``(1 + tau)^-a`` of an update with staleness τ."""
    concurrency: PositiveInt = 10
    """The largest number of hospitals that train at the same time."""

    def asynchrony(self) -> Asynchrony:
        return Asynchrony(self.concurrency, self.buffer)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        weight = polynomial(staleness_of(view, ids), self.exponent) * (self.server_learning_rate / len(ids))
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(weight))
