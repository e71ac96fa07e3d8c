"""Random streams: the same draws for ever, and others for whatever differs."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

from raysim.core.streams import normals, quick_stream, stream


@pytest.mark.parametrize(
    ("key", "draws"),
    [
        ((1, "batch", 3, 0, 2), [2806855899, 1817578959, 3121585225]),
        ((-5, "sample"), [3680068187, 2237410354, 1079037961]),
        ((7, "x" * 64, 1), [3690732761, 364139847, 2513820797]),
        ((2**63 - 1, "x" * 65, -(2**63)), [171264197, 1197977528, 2820926146]),
    ],
)
def test_draws_are_those_of_every_version(key, draws):
    """Results that were published with a seed are to be had again."""
    assert stream(*key).integers(2**32, size=3).tolist() == draws


@pytest.mark.parametrize(
    ("key", "draws"),
    [
        ((1, "batch", 3, 0, 2), [2417583197, 355891993, 2848906885]),
        ((-5, "sample"), [652413792, 906568978, 1481793507]),
        ((7, "x" * 64, 1), [3945977971, 2303678893, 1930972720]),
    ],
)
def test_quick_draws_are_those_of_every_version(key, draws):
    assert quick_stream(*key).integers(2**32, size=3).tolist() == draws


def test_every_part_of_a_key_makes_a_stream_of_its_own():
    """Also where parts only change places, one is missing, or a long purpose differs in its last letter."""
    keys = [(seed, purpose, *rest) for seed in (0, 1, -1) for purpose in ("a", "b", "ab") for rest in ((), (0,), (1,))]
    keys += [(0, "a", 0, 1), (0, "a", 1, 0), (0, "a", 0, 0), (0, "x" * 64 + "y"), (0, "x" * 64 + "z"), (0, "x" * 64)]
    for of_key in (stream, quick_stream):
        assert len({tuple(of_key(*key).integers(2**62, size=2).tolist()) for key in keys}) == len(keys)
    correlations = [
        np.corrcoef(stream(*a).normal(size=400), stream(*b).normal(size=400))[0, 1]
        for a, b in itertools.combinations(keys[:12], 2)
    ]
    assert np.abs(correlations).max() < 0.2


def test_what_does_not_fit_64_bits_is_refused():
    with pytest.raises(struct.error):
        stream(2**63, "a")


def test_keyed_normals_are_those_of_every_version_and_of_their_key_alone():
    keys = np.array([[3, 0], [3, 1], [-4, 2**40], [0, 3]])
    drawn = normals(1, "sketches", keys, 6)
    assert drawn.dtype == np.float32
    assert drawn[2] == pytest.approx([2.0485551, -0.4062764, -0.6587452, 1.2639874, -0.6981375, 0.5213977], abs=1e-5)
    np.testing.assert_array_equal(normals(1, "sketches", keys[2:3], 6), drawn[2:3])
    others = [drawn, normals(2, "sketches", keys, 6), normals(1, "others", keys, 6)]
    assert len(np.unique(np.concatenate(others).round(4))) == 72
    assert normals(1, "sketches", keys[:0], 6).shape == (0, 6)


def test_keyed_normals_are_normal_and_independent():
    grid = np.array(list(itertools.product(range(40), range(50))))
    drawn = normals(0, "test", grid, 100).astype(float)
    # 200,000 numbers: mean, variance, skewness and kurtosis have errors of .0022, .0032, .0055 and .011.
    moments = [np.mean(drawn**power) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.035)
    assert np.mean(np.abs(drawn) > 1.959964) == pytest.approx(0.05, abs=0.002)
    products = drawn @ drawn.T / 100
    off = products[~np.eye(len(drawn), dtype=bool)]
    assert np.mean(off) == pytest.approx(0, abs=0.002)
    assert np.std(off) == pytest.approx(0.1, abs=0.001), "products of two keys' 100 numbers"
    columns = np.corrcoef(drawn.T)[~np.eye(100, dtype=bool)]
    assert np.std(columns) == pytest.approx(2000**-0.5, abs=0.001)
