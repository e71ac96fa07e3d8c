"""Cross-validation: every row tests once, patients stay whole, and folds are alike."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from raysim.cli.commands import compare_all
from raysim.config.reading import resolve
from raysim.core.errors import ConfigError, DataError
from raysim.core.streams import stream
from raysim.data.build import build
from raysim.data.split import Split, deal, number
from raysim.report.terminal.tables import comparison_table as terminal_table
from tests.data.in_memory_sources import fixed, records

NAMES = ("a", "b", "c", "d")


def spread(counts: Any) -> int:
    """The difference between the fullest and the emptiest."""
    return int(max(counts) - min(counts))


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=0, max_size=120),
    folds=st.integers(2, 6),
    seed=st.integers(0, 3),
)
def test_folds_of_single_rows_are_alike_in_size_and_class(rows: list[tuple[int, int]], folds: int, seed: int) -> None:
    home, y = np.array(rows, np.int64).reshape(-1, 2).T
    fold = deal(folds, home, NAMES, None, y, seed)
    assert ((fold >= 0) & (fold < folds)).all()
    for h in range(4):
        for c in range(3):
            assert spread(np.bincount(fold[(home == h) & (y == c)], minlength=folds)) <= 1
        # Classes are dealt one by one, so that in size, too, no fold can be far ahead.
        assert spread(np.bincount(fold[home == h], minlength=folds)) <= 2


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=60),
    seed=st.integers(0, 3),
)
def test_no_group_is_divided(rows: list[tuple[int, int, int]], seed: int) -> None:
    home, group, y = np.array(rows, np.int64).T
    fold = deal(3, home, NAMES, group, y, seed)
    for g in np.unique(group):
        assert len(set(fold[group == g].tolist())) == 1


def test_patients_of_many_stays_are_dealt_first() -> None:
    # One patient of 6 stays, six of one: two folds of six.
    group = np.array([0] * 6 + [1, 2, 3, 4, 5, 6])
    fold = deal(2, np.zeros(12, np.int64), ("a",), group, np.zeros(12, np.int64), 0)
    assert np.bincount(fold).tolist() == [6, 6]
    # An event among a patient's stays makes it one of the patients with events, who are spread.
    group, y = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 1, 1, 0, 0, 0, 0, 0])
    fold = deal(2, np.zeros(8, np.int64), ("a",), group, y, 0)
    assert fold[0] != fold[2]
    assert fold[4] != fold[6]


@pytest.mark.parametrize("rare", [0, 1])
def test_within_a_size_the_rarest_class_is_dealt_first(rare: int) -> None:
    """Patients of 3, 2 and 2 stays in the class of fewest rows, of 3, 3 and 2 in the other.

    The patients of 3 go to one fold, to the other and to the first. So do those of 2, the rare first: one to the fold
    that has none of its class, which makes 5 : 6; one to the smaller, 7 : 6; and the common one to the other, 7 : 8. In
    another order they make 9 : 6.
    """
    classes, stays = np.array([rare, rare, rare, 1 - rare, 1 - rare, 1 - rare]), np.array([3, 2, 2, 3, 3, 2])
    group, y = np.repeat(np.arange(6), stays), np.repeat(classes, stays)
    for seed in range(8):
        fold = deal(2, np.zeros(15, np.int64), ("a",), group, y, seed)
        assert sorted(np.bincount(fold).tolist()) == [7, 8]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=50),
    folds=st.integers(2, 4),
    seed=st.integers(0, 3),
)
def test_groups_are_dealt_as_a_plain_loop_deals_them(rows: list[tuple[int, int, int]], folds: int, seed: int) -> None:
    home, group, y = np.array(rows, np.int64).T
    dealt: dict[int, int] = {}
    for h in range(3):
        mine = [(g, c) for hospital, g, c in rows if hospital == h]
        present = sorted({g for g, _ in mine})
        size = {g: sum(other == g for other, _ in mine) for g in present}
        last = {g: max(c for other, c in mine if other == g) for g in present}
        rows_of = {c: sum(size[g] for g in present if last[g] == c) for c in last.values()}
        rng = stream(seed, "folds", number(NAMES[h]))
        preferred, order = rng.permutation(folds).tolist(), rng.permutation(len(present))
        queue = sorted((present[i] for i in order), key=lambda g: (-size[g], rows_of[last[g]], last[g]))
        held = np.zeros((3, folds), int)
        for g in present:
            if g in dealt:
                held[last[g], dealt[g]] += size[g]
        for g in queue:
            if g not in dealt:
                fullness = [(held[last[g], fold], held[:, fold].sum()) for fold in preferred]
                dealt[g] = preferred[fullness.index(min(fullness))]
                held[last[g], dealt[g]] += size[g]
    assert deal(folds, home, NAMES, group, y, seed).tolist() == [dealt[g] for g in group.tolist()]


def test_a_hospital_does_not_depend_on_the_others_and_draws_by_its_seed() -> None:
    home, y = np.repeat([0, 1], 30), np.tile([0, 0, 1], 20)
    both = deal(5, home, ("a", "b"), None, y, 0)
    np.testing.assert_array_equal(both[30:], deal(5, home[:30], ("b",), None, y[30:], 0))
    assert not np.array_equal(both[30:], deal(5, home[:30], ("b",), None, y[30:], 1))
    # Small hospitals do not all test in the same folds.
    names = tuple(f"h{i}" for i in range(200))
    single = deal(5, np.arange(200), names, None, np.zeros(200, np.int64), 0)
    assert np.bincount(single, minlength=5).min() > 20


def test_real_labels_are_not_stratified_by() -> None:
    y = np.linspace(-3.7, 9.2, 23)
    fold = deal(5, np.zeros(23, np.int64), ("a",), None, y, 0)
    assert np.bincount(fold).tolist().count(5) == 3


def test_seeds_choose_the_fold_and_each_row_tests_once() -> None:
    split = Split(folds=3)
    assert [(split.effective_seed(seed), split.fold(seed)) for seed in (0, 2, 3, 7)] == [(0, 0), (0, 2), (1, 0), (2, 1)]
    assert Split(folds=3, seed=9).effective_seed(7) == 9
    columns = {"row": np.arange(30)}
    source = fixed(records(columns, [0, 1] * 15, ["a"] * 21 + ["b"] * 9, group=np.arange(30) // 2), "folds")
    tested, trained = [], []
    for seed in range(3):
        federation = build(source, split, "none", seed)
        assert federation.notes[-2] == f"split: fold {seed + 1} of 3 tests, by patient, seed 0"
        for h in range(2):
            tested += federation.X[federation.rows(h, "test"), 0].tolist()
            trained += federation.X[federation.rows(h, "train"), 0].tolist()
        assert not federation.sizes("validation").any()
    assert sorted(tested) == list(range(30))
    assert sorted(trained) == sorted([*range(30), *range(30)])
    assert build(source, split, "none", 3).fingerprint != build(source, split, "none", 0).fingerprint


def test_seeds_that_are_no_whole_cross_validation() -> None:
    tree = {"data": {"split": {"folds": 3}}}
    for seeds in ([], [0, 1, 2], [5, 4, 3, 0, 1, 2]):
        resolve({**tree, "seeds": seeds})
    for seeds in ([0, 1], [42, 0, 1], [0, 1, 2, 3], [0, 0, 1, 2]):
        with pytest.raises(ConfigError, match=r"^seeds: .* do not test once on each of 3 folds: .*; use \[0, 1, 2\]$"):
            resolve({**tree, "seeds": seeds})


def test_a_comparison_over_folds_shows_their_interval(tmp_path: Path) -> None:
    tree = {
        "data": {
            "source": "synthetic",
            "hospitals": 6,
            "rows": 300,
            "features": 5,
            "largest": 4,
            "split": {"folds": 3},
        },
        "training": {"rounds": 1},
        "strategies": ["fedavg", "local"],
        "seeds": [0, 1, 2],
        "tracking": {"uri": "none"},
    }
    out, printed = tmp_path / "out", io.StringIO()
    config = resolve(tree)
    compare_all(config, Console(file=printed, width=160), out, in_process=True, verbose=False, details=True)
    assert "2 strategies: mean ± 95 % interval over 3 folds" in printed.getvalue()
    assert "\n4 hospitals, " in "\n" + printed.getvalue()
    table = pd.read_csv(out / "comparison.csv").set_index("strategy")
    for strategy in ("fedavg", "local"):
        runs = [json.loads((out / f"runs/{strategy}/seed-{seed}/summary.json").read_text()) for seed in range(3)]
        for metric in ("auroc", "worst_decile", "recall"):
            values = np.array([run[metric] for run in runs])
            # Student's t with two degrees of freedom: 4.302653.
            half = 4.302653 * np.sqrt(((values - values.mean()) ** 2).sum() / 2 / 3)
            assert table.loc[strategy, f"{metric}_margin"] == pytest.approx(half, rel=1e-6)
        spread = table.loc[strategy, "auroc_margin"]
        assert f"±{spread:.3f}" in printed.getvalue()
    # Too few rows to test on leave differences without an interval.
    bare = table.copy().reset_index().drop(columns=["auroc_low", "auroc_high"])
    Console(file=(again := io.StringIO()), width=160).print(terminal_table(bare, "fedavg", 160))
    assert f"{bare.loc[1, 'auroc_difference']:+.4f}" in again.getvalue()
    # What a run leaves can be run again: it says its seed, and with it its fold.
    left = resolve(out / "runs" / "local" / "seed-2" / "config.yaml")
    assert (left.seed, left.data.split.folds, left.data.largest) == (2, 3, 4)


SIZES = {"a": 3, "b": 8, "c": 5, "d": 8, "e": 2}


@pytest.fixture
def uneven() -> Any:
    silo = [name for name, n in SIZES.items() for _ in range(n)]
    return fixed(records({"x": range(26)}, [0, 1] * 13, silo), "uneven")


def test_the_largest_hospitals(uneven: Any) -> None:
    for largest, names in ((1, "b"), (2, "bd"), (3, "bcd"), (5, "abcde")):
        federation = build(uneven, Split(), "none", 0, largest=largest)
        assert federation.hospitals == tuple(names)
        assert federation.totals.tolist() == [SIZES[name] for name in names]
        assert f"left out: {5 - largest} hospitals not among the {largest} largest" in federation.notes
    whole = build(uneven, Split(), "none", 0)
    np.testing.assert_array_equal(build(uneven, Split(), "none", 0, largest=2).X[:8], whole.X[3:11])
    both = build(uneven, Split(), "none", 0, minimum=3, largest=2)
    assert both.hospitals == ("b", "d")
    gone = "left out: 1 hospital with fewer than 3 rows, 2 hospitals not among the 2 largest"
    assert gone in both.notes


def test_more_hospitals_than_there_are(uneven: Any) -> None:
    with pytest.raises(DataError, match=r"^data.largest: 6, but there are 5 hospitals; lower it$"):
        build(uneven, Split(), "none", 0, largest=6)
    with pytest.raises(DataError, match=r"^data.largest: 5, but there are 4 hospitals with at least 3 rows; lower it$"):
        build(uneven, Split(), "none", 0, minimum=3, largest=5)


def test_a_split_of_its_own_seed_does_not_follow_the_run(
    uneven: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    fixed_seed = build(uneven, Split(seed=1), "none", 5).X.copy()
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "another"))
    np.testing.assert_array_equal(build(uneven, Split(), "none", 1).X, fixed_seed)
    assert not np.array_equal(build(uneven, Split(), "none", 5).X, fixed_seed)
