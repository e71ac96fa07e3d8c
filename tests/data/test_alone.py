"""Parts that each patient has by itself: shares on average, one part wherever a patient is, by id and seed alone."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from raysim.data.alone import parts, used
from raysim.data.split import Split
from tests.data.in_memory_sources import records

N = 4000
Y = [0, 1] * (N // 2)
THIRDS = Split(train=0.6, validation=0.1, test=0.3)


def of_groups(group: list[object], split: Split = THIRDS, by: str = "patient", run: int = 0) -> np.ndarray:
    made = records(
        {"x": range(len(group))}, Y[: len(group)], ["a", "b"] * (len(group) // 2), group=np.array(group, object)
    )
    return parts(split, made, np.arange(len(group)), by, run)


def test_shares_are_kept_on_average() -> None:
    counts = np.bincount(of_groups([f"p{i}" for i in range(N)]), minlength=3) / N
    np.testing.assert_allclose(counts, [0.6, 0.1, 0.3], atol=4 * np.sqrt(0.25 / N))
    folds = [of_groups([f"p{i}" for i in range(N)], Split(folds=4), run=run) for run in range(4)]
    tested = np.sum([fold == 2 for fold in folds], axis=0)
    assert (tested == 1).all(), "each patient tests in one of the four runs"
    assert abs(np.mean(folds[0] == 2) - 0.25) < 4 * np.sqrt(0.19 / N)


def test_a_part_by_hand() -> None:
    digest = hashlib.blake2b(b"'p7'", digest_size=8, key=(5).to_bytes(16, "little"), person=b"split").digest()
    place = int.from_bytes(digest, "little") / 2**64
    assert of_groups(["p7", "p7"], run=5).tolist() == [0 if place < 0.6 else 1 if place < 0.7 else 2] * 2


def test_a_patient_has_one_part_at_both_hospitals_whatever_type_its_id_has() -> None:
    whole = of_groups([i // 2 for i in range(N)])
    assert (whole[::2] == whole[1::2]).all()
    np.testing.assert_array_equal(whole, of_groups([float(i // 2) for i in range(N)]))
    np.testing.assert_array_equal(whole, of_groups([str(i // 2) for i in range(N)]))
    assert (whole != of_groups([i // 2 for i in range(N)], run=1)).mean() > 0.3


@pytest.mark.parametrize("by", ["row", "patient"])
def test_rows_without_an_id_go_by_their_content(by: str) -> None:
    """Equal rows stay together, and categories count by name: another category before theirs changes nothing."""
    rows = np.arange(400)
    text = [f"c{i // 2 % 50}" for i in rows.tolist()]
    y, silo, x = (
        [i // 2 % 2 for i in rows.tolist()],
        [f"h{i // 2 % 3}" for i in rows.tolist()],
        [float(i // 2) for i in rows.tolist()],
    )
    made = parts(THIRDS, records({"x": x, "c": text}, y, silo), rows, by, 0)
    assert (made[::2] == made[1::2]).all()
    more = records({"x": [9.5, *x], "c": ["a first one", *text]}, [0, *y], ["h0", *silo])
    np.testing.assert_array_equal(parts(THIRDS, more, np.arange(1, 401), by, 0), made)


def test_smaller_shares_of_training_rows_are_within_larger_ones() -> None:
    group = np.array([f"p{i // 2}" for i in range(N)], object)
    made, rows = records({"x": range(N)}, Y, ["a", "b"] * (N // 2), group=group), np.arange(N)
    half, eighth = (used(Split(used=share), made, rows, "patient", 0) for share in (0.5, 0.125))
    assert not (eighth & ~half).any()
    assert (half[::2] == half[1::2]).all()
    np.testing.assert_allclose([half.mean(), eighth.mean()], [0.5, 0.125], atol=4 * np.sqrt(0.5 / N))
    without = used(Split(used=0.125), made, rows[100:], "patient", 0)
    np.testing.assert_array_equal(without, eighth[100:])  # who else is in the data changes nothing
