"""Whom a model harms: p-values against the rows' own DeLong, false claims of simulated federations, and seeds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm, t

from raysim.statistics.differences.harm import Harm, harm, one_sided
from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.discrimination.auroc import PairSums, delong, pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches
from raysim.statistics.several import Bound


def federation(
    rng: np.random.Generator, sizes: list[int], loss: np.ndarray | float = 0.0, correlation: float = 0.9
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of two models ``[2, n]``, of which the first has its events ``loss`` nearer to the others."""
    home = np.repeat(np.arange(len(sizes)), sizes)
    y = np.arange(len(home)) % 3 == 0
    common, own = rng.normal(size=len(home)), rng.normal(size=(2, len(home)))
    scores = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own + 1.2 * y
    scores[0] -= y * np.broadcast_to(loss, len(sizes))[home]
    return scores, y.astype(int), np.concatenate([[0], np.cumsum(sizes)])


def sent(scores: np.ndarray, y: np.ndarray, offsets: np.ndarray, first: int = 0) -> Sent:
    """What hospitals send of one model; patients are numbered from ``first`` on."""
    ids = np.arange(len(offsets) - 1)
    patients = first + np.arange(len(y))
    return Sent(pair_sums(scores, y, offsets), sketches(placements(scores, y, offsets), ids, patients))


def both(data: tuple[np.ndarray, np.ndarray, np.ndarray], first: int = 0) -> tuple[Sent, Sent]:
    scores, y, offsets = data
    return sent(scores[0], y, offsets, first), sent(scores[1], y, offsets, first)


def test_p_is_the_larger_of_two_variances() -> None:
    """Against DeLong's covariance from the rows, averaged over draws of the hospitals' numbers."""
    data = federation(np.random.default_rng(0), [90, 150, 60, 300], np.array([0.5, 0.0, 0.2, -0.3]))
    scores, y, offsets = data
    exact, variance = delong(placements(scores, y, offsets)).difference(0, 1)
    m, n = (np.array([(y[a:b] == k).sum() for a, b in itertools.pairwise(offsets)]) for k in (1, 0))
    g, size = np.minimum(m, n) - 1, 1 / m + 1 / n
    common = (g * variance / size).sum() / g.sum() * size
    expected = np.maximum(norm.cdf(exact / np.sqrt(variance)), norm.cdf(exact / np.sqrt(common)))
    draws = [one_sided(*both(data, 1000 * draw)) for draw in range(60)]
    assert draws[0].difference == pytest.approx(exact, abs=1e-12)
    assert np.median([each.loss for each in draws], axis=0) == pytest.approx(expected, abs=0.03)
    one = draws[0]
    own = np.square(np.subtract(*(each.sketches.astype(float) for each in both(data)))).mean(axis=1)
    freedom = 1 / (1 / 100 + 1 / g)
    assert (one.loss >= t.cdf(exact / np.sqrt(own), freedom) - 1e-9).all()
    assert (one.gain >= t.sf(exact / np.sqrt(own), freedom) - 1e-9).all()
    assert not one.few.any()
    # To the last digit of what one draw gives, at hospitals of which each variance is the larger at some.
    seed = one_seed(*both(data))
    assert (seed.own > seed.common).any()
    assert (seed.own < seed.common).any()
    for sign, p in ((1, one.loss), (-1, one.gain)):
        by_own, by_common = (sign * exact / np.sqrt(each) for each in (seed.own, seed.common))
        assert p == pytest.approx(np.maximum(t.cdf(by_own, freedom), norm.cdf(by_common)), abs=1e-12)


def test_few_rows_tell_nothing_and_undefined_hospitals_are_not_judged() -> None:
    scores, y, offsets = federation(np.random.default_rng(1), [27, 30, 400, 5], 3.0)
    y[-5:] = 0
    tested = one_sided(*both((scores, y, offsets)))
    assert tested.few.tolist() == [True, False, False, False]
    assert tested.loss[0] == tested.gain[0] == 1
    assert np.isnan(tested.loss[3])
    assert np.isnan(tested.gain[3])
    found = harm(*([each] for each in both((scores, y, offsets))))
    assert found == Harm(Bound(2, 3, (2, 1)), Bound(0, 3, ()), 1)
    turned = harm(*([each] for each in both((scores[::-1], y, offsets))))
    assert turned.gains.at_least == 2
    assert turned.losses == Bound(0, 3, ())


def test_equal_models_harm_nobody() -> None:
    scores, y, offsets = federation(np.random.default_rng(2), [60, 90])
    same = sent(scores[0], y, offsets)
    tested = one_sided(same, same)
    np.testing.assert_array_equal([tested.loss, tested.gain], 1.0)
    nobody = PairSums(
        *(
            np.full(2, -1) if name not in ("events", "non_events") else getattr(same.pairs, name)
            for name in PairSums._fields
        )
    )
    assert harm([same._replace(pairs=nobody)], [same]) == Harm(Bound(0, 0, ()), Bound(0, 0, ()), 0)


def test_every_seed_has_to_show_it() -> None:
    rng = np.random.default_rng(3)
    bad, good = (both(federation(rng, [200, 200], loss)) for loss in (1.5, np.array([1.5, 0.0])))
    assert harm([bad[0]], [bad[1]]).losses.named in ((0, 1), (1, 0))
    assert harm([bad[0], good[0]], [bad[1], good[1]]).losses.named == (0,)
    unjudged = bad[0].pairs._replace(first=np.array([-1, bad[0].pairs.first[1]]))
    once = harm([bad[0]._replace(pairs=unjudged), bad[0]], [bad[1], bad[1]])
    assert set(once.losses.named) == {0, 1}, "a seed that does not judge a hospital has no say there"


@pytest.mark.parametrize(("sizes", "correlation"), [([60] * 20, 0.9), ([150] * 8, 0.5)])
def test_equal_service_is_called_harmful_in_at_most_one_federation_of_twenty(sizes, correlation) -> None:
    rng = np.random.default_rng(4)
    found = [harm(*([e] for e in both(federation(rng, sizes, 0.0, correlation), 10_000 * k))) for k in range(200)]
    # Two standard deviations of a share of .05 over 200 draws are .03.
    assert np.mean([each.losses.at_least > 0 for each in found]) <= 0.05 + 0.03
    assert np.mean([each.gains.at_least > 0 for each in found]) <= 0.05 + 0.03


def test_a_quarter_of_hospitals_that_lose_much_are_found() -> None:
    rng = np.random.default_rng(5)
    found = [
        harm(*([e] for e in both(federation(rng, [200] * 20, np.repeat([0.6, 0.0], [5, 15])), 10_000 * k)))
        for k in range(20)
    ]
    assert np.mean([each.losses.at_least for each in found]) > 2.5
    assert np.mean([len(set(each.losses.named) - set(range(5))) for each in found]) < 0.2
