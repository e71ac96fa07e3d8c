"""Checks of a ``LocalProblem``: what is right passes, and each mistake is named by its field."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.strategies.base import (
    LAST,
    MIXTURE,
    OWN,
    POOLED,
    Invalid,
    LocalProblem,
    LocalTraining,
    Objective,
    Proximal,
    RowGroups,
    Upload,
)
from raysim.strategies.checks.problem import Frame, check_problem
from tests.engine.probing import Beside

IDS = np.array([0, 2, 3])
"""The cohort, of five hospitals; there are two models of four parameters."""

FRAME = Frame(size=4, models=2)
VIEW: Any = SimpleNamespace(sizes=np.array([5, 0, 3, 9, 1]), initial=np.zeros(4))
START, WEIGHT = np.array([0, 1, 0]), np.array([0.5, -0.25, 0.75])
RIGHT = LocalProblem(start=START, upload=Upload(WEIGHT))
KEPT = LocalTraining(keep=True)


def problem(**parts: Any) -> LocalProblem:
    """:data:`RIGHT`, with some parts in place of its own."""
    return replace(RIGHT, **parts)


def groups(**parts: Any) -> LocalProblem:
    """A problem about four groups of rows of the first and the last of the cohort."""
    rows = RowGroups(np.array([0, 0, 3, 3]), np.array([0, 2, 1, 2]), np.array([2, 3, 4, 5]))
    return LocalProblem(start=np.zeros(4, np.int64), upload=Upload(np.ones(4)), groups=replace(rows, **parts))


def test_sentinels_are_distinct_and_fit_into_arrays_of_rows():
    sentinels = (POOLED, OWN, MIXTURE, LAST)
    assert len(set(sentinels)) == 4
    assert max(sentinels) < 0
    assert POOLED == -1, "the streams of batches of pooled rows are keyed by it"
    for sentinel in sentinels:
        rows = np.full(3, sentinel)
        assert rows.dtype == np.int64
        assert (rows == sentinel).all()
        assert sentinel in rows


@pytest.mark.parametrize(
    "right",
    [
        RIGHT,
        problem(start=np.array([OWN, 1, OWN]), upload=Upload(np.array([1, 2, 3]))),
        problem(upload=Upload(np.ones((3, 4)), sums=4)),
        problem(upload=Upload(WEIGHT, sum_index=np.array([0, 6, 1]), sums=7, what="parameters", losses=True)),
        problem(upload=Upload(single=True)),
        problem(upload=None, training=KEPT),
        problem(upload=None, then=LocalProblem(start=np.full(3, LAST), upload=Upload(WEIGHT))),
        problem(then=LocalProblem(start=np.array([LAST, OWN, 0]), training=KEPT)),
        problem(training=LocalTraining(epochs=np.array([0, 1, 2]), learning_rate=0.0, batch_size=0, optimizer="adam")),
        problem(training=LocalTraining(carry=True), then=LocalProblem(start=np.full(3, LAST), training=KEPT)),
        problem(training=LocalTraining(epochs=np.int64(2), learning_rate=np.float64(0.5))),
        problem(objective=Objective((Proximal(0.0, START), Proximal(np.array([0.0, 1.0, 2.0]), START)))),
        problem(program=Beside(4, (3,)), training=LocalTraining(epochs=2)),
        problem(program=Beside(4, (3,), sums=2), upload=Upload(WEIGHT, sums=2, extra_weight=np.ones(3))),
        problem(objective=Objective(contrast=(0.0, 0.5), frozen=np.zeros(4, np.bool_))),
    ],
)
def test_what_is_right_passes(right):
    check_problem(right, IDS, FRAME)


def test_what_is_right_only_for_some_passes_for_these():
    check_problem(problem(start=np.array([MIXTURE, 0, OWN])), IDS, replace(FRAME, mixes=True))
    check_problem(problem(upload=None), IDS, replace(FRAME, keeps=True))
    check_problem(groups(), IDS, replace(FRAME, groups=3))
    check_problem(groups(rows=np.array([0, 3, 4, 5])), IDS, replace(FRAME, groups=3))
    check_problem(LocalProblem(np.zeros(1, np.int64), Upload(np.ones(1))), np.array([POOLED]), FRAME)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "problem: {} is not a LocalProblem; return one"),
        (
            problem(start=[0, 1, 0]),
            "start: [0, 1, 0] is not an array; give an array of whole numbers, one for each of 3 hospitals",
        ),
        (problem(start=START.astype(float)), "start: has values of type float64"),
        (problem(start=START[:2]), "start: has 2 values; give an array of whole numbers, one for each of 3 hospitals"),
        (problem(start=START[:, None]), "start: has shape [3, 1]"),
        (problem(start=np.array([0, 2, 0])), "start: 2 is not a row of state.models; give 0 to 1, or OWN"),
        (problem(start=np.array([0, -9, 0])), "start: -9 is not a row of state.models; give 0 to 1, or OWN"),
        (problem(start=np.array([0, POOLED, 0])), "start: -1 is not a row of state.models"),
        (problem(start=np.array([0, LAST, 0])), "start: is LAST, but no problem precedes this one"),
        (problem(start=np.array([0, MIXTURE, 0])), "start: is MIXTURE, but mixture returns None"),
        (problem(upload=WEIGHT), "upload: an array [3] of float64 is not of type Upload; give a value of this type"),
        (problem(upload=Upload()), "upload.weight: is None, so updates would be lost"),
        (
            problem(upload=Upload(sum_index=START, single=True)),
            "upload.sum_index: an update without a weight is not summed",
        ),
        (
            problem(upload=Upload(0.5)),
            "upload.weight: 0.5 is not an array; give an array of numbers, one for each of 3 hospitals",
        ),
        (
            problem(upload=Upload(WEIGHT[:1])),
            "upload.weight: has 1 value; give an array of numbers, one for each of 3 hospitals",
        ),
        (problem(upload=Upload(np.array([1.0, np.nan, 1.0]))), "upload.weight: the value at index 1 is not finite"),
        (problem(upload=Upload(np.array([1.0, 1.0, np.inf]))), "upload.weight: the value at index 2 is not finite"),
        (
            problem(upload=Upload(np.ones((3, 2)))),
            "upload.weight: has shape [3, 2]; give an array of numbers, one for each of 3 hospitals",
        ),
        (problem(upload=Upload(np.ones((2, 3)), sums=3)), "upload.weight: has shape [2, 3]; give an array of"),
        (problem(upload=Upload(np.array([[1.0], [np.nan], [1.0]]))), "upload.weight: the value at index 1 is not"),
        (
            problem(upload=Upload(np.array([[1.0, 1.0], [1.0, np.nan], [np.inf, 1.0]]), sums=2)),
            "upload.weight: the value at index 1 is not",
        ),
        (
            problem(upload=Upload(np.ones((3, 2)), sum_index=START, sums=2)),
            "upload.sum_index: weight already has a column for each sum; leave sum_index out",
        ),
        (
            problem(upload=Upload(WEIGHT, sum_index=START)),
            "upload.sum_index: 1 is not the number of a sum; give numbers from 0 to 0, or raise sums",
        ),
        (
            problem(upload=Upload(WEIGHT, sum_index=-START, sums=2)),
            "upload.sum_index: -1 is not the number of a sum; give numbers from 0 to 1, or raise sums",
        ),
        (
            problem(upload=Upload(WEIGHT, sum_index=START[1:], sums=2)),
            "upload.sum_index: has 2 values; give an array of",
        ),
        (problem(upload=Upload(WEIGHT, sums=0)), "upload.sums: 0 is not a whole number of at least 1"),
        (problem(upload=Upload(WEIGHT, what="gradient")), "upload.what: 'gradient' is not one of delta, parameters"),
        (
            problem(objective=Proximal(1.0, START)),
            "objective: a Proximal is not of type Objective; give a value of this type",
        ),
        (
            problem(objective=Objective(Proximal(1.0, START))),
            "objective.proximal: a Proximal is not a tuple of Proximal; write (term,)",
        ),
        (problem(objective=Objective((1.0,))), "objective.proximal.0: 1.0 is not of type Proximal"),
        (
            problem(objective=Objective((Proximal(1.0, START), Proximal(-1.0, START)))),
            "objective.proximal.1.weight: -1.0 is not a number of at least 0",
        ),
        (
            problem(objective=Objective((Proximal(np.array([1.0, -2.0, 0.0]), START),))),
            "objective.proximal.0.weight: -2.0 is not at least 0",
        ),
        (
            problem(objective=Objective((Proximal(WEIGHT[1:], START),))),
            "objective.proximal.0.weight: has 2 values; give an array of",
        ),
        (
            problem(objective=Objective((Proximal(np.nan, START),))),
            "objective.proximal.0.weight: nan is not a number of at least",
        ),
        (
            problem(objective=Objective((Proximal(1.0, START[1:]),))),
            "objective.proximal.0.towards: has 2 values; give an array of",
        ),
        (
            problem(objective=Objective((Proximal(1.0, np.array([0, OWN, 0])),))),
            "objective.proximal.0.towards: -2 is not a row of state.models; give 0 to 1",
        ),
        (
            problem(program=Beside(3)),
            "program 'beside': must send an array 'delta' of shape [4], or of shape [1, 4] for all sums together",
        ),
        (problem(program="beside"), "program: 'beside' is not a Program; derive its class from raysim.Program"),
        (
            problem(program=Beside(4), training=KEPT),
            "program 'beside': a program replaces local training; leave out objective,",
        ),
        (
            problem(program=Beside(4), then=problem()),
            "program 'beside': a program replaces local training; leave out objective,",
        ),
        (
            problem(program=Beside(4, (2,), by="row")),
            "program 'beside': its answers are always weighted and summed over hospitals; remove how=",
        ),
        (
            problem(program=Beside(4, sums=2), upload=Upload(WEIGHT, np.zeros(3, np.int64), 2)),
            "program 'beside': needs Upload(what='delta')",
        ),
        (problem(program=Beside(4), upload=Upload(single=True)), "program 'beside': needs one weight for each"),
        (
            problem(program=Beside(4), upload=Upload(WEIGHT, extra_weight=WEIGHT[1:])),
            "upload.extra_weight: has 2 values; give an array of",
        ),
        (
            problem(objective=Objective(contrast=0.5)),
            "objective.contrast: 0.5 is not a pair of a weight and a temperature",
        ),
        (
            problem(objective=Objective(contrast=(1.0, 0.0))),
            "objective.contrast.temperature: 0.0 is not a number above 0",
        ),
        (
            problem(objective=Objective(contrast=(-1.0, 1.0))),
            "objective.contrast.weight: -1.0 is not a number",
        ),
        (
            problem(objective=Objective(frozen=np.zeros(3, np.bool_))),
            "objective.frozen: has 3 values; give an array of truth values, one for each of 4 parameters",
        ),
        (
            problem(objective=Objective(frozen=np.array([0, 1, 1, 1]))),
            "objective.frozen: has values of type int64; give an array of truth values, one for each of 4 parameters",
        ),
        (problem(training={"epochs": 3}), "training: {'epochs': 3} is not of type LocalTraining"),
        (problem(training=LocalTraining(epochs=-1)), "training.epochs: -1 is not a whole number of at least 0"),
        (problem(training=LocalTraining(epochs=1.5)), "training.epochs: 1.5 is not a whole number of at least 0"),
        (problem(training=LocalTraining(epochs=np.array([1, -2, 1]))), "training.epochs: -2 is not at least 0"),
        (problem(training=LocalTraining(epochs=np.array([1, 2]))), "training.epochs: has 2 values; give an array of"),
        (
            problem(training=LocalTraining(learning_rate=-0.1)),
            "training.learning_rate: -0.1 is not a number of at least 0",
        ),
        (
            problem(training=LocalTraining(learning_rate=np.inf)),
            "training.learning_rate: inf is not a number of at least 0",
        ),
        (problem(training=LocalTraining(batch_size=-1)), "training.batch_size: -1 is not a whole number of at least 0"),
        (
            problem(
                training=LocalTraining(carry=True),
                then=LocalProblem(np.full(3, LAST), training=LocalTraining(keep=True, carry=True)),
            ),
            "training.carry: two problems of a chain keep the same hospital's optimiser; set carry in one only",
        ),
        (
            problem(training=LocalTraining(optimizer="adamw")),
            "training.optimizer: 'adamw' is not one of sgd, momentum, adam",
        ),
        (problem(upload=None), "upload: is None, and the result is not kept, so it would be lost"),
        (problem(then=LocalProblem(start=START)), "then.upload: is None, and the result is not kept"),
        (
            problem(upload=None, then=LocalProblem(start=START, training=KEPT)),
            "upload: is None, and the result is not kept, so it would be lost",
        ),
        (problem(then=RIGHT), "then.upload: only one problem of a local update may have an upload"),
        (problem(then="fine-tune"), "then: 'fine-tune' is not of type LocalProblem"),
        (problem(then=problem(start=START[1:])), "then.start: has 2 values; give an array of"),
        (
            problem(then=LocalProblem(START, training=KEPT, then=LocalProblem(START - 9, training=KEPT))),
            "then.then.start: -9",
        ),
    ],
)
def test_a_mistake_is_named_by_its_field(wrong, message):
    with pytest.raises(Invalid) as raised:
        check_problem(wrong, IDS, FRAME)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("wrong", "frame", "message"),
    [
        (groups(), FRAME, "groups: the problem trains on groups of rows, but division returns None"),
        (
            groups(),
            replace(FRAME, groups=3, keeps=True),
            "groups: a hospital that trains on groups of its rows cannot also store one result for all of them",
        ),
        (
            replace(groups(), training=KEPT),
            replace(FRAME, groups=3),
            "groups: a hospital that trains on groups of its rows cannot also store one result for all of them",
        ),
        (replace(groups(), start=START), replace(FRAME, groups=3), "start: has 3 values"),
        (
            groups(hospital=np.array([0, 0, 3, 4])),
            replace(FRAME, groups=3),
            "groups.hospital: is not ascending, or names hospitals that were not sampled; give sampled ids in order",
        ),
        (
            groups(hospital=np.array([0, 3, 0, 3])),
            replace(FRAME, groups=3),
            "groups.hospital: is not ascending, or names hospitals that were not sampled; give sampled ids in order",
        ),
        (groups(hospital=np.array([0, 3])), replace(FRAME, groups=3), "groups.group: has 4 values"),
        (groups(hospital=7), replace(FRAME, groups=3), "groups.hospital: 7 is not an array"),
        (groups(), replace(FRAME, groups=2), "groups.group: 2 is not a group of the division"),
        (
            groups(group=-np.ones(4, np.int64)),
            replace(FRAME, groups=3),
            "groups.group: -1 is not a group of the division; give the numbers of groups, 0 to 2",
        ),
        (groups(rows=np.array([1, 2, -1, 1])), replace(FRAME, groups=3), "groups.rows: -1 is not a number of rows"),
        (problem(groups={}), replace(FRAME, groups=3), "groups: {} is not of type RowGroups"),
        (replace(groups(), training=None), replace(FRAME, groups=3), "training: None is not of type LocalTraining"),
        (replace(groups(), then={}), replace(FRAME, groups=3), "then: {} is not of type LocalProblem"),
        (
            LocalProblem(IDS[:0], Upload(WEIGHT[:0]), groups=RowGroups(IDS[:0], IDS[:0], IDS[:0])),
            replace(FRAME, groups=3),
            "groups.hospital: is empty",
        ),
        (
            replace(groups(), then=replace(groups(), upload=None, training=LocalTraining())),
            replace(FRAME, groups=3),
            "then.groups: the first problem's groups apply to the whole chain",
        ),
    ],
)
def test_a_mistake_about_groups_of_rows_is_named_by_its_field(wrong, frame, message):
    with pytest.raises(Invalid) as raised:
        check_problem(wrong, IDS, frame)
    assert str(raised.value).startswith(message)
