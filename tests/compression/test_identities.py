"""What holds of compression, whatever the vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.compression.compression import Compression, ef21, with_error_feedback

NAMES = ("top_k", "random_k", "sign", "qsgd", "grid")
seeds = st.integers(0, 2**32)


@st.composite
def vectors(draw):
    return np.random.default_rng(draw(seeds)).standard_normal(draw(st.integers(1, 40)))


@given(vectors(), st.sampled_from(["top_k", "random_k"]))
def test_all_entries_are_the_vector_itself(u, name):
    compression, rng = Compression(name, ratio=1.0), np.random.default_rng(0)
    assert np.array_equal(compression.compress(u, rng)[0], u)
    sent, error, _ = with_error_feedback(compression, u, np.zeros_like(u), rng)
    assert np.array_equal(sent, u)
    assert not error.any()
    assert np.array_equal(ef21(compression, u, np.zeros_like(u), rng)[1], u)


@given(seeds, st.sampled_from(NAMES), st.integers(1, 30), st.integers(1, 6))
def test_what_was_sent_and_the_error_are_all_updates(seed, name, p, rounds):
    rng = np.random.default_rng(seed)
    updates, error, sent = rng.standard_normal((rounds, p)), np.zeros(p), np.zeros(p)
    compression = Compression(name, ratio=0.3, levels=4, bits=6, step=0.1)
    for update in updates:
        message, error, _ = with_error_feedback(compression, update, error, rng)
        sent = sent + message
    np.testing.assert_allclose(sent + error, updates.sum(axis=0), atol=1e-10)


@given(seeds, st.sampled_from(NAMES), st.integers(1, 30), st.integers(1, 6))
def test_the_server_of_ef21_holds_what_the_hospital_does(seed, name, p, rounds):
    rng = np.random.default_rng(seed)
    held = server = np.zeros(p)
    compression = Compression(name, ratio=0.3, levels=4, bits=6, step=0.1)
    for update in rng.standard_normal((rounds, p)):
        message, held, _ = ef21(compression, update, held, rng)
        server = server + message
    assert np.array_equal(server, held)


@pytest.mark.parametrize("name", ["random_k", "qsgd", "grid"])
def test_unbiased(name):
    u = np.array([0.5, -2, 0.1, 1.2, 0, -0.3])
    compression = Compression(name, ratio=1 / 3, levels=4, bits=8, step=0.7)
    rng = np.random.default_rng(7)
    draws = np.stack([compression.compress(u, rng)[0] for _ in range(20000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - u) <= 5 * error + 1e-12).all()


@given(vectors(), st.sampled_from(["top_k", "sign"]))
def test_biased_ones_lose_less_than_all(u, name):
    sent, _ = Compression(name, ratio=0.2).compress(u, np.random.default_rng(0))
    assert np.sum((u - sent) ** 2) < np.sum(u**2)


@given(seeds, st.integers(2, 20), st.integers(2, 8))
def test_common_places_commute_with_sums(seed, p, m):
    rows = np.random.default_rng(seed).standard_normal((m, p))
    compression = Compression("random_k", ratio=0.4)
    one_by_one = sum(compression.compress(row, np.random.default_rng(3))[0] for row in rows)
    whole = compression.compress(rows.sum(axis=0), np.random.default_rng(3))[0]
    np.testing.assert_allclose(one_by_one, whole, atol=1e-10)
