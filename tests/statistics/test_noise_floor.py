"""Drawn federations against drawing them directly, and the floor against its definition by loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.special import expit, ndtri

from raysim.core.levels import Z
from raysim.metrics.equity import equity
from raysim.statistics.chance import noise_floor as module
from raysim.statistics.chance.dispersion import Dispersion
from raysim.statistics.chance.floor_figures import compared_with_floor, noise_free_figure
from raysim.statistics.chance.inversion import TAUS, Estimate, _crossing, invert, visible
from raysim.statistics.chance.noise_floor import (
    STAGE,
    noise_floor,
    true_range,
    weighted_squares,
)
from raysim.statistics.chance.simulate import Chance, SimulatedFederations, centres, federations
from raysim.statistics.discrimination.common_curve import common_curve
from tests.statistics.federations import sums

EVENTS = np.array([1, 2, 6, 30, 5, 9, 3, 12, 40, 7, 15, 8])
NON_EVENTS = np.array([16, 9, 4, 20, 50, 60, 2, 70, 90, 30, 15, 80])
SIZES = 7 * (EVENTS + NON_EVENTS)


def simulated(events, non_events, common, event_sd, taus, *arguments):
    blocks = list(federations(events, non_events, centres(common, taus), event_sd, taus, *arguments))
    return tuple(np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True))


@pytest.mark.parametrize("sd", [1.0, 1.6])
@pytest.mark.parametrize(("m", "n"), [(2, 5), (5, 2), (1, 3)])
def test_draws_are_as_directly_sampled_scores(m, n, sd):
    rng, draws = np.random.default_rng(5), 20_000
    observed, true = simulated([m, m], [n, n], 0.8, sd, [0.0], draws, rng)
    assert true == pytest.approx(0.8)
    assert observed.shape == (1, draws, 2)
    x = ndtri(0.8) * np.sqrt(1 + sd**2) + sd * rng.standard_normal((2 * draws, m, 1))
    direct = (x > rng.standard_normal((2 * draws, 1, n))).mean(axis=(1, 2))
    values = np.arange(m * n + 1) / (m * n)
    shares, wanted = ((np.isclose(a.ravel()[:, None], values)).mean(axis=0) for a in (observed, direct))
    assert shares.sum() == pytest.approx(1)
    assert shares == pytest.approx(wanted, abs=4 * np.sqrt(0.25 * 2 / (2 * draws)))
    assert np.corrcoef(observed[0].T)[0, 1] == pytest.approx(0, abs=4 / np.sqrt(draws))


def test_models_that_share_chance_are_sampled_as_each_alone(monkeypatch):
    """At other counts, and where a block holds fewer draws than are wanted, the stream starts again."""
    made = []

    def generator():
        made.append(1)
        return np.random.default_rng(7)

    chance = Chance(generator)
    for counts, common, starts in (
        ((EVENTS, NON_EVENTS), 0.8, 1),
        ((EVENTS, NON_EVENTS), 0.7, 1),
        (([2], [9]), 0.7, 2),
    ):
        given = *counts, common, 1.3, [0.0, 0.4], 30
        for ours, wanted in zip(simulated(*given, chance), simulated(*given, np.random.default_rng(7)), strict=True):
            assert_array_equal(ours, wanted)
        assert len(made) == starts
    monkeypatch.setattr("raysim.statistics.chance.simulate.BLOCK", 1000)
    for common in (0.8, 0.7):
        given = EVENTS, NON_EVENTS, common, 1.3, [0.0, 0.4], 30
        for ours, wanted in zip(simulated(*given, chance), simulated(*given, np.random.default_rng(7)), strict=True):
            assert_array_equal(ours, wanted)
    assert len(made) == 4


def test_a_true_spread_is_sampled_around_the_mean():
    rng, taus = np.random.default_rng(6), [0.0, 0.5, 1.5]
    observed, true = simulated([50] * 10, [200] * 10, 0.8, 1.2, taus, 2000, rng)
    assert true.mean(axis=(1, 2)) == pytest.approx([0.8] * 3, abs=0.006)
    assert np.log(true / (1 - true)).std(axis=(1, 2)) == pytest.approx(taus, rel=0.03)
    assert observed.mean(axis=(1, 2)) == pytest.approx(true.mean(axis=(1, 2)), abs=0.002)
    # The same patients at every spread: a hospital's surprise hardly changes with it.
    surprise = observed - true
    assert np.corrcoef(surprise[0].ravel(), surprise[1].ravel())[0, 1] > 0.9


@pytest.mark.parametrize("common", [0.05, 0.5, 0.83])
def test_centres_keep_the_mean(common):
    taus = [0, 0.3, 1, 3]
    z = ndtri((np.arange(100_000) + 0.5) / 100_000)
    locations = centres(common, taus)
    assert [expit(mu + tau * z).mean() for mu, tau in zip(locations, taus, strict=True)] == pytest.approx(
        [common] * 4, abs=2e-5
    )


@pytest.mark.parametrize("common", [0.05, 0.83])
def test_centres_keep_the_mean_under_a_spread_far_beyond_any_tried(common):
    z = ndtri((np.arange(100_000) + 0.5) / 100_000)
    (mu,) = centres(common, [8.0])
    assert expit(mu + 8.0 * z).mean() == pytest.approx(common, abs=5e-4)  # the quadrature's own error


def test_figures_are_those_of_the_metrics():
    auroc = np.random.default_rng(7).random((4, 12))
    dispersion = Dispersion(EVENTS >= 5, np.log(SIZES))
    figures = dispersion.figures(auroc)
    for row in range(4):
        wanted = equity(auroc[row], EVENTS, SIZES)
        for name in ("std", "gini", "worst_decile", "p10", "size_bias"):
            assert figures[name][row] == pytest.approx(wanted[name])
        assert figures["lowest"][row] == auroc[row, EVENTS >= 5].min()
    assert dispersion.figures(auroc[2]) == pytest.approx({name: values[2] for name, values in figures.items()})


@pytest.mark.parametrize(
    ("hospitals", "listed", "sizes", "names"),
    [
        (10, 1, "uneven", {"std", "gini", "lowest", "worst_decile", "p10", "size_bias"}),
        (10, 1, "even", {"std", "gini", "lowest", "worst_decile", "p10"}),
        (9, 1, "uneven", {"std", "gini", "lowest"}),
        (9, 0, "uneven", {"std", "gini"}),
        (1, 1, "uneven", set()),
    ],
)
def test_few_hospitals_have_fewer_figures(hospitals, listed, sizes, names):
    size = np.arange(hospitals) * (0.1 if sizes == "uneven" else 0.01)
    dispersion = Dispersion(np.arange(hospitals) < listed, size)
    assert set(dispersion.figures(np.linspace(0.5, 0.9, hospitals))) == names


@pytest.mark.parametrize(("hospitals", "worst"), [(10, 0.0), (11, 0.5), (20, 0.5), (21, 1.0)])
def test_a_tenth_of_hospitals_is_rounded_up(hospitals, worst):
    dispersion = Dispersion(np.zeros(hospitals, bool), np.zeros(hospitals))
    assert dispersion.figures(np.arange(float(hospitals)))["worst_decile"] == worst


def test_of_equal_hospitals_the_middle_of_the_draws_and_the_share_as_extreme_are_shown():
    """0 to 1000 drawn: 25 and 975 leave a fortieth on either side."""
    equal = np.arange(1001.0)[None, :]
    none = Estimate(0.0, 0.0, 0.0)
    lower = compared_with_floor("p10", 100.0, equal, none, none, [0.0], worse_when_lower=True)
    assert (lower.floor, lower.low, lower.high) == pytest.approx((500.0, 25.0, 975.0))
    assert lower.p == (1 + 101) / 1002
    assert compared_with_floor("std", 100.0, equal, none, none, [0.0], worse_when_lower=False).p == (1 + 901) / 1002


def test_the_floor_is_its_definition():
    message = sums(np.random.default_rng(8), EVENTS, NON_EVENTS, 0.8, 1.3)
    taus = (0, 0.4, 0.8, 1.6)
    floor = noise_floor(message, SIZES, np.random.default_rng(9), draws=150, taus=taus, minimum_events=5)
    curve = common_curve(message)
    observed, true = simulated(EVENTS, NON_EVENTS, curve.common, curve.event_sd, taus, 150, np.random.default_rng(9))

    def q(auroc):
        w = 1 / curve.variance
        return (w * (auroc - np.average(auroc, weights=w)) ** 2).sum()

    chance = np.array([[q(a) for a in block] for block in observed])
    assert (floor.q, floor.hospitals) == (pytest.approx(q(curve.auroc)), 12)
    assert floor.p == pytest.approx(min(1, 2 * (1 + (chance[0] >= floor.q).sum()) / 151))
    assert floor.tau == invert(floor.q, chance, taus)

    def figure(auroc, name):
        return (
            auroc[np.minimum(EVENTS, NON_EVENTS) >= 5].min() if name == "lowest" else equity(auroc, EVENTS, SIZES)[name]
        )

    for name in ("std", "gini", "worst_decile", "p10", "lowest", "size_bias"):
        measured = floor.figures[name]
        shown = np.array([[figure(a, name) for a in block] for block in observed])
        noise_free = np.array([[figure(a, name) for a in block] for block in true])
        value, mean = figure(curve.auroc, name), shown[0].mean()
        if name == "size_bias":
            extreme = np.abs(shown[0] - mean) >= abs(value - mean)
        else:
            extreme = shown[0] >= value if name in ("std", "gini") else shown[0] <= value
        assert (measured.value, measured.floor) == pytest.approx((value, mean))
        assert (measured.low, measured.high) == pytest.approx(tuple(np.quantile(shown[0], [0.025, 0.975])))
        assert measured.p == pytest.approx((1 + extreme.sum()) / 151)
        if name == "size_bias":
            assert np.isnan([*measured.true, *measured.excess]).all()
            continue
        wanted = [np.interp(t, taus, shown.mean(axis=1) - mean) for t in floor.tau]
        assert sorted(measured.excess) == list(measured.excess) == pytest.approx(sorted(wanted), abs=1e-12)
        # The common figure is known with the variance of a weighted mean; hospitals differ from what a spread implies.
        weights = 1 / curve.variance
        is_level = name not in ("std", "gini")
        apart = noise_free - (np.average(true, axis=2, weights=weights) if is_level else 0)
        of_tau = [np.interp(t, taus, apart.mean(axis=1)) for t in floor.tau]
        chance = 1.959963984540054 * np.hypot(
            np.interp(floor.tau.estimate, taus, apart.std(axis=1)), weights.sum() ** -0.5 if is_level else 0
        )
        estimate = np.interp(floor.tau.estimate, taus, noise_free.mean(axis=1))
        low = estimate - np.hypot(of_tau[1] - min(of_tau), chance)
        high = estimate + np.hypot(max(of_tau) - of_tau[1], chance)
        assert measured.true == pytest.approx((max(low, 0), estimate, min(high, 1)), abs=1e-12)


def test_the_figures_of_these_hospitals_are_in_their_intervals():
    """Twenty hospitals and four, truly different: what the spread implies is a mean that few federations are at."""
    rng = np.random.default_rng(15)
    for events, figures in (([8, 15, 30, 12], ("std", "lowest")), ([9, 14, 5, 22, 11] * 4, ("lowest", "p10"))):
        positives, negatives = np.array(events), 4 * np.array(events)
        inside = dict.fromkeys(figures, 0)
        for _ in range(60):
            true = expit(1.5 + 0.8 * rng.standard_normal(len(events)))
            floor = noise_floor(
                sums(rng, positives, negatives, true),
                5 * positives,
                rng,
                draws=100,
                taus=(0, 0.2, 0.4, 0.6, 0.8, 1, 1.4, 2),
            )
            wanted = Dispersion(positives >= 5, np.log(5 * positives)).figures(true)
            for name in figures:
                inside[name] += bool(floor.figures[name].true.low <= wanted[name] <= floor.figures[name].true.high)
        # Of 60 federations, fewer than 52 hold the truth with a chance below .01 where .95 should.
        assert min(inside.values()) >= 52, inside


def test_inversion_by_hand():
    # Of ten draws at each of five spreads, 0, 1, 4, 6 and all reach a Q of 1.
    drawn_q = np.array([[2.0] * reach + [0.5] * (10 - reach) for reach in (0, 1, 4, 6, 10)])
    spreads = invert(1.0, drawn_q, [0, 1, 2, 3, 4])
    assert spreads == pytest.approx((0.25, 2.5, 3.9375))
    assert invert(3.0, drawn_q, [0, 1, 2, 3, 4]) == (np.inf,) * 3
    assert invert(0.1, drawn_q, [0, 1, 2, 3, 4]) == (0, 0, 0)
    assert invert(2.0, drawn_q, [0, 1, 2, 3, 4]) == spreads  # a Q as large counts
    # Shares that fall by chance are made to ascend.
    uneven = np.array([[2.0] * reach + [0.5] * (10 - reach) for reach in (0, 9, 4, 10)])
    assert invert(1.0, uneven, [0, 1, 2, 3]).high == pytest.approx(2.75)


def test_clear_differences_are_shown_and_their_size_estimated():
    rng = np.random.default_rng(10)
    events, non_events = np.full(40, 60), np.full(40, 200)
    true = expit(1.5 + 0.6 * rng.standard_normal(40))
    floor = noise_floor(sums(rng, events, non_events, true), events * 9, rng, draws=200)
    assert floor.demonstrated
    assert floor.p <= 0.05
    assert floor.tau.low < 0.6 < floor.tau.high
    assert floor.visible < 0.4
    worst = floor.figures["worst_decile"]
    assert worst.true.low < np.sort(true)[:4].mean() < worst.true.high
    assert worst.excess.high < 0
    assert floor.sentence().startswith("Hospitals differ beyond chance")


def test_equal_service_is_not_called_unequal():
    rng = np.random.default_rng(11)
    floor = noise_floor(sums(rng, EVENTS, NON_EVENTS, 0.8), SIZES, rng, draws=200)
    assert (floor.demonstrated, floor.tau.low) == (False, 0)
    assert floor.p > 0.05
    assert floor.figures["std"].true.low == pytest.approx(0, abs=1e-12)
    assert floor.figures["worst_decile"].excess.high == pytest.approx(0, abs=1e-12)
    assert "beyond chance was demonstrated" in floor.sentence()
    assert "could not demonstrate any" in replace(floor, visible=np.inf).sentence()


def test_the_power_is_the_share_of_draws_that_would_be_shown():
    rng = np.random.default_rng(12)
    message = sums(rng, EVENTS, NON_EVENTS, 0.8)
    curve, taus = common_curve(message), (0, 0.5, 1.0, 2.0)
    floor = noise_floor(message, SIZES, np.random.default_rng(1), draws=400, taus=taus)
    observed, _ = simulated(EVENTS, NON_EVENTS, curve.common, curve.event_sd, taus, 400, np.random.default_rng(1))
    q = weighted_squares(observed, 1 / curve.variance)
    power = [np.mean([invert(one, q, taus).low > 0 for one in of_tau]) for of_tau in q]
    assert power[0] <= 0.025
    assert np.interp(floor.visible, taus, power) == pytest.approx(0.8, abs=0.005)


def test_fewer_than_three_hospitals_have_no_floor():
    rng = np.random.default_rng(13)
    floor = noise_floor(sums(rng, [5, 9, 0], [30, 40, 9], 0.8), [40, 50, 9], rng)
    assert (floor.hospitals, floor.figures, floor.demonstrated) == (2, {}, False)
    assert np.isnan([floor.q, floor.p, *floor.tau, floor.visible]).all()
    assert floor.sentence().startswith("With 2 judged hospitals, differences between hospitals cannot be judged")
    alone = noise_floor(sums(rng, [5, 0, 0], [30, 40, 9], 0.8), [40, 50, 9], rng)
    assert alone.sentence().startswith("With 1 judged hospital, differences between hospitals cannot be judged")


def test_the_range_of_true_aurocs():
    low, high = true_range(0.8, 0.5)
    (mu,) = centres(0.8, [0.5])
    assert (low, high) == pytest.approx((expit(mu - 0.98), expit(mu + 0.98)), abs=1e-5)
    assert true_range(0.8, 0.0) == pytest.approx((0.8, 0.8))
    assert np.isnan(true_range(0.8, np.inf)).all()


def test_taus_that_do_not_ascend_from_0_are_refused():
    message = sums(np.random.default_rng(0), EVENTS, NON_EVENTS, 0.8)
    for taus in ((), (0.1, 0.2), (0, 0.2, 0.2)):
        with pytest.raises(ValueError, match="taus"):
            noise_floor(message, SIZES, np.random.default_rng(0), taus=taus)


def test_a_spread_without_limit_has_the_figures_of_the_largest_tried():
    rng = np.random.default_rng(15)
    message = sums(rng, [30, 40, 50], [100] * 3, [0.55, 0.8, 0.97])
    floor = noise_floor(message, [1000, 2000, 3000], np.random.default_rng(1), draws=200, taus=(0, 0.2))
    assert floor.tau.high == np.inf
    curve = common_curve(message)
    counts = message.events, message.non_events
    _, true = simulated(*counts, curve.common, curve.event_sd, (0, 0.2), 200, np.random.default_rng(1))
    spreads = true[1].std(axis=1)
    assert floor.tau.estimate == np.inf
    assert floor.figures["std"].true.high == pytest.approx(spreads.mean() + 1.959963984540054 * spreads.std())


def test_equal_figures_count_as_reached():
    """With one event each an AUROC takes few values, and sums of the same ones differ by rounding alone."""
    events, non_events = np.ones(12, dtype=int), np.full(12, 2)
    message = sums(np.random.default_rng(16), events, non_events, 0.8)
    floor = noise_floor(message, SIZES, np.random.default_rng(3), draws=400, taus=(0,))
    curve = common_curve(message)
    ((observed,), _) = simulated(events, non_events, curve.common, curve.event_sd, [0], 400, np.random.default_rng(3))
    lower = [np.sort(a)[:2].sum() < np.sort(curve.auroc)[:2].sum() - 1e-6 for a in observed]
    same = [abs(np.sort(a)[:2].sum() - np.sort(curve.auroc)[:2].sum()) < 1e-6 for a in observed]
    assert np.sum(same) > 20
    assert floor.figures["worst_decile"].p == pytest.approx((1 + np.sum(lower) + np.sum(same)) / 401)
    spread, drawn_spread = curve.auroc.std(), observed.std(axis=1)
    assert floor.figures["std"].p == pytest.approx((1 + (drawn_spread > spread - 1e-6).sum()) / 401)


def test_larger_spreads_are_sampled_only_while_they_matter():
    """What is said is the same as from draws at all spreads, and beyond what the data bear nothing is drawn."""
    rng = np.random.default_rng(11)
    events, non_events = np.full(60, 30), np.full(60, 90)
    message = sums(rng, events, non_events, 0.8)
    asked = []

    class Counting(Chance):
        def scores(self, *arguments):
            asked.append(1)
            return super().scores(*arguments)

    floor = noise_floor(message, events * 9, Counting(lambda: np.random.default_rng(3)), draws=200)
    curve = common_curve(message)
    observed, _ = simulated(events, non_events, curve.common, curve.event_sd, TAUS, 200, np.random.default_rng(3))
    weights = 1 / curve.variance
    whole = np.array([weighted_squares(each, weights) for each in observed])
    assert floor.tau == invert(floor.q, whole, TAUS)
    assert floor.visible == visible(whole, TAUS)
    assert len(asked) < len(TAUS) / STAGE


@pytest.mark.parametrize(
    ("share", "reached"),
    [
        ([0.5, 0.7, 0.9], 0.0),
        ([0.5, 0.5, 0.5], 0.0),
        ([0.6, 0.7, 0.9], 0.0),
        ([0.2, 0.5, 0.9], 1.0),
        ([0.2, 0.4, 0.5], 3.0),
        ([0.2, 0.4, 0.8], 1.5),
        ([0.2, 0.4, 0.49], np.inf),
    ],
)
def test_where_a_share_reaches_a_half(share, reached):
    assert _crossing(np.array(share), (0, 1, 3), 0.5) == pytest.approx(reached)


def test_draws_are_made_a_block_at_a_time_and_all_of_them():
    chance = Chance(lambda: np.random.default_rng(0))
    for draws, blocks in ((9, [4, 4, 1]), (8, [4, 4]), (4, [4])):
        assert list(chance._blocks((draws,), lambda _, count: count, draws, 4)) == blocks
    assert chance._stored == [4]


def test_figures_that_are_levels_are_as_uncertain_as_the_common_one(monkeypatch):
    """Weights 4, 4 and 2 of variances 1/4, 1/4 and 1/2; equal values differ as much as any that are drawn."""
    errors = []
    nothing = Estimate(0.0, 0.0, 0.0)
    monkeypatch.setattr(
        module, "noise_free_figure", lambda true, level, level_se, *_: errors.append(level_se) or nothing
    )
    same = np.full((2, 3, 3), 0.5)
    dispersion = Dispersion(np.ones(3, bool), np.zeros(3))
    variance = np.array([0.25, 0.25, 0.5])
    floor = module._against(
        "f", same[0, 0], variance, 0.5, dispersion, lambda _: [SimulatedFederations(same, same)], (0.0, 1.0)
    )
    assert floor.p == 1.0
    assert dict(zip(floor.figures, errors, strict=True)) == {"std": 0.0, "gini": 0.0, "lowest": 10**-0.5}


def test_what_a_spread_implies_by_hand():
    """Apart from the level the figure is 0 and 0 at no spread, and -.1 and .1 at 1: half of that at one half."""
    true, level = np.array([[0.8, 0.8], [0.6, 0.8]]), np.array([[0.8, 0.8], [0.7, 0.7]])
    implied = noise_free_figure(true, level, 0.03, Estimate(0.0, 0.5, 1.0), (0.0, 1.0), 1.0)
    chance = Z * np.hypot(0.03, 0.05)
    assert tuple(implied) == pytest.approx((0.75 - chance, 0.75, 0.75 + chance))


def test_a_bias_by_size_counts_on_either_side_of_its_floor():
    observed = np.array([[0.0, 1.0, 2.0, 5.0], [0.0, 0.0, 0.0, 0.0]])
    nothing = Estimate(0.0, 0.0, 0.0)
    bias = compared_with_floor("size_bias", 4.0, observed, nothing, nothing, (0.0, 1.0), worse_when_lower=False)
    assert (bias.floor, bias.p) == (2.0, (1 + 2) / 5)


def test_two_hospitals_have_a_spread_and_one_has_none():
    dispersion = Dispersion(np.ones(2, bool), np.zeros(2))
    assert dispersion.figures(np.array([0.75, 0.5])) == {"std": 0.125, "gini": 0.25 / 2.5, "lowest": 0.5}
    assert dispersion.figures(np.array([0.75])) == {}
