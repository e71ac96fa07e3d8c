"""FairFed: identity 23, its weights by hand, and data that it cannot be used with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.server.job_checks import check_job
from raysim.strategies.base import Answers
from raysim.strategies.fairness.fairfed import (
    OTHERS,
    PRIVILEGED,
    UNKNOWN,
    FairFed,
    FairState,
    GroupCounts,
    check_patients,
    patient_groups,
    renewed_weights,
)
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies.contexts import hospital, sent, view_of
from tests.strategies.one_model.test_scaffold import gradient
from tests.strategies.test_identities import SIZES, assert_different, assert_same

SEXES = np.array(["Female", "Male", "Male", "unknown", "Female", ""])


def know(federation: Federation, **patients: np.ndarray) -> Federation:
    np.savez(federation.folder / "patients.npz", **patients)
    return Federation.open(federation.folder)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    drawn = federate(SIZES, [5, 6, 0, 8, 4, 3])
    rng = np.random.default_rng(4)
    n = len(drawn.y)
    return know(
        drawn, sex=rng.choice(["Female", "Male"], n), age=np.where(rng.random(n) < 0.1, np.nan, rng.uniform(18, 90, n))
    )


def test_23_without_beta_it_is_fedavg(federation):
    run = {"rounds": 4, "epochs": 2}
    fedavg = run_strategy(federation, FedAvg(), **run)
    assert_same(run_strategy(federation, FairFed(beta=0.0), **run).models, fedavg.models)
    assert_different(run_strategy(federation, FairFed(beta=0.5), **run).models, fedavg.models)


def counted(federation: Federation, h: int, theta: np.ndarray) -> np.ndarray:
    """A hospital's six counts, row by row."""
    n, right, positive, called = 0, 0, {"Female": 0, "Male": 0}, {"Female": 0, "Male": 0}
    rows = federation.rows(h, "train")
    for x, y, sex in zip(federation.X[rows], federation.y[rows], federation.patients["sex"][rows], strict=True):
        says = int(x.astype(np.float64) @ theta[:-1] + theta[-1] > 0)
        n, right = n + 1, right + (says == y)
        positive[sex] += y
        called[sex] += y and says
    return np.array([n, right, positive["Female"], called["Female"], positive["Male"], called["Male"]], dtype=float)


def by_hand(omega: list[float], counts: np.ndarray, beta: float) -> list[float]:
    """Step 1 to 3 of the algorithm, one hospital after another."""

    def gap(c):
        return None if c[2] == 0 or c[4] == 0 else c[3] / c[2] - c[5] / c[4]

    of_all = counts.sum(axis=0)
    apart = []
    for c in counts:
        if gap(c) is None:
            apart.append(abs(of_all[1] / of_all[0] - c[1] / c[0]))
        else:
            apart.append(abs(gap(of_all) - gap(c)))
    mean = sum(apart) / len(apart)
    return [max(0.0, w - beta * (d - mean)) for w, d in zip(omega, apart, strict=True)]


@pytest.mark.parametrize("beta", [0.01, 2.0])
def test_rounds_by_hand(beta, federation):
    """Weights by hand, and a full-batch step of every hospital; with the larger beta some weights are clipped."""
    total = sum(SIZES)
    omega: Any = [n / total for n in SIZES]
    theta: Any = np.zeros(4)
    clipped = False
    for _ in range(3):
        omega = by_hand(omega, np.stack([counted(federation, h, theta) for h in range(6)]), beta)
        clipped |= 0.0 in omega
        step = [theta - 0.1 * gradient(federation, h, theta) for h in range(6)]
        theta = sum(w * end for w, end in zip(omega, step, strict=True)) / sum(omega)
    assert clipped == (beta == 2.0)
    outcome = run_strategy(federation, FairFed(beta=beta), rounds=3, batch_size=0)
    assert_same(outcome.models[0], theta)


