"""What is computed once for all runs of a seed: statistics of rows in each process, and clusters at the server."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.engine.server.coordinator import Coordinator
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.shared import clustering, signatures
from raysim.strategies.shared.clustering import kmeans
from tests.conftest import job_of


def test_signatures_are_computed_once_in_a_process(federate, monkeypatch):
    computed, exact = [], signatures.exact_signature
    monkeypatch.setattr(signatures, "exact_signature", lambda rows, classes: computed.append(1) or exact(rows, classes))
    federation = federate([6, 8, 7])
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    outcomes = []
    for rate in (0.1, 0.2):
        *_, outcome = Coordinator(pool).run(job_of(federation, Clustered(clusters=2), learning_rate=rate, rounds=1))
        outcomes.append(outcome)
    assert len(computed) == 3
    assert outcomes[0].cluster.tolist() == outcomes[1].cluster.tolist()
    assert outcomes[0].ledger.entries[1][3].tolist() == outcomes[1].ledger.entries[1][3].tolist()


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
