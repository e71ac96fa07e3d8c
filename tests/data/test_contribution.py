"""Which rows of a hospital take part, by hand."""

from __future__ import annotations

import numpy as np

from raysim.data.contribution import drawn

PEOPLE = np.array([7, 3, 7, 9, 3, 7])
"""Of six rows; patients by first appearance are 7, 3, 9."""


def test_the_rows_that_come_first_in_the_order_take_part() -> None:
    some = drawn(PEOPLE, np.array([5, 4, 3, 2, 1, 0]), 2)
    assert some.rows.tolist() == [2, 5, 1, 4, 3]
    assert some.patient.tolist() == [0, 0, 1, 1, 2]
    assert (some.patients, some.total, some.single, some.everything) == (3, 6, False, False)
    one = drawn(PEOPLE, np.array([2, 0, 4, 5, 1, 3]), 1)
    assert one.rows.tolist() == [2, 4, 3]
    assert one.patient.tolist() == [0, 1, 2]
    assert one.single


def test_everything_is_all_rows_in_their_own_order() -> None:
    order = np.array([3, 1, 0, 2])
    assert drawn(np.array([4, 4, 2, 2]), order, 2).everything
    assert not drawn(np.array([4, 4, 2, 2]), order, 1).everything
    assert not drawn(np.array([4, 2, 4, 2]), order, 2).everything


def test_a_hospital_without_rows_has_no_patients() -> None:
    nobody = drawn(np.empty(0, np.int64), np.empty(0, np.int64), 2)
    assert (nobody.rows.tolist(), nobody.patient.tolist(), nobody.patients, nobody.total) == ([], [], 0, 0)
    assert nobody.rows.dtype == nobody.patient.dtype == np.int64
    assert nobody.single
    assert nobody.everything
