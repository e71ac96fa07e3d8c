"""Attacks against numbers worked out by hand, of six honest updates of two coordinates."""

import numpy as np
import pytest

from raysim.adversaries import collusion, rows, updates
from raysim.adversaries.who import LEVELS, ON_ROWS, ON_UPDATES, TOGETHER, bad_hospitals

HONEST = np.array([[1, 2], [1.2, 1.8], [0.9, 2.1], [1.1, 2.2], [0.8, 1.9], [1.3, 2]], dtype=float)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("m", "f", "factor"),
    [
        (20, 4, 0.157311),
        (50, 10, 0.253347),
        (208, 20, 0.120288),
        (208, 41, 0.296999),
        (208, 62, 0.540226),
        (7, 1, 0),
        (4, 4, 0),
        (5, 4, 0),
        (8, 5, 0),
        (6, 3, 0.430727),
        (2, 0, 0),
    ],
)
def test_the_factor_of_a_little_is_enough(m, f, factor):
    assert collusion.alie_factor(m, f) == pytest.approx(factor, abs=1e-6)


def test_a_little_is_enough():
    np.testing.assert_allclose(HONEST.std(axis=0), [0.1707825128, 0.1290994449], atol=1e-9)
    np.testing.assert_allclose(collusion.alie(HONEST, 20, 4), [1.0231340860, 1.9796912779], atol=1e-9)
    np.testing.assert_allclose(collusion.alie(HONEST, 20, 4, 2.0), [1.05 - 2 * 0.1707825128, 2 - 2 * 0.1290994449])


def test_inner_product_manipulation():
    np.testing.assert_allclose(collusion.ipm(HONEST, 0.5), [-0.525, -1.0])


@pytest.mark.parametrize(
    ("kind", "largest", "summed"),
    [
        ("sd", 1.3437303247, 1.2577035349),
        ("unit", 0.3072500135, 0.2692582404),
        ("sign", 0.2131937315, 0.1903943276),
    ],
)
def test_min_max_and_min_sum(kind, largest, summed):
    direction = collusion.deviation(HONEST, kind)
    assert collusion.min_max_factor(HONEST, direction) == pytest.approx(largest, abs=1e-9)
    assert collusion.min_sum_factor(HONEST, direction) == pytest.approx(summed, abs=1e-9)
    widest = max(np.linalg.norm(a - b) for a in HONEST for b in HONEST)
    sent = collusion.min_max(HONEST, kind)
    assert np.linalg.norm(HONEST - sent, axis=1).max() <= widest
    total = ((HONEST - collusion.min_sum(HONEST, kind)) ** 2).sum()
    assert total <= max(((HONEST - row) ** 2).sum() for row in HONEST)


def test_equal_updates_leave_no_room():
    same = np.tile(HONEST[0], (3, 1))
    np.testing.assert_allclose(collusion.min_max(same, "sd"), HONEST[0])
    np.testing.assert_allclose(collusion.min_sum(same, "unit"), HONEST[0], atol=1e-6)
    assert not collusion.deviation(np.zeros((2, 3)), "unit").any()


def test_the_adaptive_attack_takes_what_moves_the_known_rule_most():
    def mean(sent):
        return np.concatenate([HONEST, sent[None]]).mean(axis=0)

    # Against the mean, the largest step against the mean moves it most.
    np.testing.assert_allclose(collusion.adaptive(HONEST, mean), -20 * HONEST.mean(axis=0))

    def bounded(sent):
        return HONEST.mean(axis=0) if np.linalg.norm(sent) > 3 else mean(sent)

    chosen = collusion.adaptive(HONEST, bounded)
    assert np.linalg.norm(chosen) <= 3
    assert np.linalg.norm(mean(chosen) - HONEST.mean(axis=0)) > 0.2


def test_who_is_mimicked():
    spread = np.array([[0.0, 0], [1, 0.1], [-4, 0], [3, 0]])
    direction = collusion.principal_direction(spread, None, 1)
    centred = spread - spread.mean(axis=0)
    _, _, axes = np.linalg.svd(centred)
    assert abs(direction @ axes[0]) == pytest.approx(1)
    assert collusion.mimicked(spread, direction) == 2
    # Rounds that spread along another axis turn the direction there.
    for t in range(2, 60):
        direction = collusion.principal_direction(spread[:, ::-1] * 3, direction, t)
    assert abs(direction[1]) > 0.3


