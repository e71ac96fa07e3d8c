"""What must hold of any trees, whatever the rows."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from raysim.trees.binning import Bins
from raysim.trees.boosting import bins_of, boosted
from raysim.trees.edges import answered, counts, find_edges, ordered, pooled, ranked, unordered
from raysim.trees.forest import Forest
from raysim.trees.histograms import Binned, cells_of
from raysim.trees.json_export import as_json
from raysim.trees.losses import GRID
from raysim.trees.settings import TreeSettings, TreeTask, check_levels
from raysim.trees.splits import best_splits
from raysim.trees.stored import Shape
from tests.trees.tables import table_r, task_r

SEEDS = st.integers(0, 2**32 - 1)


def table(seed, n=60, classes=2):
    """Rows of numbers, some missing, and one column of five categories."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-6, 6, (n, 3)).astype(np.float32) / 4
    X[rng.random(X.shape) < 0.2] = np.nan
    category = rng.integers(0, 5, n).astype(np.float32)
    category[rng.random(n) < 0.1] = np.nan
    y = rng.integers(0, classes, n) if classes else rng.normal(size=n) * 50
    if classes:
        y[:classes] = np.arange(classes)
    return np.column_stack([X, category]), y


def task_of(classes=2, **settings):
    given = {"trees": 3, "depth": 3, "rate": 0.5, "min_rows": 2} | settings
    return TreeTask(TreeSettings(**given), (0, 0, 0, 5), classes)


@examples(max_examples=20)
@given(SEEDS, st.sampled_from([0, 2, 3]), st.sampled_from(["codes", "exact"]))
def test_order_of_rows_changes_nothing(seed, classes, edges):
    X, y = table(seed, classes=classes)
    task = task_of(classes, edges=edges)
    order = np.random.default_rng(seed + 1).permutation(len(y))
    mixed = boosted(task, X[order], y[order])
    assert as_json(mixed) == as_json(boosted(task, X, y))


@examples(max_examples=20)
@given(SEEDS, st.sampled_from(["codes", "exact"]), st.integers(2, 12))
def test_edges_by_definition(seed, edges, bins):
    X, _ = table(seed)
    column = X[:, 0]
    exact = edges == "exact"
    found = pooled(find_edges(np.array([0]), bins, exact=exact), X)[0]
    values = np.sort(column[~np.isnan(column)]).astype(np.float64)
    due = set()
    for k in range(1, bins):
        v = values[-(-k * len(values) // bins) - 1]
        above = values[values > v]
        if len(above):
            # These values are multiples of 1/4 below 2: their first 16 bits tell them apart.
            end = v if exact else unordered(ordered(np.array([v])) | np.uint32(2**16 - 1))[0]
            start = above[0] if exact else unordered(ordered(above[:1]) >> np.uint32(16) << np.uint32(16))[0]
            due.add((end + start) / 2)
    assert found.tolist() == sorted(due)


@examples(max_examples=20)
@given(SEEDS, st.integers(1, 5))
def test_edges_from_counts_of_hospitals(seed, hospitals):
    X, _ = table(seed)
    home = np.arange(len(X)) % hospitals

    def added(asked):
        return sum(counts(ranked(X[home == h]), asked) for h in range(hospitals))

    columns = np.array([0, 2])
    alone = pooled(find_edges(columns, 8, exact=True), X)
    together = answered(find_edges(columns, 8, exact=True), added)
    assert {f: e.tolist() for f, e in together.items()} == {f: e.tolist() for f, e in alone.items()}


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2))
def test_order_of_numbers_as_integers(values):
    numbers = np.array(values, np.float32)
    codes = ordered(numbers)
    assert (np.diff(codes[np.argsort(numbers, kind="stable")].astype(np.int64)) >= 0).all()
    assert (unordered(codes) == numbers).all()


@pytest.mark.parametrize("few", [0, 10**9])
def test_histograms_add_up_over_children(few, monkeypatch):
    """By cells of several columns, and by each column alone."""
    monkeypatch.setattr("raysim.trees.histograms.FEW", few)
    X, y = table(1)
    bins = bins_of(task_of(), X)
    binned, rng = Binned(bins, bins.codes(X)), np.random.default_rng(0)
    g, h = np.rint(rng.normal(size=len(y)) * GRID), np.rint(rng.random(len(y)) * GRID)
    left = rng.random(len(y)) < 0.4
    parent = binned.histograms([np.arange(len(y))], g, h)[0]
    children = binned.histograms([np.flatnonzero(left), np.flatnonzero(~left)], g, h)
    assert (children.sum(axis=0) == parent).all()
    assert (binned.histograms([np.zeros(0, int)], g, h) == 0).all()
    places = (bins.codes(X) + bins.first).ravel()
    direct = np.stack([np.bincount(places, np.repeat(w, 4), bins.width) for w in (g, h, np.ones(len(y)))], 1)
    assert (direct == parent).all()


