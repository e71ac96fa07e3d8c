"""RFA: the model moves by the geometric median of hospitals' updates, computed from sums alone.

K. Pillutla, S. M. Kakade, Z. Harchaoui: *Robust Aggregation for Federated Learning*, IEEE Transactions on Signal
Processing 2022, Algorithm 2 (smoothed Weiszfeld).

Each hospital i trains and stores its update ``delta_i``. The first estimate ``z`` of the median is the mean of the
updates, weighted by ``w_i``. In each of ``passes`` further calls of a round, hospitals receive ``z``. Each hospital
returns ``v_i (delta_i - z)`` and ``v_i = w_i / max(nu, |delta_i - z|)``, with ν a small smoothing distance. The
estimate ``z`` moves by ``sum_i v_i (delta_i - z) / sum_i v_i``. The norm of the returned vector is at most ``w_i``. The
rule ``geometric_median`` of ``aggregation`` does the same for other strategies, but starts at 0 instead of the mean.
After enough passes, hospitals that together have less than half of the total weight cannot move the model far, unless
they send a false ``v_i``. With ``passes: 0`` the method is federated averaging.

Traffic in a round: the server sends P scalars (the model, in float64) and the hospital's weight to each participant,
which sends back P scalars and a weight. Each pass has the same traffic again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    Context,
    FederationView,
    Keep,
    Limit,
    Needs,
    NonNegativeInt,
    Program,
    Reply,
    Send,
    State,
    above,
)
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class HeldTraining(Program):
    """The configured local training, after which the hospital stores its update."""

    size: int
    name: str = "rfa"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"delta": Send((self.size,)), "weight": Send(kind="size")}

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"delta": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        start, weight = at.received["theta"], at.received["weight"]
        delta = at.model.train(start).theta - start
        return Reply({"delta": weight * delta, "weight": weight}, {"delta": delta})


@dataclass(frozen=True)
class WeiszfeldStep(Program):
    """A hospital's contribution to a step of Weiszfeld's algorithm for the geometric median, from the received
    ``point [P]``.

    The hospital also receives ``share``, its weight as a multiple of the mean weight.
    """

    size: int
    nu: float
    hospitals: int
    largest: float
    """The largest ``share`` of any hospital."""
    name: str = "rfa_pass"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"pull": self._send(self.largest, (self.size,)), "strength": self._send(self.largest / self.nu)}

    def _send(self, largest: float, shape: tuple[int, ...] = ()) -> Send:
        top = math.ceil(math.log2(largest)) + 1
        return Send(shape, kind="pull", bits=min(44, 61 - top - math.ceil(math.log2(self.hospitals))), largest=2.0**top)

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"delta": Keep((self.size,))}

    def run(self, at: Context) -> Reply:
        away = at.memory["delta"] - at.received["point"]
        strength = at.received["share"] / max(self.nu, float(np.linalg.norm(away)))
        return Reply({"pull": strength * away, "strength": strength})


@dataclass(frozen=True)
class RFA(Weighted):
    """Robust aggregation by the geometric median (RFA); hospitals are weighted as in FedAvg."""

    needs = Needs.more("calls hospitals several times in a round")

    passes: NonNegativeInt = 3
    """R: the number of passes after the first estimate, the mean."""
    nu: Annotated[float, Limit(above, 0)] = 1e-6
    """ν: the smoothing distance; updates closer than ν to the estimate have the weight of an update at the distance
    ν."""

    def round(self, view: FederationView, state: State) -> Calls:
        ids = self.select(view, state, view.round)
        weight = self.weigh(view.sizes[ids])
        answers = yield Call(HeldTraining(len(view.initial)), {"theta": state.models[0]}, ids, {"weight": weight})
        answered, total = answers.ids, float(answers.sums["weight"])
        if not len(answered) or not total:
            return state
        point = answers.sums["delta"] / total
        shares = weight[np.searchsorted(ids, answered)] * len(ids)
        program = WeiszfeldStep(len(view.initial), self.nu, len(ids), float(shares.max()))
        for _ in range(self.passes):
            sums = (yield Call(program, {"point": point}, answered, {"share": shares})).sums
            if not float(sums["strength"]):
                break
            point = point + sums["pull"] / float(sums["strength"])
        return replace(state, models=state.models + point)
