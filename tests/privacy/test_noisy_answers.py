"""Answers of hospitals with noise: how sums are clipped, and how an answer is made of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.client.hospital_group import HospitalGroup
from raysim.engine.measuring.measurement import StatisticNoise
from raysim.engine.messages.plan import ProgramCall, RoundPlan
from raysim.engine.privacy.noisy_answers import StatisticRelease
from raysim.engine.privacy.noisy_statistics import statistic_noise
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.privacy.noisy_sums import Bounds, Mechanism, clipped_sum, noisy_sum
from raysim.strategies.base import Answers, Bound, Counts, GroupSizes, MeanLoss, Send, Size, Statistic, row_sums
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.cluster_models import nearest_centres
from raysim.strategies.row_statistics import means_of
from raysim.strategies.selections.fedcls import FedCls, LabelPresence
from raysim.strategies.shared.feature_bins import FeatureCounts, FeatureQuantiles, FineCounts, quantiles_of
from raysim.strategies.shared.label_counts import LabelCounts, label_counts
from raysim.strategies.shared.signatures import Block, Signature
from tests.conftest import job_of
from tests.privacy.test_patient import of_patients, section
from tests.strategies.contexts import At, hospital, sent, view_of

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


# --- statistics of hospitals


def noisy_statistics(
    federation: Federation, program: Statistic, noise: StatisticNoise | None, **received
) -> np.ndarray:
    """What hospitals send of a program, with this noise."""
    work, ids = job_of(federation, FedAvg()).work, np.arange(len(federation.hospitals))
    steps = () if noise is None else (StatisticRelease(noise, work.seed, 0),)
    call = ProgramCall(program, "a test's", 0, received, {}, {})
    plan = RoundPlan(work, 0, np.zeros((0, 0)), ids, None, call, steps=steps)
    (result, _) = HospitalGroup(ids, pools=False, device="cpu").round(plan, None)
    return result.each[program.name]


def test_a_count_with_noise_is_of_patients_each_counted_once(federate):
    """Forty hospitals of two patients with four rows each: rows of a patient add one together."""
    wide = of_patients(federate([8] * 40, [0] * 40), 4)
    noise = StatisticNoise("patient", 4, Mechanism(Laplace(1e-9), "seeded"))
    for program in (Size(noisy=True), LabelCounts(2, noisy=True)):
        counts = noisy_statistics(wide, program, noise)
        assert counts.sum(axis=(1, 2)) == pytest.approx(np.full(40, 2.0), abs=1e-6)


def test_at_most_so_many_rows_of_a_patient_are_looked_at(federate):
    crowd = of_patients(federate([40]), 40)
    noise = StatisticNoise("patient", 3, Mechanism(Gaussian(1e-9), "seeded"))

    class Loose(LabelCounts):
        @property
        def sent(self) -> Send:
            return row_sums(self.table, self.name, 99.0**2)

    (counts,) = noisy_statistics(crowd, Loose(2, noisy=True), noise)
    assert counts.sum() == pytest.approx(3, abs=1e-6)


def test_one_row_each_gives_the_exact_answer_but_for_the_noise(federate):
    federation = federate([9, 4, 0])
    edges = np.array([[-0.5, 0.5], [0.0, 1.0], [-1.0, 0.0]])
    for program in (Size(), LabelCounts(2), FeatureCounts(3, 4)):
        received = {"edges": edges} if isinstance(program, FeatureCounts) else {}
        exact = noisy_statistics(federation, program, None, **received)
        for event in (Laplace(1e-12), Gaussian(1e-12)):
            noise = StatisticNoise("example", 1, Mechanism(event, "seeded"))
            released = noisy_statistics(federation, replace(program, noisy=True), noise, **received)
            assert released == pytest.approx(exact, abs=1e-8)


# --- what is made of sums


def rows_of(n: int, columns: int, seed: int = 0, classes: int = 2) -> At:
    rng = np.random.default_rng(seed)
    observed = rng.random((n, columns)) < 0.8
    X = np.where(observed, rng.normal(size=(n, columns)), 0.0)
    y, losses = rng.integers(classes, size=n), rng.random((2, n))
    return At(X, y, observed, classes, losses, given={"edges": np.tile([-1.0, 0.0, 1.0], (columns, 1))})


GROUPS = nearest_centres(np.array([1, 3]), np.array([[0.0, 0.0], [1.0, 1.0], [9.0, 9.0]]))
BLOCKS: tuple[tuple[Block, ...], ...] = (
    ("size", "prevalence"),
    ("missingness",),
    ("mean", "size"),
    ("size", "prevalence", "missingness", "mean", "std"),
)


def counting(classes: int) -> list[Counts]:
    return [
        Size(noisy=True),
        LabelCounts(classes, noisy=True),
        LabelPresence(classes, noisy=True),
        FeatureCounts(4, 5, noisy=True),
        FineCounts(4),
        GroupSizes(GROUPS, noisy=True),
    ]


@pytest.mark.parametrize("classes", [2, 3])
def test_sums_without_noise_are_the_exact_counts(classes):
    rows = rows_of(50, 4, classes=classes)
    for program in counting(classes):
        if isinstance(program, (FineCounts, LabelPresence)):
            continue
        exact = sent(LabelCounts(classes) if isinstance(program, LabelCounts) else replace(program, noisy=False), rows)
        assert sent(program, rows).sum(axis=0).tolist() == exact.tolist()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_sums_without_noise_give_the_signature(blocks, classes):
    rows = rows_of(50, 4, classes=classes)
    exact, program = sent(Signature(classes, 4), rows), Signature(classes, 4, blocks, noisy=True)
    summed = program.from_sums(sent(program, rows).sum(axis=0))
    assert summed.shape == exact.shape
    there = ~np.isnan(summed)  # what the blocks do not need is not asked
    assert summed[there] == pytest.approx(exact[there], abs=1e-7)
    assert there.sum() == classes + 4 * {0: 0, 1: 1, 2: 2, 3: 3}[program.powers]


def test_mean_losses_by_hand():
    """A row adds its loss in units of 8, at most 1 and as much where there is none; means are of one row at least."""
    rows = replace(hospital([3]), losses=np.array([[4.0, 16.0, np.nan], [0.0, 8.0, 2.0]]))
    program = MeanLoss(2, noisy=True)
    assert sent(program, rows).tolist() == [[0.5, 0.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.25, 1.0]]
    assert program.sent.bound == Bound("row", pytest.approx(math.sqrt(3)), 3.0)
    sums = np.array([[0.75, 0.3, 1.5], [0.5, -1.0, 0.25], [3.0, 1.0, 2.0]])
    assert means_of(sums) == pytest.approx(np.array([[4.0, 1.6], [4.0, 0.0], [8.0, 4.0]]))


def test_values_beyond_the_outermost_fixed_bins_are_counted_in_these():
    X = np.array([[-99.0], [-5.0], [4.999], [5.0], [99.0], [0.0]])
    rows = hospital([6], X, np.array([[True]] * 5 + [[False]]))
    released = sent(FineCounts(1), rows)[:, 0]
    assert released.sum(axis=1).tolist() == [1.0] * 6
    assert released.argmax(axis=1).tolist() == [0, 0, 63, 63, 63, 64]


def test_quantiles_out_of_fixed_bins_are_near_the_exact_ones():
    rows = rows_of(4000, 3)
    exact = sent(FeatureQuantiles(3, 10), rows)
    summed = quantiles_of(sent(FineCounts(3), rows).sum(axis=0), 10)
    assert summed[:10] == pytest.approx(exact[:10], abs=0.08)  # a bin is 0.16 wide
    assert (summed[10] == exact[10]).all()
    none = quantiles_of(np.full((3, 65), -1.0), 10)
    assert np.isnan(none[:10]).all()
    assert (none[10] == 0).all()


def test_what_is_made_of_noise_alone_is_a_statistic():
    for seed in range(20):
        noise = 50 * np.random.default_rng(seed).normal(size=(4, 65))
        quantiles = quantiles_of(noise, 5)
        assert quantiles.shape == (6, 4)
        assert not np.isinf(quantiles).any()
        for blocks in BLOCKS:
            program = Signature(2, 4, blocks, noisy=True)
            answer = program.from_sums(noise.ravel()[: program.sent.shape[0]])
            assert answer.shape == (2 + 12,)
            assert not np.isinf(answer).any()
            assert (answer[1] >= 0) & (answer[1] <= 1)
            assert answer[0] >= 0
        assert ((means_of(noise) >= 0) & (means_of(noise) <= 8)).all()


@given(
    n=st.integers(1, 12),
    classes=st.integers(2, 4),
    scale=st.sampled_from([0.1, 1.0, 30.0, 1e6]),
    seed=st.integers(0, 2**16),
)
def test_a_row_adds_no_more_than_its_program_declares(n, classes, scale, seed):
    rows = rows_of(n, 4, seed, classes)
    rows = replace(rows, X=rows.X * scale, losses=rows.losses * scale)
    signatures = [Signature(classes, 4, blocks, noisy=True) for blocks in BLOCKS]
    for program in (*counting(classes), *signatures, MeanLoss(2, noisy=True)):
        added, bound = sent(program, rows), program.sent.bound
        assert added.shape == (n, *program.sent.shape)
        flat = added.reshape(n, -1)
        assert np.abs(flat).sum(axis=1).max() <= bound.l1 * (1 + 1e-12)
        assert np.linalg.norm(flat, axis=1).max() <= bound.l2 * (1 + 1e-12)


def test_a_real_label_has_no_signature_with_noise():
    with pytest.raises(
        ConfigError, match=(r"privacy.statistics.signature: hospitals do not send this kind as sums over rows")
    ):
        statistic_noise(section(statistics={"signature": {"epsilon": 1.0}}), Signature(0, 2, noisy=True))


def test_a_row_that_is_counted_once_is_bounded_by_one():
    for program in (Size(True), LabelCounts(3, True), LabelPresence(3, True), GroupSizes(GROUPS, True)):
        assert program.sent.bound == Bound("row", 1.0, 1.0)


def test_statistics_from_noisy_sums_are_of_what_can_be():
    """A class is there where its noisy count is half or more, and counts are not negative."""
    view = view_of([hospital([1, 1, 1, 1])])
    counts = np.array([[[0.49, 0.5, -3.0, 7.0]]])
    drawn = replace(
        view,
        call=lambda call: Answers({}, {call.program.name: counts}, call.ids, np.array([1])),
        noisy=lambda kind: True,
    )
    assert label_counts(drawn, None).tolist() == [[0.49, 0.5, 0.0, 7.0]]
    assert FedCls().setup(drawn)["clusters"].tolist() == [0]


def test_counts_with_a_noise_of_their_own_are_those_and_the_draw():
    rows = replace(rows_of(50, 2, classes=3), stream=np.random.default_rng(4))
    drawn_noise = np.random.default_rng(4).laplace(scale=1 / 0.2, size=3)
    counts = np.bincount(rows.y, minlength=3)
    assert sent(LabelCounts(3, privacy_epsilon=0.2), rows).tolist() == [(counts + drawn_noise).tolist()]
