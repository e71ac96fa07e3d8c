"""The grid of a study: what is counted, what cannot be divided, and clusters as the engine would make them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from raysim.config.plugins import build_strategy
from raysim.data.build import build
from raysim.data.heterogeneity import label_metrics
from raysim.data.sources.bundled import Digits
from raysim.data.sources.partition import dirichlet, holdout
from raysim.data.sources.pooled import Partition
from raysim.data.split import Split
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.study.grid import chosen_clusters, divided, measure
from raysim.study.settings import Study, metric_names
from tests.conftest import run_strategy

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 60))


def test_training_rows_of_each_class_at_each_client_are_counted():
    home = dirichlet(LABELS, 5, 0.5, 3, min_size=4)
    part = holdout(LABELS, home, 3)
    expected = [[int(((home == j) & (part == 0) & (c == LABELS)).sum()) for c in range(4)] for j in range(5)]
    assert divided(LABELS, 4, 5, 0.5, 3, 4).tolist() == expected


def test_every_cell_has_every_metric_or_says_that_it_cannot_be():
    study = Study(alphas=(50.0, 0.01), clients=(5, 81), seeds=(0, 1), min_size=3)
    rows = list(measure(LABELS, 4, study, ClustPsi()))
    assert [(row["clients"], row["alpha"], row["seed"]) for row in rows] == [
        (clients, alpha, seed) for clients in (5, 81) for alpha in (50.0, 0.01) for seed in (0, 1)
    ]
    for row in rows:
        if not row["feasible"]:
            assert row["clients"] == 81, "240 rows are not three each"
            assert set(row) == {"clients", "alpha", "seed", "feasible"}
            continue
        counts = divided(LABELS, 4, int(row["clients"]), row["alpha"], int(row["seed"]), 3)
        assert {name: row[name] for name in metric_names()} == label_metrics(counts)
        assert 1 <= row["clusters"] < row["clients"]
        assert math.isfinite(row["quantity_gini"])
    assert sum(not row["feasible"] for row in rows) == 4


@pytest.mark.parametrize(("alpha", "seed"), [(0.2, 0), (0.2, 1), (5.0, 0)])
def test_clusters_are_those_that_a_run_makes(alpha, seed, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    source = Digits(clients=12, partition=Partition(alpha=alpha), seed=seed)
    federation = build(source, Split(column="part"), "none")
    outcome = run_strategy(federation, ClustPsi(), rounds=1, seed=seed)
    _, y, classes, _ = source.pool()
    counts = divided(y, len(classes), 12, alpha, seed, 10)
    # The federation orders hospitals by name, which for client_1 to client_12 is by number.
    assert chosen_clusters(ClustPsi(), counts, seed) == len(np.unique(outcome.cluster))


def test_noise_on_counts_is_that_of_the_seed():
    counts = divided(LABELS, 4, 10, 1.0, 0, 3)
    noisy = ClustPsi(privacy_epsilon=0.01)
    chosen = [chosen_clusters(noisy, counts, seed) for seed in range(8)]
    assert chosen == [chosen_clusters(noisy, counts, seed) for seed in range(8)]
    assert len(set(chosen)) > 1


def test_the_strategy_of_a_study_is_any_that_the_registry_knows():
    study = Study.model_validate({"strategy": {"name": "clust_psi", "clusters": 3}})
    assert study.strategy is not None
    assert chosen_clusters(build_strategy(study.strategy), divided(LABELS, 4, 6, 0.3, 0, 3), 0) == 3