COUNTS = arrays(np.int64, st.tuples(st.integers(1, 5), st.just(4)), elements=st.integers(0, 9))


@given(draws=COUNTS, beta=st.floats(0, 3), data=st.data())
def test_weights_equal_those_by_hand_and_never_all_vanish(draws, beta, data):
    """Groups without positive rows included; counts are made consistent from four drawn numbers a hospital."""
    others, privileged, missed, extra = draws.T
    called = np.minimum(missed, others), np.minimum(missed, privileged)
    n = others + privileged + extra + 1
    right = called[0] + called[1] + extra
    counts = np.stack([n, right, others, called[0], privileged, called[1]], axis=1).astype(np.float64)
    omega = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=len(n), max_size=len(n))))
    renewed = renewed_weights(omega, counts, beta)
    assert renewed == pytest.approx(by_hand(omega.tolist(), counts, beta), abs=1e-12)
    assert renewed.sum() >= omega.sum() - 1e-9
    assert renewed_weights(omega, np.repeat(counts[:1], len(n), axis=0), beta) == pytest.approx(omega), "equal ones"


def test_who_counts_nothing_counts_by_rows_where_nobody_else_is_there():
    """Hospitals 0 and 1 were clipped to 0, and alone with each other they have nothing to gain."""
    counts = np.array([10.0, 9, 5, 4, 5, 4])
    view = view_of([hospital([3]), hospital([1]), hospital([2])])
    answers = Answers({}, {"group_counts": np.stack([counts] * 2)}, np.array([0, 1]), np.array([2]))
    view = replace(view, call=lambda call: answers)
    state = FairState(models=np.zeros((1, 4)), omega=np.array([0.0, 0.0, 1.0]))
    problem = FairFed().problem(view, state, np.array([0, 1]))
    assert problem.upload.weight.tolist() == [0.75, 0.25]
    assert problem.omega.tolist() == [0.0, 0.0, 1.0]


def test_where_no_group_has_positive_rows_accuracy_decides():
    counts = np.array([[10, 9, 0, 0, 5, 4], [10, 5, 0, 0, 3, 1]], dtype=float)
    # Accuracies .9 and .5 are .2 away from .7 each: equal distances leave the weights.
    assert renewed_weights(np.array([0.5, 0.5]), counts, 1.0) == pytest.approx([0.5, 0.5])
    three = np.vstack([counts, [[20, 14, 0, 0, 2, 1]]]).astype(float)
    assert renewed_weights(np.full(3, 1 / 3), three, 1.0) == pytest.approx(by_hand([1 / 3] * 3, three, 1.0))


def test_counts_by_hand_with_margins_and_with_logits():
    y = np.array([1, 1, 0, 1, 0, 1])
    margins = np.array([2.0, -1.0, 1.0, 3.0, -0.5, 0.0])  # 0 is called class 0
    rows = replace(hospital([0, 6]), y=y, outputs=[margins], patients=lambda: {"sex": SEXES})
    program = GroupCounts("sex", "Male", 1)
    # Of the others (rows 0 and 4) one positive, called so; of the men (1 and 2) one, missed; 3 and 5 are not known.
    assert sent(program, rows).tolist() == [6, 3, 1, 1, 1, 0]
    logits = np.column_stack([np.zeros(6), margins, np.full(6, -9.0)])
    assert sent(program, replace(rows, outputs=[logits])).tolist() == [6, 3, 1, 1, 1, 0]
    assert sent(GroupCounts("sex", "Male", 0), rows).tolist() == [6, 3, 1, 1, 1, 0]
    # Where all are called positive, four are right.
    assert sent(program, replace(rows, outputs=[np.ones(6)])).tolist() == [6, 4, 1, 1, 1, 1]