def test_cells_of_columns_of_few_bins():
    cells = cells_of((3, 2, 33, 2, 256, 7, 300))
    assert cells.group.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert cells.factor.tolist() == [1, 3, 6, 198, 1, 256, 1]
    assert cells.count == 396 + 1792 + 300
    assert (cells.of_bins.sum(axis=0)).astype(int).tolist() == [4] * 396 + [2] * 1792 + [1] * 300


def score(sums, l2=1.0):
    return (sums[0] / GRID) ** 2 / (sums[1] / GRID + l2)


@examples(max_examples=20)
@given(SEEDS)
def test_split_is_best_of_all(seed):
    """The gain is that of the best partition by a threshold, or of the best of all subsets of categories."""
    X, y = table(seed, n=30)
    rng = np.random.default_rng(seed)
    g, h = rng.integers(-(2**29), 2**29, len(y)).astype(float), rng.integers(2**20, 2**28, len(y)).astype(float)
    task = task_of(depth=1, min_rows=3, edges="exact", bins=64)
    bins = bins_of(task, X)
    made = Binned(bins, bins.codes(X)).histograms([np.arange(len(y))], g, h)
    sums = np.column_stack([g, h, np.ones(len(y))])
    total = sums.sum(axis=0)
    best = 0.0
    for f in range(4):
        known = np.unique(X[~np.isnan(X[:, f]), f])
        sides = (
            [np.isin(X[:, f], some) for size in range(len(known)) for some in combinations(known, size + 1)]
            if f == 3
            else [X[:, f] <= v for v in known]
        )
        for side in sides:
            for left in (side, side | np.isnan(X[:, f])):
                if min(left.sum(), (~left).sum()) >= 3:
                    gain = score(sums[left].sum(0)) + score(sums[~left].sum(0)) - score(total)
                    best = max(best, gain)
    split = best_splits(made, total[None], bins, task.settings)[0]
    assert (0.0 if split is None else split.gain) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_ties_go_to_the_first_column_then_bin():
    X = np.array([[0, 0], [1, 1], [2, 2], [3, 3]], np.float32)
    y = np.array([0, 1, 1, 0])
    forest = boosted(TreeTask(TreeSettings(trees=1, depth=1, min_rows=1, edges="exact"), (0, 0), 2), X, y)
    assert (forest.column[0, 0], forest.threshold[0, 0]) == (0, 0.5)


def test_a_split_of_missing_values_alone_is_exported():
    X = np.array([[0], [1], [np.nan], [np.nan]], np.float32)
    forest = boosted(TreeTask(TreeSettings(trees=1, depth=1, min_rows=1), (0,), 2), X, np.array([0, 0, 1, 1]))
    node = as_json(forest)["trees"][0]["nodes"][0]
    assert (node["at_most"], node["missing"]) == (None, "right")
    assert forest.margins(np.array([[1e30]], np.float32)) == forest.margins(X[:1])


def test_unseen_categories_are_missing():
    X, y = table(3)
    forest = boosted(task_of(), X, y)
    rows = X[:1].repeat(3, axis=0)
    rows[:, 3] = [np.nan, 7, -1]
    assert len(np.unique(forest.margins(rows))) == 1


@pytest.mark.parametrize(("settings", "splits"), [({"gamma": 1e9}, 0), ({"min_rows": 31}, 0), ({}, 1)])
def test_nothing_to_split(settings, splits):
    X, y = table(4)
    forest = boosted(task_of(**settings), X, y)
    assert int((forest.column[0] >= 0).any()) == splits


def test_a_node_of_just_enough_rows_for_two_sides_is_split():
    X, y = np.arange(8, dtype=np.float32)[:, None], np.repeat([0.0, 1.0, 10.0, 11.0], 2)
    settings = {"trees": 1, "depth": 2, "rate": 1.0, "l2": 0.0, "edges": "exact"}
    forest = boosted(TreeTask(TreeSettings(min_rows=2, **settings), (0,), 0), X, y)
    assert forest.column[0].tolist() == [0, 0, 0]
    assert forest.margins(X)[:, 0] == pytest.approx(y, abs=1e-4)
    fewer = boosted(TreeTask(TreeSettings(min_rows=3, **settings), (0,), 0), X, y)
    assert fewer.column[0].tolist() == [0, -1, -1]


