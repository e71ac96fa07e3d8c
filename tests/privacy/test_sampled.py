"""The distribution of sampled normal noise is that of the library dp-accounting, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from raysim.privacy import accountant, sampled
from raysim.privacy.events import Event, Gaussian, Laplace, Repeated
from tests.privacy.divergences import of_library

ON_THE_GRID = 1 - math.exp(-0.5)
"""A rate whose most negative loss, -1/2, is one of those that are looked up."""

NOISE = [(1.0, 0.1), (0.35, 0.3), (3.0, 0.004), (1.2, 0.9), (0.7, ON_THE_GRID)]


@pytest.mark.parametrize(("multiplier", "rate"), NOISE)
def test_outputs_are_the_librarys(multiplier: float, rate: float):
    for added in (False, True):
        change = AdjacencyType.ADD if added else AdjacencyType.REMOVE
        mechanism = GaussianPrivacyLoss(multiplier, sampling_prob=rate, adjacency_type=change)
        losses = np.arange(-700, 701) * 1e-2
        edge = math.log(1 - rate)
        losses = losses[losses < -edge * (1 - 1e-12)] if added else losses[losses > edge * (1 - 1e-12)]
        losses = np.sort(np.append(losses, -edge * (1 - 1e-11) if added else edge * (1 - 1e-11)))
        expected = [mechanism.inverse_privacy_loss(loss) for loss in losses]
        assert np.isinf(expected).sum() == 1
        np.testing.assert_array_equal(sampled.outputs(losses, multiplier, rate, added), expected)


@pytest.mark.parametrize(("multiplier", "rate"), NOISE)
def test_distributions_are_the_librarys(multiplier: float, rate: float):
    ours = sampled.distribution(multiplier, rate, 1e-2)
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, value_discretization_interval=1e-2, sampling_prob=rate
    )
    losses = np.linspace(-3, 3, 41)
    for count in (1, 7):
        mine, other = ours.self_compose(count), theirs.self_compose(count)
        np.testing.assert_array_equal(mine.get_delta_for_epsilon(losses), other.get_delta_for_epsilon(losses))
        assert mine.get_epsilon_for_delta(1e-6) == other.get_epsilon_for_delta(1e-6)


def test_events_are_composed_as_by_the_librarys_accountant(monkeypatch: pytest.MonkeyPatch):
    from dp_accounting import NeighboringRelation, pld

    monkeypatch.setattr(accountant, "INTERVAL", 1e-2)
    monkeypatch.setattr(accountant, "COARSE_INTERVAL", 1e-2)
    kinds: list[list[Event]] = [
        [Gaussian(2.0, 0.2, 9), Laplace(3.0, 2), Gaussian(6.0, 1.0, 4)],
        [Repeated(2.0, 0.1, 3, 5), Gaussian(5.0)],
    ]
    for events in kinds:
        theirs = pld.PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-2)
        for event in events:
            theirs.compose(of_library(event), event.count)
        assert accountant.by_distributions(events, 1e-5) == theirs.get_epsilon(1e-5)
