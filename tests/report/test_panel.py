"""Pairs of a panel against the definition: rows of one hospital and seed side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from raysim.metrics.equity import equity
from raysim.report import tables
from raysim.report.panel import Panel, Sketched


def table() -> pd.DataFrame:
    """Two models, hospitals and seeds in no order; ``b`` lacks seed 3, hospital "z", and one hospital's figure."""
    rows = [
        ("a", 3, "z", 10, 0.70),
        ("a", 1, "y", 20, 0.71),
        ("a", 1, "x", 30, 0.72),
        ("a", 2, "x", 31, 0.73),
        ("a", 2, "y", 21, np.inf),
        ("b", 2, "y", 99, 0.81),
        ("b", 1, "x", 98, 0.82),
        ("b", 1, "y", 97, np.nan),
        ("c", 5, "x", 10, 0.90),
    ]
    return pd.DataFrame(rows, columns=["strategy", "seed", "hospital", "n_test", "auroc"])


def test_sides_are_of_the_seeds_and_hospitals_that_both_have():
    ours, theirs, rows = Panel.of(table()).sides(("a", "global"), ("b", "global"))
    nan = np.nan
    assert_array_equal(ours, [[0.72, 0.71], [nan, nan]])  # seeds 1 and 2, hospitals x and y; an infinite figure is none
    assert_array_equal(theirs, [[0.82, nan], [nan, 0.81]])
    assert_array_equal(rows, [[30, 20], [nan, 21]])  # of the first model


def test_pairs_without_a_common_seed_or_an_unknown_model_have_no_hospital():
    panel = Panel.of(table().assign(model="own"))
    assert panel.difference(("a", "own"), ("c", "own")).hospitals == 0
    assert panel.difference(("a", "own"), ("a", "global")).hospitals == 0
    assert panel.difference(("a", "own"), ("b", "own")).difference == pytest.approx(0.72 - 0.82)
    assert np.isnan(panel.worst_decile(("a", "own"), ("b", "own"), 0.95)).all()


def test_a_hospital_that_is_there_twice_is_refused():
    twice = pd.concat([table(), table().iloc[:1]])
    with pytest.raises(ValueError, match="two rows of one hospital"):
        Panel.of(twice)


def test_the_variance_of_patients_is_of_what_the_same_hospitals_and_seeds_sent():
    """Hospitals lie in another order in the run than in the table; what is undefined there adds nothing."""
    rng = np.random.default_rng(0)
    sums = {(k, seed): rng.normal(size=(3, 100)).astype(np.float32) for k in "ab" for seed in (1, 2)}
    sums["a", 2][1] = np.nan
    order = ("y", "x", "z")
    sent = {(k, "global", seed): Sketched(order, each) for (k, seed), each in sums.items()}
    panel = Panel.of(table(), sent | {("other", "global", 1): Sketched(order, sums["a", 1])})
    ours, theirs, _ = panel.sides(("a", "global"), ("b", "global"))
    assert np.isfinite(ours - theirs).tolist() == [[True, False], [False, False]], "seed 1 at hospital x alone counts"
    at = order.index("x")
    by_hand = np.mean(np.square(sums["a", 1][at].astype(float) - sums["b", 1][at]))
    pair = panel.difference(("a", "global"), ("b", "global"))
    assert pair.patient_variance == pytest.approx(by_hand)
    turned = panel.difference(("b", "global"), ("a", "global"))
    assert turned.patient_variance == pytest.approx(pair.patient_variance)
    assert panel.difference(("b", "global"), ("b", "global")).patient_variance == 0


def test_seeds_are_added_up_before_they_are_squared():
    rng = np.random.default_rng(1)
    sums = {(k, seed): rng.normal(size=(2, 100)).astype(np.float32) for k in "ab" for seed in (1, 2)}
    rows = [(k, seed, h, 10 * seed + i, 0.7) for k in "ab" for seed in (1, 2) for i, h in enumerate("xy")]
    frame = pd.DataFrame(rows, columns=["strategy", "seed", "hospital", "n_test", "auroc"])
    sent = {(k, "global", seed): Sketched(("x", "y"), each) for (k, seed), each in sums.items()}
    total = sum((10 * seed + np.array([[0], [1]])) * (sums["a", seed] - sums["b", seed]) for seed in (1, 2))
    pair = Panel.of(frame, sent).difference(("a", "global"), ("b", "global"))
    assert pair.patient_variance == pytest.approx(np.square(total).mean(axis=1).sum() / 62**2, rel=1e-5)


def test_without_what_one_seed_sent_the_variance_of_patients_is_unknown():
    sums = np.ones((3, 100), np.float32)
    sent = {("a", "global", seed): Sketched(("x", "y", "z"), sums) for seed in (1, 2)}
    sent["b", "global", 1] = sent["a", "global", 1]
    assert np.isnan(Panel.of(table(), sent).difference(("a", "global"), ("b", "global")).patient_variance)
    assert np.isnan(Panel.of(table()).difference(("a", "global"), ("b", "global")).patient_variance)


def test_both_sides_of_a_difference_drop_a_hospital_that_one_does_not_define():
    """Also in figures of equity: the means, deciles and slopes of two models are compared over the same hospitals."""
    names, rows = [f"h{i}" for i in range(12)], np.arange(20, 32)
    auroc = np.linspace(0.6, 0.9, 12)
    alone = np.where(np.arange(12) == 0, np.nan, auroc - 0.01)  # the worst hospital has no model of its own
    frames, per_seed = [], []
    for seed in (1, 2):
        for strategy, values in (("fedavg", auroc), ("local", alone)):
            key = {"strategy": strategy, "model": "global", "seed": seed}
            per_seed.append({**key, **equity(values, rows, rows * 3)})
            frames.append(pd.DataFrame({**key, "hospital": names, "n_test": rows, "auroc": values, "stays": rows * 3}))
    found = tables.differences(pd.DataFrame(per_seed), "fedavg", pd.concat(frames)).set_index("figure")["mean"]
    assert found["auroc"] == pytest.approx(-0.01)
    assert found["worst_decile"] == pytest.approx(-0.01), "not the gain of leaving out the worst"
    assert found["std"] == pytest.approx(0, abs=1e-12)
    assert found["size_bias"] == pytest.approx(0, abs=1e-12)
