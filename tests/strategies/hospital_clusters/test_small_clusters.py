"""Clusters with too few members join their nearest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.config.sections.secure import SecureSection
from raysim.core import registry
from raysim.engine.server.job_checks import check_job
from raysim.strategies.shared.clustering import with_enough
from tests.conftest import job_of, run


def test_the_smallest_cluster_joins_the_nearest_until_none_is_too_small():
    """By hand: {10} is nearer to {11, 12} (mean 11.5) than to {7, 8, 9} (mean 8); with it these are three."""
    rows = np.array([[0.0], [0], [1], [10], [7], [8], [9], [11], [12]])
    labels = np.array([0, 0, 0, 1, 2, 2, 2, 3, 3])
    assert with_enough(labels, rows, 3).tolist() == [0, 0, 0, 1, 2, 2, 2, 1, 1]
    assert with_enough(labels, rows, 1).tolist() == labels.tolist()
    assert with_enough(labels, rows, 2).tolist() == [0, 0, 0, 1, 2, 2, 2, 1, 1]
    # Of four: now all have three, the first of them joins {7, 8, 9}, and what is left has three still.
    assert with_enough(labels, rows, 4).tolist() == [0] * 9
    assert with_enough(labels, rows, 10).tolist() == [0] * 9


@given(labels=st.lists(st.integers(0, 5), min_size=1, max_size=30), least=st.integers(1, 12), seed=st.integers(0, 99))
def test_no_cluster_is_left_too_small_and_none_is_taken_apart(labels, least, seed):
    _, code = np.unique(labels, return_inverse=True)
    rows = np.random.default_rng(seed).normal(size=(len(labels), 2))
    merged = with_enough(code, rows, least)
    assert len(np.unique(merged)) == merged.max() + 1
    assert np.bincount(merged).min() >= min(least, len(labels))
    for k in np.unique(code):
        assert len(np.unique(merged[code == k])) == 1


@pytest.mark.parametrize("strategy", ["chip", "clustered", "hierarchical", "clust_psi"])
@pytest.mark.parametrize("recluster", [0, 1])
def test_secure_sums_of_merged_clusters_are_opened_and_keep_their_bits(federate, strategy, recluster):
    federation = federate([12, 9, 0, 10, 11, 13, 8, 10, 9, 12])
    if recluster and strategy == "clust_psi":
        pytest.skip("its clusters stay")
    keys = {"clusters": 5} | ({"recluster_every": recluster} if recluster else {})
    made = registry.load("strategies", strategy, "strategy.name")(**keys)
    plain = job_of(federation, made)
    outcomes = []
    for mode in ("model", "execute"):
        job = replace(plain, secure=SecureSection(mode=mode, small_clusters="merge"))
        check_job(job, federation)
        outcomes.append(run(federation, job, 2))
    model, execute = outcomes
    assert (model.models == execute.models).all()
    sizes = np.bincount(np.delete(model.cluster, 2))[1:]
    assert len(sizes) > 1
    assert sizes.min() >= 3
    assert sizes.max() < 9
    assert model.facts["secure_sums_given_up"] == 0
    assert len(run(federation, plain, 1).models) > len(model.models)
