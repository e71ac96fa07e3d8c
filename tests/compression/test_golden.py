"""Compressors against numbers worked out by hand."""

from math import ceil, log2

import numpy as np
import pytest

from raysim.compression import compressors
from raysim.compression.compression import Compression, ef21, with_error_feedback
from raysim.config.sections.compression import CompressionSection
from raysim.engine.pipeline.compressing import Compressing

U = np.array([0.5, -2, 0.1, 1.2, 0, -0.3])
CONSTANT = np.array([0.5, -2, 0.1, 1.2])


def rng(seed=0):
    return np.random.default_rng(seed)


class Chances:
    """A generator whose draws are these."""

    def __init__(self, value):
        self.value = value

    def random(self, size):
        return np.full(size, self.value)


def test_top_k_takes_the_first_of_equal_magnitudes():
    assert compressors.top_k(U, 2).tolist() == [0, -2, 0, 1.2, 0, 0]
    assert compressors.top_k(np.array([1.0, -1.0, 1.0]), 2).tolist() == [1, -1, 0]


def test_sign():
    sent = compressors.sign(U)
    np.testing.assert_allclose(sent, 0.6833333333333333 * np.array([1, -1, 1, 1, 0, -1]), atol=1e-12)
    nonzero = U[U != 0]
    lost = np.sum((nonzero - compressors.sign(nonzero)) ** 2)
    assert lost == pytest.approx(np.sum(nonzero**2) - np.abs(nonzero).sum() ** 2 / len(nonzero))
    # The contraction: the share of the squared length that arrives.
    assert np.abs(U).sum() ** 2 / len(U) / np.sum(U**2) == pytest.approx(0.4838802533, abs=1e-9)


def test_qsgd_levels_and_chances():
    length = 2.4062418831
    assert np.linalg.norm(U) == pytest.approx(length, abs=1e-9)
    up = np.array([0.8311716349, 0.3246865397, 0.1662343270, 0.9948119238, 0, 0.4987029810])
    below = np.array([0, 3, 0, 1, 0, 0])
    unit = length / 4
    low, high = compressors.qsgd(U, 4, Chances(0.999999)), compressors.qsgd(U, 4, Chances(0.0))
    np.testing.assert_allclose(np.abs(low), below * unit, atol=1e-9)
    np.testing.assert_allclose(np.abs(high), (below + (up > 0)) * unit, atol=1e-9)
    for entry, chance in enumerate(up[up > 0]):
        j = np.flatnonzero(up)[entry]
        above = compressors.qsgd(U, 4, Chances(chance - 1e-9))[j]
        beneath = compressors.qsgd(U, 4, Chances(chance + 1e-9))[j]
        assert abs(above) - abs(beneath) == pytest.approx(unit)
    draws = np.stack([compressors.qsgd(U, 4, rng(s)) for s in range(20000)])
    variance = ((draws - U) ** 2).sum(axis=1).mean()
    assert np.sum(unit**2 * up * (1 - up)) == pytest.approx(0.2726187094, abs=1e-9)
    assert variance == pytest.approx(0.2726187094, rel=0.02)
    assert variance <= 2.17125
    assert not compressors.qsgd(np.zeros(3), 4, rng()).any()


def test_random_k_error():
    draws = np.stack([compressors.random_k(U, 2, rng(s)) for s in range(20000)])
    assert ((draws - U) ** 2).sum(axis=1).mean() == pytest.approx(11.58, rel=0.02)
    assert ((draws != 0).sum(axis=1) <= 2).all()


def test_all_entries_are_sent_without_a_draw():
    drawn = rng()
    assert compressors.random_k(U, len(U), drawn).tolist() == U.tolist()
    assert drawn.random() == rng().random()


def test_grid_rounds_by_chance_and_saturates():
    sent = compressors.grid(np.array([0.25, -0.26, 9.0, -9.0]), 0.1, 4, Chances(0.5))
    np.testing.assert_allclose(sent, [0.3, -0.3, 0.7, -0.8], atol=1e-12)


def test_bits():
    p = 1000
    assert compressors.top_k_bits(p, 10) == 10 * 32 + 10 * ceil(log2(p))
    assert compressors.top_k_bits(p, 500) == 500 * 32 + p
    assert compressors.top_k_bits(p, p) == p * 32
    assert compressors.random_k_bits(p, 10) == 320
    assert compressors.sign_bits(np.ones(p)) == 32 + p
    assert compressors.sign_bits(U) == 32 + 12
    assert [compressors.qsgd_bits(p, levels) for levels in (3, 4)] == [32 + p * (1 + 2), 32 + p * (1 + 3)]
    assert compressors.grid_bits(p, 8) == 8 * p


@pytest.mark.parametrize("name", ["top_k", "random_k", "sign", "qsgd", "grid"])
def test_defaults_are_those_of_the_configuration(name):
    written = Compressing.of(CompressionSection(name=name), 0).compression
    assert written == Compression(name, feedback="ef" if name in ("top_k", "sign") else "none")


def test_no_message_is_longer_than_the_most():
    for name, most in {"sign": 32 + 2 * 6, "grid": 8 * 6, "qsgd": 32 + 6 * (1 + 5)}.items():
        made = Compression(name)
        assert made.most_bits(6) == most
        assert made.compress(U, rng())[1] <= most


def test_a_step_of_the_whole_grid_times_the_weight_is_what_it_counts():
    made, counts = Compression("grid", step=1e-3).whole(4.0)
    assert counts == pytest.approx(4e-3, rel=1e-6)
    assert made == Compression("grid", step=counts / 4.0)


def test_counts():
    assert Compression("top_k", ratio=0.1).count(102) == 11
    assert Compression("top_k", ratio=0.1).count(10) == 1
    assert Compression("top_k", ratio=1.0).count(7) == 7
    assert Compression("top_k", ratio=1e-9).count(7) == 1


def test_error_feedback_of_a_constant_update():
    compression, error = Compression("top_k", ratio=0.25), np.zeros(4)
    sent, errors = [], []
    for _ in range(4):
        message, error, _ = with_error_feedback(compression, CONSTANT, error, rng())
        sent.append(message)
        errors.append(error)
    np.testing.assert_allclose(sent, [[0, -2, 0, 0], [0, 0, 0, 2.4], [0, -4, 0, 0], [0, 0, 0, 2.4]], atol=1e-12)
    np.testing.assert_allclose(errors, [[0.5, 0, 0.1, 1.2], [1, -2, 0.2, 0], [1.5, 0, 0.3, 1.2], [2, -2, 0.4, 0]])


def test_ef21_of_a_constant_update():
    compression, held, seen = Compression("top_k", ratio=0.25), np.zeros(4), []
    for _ in range(4):
        _, held, _ = ef21(compression, CONSTANT, held, rng())
        seen.append(held)
    np.testing.assert_allclose(seen, [[0, -2, 0, 0], [0, -2, 0, 1.2], [0.5, -2, 0, 1.2], CONSTANT])


def test_one_entry_at_least_is_sent():
    assert [Compression("top_k", ratio=ratio).count(3) for ratio in (1e-10, 0.34, 2 / 3, 1.0)] == [1, 2, 2, 3]


def test_how_is_as_documented_unless_it_is_said():
    plain = Compression("grid")
    assert (plain.ratio, plain.levels, plain.bits, plain.step) == (0.1, 16, 8, 1e-3)
    assert (plain.indices, plain.feedback) == ("common", "none")
