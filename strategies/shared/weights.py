"""The weights of hospitals' deltas in averages."""

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
    """A strategy with settings for the weights of hospitals' deltas in its averages.

    All hospitals start from the global model unless the strategy has another ``problem``.
    """

    weights: Weighting = "samples"
    """The weights of hospitals: by training rows (``samples``), equal (``uniform``), or by rows with a ``floor``."""
    minimum_weight: NonNegativeFloat = 0.01
    """With ``weights: floor``, the smallest weight of a hospital before all weights are scaled to the sum 1."""

    def unused_settings(self) -> Mapping[str, str]:
        return {} if self.weights == "floor" else {"minimum_weight": "weights: floor"}

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(self.weigh(view.sizes[ids])))

    def weigh(self, sizes: Ids) -> Floats:
        """Return weights that sum to one over hospitals with ``sizes [H]`` training rows."""
        return hospital_weights(sizes, self.weights, self.minimum_weight)

    def weigh_groups(self, sizes: Ids, group: Ids) -> Floats:
        """Return weights ``[H]`` that sum to one inside each group; ``group [H]`` are the hospitals' groups."""
        return group_weights(sizes, group, self.weights, self.minimum_weight)


def hospital_weights(sizes: Ids, weighting: Weighting, minimum: float = 0.0) -> Floats:
    """Return weights that sum to one over hospitals with ``sizes [H]`` training rows.

    ``samples``: in proportion to rows. ``uniform``: equal. ``floor``: in proportion to rows, but at least ``minimum``
    before they are renormalised, so that small sites have an influence. ``minimum`` 0 equals ``samples``, and 1 or more
    equals ``uniform``.
    """
    if weighting == "uniform":
        return np.full(len(sizes), 1.0 / max(len(sizes), 1))
    weights = shares(sizes)
    if weighting == "floor":
        weights = np.maximum(weights, minimum)
        weights = weights / weights.sum()
    return weights


def group_weights(sizes: Ids, group: Ids, weighting: Weighting = "samples", minimum: float = 0.0) -> Floats:
    """Return :func:`hospital_weights` within each group, ``[H]``, from ``sizes [H]`` and ``group [H]``."""
    weights = np.empty(len(sizes))
    for label in np.unique(group):
        weights[group == label] = hospital_weights(sizes[group == label], weighting, minimum)
    return weights