def test_a_direction_is_renewed_by_a_share_of_the_round():
    """A quarter of (2 x 0.6, 0) / 2 and three quarters of what was before; of equal updates nothing is learned."""
    before = np.array([0.6, 0.8])
    renewed = collusion.principal_direction(np.array([[4.0, 3.0], [2.0, 3.0]]), before, 4)
    np.testing.assert_allclose(renewed, [np.sqrt(0.5), np.sqrt(0.5)])
    np.testing.assert_allclose(collusion.principal_direction(np.ones((2, 2)), before, 4), before)
    assert not collusion.principal_direction(np.ones((2, 2)), None, 1).any()
    for sign in (1.0, -1.0):
        far = np.array([[10.0, 0.0], [11.0, 0.0], [6.0, 0.0], [13.0, 0.0]])
        assert collusion.mimicked(far, np.array([sign, 0.0])) == 2


def test_twenty_attacks_are_tried():
    assert pytest.approx(0.1 * 200.0 ** (np.arange(10) / 9)) == collusion.STEPS


def test_attacks_on_ones_own_update():
    update = HONEST[0]
    assert updates.sign_flip(update, 3.0).tolist() == [-3, -6]
    assert updates.scale(update, 7.0).tolist() == [7, 14]
    assert updates.zero(update).tolist() == [0, 0]
    noise = updates.gaussian(np.zeros(20000), 1.0, 2.0, rng())
    assert noise.mean() == pytest.approx(1, abs=0.05)
    assert noise.std() == pytest.approx(2, abs=0.05)


def test_attacks_on_rows():
    X, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    before = X.copy()
    assert rows.label_flip(X, y, 3, 1.0, rng())[1].tolist() == [2, 1, 0, 2, 1, 0]
    assert (rows.label_flip(X, y, 3, 1 / 3, rng(1))[1] != y).sum() <= 2
    assert rows.units(X, y, 1, 88.4, 1.0)[0][:, 1] == pytest.approx(X[:, 1] * 88.4 + 1)
    assert rows.units(X, y, 1, 2.0)[0].tolist() == [[x, 2 * z] for x, z in before.tolist()]
    there = np.array([True, False, True, False, False, False])
    assert rows.units(X, y, 1, 2.0, 1.0, there)[0][:, 1].tolist() == [3, 3, 11, 7, 9, 11]
    assert rows.stuck(X, y, 0)[0][:, 0].tolist() == [5.0] * 6
    changed, labels = rows.backdoor(X, y, 1, -7.0, 2, 0.5, rng())
    assert (changed[:, 1] == -7).sum() == 3
    assert (labels[changed[:, 1] == -7] == 2).all()
    assert (labels[changed[:, 1] != -7] == y[changed[:, 1] != -7]).all()
    assert (rows.triggered(X, 0, 9.0)[:, 0] == 9).all()
    assert np.array_equal(X, before)


def test_who_is_bad():
    assert bad_hospitals(3, 10, 0.0).tolist() == []
    assert len(bad_hospitals(3, 10, 0.3)) == 3
    assert set(bad_hospitals(3, 10, 0.2)) < set(bad_hospitals(3, 10, 0.4))
    assert bad_hospitals(3, 10, 0.4).tolist() == sorted(bad_hospitals(3, 10, 0.4))
    assert bad_hospitals(3, 50, 0.4).tolist() != bad_hospitals(4, 50, 0.4).tolist()
    assert set(LEVELS) == {*ON_ROWS, *ON_UPDATES, *TOGETHER, "signature_lie"}


def test_a_direction_of_nothing_goes_nowhere():
    sent = np.array([[1.0, 2.0], [3.0, 1.0], [0.0, 4.0]])
    assert [factor(sent, np.zeros(2)) for factor in (collusion.min_max_factor, collusion.min_sum_factor)] == [0.0, 0.0]


def test_who_is_mimicked_is_the_furthest_from_the_mean():
    assert collusion.mimicked(np.array([[1.0], [2.0], [6.0]]), np.array([1.0])) == 2
    assert collusion.mimicked(np.array([[0.0], [5.0], [6.0]]), np.array([-1.0])) == 0
