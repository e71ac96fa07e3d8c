"""The generated federation: what its parameters guarantee."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from raysim.data.build import build
from raysim.data.federation import Federation
from raysim.data.sources.synthetic import Synthetic, _intercepts
from raysim.data.sources.synthetic_features import FEATURES
from raysim.data.split import Split


def sizes(source: Synthetic) -> NDArray[np.int64]:
    records = source.read()
    names = [f"hospital_{h + 1}" for h in range(source.hospitals)]
    return np.array([np.count_nonzero(records.silo == name) for name in names])


def signatures(federation: Federation) -> NDArray[np.float64]:
    """Log size, prevalence, and missing rate, mean and deviation of each feature in training rows, standardised.

    A feature that a hospital never observed takes the average of the others there.
    """
    rows = []
    for h in range(len(federation.hospitals)):
        at = federation.rows(h, "train")
        observed = federation.observed[at]
        X: Any = np.ma.array(federation.X[at, : observed.shape[1]], mask=~observed, dtype=float)
        spread = [np.ma.getmaskarray(X).mean(axis=0), X.mean(axis=0).filled(np.nan), X.std(axis=0).filled(np.nan)]
        rows.append(np.concatenate([[np.log(len(X)), federation.y[at].mean()], *spread]))
    table = np.array(rows)
    table = np.where(np.isnan(table), np.nanmean(table, axis=0), table)
    deviation = table.std(axis=0)
    standard: NDArray[np.float64] = (table - table.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return standard


@pytest.mark.parametrize("seed", [0, 1])
def test_default_is_as_hard_as_real_mortality_and_its_groups_can_be_found(seed: int) -> None:
    federation = build(Synthetic(seed=seed), Split(), "standard", seed=0)
    totals = federation.totals
    assert (len(federation.hospitals), totals.sum()) == (208, 38_700)
    assert abs(federation.sizes("train").sum() - 31_000) < 200
    assert totals.min() >= 20
    assert np.median(totals) < 150
    assert totals.max() > 1000

    train = np.zeros(len(federation.y), np.bool_)
    for h in range(208):
        train[federation.rows(h, "train")] = True
    model = LogisticRegression(max_iter=500).fit(federation.X[train], federation.y[train])
    assert 0.88 <= roc_auc_score(federation.y[~train], model.decision_function(federation.X[~train])) <= 0.93

    clusters = KMeans(5, n_init=10, random_state=0).fit_predict(signatures(federation))
    assert adjusted_rand_score(federation.attributes["practice"], clusters) > 0.5


def test_prevalence_stays_in_its_range() -> None:
    records = Synthetic(hospitals=20, rows_per_hospital=4000, prevalence=(0.03, 0.2)).read()
    shares = records.y.reshape(20, 4000).mean(axis=1)
    # Five standard errors of a share drawn 4,000 times.
    assert shares.min() > 0.03 - 5 * np.sqrt(0.03 / 4000)
    assert shares.max() < 0.2 + 5 * np.sqrt(0.2 / 4000)
    fixed = Synthetic(hospitals=20, rows_per_hospital=4000, prevalence=(0.1, 0.1)).read()
    assert abs(fixed.y.mean() - 0.1) < 5 * np.sqrt(0.09 / 80_000)


def test_intercept_gives_the_prevalence() -> None:
    # By brute force: the mean of sigmoid over a fine grid of normal quantiles.
    prevalence = np.array([0.001, 0.05, 0.5, 0.97])
    for signal in (0.0, 0.5, 4.0):
        nodes = np.linspace(-10, 10, 20_001)
        mass = np.exp(-(nodes**2) / 2)
        logits = _intercepts(prevalence, signal)[:, None] + signal * nodes
        mean = (mass / (1 + np.exp(-logits))).sum(axis=1) / mass.sum()
        np.testing.assert_allclose(mean, prevalence, rtol=2e-3)


def test_a_hospital_keeps_its_patients_whatever_the_others_are() -> None:
    few = Synthetic(hospitals=5, rows_per_hospital=30).read()
    many = Synthetic(hospitals=40, rows_per_hospital=30).read()
    np.testing.assert_array_equal(few.features.to_numpy(), many.features.to_numpy()[:150])
    np.testing.assert_array_equal(few.y, many.y[:150])
    # And its first ones when it grows.
    larger = Synthetic(hospitals=5, rows_per_hospital=50).read()
    np.testing.assert_array_equal(few.features.to_numpy()[:30], larger.features.to_numpy()[:30])
    np.testing.assert_array_equal(few.y[:30], larger.y[:30])


def test_the_same_seed_gives_the_same_federation_and_another_another() -> None:
    first, again, other = (Synthetic(hospitals=3, rows=100, seed=s).read() for s in (4, 4, 5))
    np.testing.assert_array_equal(first.features.to_numpy(), again.features.to_numpy())
    assert not np.array_equal(first.y, other.y)


@pytest.mark.parametrize(("hospitals", "rows"), [(1, 1), (3, 60), (7, 7), (10, 1234), (50, 49_999)])
def test_sizes_add_up(hospitals: int, rows: int) -> None:
    drawn_sizes = sizes(Synthetic(hospitals=hospitals, rows=rows, features=2))
    assert drawn_sizes.sum() == rows
    assert drawn_sizes.min() >= max(1, min(20, rows // (2 * hospitals)))


def test_small_and_wide_federations() -> None:
    assert Synthetic(hospitals=1, rows=5, features=1, groups=1).read().features.columns.tolist() == ["age"]
    wide = Synthetic(hospitals=2, rows=40, features=42).read().features
    assert wide.columns[-2:].tolist() == ["feature_41", "feature_42"]
    assert (wide.dtypes == np.float32).all()
    assert not np.isinf(wide.to_numpy()).any()


def test_missing_share_and_its_link_to_severity() -> None:
    records = Synthetic(hospitals=50, rows=20_000).read()
    can = [feature[0] for feature in FEATURES if feature[8] is not None]
    missing = records.features.isna()
    assert abs(missing[can].to_numpy().mean() - 0.2) < 0.03
    assert not missing.drop(columns=can).to_numpy().any()
    # The sicker are measured more: those who die miss fewer values.
    per_row = missing[can].to_numpy().mean(axis=1)
    assert per_row[records.y == 1].mean() < per_row[records.y == 0].mean() - 0.02
    assert not Synthetic(hospitals=2, rows=50, missing=0).read().features.isna().to_numpy().any()


def test_label_noise_alone_leaves_nothing_to_learn() -> None:
    records = Synthetic(hospitals=2, rows=20_000, label_noise=1, missing=0).read()
    gcs = records.features["gcs"].to_numpy()
    assert abs(roc_auc_score(records.y, gcs) - 0.5) < 0.03


def test_what_is_known_of_hospitals_and_patients() -> None:
    records = Synthetic(hospitals=10, rows=400).read()
    practices = [attributes["practice"] for attributes in records.attributes.values()]
    assert sorted(practices) == sorted([f"practice_{g}" for g in range(1, 6)] * 2)
    assert set(records.attributes["hospital_1"]) == {"practice", "region", "beds", "teaching"}
    np.testing.assert_array_equal(records.patients["age"], records.features["age"])
    np.testing.assert_array_equal(records.patients["sex"] == "Female", records.features["female"] == 1)
    assert len(set(records.patients["ethnicity"].tolist())) > 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prevalence": (0.2, 0.1)}, "prevalence: .0.2, 0.1. must be two numbers"),
        ({"rows": 5, "hospitals": 6}, "rows: 5 is fewer than the 6 hospitals"),
        ({"hospitals": 0}, "greater than or equal to 1"),
        ({"hospital": 3}, "Extra inputs"),
    ],
)
def test_bad_fields(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Synthetic(**fields)