def test_groups_of_patients():
    patients = {"sex": SEXES, "age": np.array([17.9, 18.0, 64.9, 65.0, np.nan, 30.0])}
    assert patient_groups(patients, "sex", "Male").tolist() == [
        OTHERS, PRIVILEGED, PRIVILEGED, UNKNOWN, OTHERS, UNKNOWN,
    ]  # fmt: skip
    assert patient_groups(patients, "age", (18, 65)).tolist() == [
        OTHERS, PRIVILEGED, PRIVILEGED, OTHERS, UNKNOWN, PRIVILEGED,
    ]  # fmt: skip


def test_ages_that_nobody_recorded_are_no_range():
    with pytest.raises(ValueError, match=r"^privileged: no patient's age is '\(18, 65\)'; the data have no ages$"):
        check_patients({"age": np.full(3, np.nan)}, "age", (18, 65))


def test_everybody_takes_part_and_sends_six_counts(federation):
    outcome = run_strategy(
        federation, FairFed(attribute="age", privileged=(30, 60)), rounds=2, selection=Uniform(0.3, 1)
    )
    size = outcome.layout.size
    # The model that a hospital was asked about is the one that it starts from: it is sent once.
    assert [row.bytes_down for row in outcome.rounds] == [4 * 6 * size] * 2
    assert [row.bytes_up for row in outcome.rounds] == [4 * 6 * (6 + size + 1)] * 2


def test_it_narrows_the_gap_that_one_large_hospital_makes(federate):
    """At the first hospital, which has most rows, women's positive rows lie elsewhere than all others do."""
    drawn = federate([120, 40, 40, 40, 40], [40] * 5, features=3, seed=6)
    sex = np.random.default_rng(0).choice(["Female", "Male"], len(drawn.y))
    labels = (drawn.X[:, 0] > 0).astype(np.int64)
    first = slice(*drawn.bounds[0, [0, 3]])
    labels[first] = np.where(sex[first] == "Male", labels[first], 1 - labels[first])
    np.save(drawn.folder / "y.npy", labels)
    federation = know(drawn, sex=sex)
    run = {"rounds": 15, "learning_rate": 0.5, "batch_size": 16}
    gaps = []
    for how in (FedAvg(), FairFed(beta=0.5)):
        theta = run_strategy(federation, how, **run).models[0]
        counts = np.sum([counted(federation, h, theta) for h in range(5)], axis=0)
        gaps.append(abs(counts[3] / counts[2] - counts[5] / counts[4]))
    assert gaps[1] < gaps[0]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (FairFed(attribute="ethnicity", privileged="Caucasian"), r"strategy\.attribute: .*ethnicity; use one of sex"),
        (FairFed(privileged="Man"), r"strategy\.privileged: .*'Man'; the data have Female, Male$"),
        (FairFed(attribute="age", privileged=(0, 9)), r"strategy\.privileged: .*the data have ages 1\d"),
        (FairFed(attribute="age", privileged=(0, 200)), r"strategy\.privileged: .*every patient"),
        (FairFed(positive=2), r"strategy\.positive: 2 must be below 2, the number of classes"),
    ],
)
def test_data_that_do_not_fit_are_refused_before_anything_starts(how, message, federation):
    check_job(job_of(federation, FairFed()), federation)
    with pytest.raises(ConfigError, match=f"^{message}"):
        check_job(job_of(federation, how), federation)


def test_data_that_know_nothing_of_patients_are_refused(federate):
    federation = federate(SIZES)
    with pytest.raises(ConfigError, match=r"^strategy\.attribute: .*sex; use data with"):
        check_job(job_of(federation, FairFed()), federation)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("attribute", {"attribute": "height"}),
        ("privileged", {"privileged": (18, 65)}),
        ("privileged", {"attribute": "age"}),
        ("privileged", {"attribute": "age", "privileged": (65, 18)}),
        ("privileged", {"attribute": "age", "privileged": (65, 65)}),
        ("beta", {"beta": -1.0}),
        ("positive", {"positive": -1}),
    ],
)
def test_impossible_settings_are_refused_by_name(field, bad):
    with pytest.raises(ValueError, match=f"^{field}: "):
        FairFed(**bad)
