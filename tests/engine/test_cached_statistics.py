"""What is computed once for all runs of a seed: statistics of rows in each process."""

from __future__ import annotations

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.engine.server.coordinator import JobRun
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.shared import signatures
from tests.conftest import job_of


def test_signatures_are_computed_once_in_a_process(federate, monkeypatch):
    computed, exact = [], signatures.exact_signature
    monkeypatch.setattr(signatures, "exact_signature", lambda rows, classes: computed.append(1) or exact(rows, classes))
    federation = federate([6, 8, 7])
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    outcomes = []
    for rate in (0.1, 0.2):
        *_, outcome = JobRun(pool, job_of(federation, Clustered(clusters=2), learning_rate=rate, rounds=1)).events()
        outcomes.append(outcome)
    assert len(computed) == 3
    assert outcomes[0].cluster.tolist() == outcomes[1].cluster.tolist()
    assert outcomes[0].ledger.entries[1][3].tolist() == outcomes[1].ledger.entries[1][3].tolist()
