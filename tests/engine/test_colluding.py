"""What colluding hospitals send in each sum, against loops over the updates that they know of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.adversaries.collusion import STEPS, alie, ipm
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.data.federation import Federation
from raysim.engine.attacks.byzantine import Byzantine
from raysim.engine.attacks.colluding import Colluders, Server
from raysim.strategies.base import LocalProblem, Update, Upload
from tests.conftest import MakeFederation

DELTAS = np.random.default_rng(5).normal(size=(7, 3))
BAD = np.array([False, True, False, False, True, True, False])
GROUPS = [np.array([0, 1, 3]), np.array([2, 4, 5, 6])]


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([5] * 9)


def sent(federation: Federation, section: AdversarySection, server: Server | None = None) -> np.ndarray:
    deltas = DELTAS.copy()
    ids = np.arange(7) + 2
    Colluders(section, federation).replace(ids, deltas, BAD, GROUPS, np.inf, server or (lambda g, updates: updates[0]))
    return deltas


def test_they_send_one_vector_in_each_sum_and_the_others_what_they_have(federation: Federation) -> None:
    expected = DELTAS.copy()
    expected[1] = -2.0 * (DELTAS[0] + DELTAS[3]) / 2
    expected[[4, 5]] = -2.0 * (DELTAS[2] + DELTAS[6]) / 2
    np.testing.assert_allclose(sent(federation, AdversarySection(attack="ipm", factor=2.0, knowledge="all")), expected)
    expected[1] = -0.5 * DELTAS[1]
    expected[[4, 5]] = -0.5 * (DELTAS[4] + DELTAS[5]) / 2
    np.testing.assert_allclose(sent(federation, AdversarySection(attack="ipm", knowledge="colluders")), expected)


def furthest(honest: np.ndarray, others: np.ndarray, liars: int) -> np.ndarray:
    """Of the attacks tried, the one that moves the median of ``others`` and so many liars furthest from the mean."""
    tried = [alie(honest, 0, 0, a) for a in STEPS] + [ipm(honest, a) for a in STEPS]
    moved = [np.linalg.norm(np.median([*others, *[lie] * liars], axis=0) - honest.mean(axis=0)) for lie in tried]
    return tried[int(np.argmax(moved))]


def test_an_adaptive_attack_tries_what_the_server_would_make_of_it(federation: Federation) -> None:
    expected = DELTAS.copy()
    expected[1] = furthest(DELTAS[[0, 3]], DELTAS[[0, 3]], 1)
    expected[[4, 5]] = furthest(DELTAS[[2, 6]], DELTAS[[2, 6]], 2)
    section = AdversarySection(attack="adaptive", knowledge="all")
    seen: list[int] = []

    def median(g: int, updates: np.ndarray) -> np.ndarray:
        seen.append(g)
        return np.median(updates, axis=0)

    np.testing.assert_array_equal(sent(federation, section, median), expected)
    assert seen == [0] * 20 + [1] * 20


@pytest.mark.parametrize(
    "rule",
    [
        None,
        {"name": "fltrust", "root": "h1"},
        {"name": "geometric_median", "weights": "capped", "cap": 8},
        {"name": "median", "private": True},
    ],
    ids=["none", "fltrust", "capped", "private"],
)
def test_it_knows_the_weights_and_the_trusted_hospital_of_the_server(federate: MakeFederation, rule) -> None:
    """The server's own result for the update that is sent is the furthest of all that it might have sent."""
    federation = federate([4, 30, 8, 2, 16, 5, 9, 12, 3])
    attack = AdversarySection(attack="adaptive", knowledge="all", share=0.34)
    keys = {name: value for name, value in (rule or {}).items() if name != "private"}
    section = None if rule is None else AggregationSection(**keys)
    private = np.array([False, True, False]) if rule and "private" in rule else None
    deltas = np.random.default_rng(6).normal(size=(9, 3)) * (1.0 if private is None else ~private)
    weight = federation.sizes("train") / federation.sizes("train").sum()
    problem = LocalProblem(start=np.zeros(9, np.int64), upload=Upload(weight, single=True))
    server = Byzantine(attack, section, federation, 1, "fedavg", private)
    honest = np.delete(deltas, server.bad, axis=0)

    def moved(lie: np.ndarray) -> float:
        sent_updates = deltas.copy()
        sent_updates[server.bad] = lie
        ruled = Byzantine(None, section, federation, 1, "fedavg", private)
        made = ruled.learned(1, Update(np.arange(9), np.zeros((1, 3)), sent_updates, problem=problem), problem).sums[0]
        return float(np.linalg.norm((weight @ sent_updates if section is None else made) - honest.mean(axis=0)))

    learned = server.learned(1, Update(np.arange(9), np.zeros((1, 3)), deltas, problem=problem), problem)
    tried = [alie(honest, 0, 0, a) for a in STEPS] + [ipm(honest, a) for a in STEPS]
    assert moved(learned.deltas[server.bad[0]]) == pytest.approx(max(map(moved, tried)))


def test_it_knows_the_rule_by_which_the_server_aggregates(federation: Federation) -> None:
    attack = AdversarySection(attack="adaptive", knowledge="all", share=0.34)
    server = Byzantine(attack, AggregationSection(name="median", assumed=0.34), federation, 1, "fedavg", None)
    deltas = np.random.default_rng(6).normal(size=(9, 3))
    problem = LocalProblem(start=np.zeros(9, np.int64), upload=Upload(np.full(9, 1 / 9), single=True))
    update = Update(ids=np.arange(9), sums=np.zeros((1, 3)), deltas=deltas, problem=problem)
    learned = server.learned(1, update, problem)
    honest = np.delete(deltas, server.bad, axis=0)
    assert len(server.bad) == 3
    lie = furthest(honest, honest, 3)
    np.testing.assert_array_equal(learned.deltas[server.bad], [lie] * 3)
    np.testing.assert_allclose(learned.sums, np.median([*honest, lie, lie, lie], axis=0)[None])
    assert learned.problem is problem
    assert server.facts()["largest_bad_share"] == pytest.approx(1 / 3)
    assert server.learned(2, replace(update, deltas=None), problem).sums is update.sums
