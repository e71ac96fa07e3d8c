"""The difference of two models at one hospital: against the rows, for seeds by hand, and its coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import t

from raysim.statistics.differences.one_hospital import Sent, gain, one_seed
from raysim.statistics.discrimination.auroc import delong, pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches

T = t.ppf(0.975, 100)


def scored(
    rng: np.random.Generator, m: int, n: int, hospitals: int, loss: float = 0.0, correlation: float = 0.9
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores ``[2, rows]`` of hospitals with ``m`` events and ``n`` others; the first model loses."""
    y = np.tile(np.r_[np.ones(m, int), np.zeros(n, int)], hospitals)
    common, own = rng.normal(size=len(y)), rng.normal(size=(2, len(y)))
    scores = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own + 1.2 * y
    scores[0] -= loss * y
    return scores, y, np.arange(hospitals + 1) * (m + n)


def sent(scores: np.ndarray, y: np.ndarray, offsets: np.ndarray, patients: np.ndarray | None = None) -> list[Sent]:
    """What hospitals send of each model."""
    who, ids = np.arange(len(y)) if patients is None else patients, np.arange(len(offsets) - 1)
    return [Sent(pair_sums(s, y, offsets), sketches(placements(s, y, offsets), ids, who)) for s in scores]


def test_variances_are_delong_s_and_their_mean_over_hospitals() -> None:
    rng = np.random.default_rng(0)
    parts = [scored(rng, m, n, 1) for m, n in ((30, 60), (8, 100), (40, 20), (1, 30), (4, 4))]
    scores, y = (np.concatenate([part[k] for part in parts], axis=-1) for k in (0, 1))
    offsets = np.cumsum([0, *(len(part[1]) for part in parts)])
    exact, variance = delong(placements(scores, y, offsets)).difference(0, 1)
    draws = [one_seed(*sent(scores, y, offsets, 1000 * k + np.arange(len(y)))) for k in range(80)]
    assert draws[0].difference == pytest.approx(exact, abs=1e-12)
    own = np.mean([each.own for each in draws], axis=0)
    assert own[[0, 1, 2, 4]] == pytest.approx(variance[[0, 1, 2, 4]], rel=0.06)
    size, weight = (
        np.array([1 / m + 1 / n for m, n in ((30, 60), (8, 100), (40, 20), (1, 30), (4, 4))]),
        [29, 7, 19, 0, 3],
    )
    factor = np.nansum(weight * variance / size) / 58
    assert np.mean([each.common for each in draws], axis=0) == pytest.approx(factor * size, rel=0.06)
    assert draws[0].rarer.tolist() == [30, 8, 20, 1, 4]


def test_one_seed_s_interval_by_hand() -> None:
    both = sent(*scored(np.random.default_rng(1), 20, 40, 6))
    seed, found = one_seed(*both), gain([both[0]], [both[1]])
    reach = np.maximum(t.ppf(0.975, 1 / (1 / 100 + 1 / 19)) * np.sqrt(seed.own), T * np.sqrt(seed.common))
    np.testing.assert_allclose(found.value, seed.difference)
    np.testing.assert_allclose(found.low, seed.difference - reach)
    np.testing.assert_allclose(found.high, seed.difference + reach)
    assert found.seeds.tolist() == [1] * 6


def test_seeds_that_test_the_same_patients_are_no_further_evidence() -> None:
    data = scored(np.random.default_rng(2), 20, 40, 6)
    both = sent(*data)
    once, thrice = gain([both[0]], [both[1]]), gain([both[0]] * 3, [both[1]] * 3)
    np.testing.assert_allclose(thrice.low, once.low)
    np.testing.assert_allclose(thrice.high, once.high)
    assert thrice.seeds.tolist() == [3] * 6
    # The same rows as of other patients: their part shrinks by the root of three, and the seeds do not differ.
    others = [sent(*data, 1000 * k + np.arange(360)) for k in (1, 2, 3)]
    apart = gain([each[0] for each in others], [each[1] for each in others])
    ratio = (apart.high - apart.low) / (once.high - once.low)
    assert np.mean(ratio) == pytest.approx(3**-0.5, rel=0.05)


