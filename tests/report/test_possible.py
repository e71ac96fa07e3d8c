"""No interval goes beyond what a figure can be, and no sentence holds a number that is none."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.core.words import chance
from raysim.report import naming
from raysim.report.judgement.answer import plus_minus, signed
from raysim.report.judgement.noise import size_sentence
from raysim.report.possible import NOTHING, difference, level, visible
from raysim.statistics.chance.inversion import Estimate
from raysim.statistics.chance.noise_floor import NoiseFloor
from raysim.statistics.differences.paired import Limits
from raysim.statistics.meta_analysis.size_slope import SizeSlope

NUMBERS = st.one_of(st.floats(-2, 2), st.sampled_from([math.nan, math.inf, -math.inf, 0.0]))
NO_NUMBER = re.compile(r"\b(nan|inf)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    ("interval", "reference", "cut"),
    [
        (Limits(-0.3, 0.1), 0.8, Limits(-0.3, 0.1)),
        (Limits(-0.1, 0.4), 0.8, Limits(-0.1, 0.2)),
        (Limits(-1.3, 1.3), 0.8, NOTHING),
        (Limits(-0.32, 0.33), 0.9, NOTHING),  # cut to -0.32 to 0.1 it would look as if it showed one side
        (Limits(-0.031 - 1, -0.031 + 1), math.nan, NOTHING),
        (Limits(-0.7, -0.1), 0.9, Limits(-0.7, -0.1)),  # it excludes 0: wide, and a finding
    ],
)
def test_a_difference_of_two_aurocs_stays_within_what_is_possible(interval, reference, cut):
    assert difference(interval, True, reference) == pytest.approx(cut)
    assert difference(interval, False, reference) == interval, "errors have no bounds"


def test_levels():
    assert level(Limits(0.9, 1.2), True) == (0.9, 1.0)
    assert level(Limits(0.2, 1.2), True) == NOTHING
    assert level(Limits(-3.0, 9.0), False) == (0.0, 9.0)
    assert all(math.isnan(end) for end in difference(Limits(math.nan, math.nan), True))


@pytest.mark.parametrize(
    ("size", "reference", "can_be"),
    [(1.266, 0.8, False), (0.19, 0.8, True), (0.21, 0.8, False), (1.266, math.nan, False), (math.nan, 0.8, False)],
)
def test_a_smallest_visible_difference_that_cannot_occur(size, reference, can_be):
    assert visible(size, True, reference) == can_be
    assert visible(1.266, False, reference)


@given(low=st.floats(-3, 3), width=st.floats(0, 5), reference=st.floats(0, 1))
def test_what_is_printed_of_a_difference_is_possible(low, width, reference):
    cut = difference(Limits(low, low + width), True, reference)
    assert cut == NOTHING or -reference <= cut.low <= cut.high <= 1 - reference
    text = naming.with_interval(0.0, *cut, 3, sign=True)
    assert (text == "says nothing") == (cut == NOTHING)


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "p < 0.01"),
        (0.00999, "p < 0.01"),
        (0.01, "p = 0.01"),
        (0.034, "p = 0.03"),
        (1.0, "p = 1.00"),
        (math.nan, "p undefined"),
    ],
)
def test_a_p_is_never_0(p, text):
    assert chance(p) == text


@given(p=st.floats(0, 1))
def test_no_p_is_printed_as_0(p):
    assert not re.search(r"[= ]0\.00$", chance(p).replace("<", ""))


@settings(max_examples=400)
@given(
    numbers=st.tuples(*[NUMBERS] * 8),
    hospitals=st.integers(0, 9),
    shown=st.booleans(),
    larger=st.booleans(),
)
def test_no_sentence_has_a_number_that_is_none(numbers, hospitals, shown, larger):
    common, q, p, low, estimate, high, least, other = numbers
    floor = NoiseFloor("AUROC", common, hospitals, q, p, Estimate(low, estimate, high), shown, least, {}, larger)
    texts = [
        floor.sentence(),
        naming.number(common, 3),
        naming.interval(low, high, 3),
        naming.with_interval(estimate, low, high, 3, sign=True),
        signed(estimate, Limits(low, high), 3),
        plus_minus(estimate, other, 3),
        chance(p) if not p > 1 else "",
        size_sentence(SizeSlope(*numbers[:5])),
        naming.size(other),
        naming.signed(other, 3),
    ]
    for text in texts:
        assert not NO_NUMBER.search(text), text


def test_a_spread_that_cannot_be_estimated_is_said():
    tau = Estimate(0.4, math.inf, math.inf)
    floor = NoiseFloor("AUROC", 0.8, 5, 9.0, 0.001, tau, True, math.inf, {})
    assert floor.sentence().startswith(
        "Hospitals differ beyond chance: how far apart their true AUROC lies cannot be estimated; the data exclude "
    )
    nowhere = NoiseFloor("AUROC", math.nan, 5, 9.0, 0.3, Estimate(*[math.nan] * 3), False, 0.4, {})
    assert nowhere.sentence() == (
        "No difference between hospitals beyond chance was demonstrated (p = 0.30). "
        "These data could not demonstrate any."
    )
    assert np.isnan(nowhere.common)
