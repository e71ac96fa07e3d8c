"""Epsilons of events against numbers that dp-accounting and closed forms give, and what must hold of any of them."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

from raysim.core.errors import ConfigError
from raysim.privacy import accountant, quick
from raysim.privacy.events import Event, Gaussian, Laplace, Repeated
from tests.privacy.divergences import by_divergences, of_library

SAMPLED = [
    # rate, multiplier, steps, delta, by distributions, by divergences
    (0.1, 1, 100, 1e-5, 7.046603, 7.903850),
    (20 / 208, 1, 20, 1e-3, 2.043290, 2.617567),
    (1, 5, 20, 1e-5, 3.848610, 4.161624),
    (1, 1, 1, 1e-5, 4.377178, 4.728507),
]


@pytest.mark.parametrize(("rate", "multiplier", "steps", "delta", "distributions", "divergences"), SAMPLED)
def test_sampled_normal_noise_costs_what_the_library_says(rate, multiplier, steps, delta, distributions, divergences):
    events = [Gaussian(multiplier, rate, steps)]
    assert accountant.by_distributions(events, delta) == pytest.approx(distributions, abs=1e-4)
    assert by_divergences(events, delta) == pytest.approx(divergences, abs=1e-4)
    assert accountant.epsilon(events, delta) <= by_divergences(events, delta)


def test_normal_noise_alone_has_its_closed_form():
    assert accountant.epsilon([Gaussian(5, 1, 20)], 1e-5) == pytest.approx(3.848610282538, abs=1e-9)
    assert accountant.epsilon([Gaussian(1)], 1e-5) == pytest.approx(4.377178095681, abs=1e-9)


def test_kinds_of_noise_compose_to_less_than_the_sum_of_their_epsilons():
    events: list[Event] = [Laplace(2), Gaussian(10), Gaussian(2, 0.1, 50)]
    together = accountant.epsilon(events, 1e-5)
    assert together == pytest.approx(2.120586, abs=1e-4)
    assert by_divergences(events, 1e-5) == pytest.approx(2.314327, abs=1e-4)
    assert sum(accountant.epsilon([event], 1e-5) for event in events) == pytest.approx(2.493152, abs=1e-4)


@pytest.mark.parametrize(("places", "epsilon"), [(1, 1.5154), (2, 3.2942), (3, 5.2450)])
def test_a_patient_at_several_places_costs_more_than_each_alone(places, epsilon):
    assert accountant.epsilon([Repeated(1.1, 0.01, places, 1000)], 1e-5) == pytest.approx(epsilon, abs=1e-3)


@pytest.mark.parametrize("event", [Gaussian(0.6, 0.5, 50), Repeated(0.2, 0.05, 2, 40)])
def test_steps_of_a_large_epsilon_are_wide_and_change_it_by_less_than_one_in_a_hundred_thousand(event, monkeypatch):
    wide = accountant.epsilon([event], 1e-5)
    assert wide > accountant.LARGE
    monkeypatch.setattr(accountant, "LARGE", math.inf)
    fine = accountant.by_distributions([event], 1e-5)
    assert wide != fine
    assert wide == pytest.approx(fine, rel=1e-5)


@pytest.mark.filterwarnings("error")
def test_the_noise_of_a_large_epsilon_is_found_with_as_few_numbers_as_that_of_a_small_one(monkeypatch):
    """The time is that of the losses of one release and of all of them: a million or two for any epsilon."""
    from dp_accounting.pld import pld_pmf

    held: list[int] = []

    def recorded(interval: float, low: int, high: int, deltas: Any) -> Any:
        held.append(len(deltas))
        return made(interval, low, high, deltas)

    made = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap
    monkeypatch.setattr(pld_pmf, "create_pmf_pessimistic_connect_dots_fixed_gap", recorded)
    multiplier = accountant.calibrated(lambda each: [Gaussian(each, 0.05, 50)], 1e6, 1e-5)
    assert accountant.epsilon([Gaussian(multiplier, 0.05, 50)], 1e-5) == pytest.approx(1e6, rel=1e-4)
    assert 1000 < max(held) < 1_000_000


@pytest.mark.parametrize(("multiplier", "rate", "rounds"), [(1.1, 0.01, 1000), (2.0, 0.05, 200)])
def test_a_rough_figure_of_two_places_is_above_the_fine_one_by_two_percent_at_most(multiplier, rate, rounds):
    event = Repeated(multiplier, rate, 2, rounds)
    fine = accountant.epsilon([event], 1e-5)
    assert fine <= accountant.rough(event, 1e-5) <= 1.02 * fine
    assert math.isinf(accountant.rough(Repeated(0.0, rate, 2, rounds), 1e-5))


def test_a_rough_figure_counts_the_other_releases_of_each_place():
    """Three normal releases at two places are six; the epsilons of Laplace noise add up, at both places."""
    event, delta = Repeated(1.1, 0.01, 2, 10), 1e-5
    normal, pure = Gaussian(5.0, 1.0, 3), Laplace(20.0, 2)
    fine = accountant.epsilon([event, Gaussian(5.0, 1.0, 6)], delta)
    assert fine <= accountant.rough(event, delta, (normal,)) <= 1.02 * fine
    both = accountant.rough(event, delta, (normal, pure))
    assert both - accountant.rough(event, delta, (normal,)) == pytest.approx(2 * 2 / 20.0)


def test_normal_noises_of_all_units_are_one_beside_other_events():
    apart: list[Event] = [Laplace(2), Gaussian(10), Gaussian(20, 1.0, 4)]
    together = Gaussian((1 / 100 + 4 / 400) ** -0.5)
    assert accountant.epsilon(apart, 1e-5) == pytest.approx(accountant.epsilon([Laplace(2), together], 1e-5), abs=1e-9)


def test_many_different_events_are_bounded_by_divergences_from_above():
    few: list[Event] = [Laplace(20), Laplace(25), Gaussian(10), *(Gaussian(4 + k, 0.1, 5) for k in range(3))]
    assert len(few) == accountant.MOST_DISTRIBUTIONS
    assert accountant.epsilon(few, 1e-5) == pytest.approx(accountant.by_distributions(few, 1e-5), abs=1e-9)
    many = [*few, Gaussian(7.5, 0.1, 5)]
    bound, exact = accountant.epsilon(many, 1e-5), accountant.by_distributions(many, 1e-5)
    assert exact < bound < 1.5 * exact
    # Whole orders alone, so above the library's own bound by divergences, and near it.
    assert by_divergences(many, 1e-5) <= bound * (1 + 1e-9) < 1.05 * by_divergences(many, 1e-5)
    assert math.isinf(accountant.epsilon([*many, Gaussian(0.0)], 1e-5))


def test_laplace_noise_too_small_for_a_distribution_is_bounded_by_divergences(monkeypatch):
    monkeypatch.setattr(accountant, "by_distributions", lambda events, delta, longer: -1.0)
    epsilon = accountant._epsilon.__wrapped__
    assert epsilon((Laplace(0.05),), 1e-5) == -1.0
    assert epsilon((Laplace(0.0499),), 1e-5) == quick.epsilon_of([Laplace(0.0499)], 1e-5) > 19


def test_laplace_noise_has_the_librarys_divergence():
    for multiplier in (0.5, 2.0, 20.0):
        by_hand = quick.epsilon_of([Laplace(multiplier)], 1e-5)
        assert by_hand == pytest.approx(by_divergences([Laplace(multiplier)], 1e-5), abs=0.02)


def test_an_event_is_one_release_to_all_unless_more_is_said():
    assert (Gaussian(2.0), Laplace(2.0)) == (Gaussian(2.0, 1.0, 1), Laplace(2.0, 1))
    assert Repeated(2.0, 0.1, 3) == Repeated(2.0, 0.1, 3, 1)


def test_two_halves_are_one_event_of_double_count():
    halves = [Gaussian(2, 0.1, 5), Gaussian(2, 0.1, 5)]
    assert accountant.epsilon(halves, 1e-5) == accountant.epsilon([Gaussian(2, 0.1, 10)], 1e-5)


def test_epsilon_falls_with_noise_and_rises_with_rate_and_steps():
    def epsilon(multiplier: float, rate: float, steps: int) -> float:
        return accountant.epsilon([Gaussian(multiplier, rate, steps)], 1e-3)

    assert epsilon(2, 0.1, 10) < epsilon(1, 0.1, 10)
    assert epsilon(2, 0.1, 10) < epsilon(2, 0.2, 10) < epsilon(2, 1.0, 10)
    assert epsilon(2, 0.1, 10) < epsilon(2, 0.1, 20)
    assert math.isinf(epsilon(0, 0.1, 10))
    assert accountant.epsilon([], 1e-3) == 0


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "multiplier"),
    [(0.25, 20, 4, 1.197), (1, 20, 2, 6.463)],
)
def test_noise_is_calibrated_to_an_epsilon_that_it_then_keeps(rate, steps, epsilon, multiplier):
    def events(z: float) -> list[Gaussian]:
        return [Gaussian(z, rate, steps)]

    noise_multiplier = accountant.calibrated(events, epsilon, 1e-3)
    assert noise_multiplier == pytest.approx(multiplier, abs=1e-3)
    assert epsilon * (1 - 1e-3) <= accountant.epsilon(events(noise_multiplier), 1e-3) <= epsilon


def test_without_the_library_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"dp-accounting.*pip install 'raysim\[privacy\]'"):
        accountant.library()


@pytest.mark.parametrize("event", [Gaussian(1e-300, 1.0, 3), Gaussian(5e-324, 0.1, 3), Gaussian(0.0, 1.0, 1)])
def test_noise_that_vanishes_next_to_the_clip_gives_no_guarantee(event):
    assert accountant.epsilon([event], 1e-5) == math.inf


def test_little_noise_for_a_large_epsilon():
    small = accountant.calibrated(lambda multiplier: [Gaussian(multiplier)], 500.0, 1e-5)
    assert small < math.exp(-3.0)
    assert accountant.epsilon([Gaussian(small)], 1e-5) == pytest.approx(500.0, rel=1e-6)


def test_no_release_costs_nothing_and_no_noise_everything():
    assert quick.epsilon(1.0, 0.5, 0, 1e-5) == 0.0
    assert quick.epsilon_at_several([(1.0, 0.5, 0)], 2, 1e-5) == 0.0
    assert quick.epsilon_at_several([], 2, 1e-5) == 0.0
    assert quick.epsilon(0.0, 0.5, 3, 1e-5) == quick.epsilon_at_several([(0.0, 0.5, 3)], 2, 1e-5) == math.inf
    assert quick.epsilon(0.0, 0.5, 0, 1e-5, others=0.04) == quick.epsilon(5.0, 1.0, 1, 1e-5) > 0
    assert quick.epsilon_at_several([(0.0, 0.5, 0)], 1, 1e-5, others=0.04) == quick.epsilon(5.0, 1.0, 1, 1e-5)
    both = quick.epsilon_at_several([(5.0, 1.0, 1), (9.0, 1.0, 1), (4.0, 1.0, 1)], 2, 1e-5)
    assert both == pytest.approx(quick.epsilon_of([Gaussian(5.0), Gaussian(4.0)], 1e-5))


def test_places_have_binomial_chances():
    assert accountant._places(Repeated(1.0, 0.5, 2)) == ([0.0, 1.0, 2.0], pytest.approx([0.25, 0.5, 0.25]))


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