def test_what_seeds_change_is_added_as_squares() -> None:
    rng = np.random.default_rng(3)
    seeds = [sent(*scored(rng, 20, 40, 4), patients=k * 240 + np.arange(240)) for k in range(3)]
    found = gain([each[0] for each in seeds], [each[1] for each in seeds])
    each = np.stack([one_seed(*both).difference for both in seeds])
    mean = each.mean(axis=0)
    np.testing.assert_allclose(found.value, mean)
    trained = t.ppf(0.975, 2) ** 2 * each.var(axis=0, ddof=1) / 3
    assert (found.high - mean >= np.sqrt(trained) - 1e-12).all()
    patients = (np.square(found.high - mean) - trained) / T**2
    sums = np.mean([one_seed(*both).sums for both in seeds], axis=0)
    assert (patients >= np.square(sums).mean(axis=1) * (1 - 1e-9)).all()


def test_what_is_undefined_and_what_is_impossible() -> None:
    rng = np.random.default_rng(4)
    scores, y, offsets = scored(rng, 3, 5, 3)
    y[:8] = 0
    (one, other) = sent(scores, y, offsets)
    found = gain([one], [other])
    assert np.isnan([found.value[0], found.low[0], found.high[0]]).all()
    assert found.seeds.tolist() == [0, 1, 1]
    assert (np.abs([found.low[1:], found.high[1:]]) <= 1).all()
    alone = sent(*scored(rng, 1, 5, 2))
    nothing = gain([alone[0]], [alone[1]])
    assert np.isfinite(nothing.value).all()
    assert np.isnan(nothing.low).all(), "no hospital sends how much one event varies"


@pytest.mark.parametrize(("m", "n", "half"), [(1, 14, None), (2, 20, 1.0), (3, 30, 1.0), (5, 50, 0.5), (20, 300, 0.18)])
def test_it_holds_where_the_models_agree_less_than_elsewhere(m: int, n: int, half: float | None) -> None:
    """A small hospital's own model has little in common with the federated one; at large hospitals both are alike."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(300):
        parts = [scored(rng, m, n, 1, correlation=0.2), *(scored(rng, a, 400, 1, correlation=0.95) for a in (20, 40))]
        scores, y = (np.concatenate([part[k] for part in parts], axis=-1) for k in (0, 1))
        both = sent(scores, y, np.cumsum([0, *(len(part[1]) for part in parts)]))
        each = gain([both[0]], [both[1]])
        found.append((each.low[0], each.high[0]))
    low, high = np.transpose(found)
    if half is None:
        assert np.isnan([low, high]).all()
    else:
        assert np.mean((low <= 0) & (high >= 0)) >= 0.95 - 2 * 0.0126
        assert np.mean(high - low) / 2 <= half


def test_a_single_event_in_one_seed_is_not_taken_for_several() -> None:
    rng, seeds = np.random.default_rng(8), []
    for m in (3, 1):
        small, large = scored(rng, m, 9, 1), scored(rng, 20, 90, 1)
        scores, y = (np.concatenate([small[k], large[k]], axis=-1) for k in (0, 1))
        seeds.append(sent(scores, y, np.array([0, m + 9, m + 119])))
    found = gain([each[0] for each in seeds], [each[1] for each in seeds])
    assert np.isnan(found.low).tolist() == [True, False]


@pytest.mark.parametrize(("m", "n"), [(2, 15), (3, 30), (10, 100), (30, 60)])
@pytest.mark.parametrize("loss", [0.0, 0.4])
def test_it_holds_the_true_difference(m: int, n: int, loss: float) -> None:
    both = sent(*scored(np.random.default_rng(5), m, n, 600, loss))
    found = gain([both[0]], [both[1]])
    truth = ndtr((1.2 - loss) / np.sqrt(2)) - ndtr(1.2 / np.sqrt(2))
    # Two standard deviations of a share of .95 over 600 draws are .018.
    assert np.mean((found.low <= truth) & (truth <= found.high)) >= 0.95 - 0.018


def test_an_observed_auroc_of_one_does_not_exclude_that_another_model_is_better() -> None:
    """Small hospitals in which the other model often ranks all events above all others."""
    both = sent(*scored(np.random.default_rng(6), 2, 8, 600, -0.8))
    found = gain([both[0]], [both[1]])
    truth = ndtr(2.0 / np.sqrt(2)) - ndtr(1.2 / np.sqrt(2))
    assert np.mean((found.low <= truth) & (truth <= found.high)) >= 0.95 - 0.018
