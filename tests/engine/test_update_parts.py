"""Parts of what hospitals send, by hand: attacks of their own, weights of sums, and weights under a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation
from raysim.engine.attacks.own_attacks import OwnAttack
from raysim.engine.guarantee import PrivacyParameters
from raysim.engine.messages.update_sums import heaviest, number_rows, sum_count
from raysim.engine.pipeline.secure_sums import SecureSums
from raysim.engine.privacy.calibration import guarantee_of
from raysim.engine.privacy.hospital_noise import HospitalNoise
from raysim.engine.privacy.noisy_statistics import FirstAnswers
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.secure import traffic
from raysim.strategies.base import LocalProblem, State, Upload
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.virtual_time.scheduling import ScheduledCohort
from tests.conftest import MakeFederation, job_of
from tests.engine.probing import Beside

START = np.zeros(3, np.int64)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([6, 5, 4])


FIVE = Beside(4, (5,))
"""Five numbers beside an update."""


@pytest.mark.parametrize(
    ("attack", "factor", "sent"),
    [
        ("sign_flip", None, [-1.0, 2.0]),
        ("sign_flip", 3.0, [-3.0, 6.0]),
        ("scale", None, [7.0, -14.0]),
        ("scale", 2.5, [2.5, -5.0]),
        ("zero", None, [0.0, 0.0]),
        ("scale", 1e9, [100.0, -100.0]),
    ],
)
def test_what_a_bad_hospital_of_seven_sends(attack: str, factor: float | None, sent: list[float]) -> None:
    section = AdversarySection(attack=attack, factor=factor)
    own = OwnAttack(section, frozenset({2}), seed=1, round=1, hospitals=7, classes=2, feature=None)
    assert own.update(2, np.array([1.0, -2.0]), 100.0) == pytest.approx(sent, rel=1e-12)
    assert own.update(3, np.array([1.0, -2.0]), 100.0).tolist() == [1.0, -2.0]


def test_the_heaviest_sum_is_that_of_most_weight_by_magnitude() -> None:
    weight, into = np.array([0.5, -0.75, 0.25]), np.array([0, 1, 0])
    assert heaviest(LocalProblem(START)) == 0.0
    assert heaviest(LocalProblem(START, Upload(weight))) == 1.5
    assert heaviest(LocalProblem(START, Upload(weight, into, 2))) == 0.75
    assert heaviest(LocalProblem(START, Upload(weight, into, 2), program=FIVE)) == 1.5
    assert heaviest(LocalProblem(START, Upload(np.array([[0.5, -1.0], [0.25, 0.25], [0.0, 0.5]])))) == 1.75
    beside = Upload(weight, extra_weight=np.array([1.0, -1.0, 0.5]))
    assert heaviest(LocalProblem(START, beside, program=FIVE)) == 2.5


def test_sums_of_numbers_stand_behind_those_of_updates() -> None:
    problem = LocalProblem(START, Upload(np.ones(3), sums=2), program=FIVE)
    assert [number_rows(problem, size) for size in (4, 5, 6, 2)] == [2, 1, 1, 3]
    assert [sum_count(problem, 4), sum_count(LocalProblem(START), 4)] == [2 + 2, 0]


@pytest.mark.parametrize(
    ("upload", "even"),
    [
        (Upload(np.array([0.5, 0.2, 0.3]), np.array([1, 0, 1]), 2), [0.4, 0.2, 0.4]),
        (Upload(np.array([[0.5, 0], [0.25, 0.3], [0, 0.7]]), sums=2), [[0.375, 0], [0.375, 0.5], [0, 0.5]]),
    ],
)
def test_under_a_bound_all_in_a_sum_have_one_weight(federation: Federation, upload: Upload, even: list) -> None:
    job = replace(job_of(federation, FedAvg()), aggregation=AggregationSection(name="norm_bound"))
    job = replace(job, secure=SecureSection())
    pipeline = UpdatePipeline(job, job.strategy, federation, 4, None, FirstAnswers(), guarantee_of(job, federation))
    cohort = ScheduledCohort(np.arange(3), LocalProblem(START, upload), State(np.zeros((1, 4))))
    fitted = pipeline.fitted(cohort).problem
    assert fitted is not None
    assert fitted.sent is not None
    assert fitted.sent.weight is not None
    np.testing.assert_allclose(fitted.sent.weight, even, rtol=1e-15)


def test_the_order_of_the_steps_at_hospitals(federation: Federation) -> None:
    """An attack comes before the bound that resists it, and compression before the masks that hide it."""
    job = replace(
        job_of(federation, FedAvg()),
        adversary=AdversarySection(attack="scale", share=0.4),
        aggregation=AggregationSection(name="norm_bound", bound=0.5),
        compression=CompressionSection(name="grid"),
        secure=SecureSection(),
    )
    pipeline = UpdatePipeline(job, job.strategy, federation, 4, None, FirstAnswers(), guarantee_of(job, federation))
    problem = LocalProblem(START, Upload(np.ones(3)))
    halves = pipeline.hospital_steps(1, problem, np.arange(3))
    assert [type(half).__name__ for half in halves] == ["OwnAttack", "Clip", "Compressing", "Masking"]


def test_bytes_of_masked_sums_are_those_of_the_numbers_in_them(federation: Federation) -> None:
    """Models of four scalars and five numbers, in sums of four and of one; those of another kind count there."""
    problem = LocalProblem(START, Upload(np.ones(3)), program=FIVE)
    secure, ids = SecureSums(SecureSection(), 1, "x", 4), np.arange(3)
    masking = secure.masking(1, problem, ids)
    assert masking is not None
    sent, down = secure.bytes(masking, problem, ids)
    up = sum(int(traffic.up(p, 2)) for p in (4, 4, 1)) - 4
    assert sent.tolist() == [up] * 3
    assert down == 3 * 3 * traffic.down(2)
    apart = replace(problem, program=replace(FIVE, kind="variate"))
    assert secure.bytes(masking, apart, ids)[0].tolist() == [up - 4 * 5] * 3


def test_noise_on_counts_covers_also_what_stays_of_the_model(federation: Federation) -> None:
    """Two of four scalars stay at hospitals; five counts take two sums, in which nothing is private."""

    class Counting(FedAvg):
        def problem(self, view, state, ids):
            return LocalProblem(np.zeros_like(ids), Upload(np.ones(len(ids)) / 3), program=FIVE)

    @dataclass(frozen=True)
    class View:
        trainable: np.ndarray
        sizes: np.ndarray

    section = PrivacySection(noise_multiplier=2.0, delta=1e-3, mode="central")
    job, parameters = (
        replace(job_of(federation, Counting()), privacy=section),
        PrivacyParameters(rounds=1, rate=1.0, hospitals=3),
    )
    private = np.array([False, True, False, True])
    guard = HospitalNoise(section, parameters, job, Counting(), 4, private, None)
    cohort = ScheduledCohort(np.arange(3), None, State(np.zeros((1, 4))))
    fitted = guard.posed(View(np.arange(3), np.array([6, 5, 4])), cohort).problem
    assert fitted is not None
    noise = guard.noised(1, fitted, np.zeros((3, 4), np.int64))
    assert ((noise[0] == 0) == private).all()
    assert (noise[1:] != 0).all()
