"""The quick bound of epsilon, term by term: whole numbers for the binomials, one order after the other."""

from __future__ import annotations

import math

import pytest

from raysim.privacy import quick
from raysim.privacy.events import Gaussian, Laplace

ORDERS = [*range(2, 65), *range(72, 257, 8)]
DELTA = 1e-5


def log_sum(terms: list[float]) -> float:
    largest = max(terms)
    return largest + math.log(math.fsum(math.exp(term - largest) for term in terms))


def normal(order: int, multiplier: float, rate: float) -> float:
    """``log sum_k C(a, k) (1 - q)^(a - k) q^k exp(k (k - 1) / (2 z^2)) / (a - 1)``."""
    if rate == 1:
        return order / (2 * multiplier**2)
    terms = [
        math.log(math.comb(order, k))
        + (order - k) * math.log(1 - rate)
        + k * math.log(rate)
        + k * (k - 1) / (2 * multiplier**2)
        for k in range(order + 1)
    ]
    return log_sum(terms) / (order - 1)


def laplace(order: int, scale: float) -> float:
    """``log(a/(2a - 1) exp((a - 1)/b) + (a - 1)/(2a - 1) exp(-a/b)) / (a - 1)``."""
    of_all = 2 * order - 1
    left, right = order / of_all * math.exp((order - 1) / scale), (order - 1) / of_all * math.exp(-order / scale)
    return math.log(left + right) / (order - 1)


def best(divergences: dict[int, float]) -> tuple[float, int]:
    """The least epsilon at ``DELTA`` and the order that gives it."""
    each = {
        a: total + math.log(1 - 1 / a) - (math.log(DELTA) + math.log(a)) / (a - 1) for a, total in divergences.items()
    }
    order = min(each, key=each.__getitem__)
    return max(each[order], 0.0), order


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "order"),
    [
        (0.2, 1.0, 1, 2),
        (0.4, 1.0, 1, 3),
        (17.0, 1.0, 1, 64),
        (18.0, 1.0, 1, 72),
        (71.0, 1.0, 1, 248),
        (80.0, 1.0, 1, 256),
        (0.4, 0.3, 2, 2),
        (1.0, 0.1, 100, 3),
        (2.5, 0.02, 40, 47),
        (40.0, 0.5, 7, 112),
        (60.0, 0.01, 3, 256),
    ],
)
def test_the_bound_is_the_best_of_its_orders(multiplier, rate, steps, order):
    expected, at = best({a: steps * normal(a, multiplier, rate) for a in ORDERS})
    assert at == order
    assert quick.epsilon(multiplier, rate, steps, DELTA) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert quick.epsilon_of([Gaussian(multiplier, rate, steps)], DELTA) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 3.0, 40.0])
def test_laplace_noise_and_normal_noise_add_up_at_each_order(scale):
    events = [Laplace(scale, 3), Gaussian(2.5, 0.1, 40)]
    expected, _ = best({a: 3 * laplace(a, scale) + 40 * normal(a, 2.5, 0.1) for a in ORDERS})
    assert quick.epsilon_of(events, DELTA) == pytest.approx(expected, rel=1e-9)
    alone, _ = best({a: 3 * laplace(a, scale) for a in ORDERS})
    assert quick.epsilon_of(events[:1], DELTA) == pytest.approx(alone, rel=1e-9)


def test_noise_beside_the_steps_adds_half_the_order_over_its_square():
    expected, _ = best({a: 9 * normal(a, 3.0, 0.2) + a * 0.07 / 2 for a in ORDERS})
    assert quick.epsilon(3.0, 0.2, 9, DELTA, others=0.07) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("places", [1, 2, 3, 5])
def test_of_several_places_those_count_that_tell_most_at_the_order(places):
    """The second tells most at large orders, the first at small ones; a place without steps tells nothing."""
    steps = [(3.0, 0.05, 60), (2.0, 0.01, 30), (7.0, 1.0, 2), (9.0, 0.5, 0)]
    totals = {
        a: math.fsum(sorted(count * normal(a, z, q) for z, q, count in steps)[::-1][:places]) + places * a * 0.02 / 2
        for a in ORDERS
    }
    expected, _ = best(totals)
    assert quick.epsilon_at_several(steps, places, DELTA, others=0.02) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("target", "rate", "steps", "beside"),
    [(2.0, 0.2, 30, 0.0), (0.3, 1.0, 5, 0.0), (1.0, 0.1, 9, 0.01), (4000.0, 1.0, 1, 0.0), (1e8, 0.1, 40, 0.0)],
)
def test_the_multiplier_keeps_the_target_and_two_tolerances_less_do_not(target, rate, steps, beside):
    multiplier = quick.calibrated(target, rate, steps, DELTA, beside)
    assert quick.epsilon(multiplier, rate, steps, DELTA, beside) <= target
    assert quick.epsilon(multiplier * math.exp(-2.1e-4), rate, steps, DELTA, beside) > target


def test_what_no_noise_keeps_is_refused():
    """A further release costs more alone."""
    assert quick.epsilon(1e9, 0.1, 5, DELTA, others=0.25) > 1.0
    with pytest.raises(ValueError, match=r"^target: no noise lowers the bound of epsilon to 1; raise"):
        quick.calibrated(1.0, 0.1, 5, DELTA, 0.25)


def test_no_release_costs_nothing_and_no_noise_costs_all():
    steps = [(3.0, 0.05, 60), (2.0, 0.01, 30)]
    each = {a: [count * normal(a, z, q) for z, q, count in steps] for a in ORDERS}
    for places, of in ((1, max), (2, sum), (3, sum)):
        expected, _ = best({a: of(terms) for a, terms in each.items()})
        assert quick.epsilon_at_several(steps, places, DELTA) == pytest.approx(expected, rel=1e-9)
    assert quick.epsilon_at_several([(3.0, 0.05, 0)], 2, DELTA) == quick.epsilon_at_several([], 2, DELTA) == 0.0
    beside, _ = best({a: 2 * a * 0.5 / 2 for a in ORDERS})
    assert quick.epsilon_at_several([], 2, DELTA, others=0.5) == pytest.approx(beside, rel=1e-9)
    assert quick.epsilon_at_several([*steps, (0.0, 0.5, 1)], 2, DELTA) == math.inf
    assert quick.epsilon_of([Gaussian(2.0), Laplace(0.0)], DELTA) == math.inf
    assert quick.epsilon_of([], DELTA) == pytest.approx(best(dict.fromkeys(ORDERS, 0.0))[0], abs=1e-12)


def test_each_order_has_all_its_terms():
    """Where little noise makes the last of them the largest."""
    computed = quick.divergences(0.7, 0.3)
    assert computed == pytest.approx([normal(order, 0.7, 0.3) for order in ORDERS])
