"""Which rows go where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from raysim.core.streams import stream
from raysim.data.split import Split, _parts, assign, groups, number, used

THIRDS = Split(train=0.5, validation=0.25, test=0.25)


def names(count: int) -> tuple[str, ...]:
    return tuple(f"h{i}" for i in range(count))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # 8 of 10 rows train: the cut after 8.
        ([1] * 10, [0] * 8 + [2] * 2),
        # 0.8 * 3 = 2.4: the cut after 2 is closer than that after 3.
        ([1] * 3, [0, 0, 2]),
        # 1.6 of 2 is closer to 2, and a single group always trains.
        ([1] * 2, [0, 0]),
        ([7], [0]),
        # Targets at 8: ends are 0, 5, 9, 10, and 9 is closest.
        ([5, 4, 1], [0, 0, 2]),
        # Ends 0, 9, 10: the first group is too large, but training needs one.
        ([9, 1], [0, 2]),
        ([], []),
    ],
)
def test_cuts_by_hand(sizes: list[int], expected: list[int]) -> None:
    assert _parts(np.array(sizes, np.int64), (0.8, 0.0), (0, 0, 0)).tolist() == expected


def test_cuts_with_validation_and_rows_that_have_their_part() -> None:
    # Targets 5 and 7.5 of 10: the later of the two cuts that are equally close to 7.5.
    assert _parts(np.ones(10, np.int64), (0.5, 0.25), (0, 0, 0)).tolist() == [0] * 5 + [1] * 3 + [2] * 2
    # 10 rows in all, 4 of them in training and 1 in test: of the other 5, one trains, two or three validate.
    assert _parts(np.ones(5, np.int64), (0.5, 0.25), (4, 0, 1)).tolist() == [0, 1, 1, 1, 2]
    # Training has more than its share already.
    assert _parts(np.ones(2, np.int64), (0.5, 0.0), (8, 0, 0)).tolist() == [2, 2]


def test_one_group_trains_however_large_it_is() -> None:
    # Target 4 of 10: the end of the first group, 9, is farther away than the beginning, where nothing would train.
    assert _parts(np.array([9, 1]), (0.4, 0.0), (0, 0, 0)).tolist() == [0, 2]
    assert _parts(np.array([9, 1]), (0.4, 0.5), (0, 0, 0)).tolist() == [0, 2]
    # A row that is placed is enough to train on.
    assert _parts(np.array([9]), (0.4, 0.0), (1, 0, 0)).tolist() == [2]
    # One that is placed elsewhere is not.
    assert _parts(np.array([9]), (0.4, 0.0), (0, 0, 1)).tolist() == [0]
    group = np.array([0] * 9 + [1])
    for seed in range(6):
        part = assign(Split(train=0.4, test=0.6), np.zeros(10, np.int64), names(1), group, seed)
        assert (part == 0).any()


@settings(max_examples=60, deadline=None)
@given(
    home=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    seed=st.integers(0, 5),
    train=st.sampled_from([0.5, 0.7, 0.8]),
    validation=st.sampled_from([0.0, 0.1]),
)
def test_row_counts_come_closest_to_the_fractions(home: list[int], seed: int, train: float, validation: float) -> None:
    split = Split(train=train, validation=validation, test=1 - train - validation)
    where = np.array(home)
    part = assign(split, where, names(4), None, seed)
    np.testing.assert_array_equal(part, assign(split, where, names(4), None, seed))
    for h in range(4):
        n = np.count_nonzero(where == h)
        counts = np.bincount(part[where == h], minlength=3)
        assert counts[0] == max(min(1, n), np.floor(train * n + 0.5))
        assert abs(counts[0] + counts[1] - (train + validation) * n) <= 0.5 + (n == 1)
        assert validation > 0 or counts[1] == 0


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=80), seed=st.integers(0, 3))
def test_no_group_on_two_sides_and_every_hospital_trains(rows: list[tuple[int, int]], seed: int) -> None:
    home, group = np.array(rows).T
    part = assign(THIRDS, home, names(4), group, seed)
    for g in np.unique(group):
        assert len(set(part[group == g].tolist())) == 1
    # The first hospital places its groups freely, so it trains on at least one.
    first = home.min()
    assert (part[home == first] == 0).any()


def test_a_shared_group_goes_where_its_first_hospital_put_it() -> None:
    # Hospital 0 alone, then the same rows with hospital 1 sharing all its groups.
    group = np.arange(10)
    alone = assign(Split(), np.zeros(10, np.int64), names(2), group, 3)
    both = assign(Split(), np.repeat([0, 1], 10), names(2), np.tile(group, 2), 3)
    np.testing.assert_array_equal(both[:10], alone)
    np.testing.assert_array_equal(both[10:], alone)


def test_a_group_that_is_placed_counts_with_all_of_its_rows() -> None:
    # Six rows of the second hospital train already, more than half of its ten: all its others test.
    home, group = np.repeat([0, 1], [2, 10]), np.array([0, 0, *[0] * 6, 1, 2, 3, 4])
    part = assign(Split(train=0.5, test=0.5), home, names(2), group, 3)
    assert part.tolist() == [0] * 8 + [2] * 4


def test_a_hospital_does_not_depend_on_the_others() -> None:
    home = np.repeat([0, 1, 2], 20)
    part = assign(Split(), home, ("a", "b", "c"), None, 0)
    alone = assign(Split(), np.zeros(20, np.int64), ("b",), None, 0)
    np.testing.assert_array_equal(part[20:40], alone)
    assert not np.array_equal(part[:20], part[20:40])
    assert not np.array_equal(alone, assign(Split(), np.zeros(20, np.int64), ("b",), None, 1))


def test_a_hospital_s_number_is_that_of_every_version() -> None:
    """Its splits hang on it, which are to be had again from the same seed."""
    assert [number(name) for name in ("h0", "Klinik für Innere", "")] == [
        1427616564335838459,
        9077440963443929010,
        6510301506637419378,
    ]


@pytest.mark.parametrize("fields", [{"folds": 5}, {"folds": 5, "seed": 2}, {"column": "part"}])
def test_what_decides_the_parts_is_written_without_fractions_and_read_again(fields: dict[str, object]) -> None:
    split = Split(**fields)
    written = split.model_dump()
    assert {"train", "validation", "test"} & set(written) == set()
    assert Split(**written) == split
    assert {"train", "validation", "test"} <= set(THIRDS.model_dump())


def test_defaults() -> None:
    split = Split()
    assert (split.train, split.validation, split.test, split.by, split.seed) == (0.8, 0.0, 0.2, None, None)
    assert (split.effective_seed(7), Split(seed=2).effective_seed(7), Split(column="part").effective_seed(7)) == (
        7,
        2,
        None,
    )


def test_fractions_that_were_rounded_are_divided_by_their_sum() -> None:
    thirds = Split(train=0.333, validation=0.333, test=0.333)
    assert (thirds.train, thirds.validation, thirds.test) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    sixths = Split(train=0.6667, validation=0.1667, test=0.1667)
    assert sixths.train + sixths.validation + sixths.test == pytest.approx(1, abs=1e-15)
    assert Split(**sixths.model_dump()) == sixths


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"train": 0.333, "validation": 0.333, "test": 0.332}, "is 0.998; make the fractions sum to 1"),
        ({"train": 0.7}, "train 0.7 . validation 0 . test 0.2 is 0.9; make the fractions sum to 1"),
        ({"train": 1.2, "test": -0.2}, "train is 1.2, not a fraction in .0, 1."),
        ({"train": 0, "test": 1}, "train is 0, but hospitals need rows to train on"),
        ({"train": 1, "test": 0}, "test is 0, but hospitals need rows to test on"),
        ({"column": "part", "by": "row"}, "column: 'part' decides the parts and cannot be combined with by"),
        ({"column": "part", "folds": 5}, "column: 'part' decides the parts and cannot be combined with folds"),
        ({"folds": 5, "train": 0.7, "test": 0.3}, "folds: 5 decides the parts and cannot be combined with train, test"),
        ({"folds": 1}, "greater than or equal to 2"),
        ({"trained_on": "all"}, "trained_on 'all' leaves no test rows; list hospitals to test on in unseen"),
        ({"train": float("nan")}, "finite"),
        ({"trian": 0.8}, "Extra"),
    ],
)
def test_bad_fields(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Split(**fields)


def test_each_hospital_permutes_its_rows_by_its_own_stream() -> None:
    """Written out hospital by hospital, those of one size among them."""
    home = np.repeat(np.arange(5), [4, 10, 4, 0, 7])
    part = assign(THIRDS, home, names(5), None, 3)
    for h, name in enumerate(names(5)):
        rows = np.flatnonzero(home == h)
        expected = np.empty(len(rows), np.int8)
        order = stream(3, "split", number(name)).permutation(len(rows))
        expected[order] = _parts(np.ones(len(rows), np.int64), (0.5, 0.25), (0, 0, 0))
        assert part[rows].tolist() == expected.tolist()


def test_groups_of_one_row_are_divided_as_rows_are():
    part = assign(Split(train=0.5, validation=0.25, test=0.25), np.zeros(8, np.int64), ("a",), np.arange(8), 1)
    assert np.bincount(part).tolist() == [4, 2, 2]


def test_rows_without_a_group_are_groups_of_their_own():
    assert groups(None, np.array(["b", None, "a", "b", None], object), "x")[1].tolist() == [1, 2, 0, 1, 3]


def test_smaller_shares_of_training_rows_are_within_larger_ones() -> None:
    home, group = np.repeat([0, 1, 2], [40, 24, 2]), np.arange(66) // 2  # pairs of rows are never divided
    part = assign(THIRDS, home, names(3), group, 0)
    before = np.ones(66, np.bool_)
    for share in (0.5, 0.25, 0.125):
        kept = used(Split(used=share), home, names(3), part, group, 0)
        assert kept[part != 0].all()
        assert not (kept & ~before).any()
        for h in range(2):
            training = (home == h) & (part == 0)
            assert 2 <= kept[training].sum() <= max(2.0, share * training.sum() + 1)
        for g in np.unique(group):
            assert len(set(kept[group == g].tolist())) == 1
        before = kept
    alone = used(Split(used=0.25), np.zeros(24, np.int64), ("h1",), part[40:64], group[40:64], 0)
    together = used(Split(used=0.25), home, names(3), part, group, 0)[40:64]
    np.testing.assert_array_equal(alone, together)  # a hospital's rows do not depend on others
