"""Answers of hospitals with noise: how sums are clipped, and how an answer is made of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.errors import ConfigError
from raysim.data.contribution import drawn
from raysim.engine.client.hospital_group import HospitalGroup
from raysim.engine.measuring.measurement import StatisticNoise
from raysim.engine.messages.plan import Inquiry
from raysim.engine.privacy.noisy_answers import noisy_answer, without_rows
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.privacy.noisy_sums import Bounds, Mechanism, clipped_sum, noisy_sum
from raysim.strategies.base import GroupSizes, HospitalRows, MeanLoss, Size
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.cluster_models import nearest_centres
from raysim.strategies.questions import one_of_each
from raysim.strategies.selections.fedcls import LabelPresence
from raysim.strategies.shared.feature_bins import FeatureCounts, FeatureQuantiles
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.strategies.shared.signatures import Signature
from tests.conftest import job_of
from tests.privacy.test_patient import of_patients
from tests.strategies.hospital_clusters.test_clust_psi import hospital

# --- clipped sums


@pytest.mark.parametrize(
    ("event", "rows", "expected"),
    [
        (Laplace(1.0), [[3.0, -1.0], [0.0, 0.0], [0.5, 0.0]], [0.75 + 0.5, -0.25]),
        (Gaussian(1.0), [[3.0, -4.0], [0.0, 0.0], [0.5, 0.0]], [0.6 + 0.5, -0.8]),
    ],
)
def test_each_unit_is_clipped_by_the_norm_of_its_noise(event: Event, rows, expected):
    how, bounds = Mechanism(event, "seeded"), Bounds(1.0, 1.0)
    assert clipped_sum(np.array(rows), np.arange(3), how, bounds) == pytest.approx(expected, abs=1e-9)


def test_rows_of_a_unit_are_added_before_they_are_clipped():
    rows, how = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), Mechanism(Laplace(1.0), "seeded")
    # 2 and 1 of the first unit are clipped to 2/3 and 1/3, and the second unit stays.
    assert clipped_sum(rows, np.array([0, 0, 0, 1]), how, Bounds(1.0, 1.0)) == pytest.approx([5 / 3, 1 / 3])
    assert clipped_sum(rows[:0], np.zeros(0, dtype=np.int64), how, Bounds(1.0, 1.0)).tolist() == [0.0, 0.0]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2))
def test_whatever_a_unit_adds_the_sum_moves_by_at_most_the_bound(entries):
    with np.errstate(all="ignore"):
        for event in (Laplace(1.0), Gaussian(1.0)):
            moved = clipped_sum(np.array([entries]), np.arange(1), Mechanism(event, "seeded"), Bounds(3.0, 2.0))
            assert np.abs(moved).sum() <= 3.0
            assert isinstance(event, Laplace) or np.linalg.norm(moved) <= 2.0


@pytest.mark.parametrize(("event", "deviation"), [(Laplace(4.0), 4.0 * 2**0.5 * 3.0), (Gaussian(4.0), 4.0 * 2.0)])
@pytest.mark.parametrize("origin", ["seeded", "system"])
def test_noise_has_the_deviation_of_its_multiplier_times_the_bound(event: Event, deviation, origin):
    rows, unit = np.zeros((1, 40_000)), np.zeros(1, dtype=np.int64)
    drawn = noisy_sum(rows, unit, Mechanism(event, origin), Bounds(3.0, 2.0), 7, "dp test", 0)
    assert drawn.std() == pytest.approx(deviation, rel=0.03)
    assert drawn.mean() == pytest.approx(0.0, abs=5 * deviation / 200)


# --- answers of hospitals


def test_a_count_with_noise_is_of_patients_each_counted_once(federate):
    """Forty hospitals of two patients with four rows each: rows of a patient add one together."""
    wide = of_patients(federate([8] * 40, [0] * 40), 4)
    noise = StatisticNoise("patient", 4, Mechanism(Laplace(1e-9), "seeded"))
    group, work = HospitalGroup(np.arange(40), pools=False, device="cpu"), job_of(wide, FedAvg()).work
    for question in (Size(), LabelCounts()):
        answers = np.stack(group.ask(Inquiry(work, question, 0, noise=noise)))
        assert answers.sum(axis=1) == pytest.approx(np.full(40, 2.0), abs=1e-6)


def test_at_most_so_many_rows_of_a_patient_are_looked_at(federate):
    crowd = of_patients(federate([40]), 40)
    group, work = HospitalGroup(np.arange(1), pools=False, device="cpu"), job_of(crowd, FedAvg()).work
    noise = StatisticNoise("patient", 3, Mechanism(Gaussian(1e-9), "seeded"))
    loose = replace(LabelCounts())
    object.__setattr__(loose, "bounds", lambda rows: (99.0, 99.0))
    (counts,) = group.ask(Inquiry(work, loose, 0, noise=noise))
    assert counts.sum() == pytest.approx(3, abs=1e-6)


def test_one_row_each_gives_the_exact_answer_but_for_the_noise(federate):
    federation = federate([9, 4, 0])
    group, work = HospitalGroup(np.arange(3), pools=False, device="cpu"), job_of(federation, FedAvg()).work
    edges = np.array([[-0.5, 0.5], [0.0, 1.0], [-1.0, 0.0]])
    for question in (Size(), LabelCounts(), FeatureCounts(edges)):
        exact = np.stack(group.ask(Inquiry(work, question, 0)))
        for event in (Laplace(1e-12), Gaussian(1e-12)):
            noise = StatisticNoise("example", 1, Mechanism(event, "seeded"))
            assert np.stack(group.ask(Inquiry(work, question, 0, noise=noise))) == pytest.approx(exact, abs=1e-8)


# --- what answers are made of sums


def rows_of(n: int, columns: int, seed: int = 0, classes: int = 2) -> HospitalRows:
    rng = np.random.default_rng(seed)
    observed = rng.random((n, columns)) < 0.8
    X = np.where(observed, rng.normal(size=(n, columns)), 0.0)
    y, losses = rng.integers(classes, size=n), rng.random((2, n))
    return HospitalRows(X=X, y=y, observed=observed, classes=classes, losses=losses, rng=rng)


def edges_of(columns: int) -> np.ndarray:
    return np.tile([-1.0, 0.0, 1.0], (columns, 1))


QUESTIONS: list[Any] = [
    Size(),
    LabelCounts(),
    LabelPresence(),
    MeanLoss(),
    FeatureCounts(edges_of(4)),
    Signature(),
    Signature(("size", "prevalence")),
    Signature(("missingness",)),
    Signature(("mean", "size")),
    GroupSizes(nearest_centres(np.array([1, 3]), np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]]))),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("question", QUESTIONS, ids=repr)
def test_sums_without_noise_give_the_answer(question, classes):
    rows = rows_of(50, 4, classes=classes)
    exact = question.answer(rows)
    summed = question.from_sums(question.added(rows).sum(axis=0), without_rows(rows))
    assert summed.shape == exact.shape
    there = ~np.isnan(summed)  # what the blocks of a signature do not need is not asked
    assert summed[there] == pytest.approx(exact[there], abs=1e-7)
    assert there.sum() >= 1 + (len(exact) - 1) * (question in (Signature(), Size()) or not hasattr(question, "blocks"))


def test_mean_losses_by_hand():
    """A row adds its loss in units of 8, at most 1 and as much where there is none; means are of one row at least."""
    rows = replace(hospital([3]), losses=np.array([[4.0, 16.0, np.nan], [0.0, 8.0, 2.0]]))
    assert MeanLoss().added(rows).tolist() == [[0.5, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.25, 1.0]]
    assert MeanLoss().bounds(rows) == (3.0, pytest.approx(math.sqrt(3)))
    for sums, means in (([0.75, 0.3, 1.5], [4.0, 1.6]), ([0.5, -1.0, 0.25], [4.0, 0.0]), ([3.0, 1.0, 2.0], [8.0, 4.0])):
        assert MeanLoss().from_sums(np.array(sums), rows) == pytest.approx(means)


def test_rows_are_ones_in_the_columns_of_their_numbers():
    assert one_of_each(np.array([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_values_beyond_the_outermost_fixed_bins_are_counted_in_these():
    X = np.array([[-99.0], [-5.0], [4.999], [5.0], [99.0], [0.0]])
    rows = hospital([6], X, np.array([[True]] * 5 + [[False]]))
    told = FeatureQuantiles(10).added(rows)
    assert told.sum(axis=1).tolist() == [1.0] * 6
    assert told.argmax(axis=1).tolist() == [0, 0, 63, 63, 63, 64]


def test_quantiles_out_of_fixed_bins_are_near_the_exact_ones():
    rows = rows_of(4000, 3)
    question = FeatureQuantiles(10)
    exact = question.answer(rows)
    summed = question.from_sums(question.added(rows).sum(axis=0), without_rows(rows))
    assert summed[:30] == pytest.approx(exact[:30], abs=0.08)  # a bin is 0.16 wide
    assert (summed[30:] == exact[30:]).all()
    none = question.from_sums(np.full(3 * 65, -1.0), without_rows(rows))
    assert np.isnan(none[:30]).all()
    assert (none[30:] == 0).all()


@pytest.mark.parametrize("question", [*QUESTIONS, FeatureQuantiles(5)], ids=repr)
def test_answers_out_of_noise_alone_are_answers(question):
    rows = rows_of(0, 4)
    for seed in range(20):
        noise = 50 * np.random.default_rng(seed).normal(size=question.added(rows).shape[1])
        answer = question.from_sums(noise, without_rows(rows))
        assert answer.shape == question.answer(rows).shape
        assert not np.isinf(answer).any()
        if isinstance(question, Signature):
            assert (answer[1] >= 0) & (answer[1] <= 1)
            assert answer[0] >= 0


@given(
    n=st.integers(1, 12),
    columns=st.integers(1, 5),
    classes=st.integers(2, 4),
    scale=st.sampled_from([0.1, 1.0, 30.0, 1e6]),
    seed=st.integers(0, 2**16),
)
def test_a_row_adds_no_more_than_its_question_says(n, columns, classes, scale, seed):
    rows = rows_of(n, columns, seed, classes)
    rows = replace(rows, X=rows.X * scale, losses=rows.losses * scale)
    for question in (*QUESTIONS, FeatureQuantiles(5), FeatureCounts(edges_of(columns))):
        if isinstance(question, FeatureCounts) and len(question.edges) != columns:
            continue
        if isinstance(question, GroupSizes) and columns < 4:  # its centres are of the columns 1 and 3
            continue
        added = question.added(rows)
        absolute, euclidean = question.bounds(without_rows(rows))
        assert np.abs(added).sum(axis=1).max() <= absolute * (1 + 1e-12)
        assert np.linalg.norm(added, axis=1).max() <= euclidean * (1 + 1e-12)


def test_a_real_label_has_no_signature_with_noise():
    rows = replace(rows_of(5, 2), classes=0)
    with pytest.raises(ConfigError, match=r"privacy.statistics.signature: .*a number"):
        noisy_answer(
            Signature(),
            rows,
            drawn(np.arange(5), np.arange(5), 1),
            StatisticNoise("example", 1, Mechanism(Laplace(1.0), "seeded")),
            0,
            0,
            0,
        )


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Size(), (1.0, 1.0)),
        (LabelCounts(), (1.0, 1.0)),
        (LabelPresence(), (1.0, 1.0)),
        (GroupSizes(nearest_centres(np.array([1]), np.zeros((1, 1)))), (1.0, 1.0)),
    ],
    ids=repr,
)
def test_a_row_that_is_counted_once_is_bounded_by_one(question, expected):
    assert question.bounds(without_rows(rows_of(5, 4))) == expected


def test_a_hospital_without_rows_has_the_widths_of_one_with_rows():
    rows = replace(rows_of(5, 4, classes=3), losses=np.ones((2, 5)), outputs=[np.ones(5), np.ones((5, 3))])
    nobody = without_rows(rows)
    assert (nobody.X.shape, nobody.y.shape, nobody.observed.shape) == ((0, 4), (0,), (0, 4))
    assert (nobody.losses.shape, [output.shape for output in nobody.outputs]) == ((2, 0), [(0,), (0, 3)])
    assert nobody.classes == 3


def test_a_class_is_there_where_its_noisy_count_is_half_or_more():
    nobody = without_rows(rows_of(5, 4))
    assert LabelPresence().from_sums(np.array([0.49, 0.5, -3.0, 7.0]), nobody).tolist() == [0, 1, 0, 1]
    assert LabelCounts().from_sums(np.array([0.49, -0.5]), nobody).tolist() == [0.49, 0]


def test_counts_with_a_noise_of_their_own_are_those_and_the_draw():
    rows = replace(rows_of(50, 2, classes=3), rng=np.random.default_rng(4))
    drawn_noise = np.random.default_rng(4).laplace(scale=1 / 0.2, size=3)
    counts = np.bincount(rows.y, minlength=3)
    assert LabelCounts(0.2).answer(rows).tolist() == np.maximum(counts + drawn_noise, 0.0).tolist()
