"""Shares, keys and masks against numbers worked out before."""

import itertools

import numpy as np
import pytest

from raysim.secure import graph, masks, shamir, traffic


def test_shares_of_a_small_secret():
    shares = shamir.split(1234, [166, 94], [2, 4, 5])
    assert shares == {2: 1942, 4: 3402, 5: 4414}
    assert shamir.combine(shares) == 1234
    with pytest.raises(ValueError, match=r"share at the point 0 would be the secret itself"):
        shamir.split(1, [2], [3, 0])
    with pytest.raises(ValueError, match=r"share at the point 0 would be the secret itself"):
        shamir.split(1, [2], [11], prime=11)


def test_the_field_is_the_smallest_prime_above_all_keys():
    def probably_prime(n):
        d, s = n - 1, 0
        while d % 2 == 0:
            d, s = d // 2, s + 1
        for a in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
            x = pow(a, d, n)
            if x in (1, n - 1):
                continue
            if all((x := x * x % n) != n - 1 for _ in range(s - 1)):
                return False
        return True

    assert [k for k in range(1, 298) if probably_prime(2**256 + k)] == [297]
    assert shamir.PRIME == 2**256 + 297


def test_fewer_shares_say_nothing():
    """In a field of 11: whatever two shares of three are, each secret has exactly one polynomial that gives them."""
    prime, points = 11, (2, 5)
    for seen in itertools.product(range(prime), repeat=2):
        fitting = [
            secret
            for secret in range(prime)
            for a in range(prime)
            for b in range(prime)
            if tuple(shamir.split(secret, [a, b], points, prime).values()) == seen
        ]
        assert sorted(fitting) == list(range(prime))


def test_the_mask_of_a_key():
    assert masks.mask(b"\x01" * 32, 3).tolist() == [12474411752970950770, 8674960095989452486, 14788051256931690670]


def test_two_hospitals_agree():
    one, other = masks.private_key(b"\x02" * 32), masks.private_key(b"\x03" * 32)
    key = masks.agreed_key(one, masks.public_bytes(other))
    assert key == masks.agreed_key(other, masks.public_bytes(one))
    assert key.hex() == "0d122dfe4364a4fcfb243700037359e14b7d9633f100a10e91baedfd59c203a2"
    assert masks.opened(key, masks.sealed(key, b"share")) == b"share"


def test_neighbours():
    assert [graph.default_neighbours(m) for m in (208, 3, 20)] == [30, 2, 19]
    ids = np.arange(40, 60)
    around = graph.neighbours(ids, 8, 1, 2)
    for i, others in around.items():
        assert len(set(others.tolist())) == 8
        assert i not in others
        assert all(i in around[j] for j in others.tolist())
    assert {i: others.tolist() for i, others in graph.neighbours(ids, 8, 1, 3).items()} != {
        i: others.tolist() for i, others in around.items()
    }
    assert graph.neighbours(ids[:4], 9, 1, 1)[41].tolist() == [40, 42, 43]
    with pytest.raises(ValueError, match="not an even number"):
        graph.neighbours(ids, 7, 1, 1)
    assert [graph.default_threshold(m) for m in (3, 20, 30, 208)] == [3, 14, 21, 139]
    assert graph.neighbours(ids[:4], 3, 1, 1)[40].tolist() == [41, 42, 43]
    assert {len(others) for others in graph.neighbours(ids, 2, 1, 1).values()} == {2}
    assert {len(others) for others in graph.neighbours(ids[:6], 4, 1, 1).values()} == {4}
    with pytest.raises(ValueError, match="not an even number"):
        graph.neighbours(ids, 0, 1, 1)


def test_how_many_neighbours_and_shares_there_are():
    assert [graph.degree("all", 9), graph.degree("auto", 208), graph.degree(4, 9), graph.degree(20, 9)] == [8, 30, 4, 8]
    assert [graph.threshold("auto", k) for k in (10, 8, 30, 2)] == [8, 7, 21, 3]
    assert graph.threshold("auto", graph.degree("auto", 32)) == 16, "16 of 23 shares"
    assert [graph.threshold(5, 9), graph.threshold(50, 9)] == [5, 10]


def test_more_than_two_thirds_of_the_shares_are_needed():
    for m, given in itertools.product(range(3, 60), ("auto", "all", 2, 8)):
        ids, k = np.arange(m), graph.degree(given, m)
        holders = 1 + len(graph.neighbours(ids, k, 1, 1)[0])
        needed = graph.threshold("auto", k)
        assert 3 * (needed - 1) <= 2 * holders < 3 * needed


def test_bytes():
    assert traffic.up(102, 30) == 64 + 30 * (2 * 33 + 8 + 16 + 12) + 8 * 103 + 33 * 30
    assert traffic.up(102, 30, shares=False, masked=False, reveals=False) == 64
    assert traffic.down(30) == 64 * 30 + 30 * 102
    assert traffic.down(30, shares=False) == 64 * 30
