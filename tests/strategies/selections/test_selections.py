"""What every registered selection must pass, without exception by name."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest

from raysim.core import registry
from raysim.engine.job import Outcome
from raysim.strategies.base import Draw, FederationView, Ids, Selection, Update
from raysim.strategies.hospital_clusters.cfl import Cfl
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.fedsoft import FedSoft
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import MANY, Uniform
from raysim.traffic.ledger import TO_EXPERIMENTER
from tests.conftest import MakeFederation, run_strategy
from tests.strategies.test_battery import UNEVEN, same

SELECTIONS = sorted(registry.entries("selections"))
RUN: dict[str, Any] = {"rounds": 4, "epochs": 2}


@pytest.fixture(params=SELECTIONS)
def selection(request) -> Selection:
    """The selection with its defaults, but for few hospitals, where their number can be set."""
    built = registry.load("selections", request.param, "selection.name")()
    assert isinstance(built, Selection)
    few = {"fraction": 0.5, "minimum": 2, "candidates": 4}
    changes = {key: value for key, value in few.items() if hasattr(built, key)}
    return dataclasses.replace(built, **changes)


class Copied(Selection):
    """A selection whose memory is written down and read back, as plain arrays and JSON, whenever it changes."""

    def __init__(self, inner: Selection) -> None:
        self.inner = inner
        self.uses_losses = inner.uses_losses

    def setup(self, view: FederationView) -> Any:
        return copied(self.inner.setup(view))

    def pick(self, draw: Draw) -> Ids:
        return self.inner.pick(draw)

    def observe(self, memory: Any, update: Update) -> Any:
        return copied(self.inner.observe(memory, update))


def copied(memory: Any) -> Any:
    if memory is None:
        return None
    if dataclasses.is_dataclass(memory) and not isinstance(memory, type):
        return type(memory)(**copied({field.name: getattr(memory, field.name) for field in dataclasses.fields(memory)}))
    arrays = {key: value for key, value in memory.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in memory.items() if key not in arrays}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    return json.loads(json.dumps(plain)) | dict(np.load(file, allow_pickle=False))


def cohorts(outcome: Outcome) -> list[list[int]]:
    """Who took part in each round."""
    return [ids.tolist() for _, kind, ids, _, _ in outcome.ledger.entries if kind == "update"]


def test_it_is_an_immutable_value(selection):
    assert dataclasses.is_dataclass(selection)
    with pytest.raises(dataclasses.FrozenInstanceError):
        selection.anything = 1


def test_cohorts_are_ascending_distinct_hospitals_with_training_rows(selection, federate: MakeFederation):
    drawn = cohorts(run_strategy(federate(UNEVEN), FedAvg(), selection=selection, **RUN))
    assert len(drawn) == RUN["rounds"]
    for ids in drawn:
        assert ids == sorted(set(ids))
        assert ids
        assert set(ids) <= set(np.flatnonzero(UNEVEN).tolist())


def test_placement_changes_nothing_and_the_seed_decides_everything(selection, federate: MakeFederation):
    federation = federate(UNEVEN, features=4)
    first = run_strategy(federation, FedAvg(), selection=selection, actors=1, **RUN)
    for actors in (1, 3):
        again = run_strategy(federation, FedAvg(), selection=selection, actors=actors, **RUN)
        same(first, again)
        assert cohorts(first) == cohorts(again)


def test_its_memory_is_plain_values(selection, federate: MakeFederation):
    federation = federate(UNEVEN)
    same(
        run_strategy(federation, FedAvg(), selection=selection, **RUN),
        run_strategy(federation, FedAvg(), selection=Copied(selection), **RUN),
    )


@pytest.mark.parametrize(
    "strategy", [ClustPsi(clusters=2), Cfl(eps1=10.0, eps2=0.0, gamma=0.0), Ifca(clusters=2), FedSoft(clusters=2)]
)
def test_it_goes_with_strategies_that_have_clusters(selection, strategy, federate: MakeFederation):
    federation = federate(UNEVEN, features=4)
    alone = run_strategy(federation, strategy, selection=selection, actors=1, **RUN)
    assert all(ids and ids == sorted(set(ids)) for ids in cohorts(alone))
    same(alone, run_strategy(federation, strategy, selection=selection, actors=3, **RUN))


@pytest.mark.parametrize("strategy", [Centralized(), Local()])
def test_it_does_not_disturb_strategies_that_choose_for_themselves(selection, strategy, federate: MakeFederation):
    federation = federate(UNEVEN)
    same(run_strategy(federation, strategy, **RUN), run_strategy(federation, strategy, selection=selection, **RUN))


def test_a_federation_of_one_hospital(selection, federate: MakeFederation):
    assert cohorts(run_strategy(federate([12], [8]), FedAvg(), selection=selection, rounds=2)) == [[0], [0]]


def test_traffic_is_what_the_ledger_says(selection, federate: MakeFederation):
    """Up: everything that left hospitals. Down: a model to each that is asked about it or trains from it, once."""
    outcome = run_strategy(federate(UNEVEN), FedAvg(), selection=selection, **RUN)
    size = outcome.layout.size
    for row in outcome.rounds:
        entries = [
            entry for entry in outcome.ledger.entries if entry[0] == row.round and entry[1] not in TO_EXPERIMENTER
        ]
        assert row.bytes_up == sum(int(sent.sum()) for _, _, _, sent, _ in entries)
        reached = set().union(*(set(ids.tolist()) for _, _, ids, _, _ in entries))
        assert row.bytes_down == 4 * size * len(reached)


def test_a_uniform_sample_of_very_many_permutes_none_of_them() -> None:
    few, many = (np.arange(count) * 2 for count in (MANY, MANY + 1))
    for ids in (few, many):
        counts = np.zeros(4)
        for seed in range(40):
            drawn = Uniform(1000 / len(ids), 10).pick(
                Draw(ids, np.ones(len(ids)), np.random.default_rng(seed), None, np.zeros_like)
            )
            assert len(drawn) == 1000
            assert (np.diff(drawn) > 0).all()
            assert np.isin(drawn, ids).all()
            counts += np.bincount(drawn * 4 // (2 * len(ids)), minlength=4)
        # 40,000 draws, a quarter each: the standard error of a share is .0022.
        np.testing.assert_allclose(counts / counts.sum(), 0.25, atol=0.011)
    order = np.random.default_rng(5).permutation(few)
    draw = Draw(few, np.ones(len(few)), np.random.default_rng(5), None, np.zeros_like)
    assert Uniform(10 / len(few), 10).pick(draw).tolist() == sorted(order[:10].tolist())
