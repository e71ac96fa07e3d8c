"""A robust rule in several sums at once: which hospitals' rows, centres and trust it goes by, and what it counts."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.config.sections.aggregation import AggregationSection
from raysim.data.federation import Federation
from raysim.engine.attacks.robust_rule import RobustRule, Tally
from raysim.robust.centres import centred_clipping, geometric_median
from tests.conftest import MakeFederation

IDS = np.array([1, 2, 4, 5, 7])
DELTAS = np.random.default_rng(2).normal(size=(5, 3))
GROUPS = [np.array([0, 3]), np.array([1, 2, 4])]
WEIGHT = np.array([[0.5, 0], [0, 0.25], [0, 0.5], [1.5, 0], [0, 0.25]])


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([12, 9, 14, 10, 11, 3, 8, 20])


def sums_of(rule: RobustRule, round: int = 1, deltas: np.ndarray = DELTAS) -> np.ndarray:
    return rule.sums(round, IDS, deltas, np.array([False, False, True, False, False]), GROUPS, WEIGHT)


def test_hospitals_count_by_their_own_rows_up_to_the_cap(federation: Federation) -> None:
    tally = Tally()
    section = AggregationSection(name="geometric_median", weights="capped", cap=12)
    expected = [
        2.0 * geometric_median(DELTAS[[0, 3]], np.array([9.0, 3.0])).update,
        1.0 * geometric_median(DELTAS[[1, 2, 4]], np.array([12.0, 11.0, 12.0])).update,
    ]
    np.testing.assert_allclose(sums_of(RobustRule(section, federation, 1, None, tally)), expected, rtol=1e-12)
    assert tally.heaviest == 9 / 12


def test_each_sum_goes_on_from_its_own_centre(federation: Federation) -> None:
    section = AggregationSection(name="centred_clipping", radius=0.3, passes=1)
    rule = RobustRule(section, federation, 1, None, Tally())
    centres = [centred_clipping(DELTAS[g], np.zeros(3), 0.3, 1).update for g in GROUPS]
    np.testing.assert_allclose(sums_of(rule), [2.0 * centres[0], 1.0 * centres[1]], rtol=1e-12)
    again = RobustRule(section, federation, 1, None, Tally())
    again.resume(rule.memory, 3)
    later = DELTAS[::-1].copy()
    expected = [
        total * centred_clipping(later[g], centre, 0.3, 1).update
        for total, g, centre in zip((2.0, 1.0), GROUPS, centres, strict=True)
    ]
    np.testing.assert_allclose(sums_of(again, 2, later), expected, rtol=1e-12)


def test_a_sum_without_the_trusted_hospital_stays_where_it_is(federation: Federation) -> None:
    """FLTrust in the sum of h5, whose own update keeps its length and counts once."""
    rule = RobustRule(AggregationSection(name="fltrust", root="h5"), federation, 1, None, Tally())
    sums = sums_of(rule)
    assert sums[1].tolist() == [0.0, 0.0, 0.0]
    root, other = DELTAS[3], DELTAS[0]
    trust = max(0.0, float(root @ other) / float(np.linalg.norm(root) * np.linalg.norm(other)))
    scaled = other * np.linalg.norm(root) / np.linalg.norm(other)
    np.testing.assert_allclose(sums[0], 2.0 * (root + trust * scaled) / (1 + trust), rtol=1e-12)


def test_who_is_rejected_is_counted_over_sums_and_rounds(federation: Federation) -> None:
    """Krum keeps one of three, and in a sum of two the first; the bad one lies far away."""
    tally = Tally()
    rule = RobustRule(AggregationSection(name="krum", assumed=0.3), federation, 1, None, tally)
    far = DELTAS.copy()
    far[2] += 100.0
    for round in (1, 2):
        sums_of(rule, round, far)
    assert (tally.rejected, tally.rejected_bad, tally.bad, tally.sums, tally.admitted) == (6, 2, 2, 4, 0.0)
    facts = rule.facts()
    assert (facts["rejecting_precision"], facts["rejecting_recall"], facts["bad_share_admitted"]) == (1 / 3, 1.0, 0.0)
