"""Trees with drawn splits: their leaves by formula, the length of what a row adds, and their guarantee."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.build import build
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.privacy import accountant
from raysim.privacy.events import Gaussian
from raysim.strategies.trees.random_splits import RandomTrees, bound_of, values
from raysim.trees.losses import MARGIN, probability, softmax
from raysim.trees.settings import TreeSettings, TreeTask
from raysim.trees.stored import Shape
from tests.conftest import job_of, run
from tests.equality import same_models
from tests.strategies.trees.test_federated_trees import rows_of

OPTIONS = {"trees": 4, "depth": 2, "rate": 0.5, "min_rows": 10, "bins": 16}
RANGES = {"x": [-3, 3, None], "z": [0, 4], "ward": ["east", "north", "south", None]}


def model(**options) -> ModelSpec:
    return ModelSpec("boosted_trees", None, OPTIONS | options, "default")


def federation_of(tmp_path, label="died", ranges=RANGES, table=None):
    table = rows_of(300) if table is None else table
    if "home" not in table:
        table = table.assign(home=[f"h{s}" for s in np.arange(len(table)) % 3])
    kept = [name for name in RANGES if name != label]
    path = tmp_path / f"{label}.csv"
    table[[*kept, label, "home"]].to_csv(path, index=False)
    task = "regression" if label == "stay" else "classification"
    declared = {name: ranges[name] for name in kept} if ranges else None
    return build(Table(path=path, silo="home", label=label, task=task), Split().by_itself(), "raw", ranges=declared)


@pytest.fixture
def three(tmp_path):
    return federation_of(tmp_path)


def forest_of(outcome, federation, **options):
    task = TreeTask(TreeSettings(**OPTIONS | options), federation.levels, len(federation.classes))
    return Shape(task).forest(outcome.models[0])


def test_declared_columns_stay_as_they_are(three):
    assert three.limits == ((-3.0, 3.0), (0.0, 4.0), None)
    assert three.levels == (0, 0, 3)
    assert three.preprocessing_scalars == 0
    assert np.isnan(three.X).any()


def test_without_a_patient_nobody_else_moves(tmp_path):
    """Rows, parts, columns and splits of the others stay."""
    table = rows_of(300).assign(home=[f"h{s}" for s in np.arange(300) % 3])
    forests, found = [], []
    for name, rows in (("whole", table), ("less", table.drop(index=3))):
        folder = tmp_path / name
        folder.mkdir()
        federation = federation_of(folder, table=rows)
        at = np.arange(300) if name == "whole" else np.delete(np.arange(300), 3)
        trained = np.concatenate([np.r_[federation.rows(h, "train")] for h in range(3)])
        found.append({int(at[federation.source_rows[r]]): federation.X[r].tobytes() for r in trained})
        forests.append(
            forest_of(run(federation, job_of(federation, RandomTrees(), rounds=4, model=model()), 1), federation)
        )
    whole, less = forests
    assert 3 in found[0]
    assert {row: X for row, X in found[0].items() if row != 3} == found[1]
    for part in ("column", "threshold", "missing_left", "levels"):
        np.testing.assert_array_equal(getattr(whole, part), getattr(less, part))


def test_leaves_by_formula(three):
    """Each tree by sums over the rows in its leaves, at the margins of the trees before."""
    forest = forest_of(run(three, job_of(three, RandomTrees(), rounds=4, model=model()), 2), three)
    rows = np.concatenate([np.r_[three.rows(h, "train")] for h in range(3)])
    X, y = three.X[rows], three.y[rows]
    assert len(forest) == 4
    assert (forest.column[0] == -1).all()
    assert (forest.column[1:] >= 0).all()
    margin = np.zeros(len(y))
    for t in range(4):
        p = probability(margin)
        g, h = p - y, p * (1 - p)
        leaf = forest._leaves(X, t)
        for node in np.unique(leaf):
            G, H = g[leaf == node].sum(), h[leaf == node].sum()
            due = -(0.5 if t else 1.0) * G / (H + 1) if H >= 2.5 else 0.0
            assert forest.value[t, node] / MARGIN == pytest.approx(due, abs=1e-4)
        margin += forest.value[t, leaf] / MARGIN


@pytest.mark.parametrize("secure", [None, SecureSection(mode="execute")])
def test_any_placement_gives_the_same_bits(three, secure):
    job = replace(job_of(three, RandomTrees(), rounds=4, model=model()), secure=secure)
    same_models(run(three, job, 1), run(three, replace(job, secure=None), 3))


@given(st.integers(2, 6), st.integers(0, 2**16))
def test_a_row_adds_no_more_than_the_bound(classes, seed):
    rng = np.random.default_rng(seed)
    task = TreeTask(TreeSettings(), (0,), classes)
    length, factor = bound_of(task)
    z = rng.normal(size=(50, task.outputs)) * rng.choice([0.1, 1, 10])
    p = probability(z) if classes == 2 else softmax(z)
    y = rng.integers(0, classes, 50)
    g = p - (y[:, None] if classes == 2 else y[:, None] == np.arange(classes))
    long = np.sqrt((g**2 + (factor * p * (1 - p)) ** 2).sum(axis=1))
    assert long.max() <= length + 1e-12


def test_the_bounds_are_reached():
    """With a larger factor rows would be longer than their gradients alone can be."""
    a = np.linspace(0, 1, 100_001)
    assert (a * np.sqrt(1 + (1.02 * bound_of(TreeTask(TreeSettings(), (0,), 2))[1]) ** 2 * (1 - a) ** 2)).max() > 1


def test_leaves_of_few_rows_and_noise_are_0():
    task = TreeTask(TreeSettings(min_rows=10, l2=1.0), (0,), 2)
    G, H = np.array([4.0, 4.0, -4.0, 4.0]), np.array([2.4, 2.6, 2.5, -3.0])
    assert values(task, G, H, 0.0, 1.0) / MARGIN == pytest.approx([0, -4 / 3.6, 4 / 3.5, 0])
    assert values(task, G, H, 2.0, 0.5) / MARGIN == pytest.approx([0, -2 / 9.6, 2 / 9.5, 0])


def test_each_tree_is_one_release(three):
    section = PrivacySection(
        unit="patient", mode="pooled", delta=1e-3, epsilon=2.0, declared_public=("size", "metrics")
    )
    job = check_job(replace(job_of(three, RandomTrees(), rounds=4, model=model()), privacy=section), three)
    outcome = run(three, job, 2)
    multiplier = job.privacy.noise_multiplier
    assert accountant.epsilon([Gaussian(multiplier, 1.0, 4)], 1e-3) == pytest.approx(2.0, rel=1e-3)
    assert outcome.privacy.epsilons["outsider"] == pytest.approx(2.0, rel=1e-3)
    assert not outcome.privacy.not_private
    assert np.isfinite(outcome.models).all()


def test_noise_has_the_deviation_that_the_guarantee_asks_for(three):
    """Of the one leaf of the first tree, over seeds; without noise its value is the same for each."""
    section = PrivacySection(unit="patient", mode="pooled", delta=1e-3, noise_multiplier=3.0)
    job = job_of(three, RandomTrees(), rounds=1, model=model(trees=1, min_rows=10))
    exact = forest_of(run(three, job, 1), three, trees=1).value[0, 0] / MARGIN
    found = []
    for seed in range(40):
        noisy = check_job(replace(job, work=replace(job.work, seed=seed), privacy=section), three)
        found.append(forest_of(run(three, noisy, 1), three, trees=1).value[0, 0] / MARGIN)
    n = three.sizes("train").sum()
    # G has a deviation of 3, and is divided by about n / 4 + l2 + 3 * 3.
    assert np.std(found) == pytest.approx(3 / (n / 4 + 10), rel=0.4)
    assert np.mean(found) == pytest.approx(exact * (n / 4 + 1) / (n / 4 + 10), abs=3 * np.std(found) / 40**0.5)


def test_more_classes(tmp_path):
    federation = federation_of(tmp_path, "z", table=rows_of(300).astype({"z": int}))
    outcome = run(federation, job_of(federation, RandomTrees(), rounds=4, model=model()), 2)
    assert len(forest_of(outcome, federation)) == 16


@pytest.mark.parametrize(
    ("label", "ranges", "options", "privacy", "said"),
    [
        ("died", None, {}, False, r"^data\.ranges: random_trees samples splits between the declared limits"),
        ("stay", RANGES, {}, False, r"^data\.label: is a number, but random_trees needs classes"),
        (
            "died",
            RANGES,
            {"min_rows": 9},
            True,
            r"^model\.min_rows: 9 lets a leaf of random_trees hold too few patients",
        ),
        ("died", RANGES, {"row_share": 0.5}, False, r"^model\.row_share: random_trees uses all rows"),
    ],
)
def test_refused_in_a_line(tmp_path, label, ranges, options, privacy, said):
    federation = federation_of(tmp_path, label, ranges)
    job = job_of(federation, RandomTrees(), model=model(**options))
    section = PrivacySection(unit="patient", mode="pooled", epsilon=1.0, delta=1e-3) if privacy else None
    with pytest.raises(ConfigError, match=said):
        check_job(replace(job, privacy=section), federation)
