"""Which rows of a hospital take part, by hand."""

from __future__ import annotations

import numpy as np

from raysim.data.contribution import choose_rows, shuffled

PEOPLE = np.array([7, 3, 7, 9, 3, 7])
"""Of six rows; patients by first appearance are 7, 3, 9."""


def test_the_rows_that_come_first_in_the_order_take_part() -> None:
    some = choose_rows(PEOPLE, np.array([5, 4, 3, 2, 1, 0]), 2)
    assert some.rows.tolist() == [2, 5, 1, 4, 3]
    assert some.patient.tolist() == [0, 0, 1, 1, 2]
    assert (some.patients, some.total, some.single, some.everything) == (3, 6, False, False)
    one = choose_rows(PEOPLE, np.array([2, 0, 4, 5, 1, 3]), 1)
    assert one.rows.tolist() == [2, 4, 3]
    assert one.patient.tolist() == [0, 1, 2]
    assert one.single


def test_everything_is_all_rows_in_their_own_order() -> None:
    order = np.array([3, 1, 0, 2])
    assert choose_rows(np.array([4, 4, 2, 2]), order, 2).everything
    assert not choose_rows(np.array([4, 4, 2, 2]), order, 1).everything
    assert not choose_rows(np.array([4, 2, 4, 2]), order, 2).everything


def test_a_hospital_without_rows_has_no_patients() -> None:
    nobody = choose_rows(np.empty(0, np.int64), np.empty(0, np.int64), 2)
    assert (nobody.rows.tolist(), nobody.patient.tolist(), nobody.patients, nobody.total) == ([], [], 0, 0)
    assert nobody.rows.dtype == nobody.patient.dtype == np.int64
    assert nobody.single
    assert nobody.everything


def test_which_rows_of_a_patient_take_part_follows_from_their_number_alone() -> None:
    people = np.array([4, 4, 4, 2, 2, 9, 9, 9, 9, 9, 2, 4])
    for gone in (4, 2, 9):
        stay = people != gone
        whole, less = (
            choose_rows(people, shuffled(people, 1), 2),
            choose_rows(people[stay], shuffled(people[stay], 1), 2),
        )
        kept = [row for row in whole.rows.tolist() if stay[row]]
        assert np.flatnonzero(stay)[less.rows].tolist() == kept
    chosen = {tuple(choose_rows(people, shuffled(people, seed), 1).rows.tolist()) for seed in range(60)}
    assert {row for rows in chosen for row in rows} == set(range(12)), "every row may be the one"
    assert sorted(shuffled(people, 1).tolist()) == list(range(12))
