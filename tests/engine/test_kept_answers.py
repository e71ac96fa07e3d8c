"""Answers and clusters that are computed once for all runs of a seed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest

from raysim.engine.client.hospital_group import HospitalGroup
from raysim.engine.messages.plan import Inquiry
from raysim.strategies.base import Floats, HospitalRows
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.shared import clustering
from raysim.strategies.shared.clustering import kmeans
from tests.conftest import job_of


@dataclass(frozen=True)
class Drawn:
    """Asks for a number of rows and something drawn."""

    which: int
    kind: ClassVar[str] = "drawn"

    def answer(self, rows: HospitalRows) -> Floats:
        asked.append(rows.hospital)
        return np.array([float(len(rows.y)), rows.rng.random()])


@dataclass
class Unhashable:
    """Two that look alike may not be alike."""

    kind: ClassVar[str] = "drawn"

    def answer(self, rows: HospitalRows) -> Floats:
        return Drawn(1).answer(rows)


asked: list[int] = []


@pytest.fixture
def inquiry(federate):
    asked.clear()
    federation = federate([6, 8, 7])
    return Inquiry(job_of(federation, FedAvg()).work, Drawn(1), 0)


def group() -> HospitalGroup:
    return HospitalGroup(np.arange(3), pools=False, device="cpu")


def alike(one: list[Floats], other: list[Floats]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_everybody_answers_before_the_first_round_is_asked_once(inquiry):
    hospitals = group()
    first = hospitals.ask(inquiry)
    assert asked == [0, 1, 2]
    kept = [answer.copy() for answer in first]
    first[0][:] = -1.0  # whoever is given an answer may change it
    assert alike(hospitals.ask(replace(inquiry, question=Drawn(1))), kept)
    assert asked == [0, 1, 2]
    assert alike(group().ask(inquiry), kept)


def test_all_else_is_asked_again(inquiry):
    hospitals = group()
    hospitals.ask(inquiry)
    for other in (
        replace(inquiry, question=Drawn(2)),
        replace(inquiry, work=replace(inquiry.work, seed=inquiry.work.seed + 1)),
        replace(inquiry, round=1),
        replace(inquiry, ids=np.array([0, 1, 2])),
        replace(inquiry, question=Unhashable()),
    ):
        asked.clear()
        answers = hospitals.ask(other)
        assert asked == [0, 1, 2]
        assert alike(answers, group().ask(other))


def test_only_a_few_questions_are_kept(inquiry):
    hospitals = group()
    for which in range(20):
        hospitals.ask(replace(inquiry, question=Drawn(which)))
    asked.clear()
    hospitals.ask(replace(inquiry, question=Drawn(19)))
    assert not asked
    hospitals.ask(replace(inquiry, question=Drawn(0)))
    assert asked == [0, 1, 2]


def test_the_same_rows_are_clustered_once(monkeypatch):
    monkeypatch.setattr(clustering, "_fitted", {})
    rows = np.random.default_rng(0).normal(size=(30, 4))
    labels = kmeans(rows, 3, np.random.default_rng(1))
    changed = rows.copy()
    changed[0] += 9.0
    others = [
        (changed, 3, 1),
        (rows, 4, 1),
        (rows, 3, 2),
        (rows.reshape(-1, 2), 3, 1),
    ]
    expected = [kmeans(points, count, np.random.default_rng(seed)) for points, count, seed in others]
    assert len(clustering._fitted) == 5
    assert [len(answer) for answer in expected] == [30, 30, 30, 60]
    assert expected[1].max() == 3
    labels_before = labels.copy()
    labels[:] = 7  # whoever is given labels may change them
    monkeypatch.setitem(sys.modules, "sklearn.cluster", ModuleType("nothing"))  # nobody clusters again
    again = np.random.default_rng(1)
    assert np.array_equal(kmeans(rows, 3, again), labels_before)
    assert again.integers(2**31) == np.random.default_rng(1).integers(2**31, size=2)[1], "drawn from as before"
    for (points, count, seed), answer in zip(others, expected, strict=True):
        assert np.array_equal(kmeans(points, count, np.random.default_rng(seed)), answer)
