"""How noise is divided between updates and bits, and how the clip follows, by hand."""

from __future__ import annotations

import math

import pytest

from raysim.privacy.clip import next_clip, update_multiplier


@pytest.mark.parametrize(("multiplier", "bits", "updates"), [(1, 1, 1.154700538), (2, 5, 2.041241452)])
def test_updates_and_bits_together_cost_the_multiplier(multiplier, bits, updates):
    assert update_multiplier(multiplier, bits) == pytest.approx(updates, abs=1e-9)
    assert updates**-2 + (2 * bits) ** -2 == pytest.approx(multiplier**-2, abs=1e-8)


def test_bits_without_any_limit_cost_nothing():
    assert update_multiplier(1.5, math.inf) == 1.5
    assert update_multiplier(0.0, 3.0) == update_multiplier(0.0, math.inf) == 0.0
    with pytest.raises(ValueError, match="above half"):
        update_multiplier(2.0, 1.0)


def test_a_clip_without_a_rate_stays():
    assert next_clip(0.1, 0.2, 0.5, 0.0) == 0.1
    assert next_clip(0.1, 0.2, 0.5, 1.0) == pytest.approx(0.1 * math.exp(0.3), rel=1e-12)


def test_the_clip_follows_the_share_of_short_updates():
    clips, clip = [], 0.1
    for share in (0.2, 0.3, 0.5, 0.8):
        clip = next_clip(clip, share, 0.5, 0.2)
        clips.append(clip)
    assert clips == pytest.approx([0.1061836547, 0.1105170918, 0.1105170918, 0.1040810774], abs=1e-10)
