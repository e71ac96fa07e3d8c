"""Strategies that are written wrong, each in one way, as their authors might by accident."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim import (
    LAST,
    MIXTURE,
    OWN,
    LocalProblem,
    LocalTraining,
    Objective,
    Proximal,
    Selection,
    Strategy,
    Upload,
    shares,
)


@dataclass(frozen=True)
class ForgetsWeight(Strategy):
    def problem(self, view, state, ids):
        return LocalProblem(start=np.zeros_like(ids), upload=Upload())


@dataclass(frozen=True)
class ForgetsUpload(Strategy):
    def problem(self, view, state, ids):
        return LocalProblem(start=np.zeros_like(ids))


@dataclass(frozen=True)
class WeighsEverybody(Strategy):
    def problem(self, view, state, ids):
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes)))


@dataclass(frozen=True)
class DividesByZero(Strategy):
    def problem(self, view, state, ids):
        with np.errstate(invalid="ignore"):
            return LocalProblem(start=np.zeros_like(ids), upload=Upload(0.0 * ids / 0.0))


@dataclass(frozen=True)
class CountsFromOne(Strategy):
    """Its one model is row 0."""

    def problem(self, view, state, ids):
        return LocalProblem(start=np.ones_like(ids), upload=Upload(shares(view.sizes[ids])))


@dataclass(frozen=True)
class CountsFromTheEnd(Strategy):
    """In numpy -1 is the last row; here it is none."""

    def problem(self, view, state, ids):
        return LocalProblem(start=np.full_like(ids, -1), upload=Upload(shares(view.sizes[ids])))


@dataclass(frozen=True)
class StartsFromNothing(Strategy):
    def problem(self, view, state, ids):
        return LocalProblem(start=np.full_like(ids, LAST), upload=Upload(shares(view.sizes[ids])))


@dataclass(frozen=True)
class MixesNothing(Strategy):
    def problem(self, view, state, ids):
        return LocalProblem(start=np.full_like(ids, MIXTURE), upload=Upload(shares(view.sizes[ids])))


@dataclass(frozen=True)
class SumsTooFew(Strategy):
    def setup(self, view):
        return replace(super().setup(view), models=np.repeat(view.initial[None], 3, axis=0))

    def problem(self, view, state, ids):
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids]), sum_index=ids % 2))


@dataclass(frozen=True)
class ProximalTowardsItself(Strategy):
    def problem(self, view, state, ids):
        term = Proximal(0.1, np.full_like(ids, OWN))
        weights = Upload(shares(view.sizes[ids]))
        return LocalProblem(start=np.zeros_like(ids), upload=weights, objective=Objective(proximal=(term,)))


@dataclass(frozen=True)
class ForgetsComma(Strategy):
    def problem(self, view, state, ids):
        term = Proximal(0.1, np.zeros_like(ids))
        weights = Upload(shares(view.sizes[ids]))
        return LocalProblem(start=np.zeros_like(ids), upload=weights, objective=Objective(proximal=(term)))


@dataclass(frozen=True)
class Unsorted(Strategy):
    def select(self, view, state, round):
        return view.trainable[::-1]


@dataclass(frozen=True)
class InvitesStrangers(Strategy):
    def select(self, view, state, round):
        return np.array([0, len(view.sizes)])


@dataclass(frozen=True)
class Reshapes(Strategy):
    def aggregate(self, view, state, update):
        return replace(state, models=(state.models + update.sums)[:, :-1])


@dataclass(frozen=True)
class Explodes(Strategy):
    def aggregate(self, view, state, update):
        return replace(state, models=state.models + update.sums * (np.inf if view.round == 2 else 1.0))


@dataclass(frozen=True)
class ForgetsReturn(Strategy):
    def aggregate(self, view, state, update):
        replace(state, models=state.models + update.sums)


@dataclass(frozen=True)
class AveragesAll(Strategy):
    """One sum would be added to both models."""

    def setup(self, view):
        return replace(super().setup(view), models=np.repeat(view.initial[None], 2, axis=0))


@dataclass(frozen=True)
class ServesNobody(Strategy):
    def serve(self, view, state):
        return {"global": np.zeros(len(view.trainable) - 1, dtype=np.int64)}


@dataclass(frozen=True)
class ServesWhatIsNot(Strategy):
    def serve(self, view, state):
        return {"cluster": np.ones(len(view.sizes), dtype=np.int64)}


@dataclass(frozen=True)
class SendsAtTheEnd(Strategy):
    def personalize(self, view, state):
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        return LocalProblem(start=everyone, upload=Upload(shares(view.sizes)), training=LocalTraining(keep=True))


@dataclass(frozen=True)
class Wanders(Strategy):
    """Into a cluster that has no model."""

    def setup(self, view):
        return replace(super().setup(view), cluster=np.arange(len(view.sizes)))


@dataclass(frozen=True)
class PicksStrangers(Selection):
    def pick(self, draw):
        return draw.candidates + 1
