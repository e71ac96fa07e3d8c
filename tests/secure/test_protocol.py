"""The protocol gives the plain sum to the last bit, whoever is lost, or nothing."""

import itertools
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.core.streams import stream
from raysim.secure.graph import default_threshold
from raysim.secure.protocol import Lost, SecureSum
from raysim.secure.shamir import PRIME


def plain(secure, vectors):
    return np.sum([vectors[i] for i in secure.masking], axis=0, dtype=np.int64)


def summed(secure, vectors):
    total = np.zeros(len(next(iter(vectors.values()))), dtype=np.uint64)
    for i in secure.masking:
        total = total + secure.masked(i, vectors[i])
    return total


def made(ids, lost, *, count=None, threshold=None, minimum=3, seed=1):
    m = len(ids)
    count = m - 1 if count is None else count
    holders = min(count, m - 1) + 1
    return SecureSum(np.asarray(ids), count, threshold or default_threshold(holders), minimum, lost, seed, 4, 0)


def random_vectors(ids, seed=0):
    rng = np.random.default_rng(seed)
    return {i: rng.integers(-(2**62) // len(ids), 2**62 // len(ids), 7) for i in ids}


STAGES = ("stays", "before_shares", "before_mask", "before_unmask")


@pytest.mark.parametrize("m", [3, 4, 5])
def test_all_patterns_of_loss(m):
    ids, completed, given_up = list(range(10, 10 + m)), 0, 0
    vectors = random_vectors(ids)
    patterns = list(itertools.product(range(4), repeat=m))
    for pattern in patterns if m < 5 else patterns[::7]:
        lost = Lost(
            *(frozenset(i for i, at in zip(ids, pattern, strict=True) if STAGES[at] == stage) for stage in STAGES[1:])
        )
        secure = made(ids, lost, threshold=2 if m == 3 else 3, minimum=2)
        total = summed(secure, vectors)
        if secure.opens:
            assert np.array_equal(secure.unmasked(total), plain(secure, vectors))
            completed += 1
        else:
            with pytest.raises(ValueError, match="too few"):
                secure.unmasked(total)
            given_up += 1
    assert completed
    assert given_up


@pytest.mark.parametrize("seed", range(12))
def test_neighbours_and_random_losses(seed):
    rng = np.random.default_rng(seed)
    ids = list(range(20))
    at = rng.choice(4, 20, p=[0.85, 0.05, 0.05, 0.05])
    lost = Lost(*(frozenset(np.flatnonzero(at == k).tolist()) for k in (1, 2, 3)))
    secure = made(ids, lost, count=8, threshold=5, seed=seed)
    vectors = random_vectors(ids, seed)
    if secure.opens:
        assert np.array_equal(secure.unmasked(summed(secure, vectors)), plain(secure, vectors))


def test_a_masked_vector_is_no_vector():
    ids = list(range(5))
    secure, vectors = made(ids, Lost()), random_vectors(ids)
    sent = secure.masked(2, vectors[2])
    assert not np.array_equal(sent.view(np.int64), vectors[2])
    # Without the own mask it is still hidden by those of pairs.
    assert len(np.unique(np.concatenate([secure.masked(i, np.zeros(7, np.int64)) for i in ids]))) == 35


def test_masks_are_the_same_wherever_they_are_made():
    ids = list(range(4))
    secure, vectors = made(ids, Lost()), random_vectors(ids)
    before = secure.masked(1, vectors[1])
    travelled = pickle.loads(pickle.dumps(secure))
    assert not travelled._keys
    assert np.array_equal(travelled.masked(1, vectors[1]), before)


def test_masks_are_fresh_each_round_and_sum():
    ids = np.arange(4)
    vector = np.zeros(3, dtype=np.int64)
    sent = [SecureSum(ids, 3, 3, 3, Lost(), 1, t, g).masked(0, vector).tolist() for t, g in ((1, 0), (2, 0), (1, 1))]
    assert len({tuple(words) for words in sent}) == 3


def test_too_few_vectors_or_holders():
    ids = list(range(6))
    assert made(ids, Lost()).opens
    assert not made(ids, Lost(before_mask=frozenset([0])), minimum=6).opens
    assert not made(ids, Lost(before_unmask=frozenset([0, 1])), threshold=5).opens
    assert made(ids, Lost(before_unmask=frozenset([0])), threshold=5).opens


def test_no_two_key_pairs_are_the_same_in_whatever_order_they_are_made():
    pairs = [(i, what) for i in range(4) for what in ("mask", "channel")]
    one, other = made(range(4), Lost()), made(range(4), Lost())
    public = {pair: one._pair(*pair)[1] for pair in pairs}
    assert len(set(public.values())) == 8
    assert {pair: other._pair(*pair)[1] for pair in reversed(pairs)} == public


def test_each_direction_between_two_hospitals_has_a_channel_of_its_own():
    secure = made(range(4), Lost())
    channels = {pair: secure._channel(*pair) for pair in itertools.permutations(range(4), 2)}
    assert len(set(channels.values())) == 12
    other = made(range(4), Lost())
    assert {pair: other._channel(*pair) for pair in reversed(channels)} == channels


def test_shares_are_of_a_polynomial_with_40_bytes_of_the_stream_for_each_coefficient():
    secure = made(range(4), Lost(), threshold=3)
    random_bytes = stream(1, "secagg own shares", 4, 0, 2).bytes(80)
    first, second = (int.from_bytes(part, "little") % PRIME for part in (random_bytes[:40], random_bytes[40:]))
    shares = secure._shares(2, "own", 77, [0, 1, 3])
    assert shares == {x: (77 + first * x + second * x * x) % PRIME for x in (1, 2, 4)}


def test_neighbours_and_oneself_are_enough_for_the_threshold():
    for degree, opens in ((2, True), (1, False)):
        stub: Any = SimpleNamespace(ids=range(3), minimum=3, degree=degree, threshold=3, around={})
        stub.sharing = stub.masking = stub.revealing = range(3)
        for lost in (False, True):
            stub.lost = SimpleNamespace(anybody=lost)
            assert SecureSum.__dict__["opens"].func(stub) == opens
