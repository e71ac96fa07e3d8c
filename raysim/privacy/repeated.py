"""The privacy loss distribution of normal noise on a sum to which a privacy unit contributes several times.

The distribution equals that of the library dp-accounting bit for bit, but is computed faster, by one bisection for all
losses at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from raysim.core.arrays import Floats


def distribution(multiplier: float, places: Sequence[float], chances: Sequence[float], interval: float) -> Any:
    """Return the privacy loss distribution of one noisy sum, as a ``PrivacyLossDistribution`` of dp-accounting.

    A privacy unit (such as a patient) contributes ``places[i]`` times with probability ``chances[i]``. The normal noise
    has the standard deviation ``multiplier``. Privacy losses are discretised in steps of ``interval``.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss

    class Mixture(MixtureGaussianPrivacyLoss):  # type: ignore[misc]
        # This method of dp-accounting 0.6 is private. The public inverse_privacy_losses also chooses the bounds, on
        # which the last bits depend. A version without the private method gives the same results, but needs 30 times
        # as long: pyproject.toml excludes later versions, and tests run without the library's method.
        def _inverse_privacy_losses_with_range(
            self, privacy_losses: Floats, bounds: tuple[float, float], precision: float = 1e-6
        ) -> Floats:
            added = self.adjacency_type == AdjacencyType.ADD
            return outputs(
                privacy_losses, bounds, precision, multiplier, self.sensitivities, self.sampling_probs, added
            )

    def of_change(change: Any) -> Any:
        mechanism = Mixture(multiplier, places, chances, adjacency_type=change)
        bounds = mechanism.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        deltas = mechanism.get_delta_for_epsilon(np.arange(low, high + 1) * interval)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)

    return privacy_loss_distribution.PrivacyLossDistribution(
        of_change(AdjacencyType.REMOVE), of_change(AdjacencyType.ADD)
    )


def outputs(
    losses: Floats,
    bounds: tuple[float, float],
    precision: float,
    multiplier: float,
    places: Floats,
    chances: Floats,
    added: bool,
) -> Floats:
    """Return for each of ``losses [L]`` the smallest output whose privacy loss is at most that loss, ``[L]``.

    Outputs are within ``bounds``, in steps of ``precision``. A privacy unit contributes s times with probability q, for
    each s in ``places [S]`` and its q in ``chances [S]``. The noise has the standard deviation σ (``multiplier``). If
    the unit is removed, the loss of an output x is ``log sum q exp(-(s x + s^2 / 2) / σ^2)``. If it is ``added``, the
    loss is ``-log sum q exp((s x - s^2 / 2) / σ^2)``. Both losses decrease in x.
    """
    variance, sign = multiplier**2, -1 if added else 1
    constants = np.log(chances) + sign * (places * (-sign * 0.5 * places) / variance)
    low, high = np.full(losses.shape, bounds[0]), np.full(losses.shape, bounds[1])
    while (wide := high - low > precision).any():
        middle = (low + high) / 2
        terms = constants[:, None] - sign * (places[:, None] * middle / variance)
        below = losses < sign * np.logaddexp.reduce(terms, axis=0)
        low, high = np.where(wide & below, middle, low), np.where(wide & ~below, middle, high)
    return np.asarray(np.floor(high / precision) * precision)
