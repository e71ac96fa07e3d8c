"""Random streams: the same draws for ever, and others for whatever differs."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

from raysim.core.streams import quick_stream, stream


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
