"""Patients of several types."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.vq import kmeans2

from raysim.data.build import build
from raysim.data.sources.patient_types import PatientTypes
from raysim.data.split import Split


def test_patient_types_have_the_requested_sizes_and_flags():
    records = PatientTypes(hospitals=5, rows=300, types=3, features=4, flags=2).read()
    assert records.features.shape[1] == 6
    sizes = [int((records.silo == f"hospital_{h + 1}").sum()) for h in range(5)]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == len(records.y) == pytest.approx(300, abs=5)
    assert set(np.unique(records.features[["flag1", "flag2"]])) == {0, 1}
    federation = build(PatientTypes(hospitals=5, rows=300), Split(), "standard")
    assert federation.hospitals == tuple(f"hospital_{h + 1}" for h in range(5))


def test_types_are_as_far_apart_as_asked_and_hospitals_mix_them():
    """With two types, k-means finds them: the distance of their means, and each hospital's share."""
    source = PatientTypes(hospitals=6, rows=3000, types=2, features=8, flags=0, separation=12, mixing=0.3)
    records = source.read()
    X = records.features.to_numpy(np.float64)
    centres, labels = kmeans2(X, 2, seed=1, minit="++")
    within = np.concatenate([X[labels == k] - centres[k] for k in range(2)])
    assert within.std() == pytest.approx(1, abs=0.05)
    shares = [labels[records.silo == f"hospital_{h + 1}"].mean() for h in range(6)]
    assert np.std(shares) > 0.2


@pytest.mark.parametrize(("contrast", "alike"), [(0.0, True), (1.0, False)])
def test_the_law_of_risk_is_common_or_the_types_own(contrast, alike):
    source = PatientTypes(hospitals=1, rows=4000, types=2, features=3, flags=0, separation=20, contrast=contrast)
    records = source.read()
    X = records.features.to_numpy(np.float64)
    _, labels = kmeans2(X, 2, seed=1, minit="++")
    laws = []
    for kind in (labels == 0, labels == 1):
        laws.append(X[kind & (records.y == 1)].mean(axis=0) - X[kind & (records.y == 0)].mean(axis=0))
    cosine = laws[0] @ laws[1] / np.linalg.norm(laws[0]) / np.linalg.norm(laws[1])
    assert (cosine > 0.95) == alike
