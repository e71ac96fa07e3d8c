"""The distribution of noise on what a unit may add several times is that of the library dp-accounting, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss

from raysim.privacy import repeated

CASES = [
    (1.1, [0.0, 1.0, 2.0], [0.9801, 0.0198, 0.0001]),
    (0.6, [0.0, 1.0, 2.0, 3.0], [0.125, 0.375, 0.375, 0.125]),
    (2.5, [1.0, 2.0], [0.25, 0.75]),
    (40.0, [0.0, 1.0], [0.5, 0.5]),
]
"""Noise multiplier, how often a unit adds, and with which chances."""


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("multiplier", "places", "chances"), CASES)
def test_outputs_are_the_librarys(multiplier: float, places: list[float], chances: list[float], added: bool):
    change = AdjacencyType.ADD if added else AdjacencyType.REMOVE
    mechanism = MixtureGaussianPrivacyLoss(multiplier, places, chances, adjacency_type=change)
    inside = np.linspace(-3, 3, 25) * multiplier
    losses = np.sort([float(mechanism.privacy_loss(x)) for x in inside])
    for bounds in ((-4.0 * multiplier, 4.0 * multiplier), (-1.0, 7.0), (0.5, 0.5 + 1e-7)):
        expected = mechanism._inverse_privacy_losses_with_range(losses, bounds, 1e-4)
        ours = repeated.outputs(losses, bounds, 1e-4, multiplier, np.array(places), np.array(chances), added)
        np.testing.assert_array_equal(ours, expected)
    nothing = repeated.outputs(np.empty(0), (0.0, 1.0), 1e-4, multiplier, np.array(places), np.array(chances), added)
    assert nothing.shape == (0,)


@pytest.mark.parametrize(("multiplier", "places", "chances"), CASES)
def test_distributions_are_the_librarys(
    multiplier: float, places: list[float], chances: list[float], monkeypatch: pytest.MonkeyPatch
):
    theirs = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier, places, chances, value_discretization_interval=5e-2
    )
    # And not by the library's search, in which it takes its time.
    monkeypatch.delattr(MixtureGaussianPrivacyLoss, "_inverse_privacy_losses_with_range")
    ours = repeated.distribution(multiplier, places, chances, 5e-2)
    losses = np.linspace(-12, 12, 241)
    for count in (1, 7):
        mine, other = ours.self_compose(count), theirs.self_compose(count)
        np.testing.assert_array_equal(mine.get_delta_for_epsilon(losses), other.get_delta_for_epsilon(losses))
        assert mine.get_epsilon_for_delta(1e-6) == other.get_epsilon_for_delta(1e-6)