def test_rate_0_is_the_base():
    X, y = table(5)
    events = y.sum()
    assert boosted(task_of(rate=0.0), X, y).margins(X) == pytest.approx(np.log(events / (len(y) - events)))


def test_all_rows_and_columns_are_as_none_chosen():
    X, y = table(6)
    everyone = np.ones(len(y), bool)
    chosen = boosted(task_of(), X, y, rows=lambda t: everyone, columns=lambda t: np.ones(4, bool))
    assert as_json(chosen) == as_json(boosted(task_of(), X, y))


def test_columns_left_out_of_a_tree():
    X, y = table(6)
    only = np.array([False, True, False, False])
    forest = boosted(task_of(), X, y, columns=lambda t: only)
    assert set(forest.column[forest.column >= 0].tolist()) == {1}


def test_monotone_columns_give_the_same_leaves():
    """Edges by exact counts fall between the same rows, whatever the scale."""
    X, y = table_r()
    moved = np.exp(X / 8).astype(np.float32)
    assert boosted(task_r(), moved, y).margins(moved).tolist() == boosted(task_r(), X, y).margins(X).tolist()


@examples(max_examples=20)
@given(SEEDS, st.sampled_from([0, 2, 3]), st.sampled_from([np.float32, np.float64]))
def test_a_vector_holds_all_that_scores(seed, classes, precision):
    X, y = table(seed, classes=classes)
    task = task_of(classes, trees=2)
    forest, shape = boosted(task, X, y), Shape(task)
    again = shape.forest(shape.vector(forest).astype(precision))
    assert (again.margins(X) == forest.margins(X)).all()
    assert shape.vector(again).astype(precision).tolist() == shape.vector(forest).astype(precision).tolist()
    for name in ("column", "threshold", "missing_left", "levels", "value", "base", "rows"):
        assert (getattr(again, name) == getattr(forest, name)).all(), name


def test_a_vector_of_zeros_is_no_tree():
    shape = Shape(task_of())
    forest = shape.forest(np.zeros(shape.size, np.float32))
    assert len(forest) == 0
    assert (forest.margins(np.zeros((2, 4), np.float32)) == 0).all()


def test_going_on_from_trees_is_growing_them_all():
    X, y = table(7)
    bins = bins_of(task_of(), X)
    three = boosted(task_of(trees=3), X, y, bins)
    five = boosted(task_of(trees=2), X, y, bins, three)
    assert as_json(five) == as_json(boosted(task_of(trees=5), X, y, bins))


def test_counts_start_from_the_logarithm_of_their_mean():
    X, y = table(8, classes=0)
    counts_of = np.abs(np.rint(y / 20))
    task = TreeTask(TreeSettings(trees=30, depth=2, loss="poisson", min_rows=5), (0, 0, 0, 5), 0)
    forest = boosted(task, X, counts_of)
    assert forest.base[0] / 2**40 == pytest.approx(np.log(counts_of.mean()))
    loss = [np.mean(np.exp(z) - counts_of * z) for z in (forest.base[0] / 2**40, forest.margins(X)[:, 0])]
    assert loss[1] < loss[0]


def test_one_class_is_refused():
    X, y = table(9)
    with pytest.raises(ValueError, match="a class has no training row"):
        boosted(task_of(), X, np.zeros_like(y))


def test_constant_columns_and_more_bins_than_values():
    X, y = table(10)
    X[:, 0] = 2.0
    forest = boosted(task_of(bins=255), X, y)
    assert 0 not in forest.column
    assert len(Bins.of(task_of(), pooled(find_edges(np.array([0]), 255, exact=False), X)).edges[0]) == 0


def test_too_many_categories_are_refused():
    with pytest.raises(ValueError, match="column 'ward' has 100,000 categories, but boosted trees accept at most 255"):
        check_levels(("age", "ward"), (0, 100_000))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("depth", 40, "depth: 40 is not a whole number from 1 to 10"),
        ("trees", 0, "trees: 0 is not a whole number"),
        ("bins", 1, "bins: 1 is not a whole number from 2 to 255"),
        ("rate", -1, "rate: -1 is not a number of at least 0"),
        ("row_share", 0, "row_share: 0 is out of range; give more than 0 and at most 1"),
        ("edges", "middle", "edges: 'middle' is not known; write codes or exact"),
    ],
)
def test_settings_are_checked(key, value, said):
    with pytest.raises(ValueError, match=said):
        TreeSettings(**{key: value})


def test_a_forest_without_rows():
    task = task_of()
    assert Forest.start(task, np.zeros(1, np.int64)).margins(np.zeros((0, 4), np.float32)).shape == (0, 1)
