"""Clusters that follow the training: identity 13, what they are made of, and clusters that no signature shows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.coordinator import JobRun
from raysim.strategies.base import FederationView, State, Strategy
from raysim.strategies.hospital_clusters.by_signature import reclustered
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.hospital_clusters.hierarchical import Hierarchical
from raysim.strategies.selections.sampling import Uniform
from raysim.strategies.shared.clustering import ReclusteringState, members
from tests.conftest import MakeFederation, job_of, run_strategy, store
from tests.strategies.contexts import answered_by, hospital, view_of
from tests.strategies.test_battery import same
from tests.strategies.test_identities import assert_different, assert_same

SIZES = [9, 4, 13, 0, 1, 6, 8]
ALL = pytest.mark.parametrize("cls", [Chip, Clustered, Hierarchical])


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5] * 7)


def states(federation: Federation, strategy: Strategy, **settings) -> tuple[list[Any], Outcome]:
    """The state after each round but the last, and the outcome."""
    run = JobRun(
        LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu"), job_of(federation, strategy, **settings)
    )
    seen = []
    for event in run.run():
        standing = run.state_after_round()
        assert standing is not None
        if isinstance(event, Outcome):
            return seen[:-1], event
        seen.append(standing.state)
    raise AssertionError("a run ends with its outcome")


@ALL
def test_it_is_off_unless_it_is_asked_for(cls, federation):
    """And until its first time comes, it changes nothing."""
    run = {"rounds": 3, "selection": Uniform(0.6, 2)}
    same(
        run_strategy(federation, cls(clusters=3), **run),
        run_strategy(federation, cls(clusters=3, recluster_every=4), **run),
    )
    assert cls().recluster_every == 0


@ALL
@pytest.mark.parametrize("every", [1, 2])
def test_13_the_global_model_stays_the_mean_of_the_clusters_by_rows(cls, every, federation):
    strategy = cls(clusters=3, recluster_every=every, signature=("size", "prevalence"))
    seen, outcome = states(federation, strategy, rounds=6, selection=Uniform(0.5, 2), learning_rate=0.5)
    states_of: list[Any] = [*seen, outcome]
    for state in states_of:
        assert state.cluster is not None
        assert state.cluster.max() == len(state.models) - 1
        rows = np.bincount(state.cluster - 1, weights=SIZES)
        assert_same((rows / rows.sum()) @ state.models[1:], state.models[0])
    changed = [a.cluster.tolist() != b.cluster.tolist() for a, b in pairwise(seen)]
    assert any(changed) or cls is Hierarchical, "clusters that never change show nothing"
    rounds = [t for t, moved in enumerate(changed, 2) if moved]
    assert all(t % every == 0 for t in rounds)


def test_a_new_cluster_starts_at_the_mean_of_its_members_models_by_rows(federation):
    seen, _ = states(federation, Clustered(clusters=3, recluster_every=3), rounds=6, learning_rate=0.5)
    twin, _ = states(federation, Clustered(clusters=3, recluster_every=100), rounds=4, learning_rate=0.5)
    before, after = twin[2], seen[2]
    assert seen[1].models.tolist() == twin[1].models.tolist()
    assert before.cluster is not None
    assert after.cluster is not None
    for k in range(1, len(after.models)):
        members = np.flatnonzero(after.cluster == k)
        members = members[np.array(SIZES)[members] > 0]
        expected = np.average(before.models[before.cluster[members]], axis=0, weights=np.array(SIZES)[members])
        assert_same(after.models[k], expected)
    sizes = np.bincount(after.cluster[np.array(SIZES) > 0])
    assert sizes[after.cluster[3]] == sizes.max(), "without rows: the largest cluster"


def hidden(federate: MakeFederation, folder: Path) -> Federation:
    """Eight hospitals with the same patients, four of each half with opposite labels: 1, 2, 5 and 6 call every row by
    the other class. There are as many rows of each class, so nothing of a signature differs.
    """
    drawn = federate([30] * 8, [20] * 8, features=4, seed=2)
    X, y = drawn.X.copy(), drawn.y.copy()
    for h in range(8):
        first, last = drawn.bounds[h, [0, 3]]
        X[first:last] = drawn.X[drawn.bounds[0, 0] : drawn.bounds[0, 3]]
        score = X[first:last] @ np.array([2.0, -1.0, 1.0, 0.5])
        train = slice(0, 30)
        label = np.zeros(50, dtype=np.int64)
        label[train] = score[train] > np.median(score[train])
        label[30:] = score[30:] > np.median(score[train])
        y[first:last] = 1 - label if h in (1, 2, 5, 6, 7) else label
    folder.mkdir()
    return store(folder, X, y, drawn.bounds)


@pytest.mark.parametrize("block_scale", [False, True])
@pytest.mark.parametrize("cls", [Chip, Clustered])
def test_clusters_that_no_signature_shows_are_found_by_losses(cls, block_scale, federate, tmp_path):
    federation = hidden(federate, tmp_path / "hidden")
    run = {"rounds": 12, "epochs": 2, "learning_rate": 0.5}
    never = run_strategy(federation, cls(clusters=2, block_scale=block_scale), **run)
    assert never.cluster is not None
    assert len(set(never.cluster)) == 1, "signatures are all the same"
    assert never.metrics["cluster"]["auroc"] < 0.7
    outcome = run_strategy(federation, cls(clusters=2, block_scale=block_scale, recluster_every=3), **run)
    assert outcome.cluster is not None
    assert outcome.cluster.tolist() == [1, 2, 2, 1, 1, 2, 2, 2]
    assert outcome.metrics["cluster"]["auroc"] > 0.9


def even_spread() -> tuple[FederationView, ReclusteringState]:
    """Eight hospitals of two kinds by their signatures, with evenly spread losses under four models."""
    losses = np.linspace(0.2, 0.9, 8)
    view = answered_by(view_of([hospital([3, 3])] * 8), lambda call, i: np.full(4, losses[i]))
    state = ReclusteringState(
        models=np.zeros((5, 2)), cluster=np.array([1, 2, 3, 4] * 2), columns=np.tile([[-1.0], [1.0]], (4, 1))
    )
    return view, state


@pytest.mark.parametrize(("block_scale", "labels"), [(True, [1, 2] * 4), (False, [1, 1, 1, 1, 2, 2, 2, 2])])
def test_scaled_losses_weigh_as_much_as_one_block_however_many_clusters_there_are(block_scale, labels):
    """Losses under four models agree on an even spread, the signature has two clear groups that cut across it.

    Unscaled, the four columns of losses decide; scaled by 1 / sqrt(4), they are one against one.
    """
    view, state = even_spread()
    assert members(reclustered(view, state, 2, block_scale, every=1)).tolist() == labels


def test_losses_are_standardised_and_scaled_by_the_root_of_the_number_of_models(monkeypatch):
    view, state = even_spread()
    rows = []
    halves = np.array([0, 1] * 4)
    monkeypatch.setattr(
        "raysim.strategies.hospital_clusters.by_signature.kmeans",
        lambda columns, clusters, rng: rows.append(columns) or halves,
    )
    losses = np.linspace(0.2, 0.9, 8)
    standard = ((losses - losses.mean()) / losses.std())[:, None]
    for block_scale, factor in ((True, 0.5), (False, 1.0)):
        assert members(reclustered(view, state, 2, block_scale, every=1)).tolist() == (1 + halves).tolist()
        assert rows.pop() == pytest.approx(np.hstack([state.columns, np.tile(factor * standard, 4)]))


def test_asking_costs_k_models_down_and_k_losses_up_in_the_rounds_in_which_it_happens(federation):
    outcome = run_strategy(federation, Clustered(clusters=3, recluster_every=2), rounds=4)
    never = run_strategy(federation, Clustered(clusters=3), rounds=4)
    size = outcome.layout.size
    for row, plain in zip(outcome.rounds, never.rounds, strict=True):
        asked = row.round % 2 == 0
        assert row.bytes_down == plain.bytes_down + asked * 4 * 6 * 3 * size
        assert row.bytes_up == plain.bytes_up + asked * 4 * 6 * 3
    signatures = [t for t, kind, _, _, _ in outcome.ledger.entries if kind == "signature"]
    assert signatures == [0], "they were sent once"


def test_a_hierarchy_whose_models_are_one_is_reclustered_without_harm(federation):
    """With alpha = 0 all cluster models are the global one, and clusters only stratify the average."""
    run = {"rounds": 5, "epochs": 2}
    outcome = run_strategy(federation, Hierarchical(clusters=3, recluster_every=2), **run)
    for row in outcome.models[1:]:
        assert_same(row, outcome.models[0])
    partial = {"rounds": 5, "selection": Uniform(0.5, 2)}
    assert_different(
        run_strategy(federation, Hierarchical(clusters=3, recluster_every=1), **partial).models[0],
        run_strategy(federation, Hierarchical(clusters=3), **partial).models[0],
    )


@ALL
def test_a_negative_number_of_rounds_is_refused_by_name(cls):
    with pytest.raises(ValueError, match=r"^recluster_every: "):
        cls(recluster_every=-1)


def test_rounds_are_counted_from_the_first():
    state: State = ReclusteringState(models=np.zeros((2, 2)), columns=np.zeros((1, 1)))
    view = view_of([hospital([1, 1])])
    for expected in (1, 2):
        state = reclustered(view, state, 1, False, 9)
        assert isinstance(state, ReclusteringState)
        assert state.rounds == expected
