"""The weights of hospitals in averages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.strategies.base import (
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    NonNegativeFloat,
    State,
    Strategy,
    Upload,
    shares,
)

Weighting = Literal["samples", "uniform", "floor"]


@dataclass(frozen=True, kw_only=True)
class Weighted(Strategy):
    """A strategy that averages hospitals' model changes, with settings for the weights of hospitals."""

    weights: Weighting = "samples"
    """The weights of hospitals: by training rows (``samples``), equal (``uniform``), or by rows with a ``floor``."""
    minimum_weight: NonNegativeFloat = 0.01
    """With ``weights: floor``, the smallest weight of a hospital before all weights are scaled to the sum 1."""

    def unused_settings(self) -> Mapping[str, str]:
        return {} if self.weights == "floor" else {"minimum_weight": "weights: floor"}

    def unused_when_pooled(self) -> frozenset[str]:
        return super().unused_when_pooled() | {"weights", "minimum_weight"}

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(self.weigh(view.sizes[ids])))

    def weigh(self, sizes: Ids) -> Floats:
        """Return the weights of hospitals with ``sizes [H]`` training rows in an average; they sum to 1."""
        return hospital_weights(sizes, self.weights, self.minimum_weight)

    def weigh_groups(self, sizes: Ids, group: Ids) -> Floats:
        """Return the weight of each hospital in the average of its group, ``[H]``; the weights of a group sum to 1.

        ``sizes [H]`` are numbers of training rows, and ``group [H]`` the hospitals' groups.
        """
        return group_weights(sizes, group, self.weights, self.minimum_weight)


def hospital_weights(sizes: Ids, weighting: Weighting, minimum: float = 0.0) -> Floats:
    """Return the weights of hospitals with ``sizes [H]`` training rows in an average; they sum to 1.

    With ``samples``, weights are in proportion to rows. With ``uniform``, they are equal. With ``floor``, weights in
    proportion to rows are raised to at least ``minimum`` and then scaled to the sum 1.
    """
    if weighting == "uniform":
        return np.full(len(sizes), 1.0 / max(len(sizes), 1))
    weights = shares(sizes)
    if weighting == "floor":
        weights = np.maximum(weights, minimum)
        weights = weights / weights.sum()
    return weights


def group_weights(sizes: Ids, group: Ids, weighting: Weighting = "samples", minimum: float = 0.0) -> Floats:
    """Return the weight of each hospital in the average of its group, ``[H]``; the weights of a group sum to 1.

    ``sizes [H]`` are numbers of training rows, and ``group [H]`` the hospitals' groups; see :func:`hospital_weights`.
    """
    weights = np.empty(len(sizes))
    for label in np.unique(group):
        weights[group == label] = hospital_weights(sizes[group == label], weighting, minimum)
    return weights
