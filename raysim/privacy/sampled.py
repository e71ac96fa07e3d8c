"""The privacy loss distribution of normal noise on a Poisson sample.

It equals the distribution of dp-accounting bit for bit, and takes less time. The library computes the output of each of
tens of thousands of losses, one after the other, in Python. Here all outputs are computed at once, by the same
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from raysim.core.arrays import Floats

NEAR = 1e-9
"""The relative distance from ``log(1 - rate)`` within which a loss is treated as this limit, which no output
reaches."""


def distribution(multiplier: float, rate: float, interval: float) -> Any:
    """Return the distribution of one release with noise of ``multiplier`` on a Poisson sample of ``rate`` below 1.

    ``interval`` is the step of privacy loss. The result is a ``PrivacyLossDistribution``.
    """
    from dp_accounting.pld import privacy_loss_distribution
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    def half(added: bool) -> Any:
        change = AdjacencyType.ADD if added else AdjacencyType.REMOVE
        mechanism = GaussianPrivacyLoss(multiplier, sampling_prob=rate, adjacency_type=change)

        def deltas(losses: Floats) -> Floats:
            beyond = np.zeros(len(losses)) if added else -np.expm1(np.minimum(losses, 0.0))
            reached = losses < -math.log1p(-rate) if added else losses > math.log1p(-rate)
            at = outputs(losses[reached], multiplier, rate, added)
            beyond[reached] = mechanism.mu_upper_cdf(at) - np.exp(losses[reached] + mechanism.mu_lower_log_cdf(at))
            return np.clip(beyond, 0, 1)

        return discretised(mechanism, interval, deltas)

    return privacy_loss_distribution.PrivacyLossDistribution(half(added=False), half(added=True))


def discretised(mechanism: Any, interval: float, deltas: Callable[[Floats], Floats]) -> Any:
    """Return the library's distribution of a mechanism's privacy loss, in steps of ``interval``.

    Neighbours differ by one unit that is added or removed. ``deltas(losses [L])`` returns the delta at each loss,
    ``[L]``.
    """
    from dp_accounting.pld import pld_pmf

    bounds = mechanism.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    beyond = deltas(np.arange(low, high + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, beyond)


def outputs(losses: Floats, multiplier: float, rate: float, added: bool) -> Floats:
    """Return the largest output whose privacy loss is at least each of ``losses [L]``, ``[L]``; the sensitivity is 1.

    Without sampling, a loss ``u`` is reached at ``-1/2 - u multiplier^2``. With sampling, a loss ``v`` is reached where
    the loss without sampling would be ``log(1 + (e^v - 1) / rate)``. For a unit that is ``added``, losses are negated
    and outputs moved by 1.
    """
    signed = -losses if added else losses
    scaled, rest = signed + np.log(1 / rate), 1 - 1 / rate
    whole = scaled + np.log1p(-np.exp(np.log(-rest) - scaled))
    whole[losses == 0] = np.log(1 / rate + rest)
    least = math.log(1 - rate)
    whole[np.abs(signed - least) <= NEAR * np.maximum(np.abs(signed), -least)] = -np.inf
    if added:
        return np.asarray(1 + (-0.5 + whole * multiplier**2))
    return np.asarray(-0.5 - whole * multiplier**2)
