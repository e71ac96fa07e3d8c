"""What a guarantee rests on and what rounds reveal, by hand; settings at the edge of what can be guaranteed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.guarantee import PrivacyParameters
from raysim.engine.job import Job
from raysim.engine.privacy import calibration
from raysim.engine.privacy.calibration import (
    OtherReleases,
    bit_noise,
    by_hospital,
    guarantee_of,
    largest_clip,
    parameters_of,
    releases_of_updates,
    resolved,
)
from raysim.engine.privacy.grid_checks import check_grid
from raysim.engine.privacy.noisy_statistics import figure_noise, left_out
from raysim.engine.privacy.privacy_ledger import statement
from raysim.engine.privacy.release import check_patient_problem, check_sent
from raysim.engine.server.job_checks import check_job
from raysim.privacy import quick
from raysim.privacy.events import Gaussian, Laplace
from raysim.strategies.base import LocalProblem, LocalTraining, Objective, Proximal, Upload
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.traffic.ledger import Ledger
from tests.conftest import MakeFederation, job_of, run

PARAMETERS = PrivacyParameters(
    rounds=3, rate=0.5, hospitals=4, patients=(10, 0, 3), batch=4, epochs=2, left=4, fewest=3
)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([9, 4, 13, 7, 0, 6])


def section(**keys) -> PrivacySection:
    return PrivacySection(**{"noise_multiplier": 2.0, "delta": 1e-3} | keys)


def guaranteed(federation: Federation, strategy=None, job: dict | None = None, **keys) -> Job:
    made = job_of(federation, strategy or FedAvg(weights="uniform"), **job or {})
    return replace(made, privacy=section(**keys))


def test_the_noise_of_a_checked_job_is_calibrated_once(federation: Federation, monkeypatch) -> None:
    """Running it asks nothing again; with other rounds it would be another guarantee."""
    asked = guaranteed(federation, noise_multiplier=None, epsilon=8.0, job={"rounds": 3})
    checked = check_job(asked, federation)
    assert checked.privacy is not None
    counted: list[int] = []

    def counting(section: PrivacySection, parameters: PrivacyParameters) -> PrivacySection:
        counted.append(parameters.rounds)
        return resolved(section, parameters)

    monkeypatch.setattr(calibration, "resolved", counting)
    outcome = run(federation, checked, 2)
    assert counted == []
    assert outcome.privacy is not None
    assert outcome.privacy.noise_multiplier == checked.privacy.noise_multiplier
    np.testing.assert_array_equal(outcome.models, run(federation, asked, 1).models)
    counted.clear()
    longer = calibration.guarantee_of(replace(checked, privacy=asked.privacy, rounds=6), federation)
    assert counted == [6]
    assert longer is not None
    assert (longer.section.noise_multiplier or 0) > (checked.privacy.noise_multiplier or 0)
    with pytest.raises(ConfigError, match=r"privacy.noise_multiplier: .* keep one of the two"):
        calibration.guarantee_of(replace(checked, rounds=6), federation)


def test_units_are_sampled_into_as_many_steps_as_make_an_epoch() -> None:
    assert (PARAMETERS.units, PARAMETERS.rates, PARAMETERS.steps) == (13, (0.4, 1.0, 1.0), (6, 0, 2))
    whole = replace(PARAMETERS, batch=0)
    assert (whole.rates, whole.steps) == ((1.0, 1.0, 1.0), (2, 2, 2))
    assert replace(PARAMETERS, patients=()).units == 4


@pytest.mark.parametrize(
    ("keys", "secure", "seen"),
    [
        ({"mode": "local"}, False, dict.fromkeys(("outsider", "peer", "server"), (1.0, 1.0))),
        ({"mode": "central"}, False, {"outsider": (2.0, 0.5), "peer": (2.0, 0.5), "server": None}),
        (
            {"mode": "distributed"},
            True,
            {"outsider": (2.0, 0.5), "peer": (2.0 * math.sqrt(2 / 3), 0.5), "server": (2.0, 0.5)},
        ),
        (
            {"unit": "patient", "mode": "pooled", "rate": 0.1},
            False,
            {"outsider": (2.0, 0.1), "peer": (2.0 * math.sqrt(2 / 3), 0.1), "server": (2.0 * math.sqrt(1 / 4), 0.1)},
        ),
    ],
)
def test_what_an_adversary_sees_of_a_round(keys, secure, seen) -> None:
    for adversary, event in seen.items():
        parameters = replace(PARAMETERS, secure=secure)
        released = releases_of_updates(section(**keys), parameters, adversary, 2.0, 3)
        if event is None:
            assert released is None
            continue
        assert released is not None
        (gaussian,) = released
        assert (gaussian.multiplier, gaussian.rate, gaussian.count) == (pytest.approx(event[0]), event[1], 3)
        assert releases_of_updates(section(**keys), parameters, adversary, 2.0, 0) == []


def test_noise_beside_updates_by_its_kind() -> None:
    others = OtherReleases.of([Laplace(4.0, 3), Gaussian(2.0, 1.0, 5), Laplace(0.5)])
    assert (others.laplace, others.normal, others.left(5.0)) == (0.75 + 2.0, 5 / 4, 2.25)
    assert others.gaussians == (Gaussian(2.0, 1.0, 5),)


def test_each_hospital_spends_by_its_own_steps_and_one_without_patients_nothing() -> None:
    local = section(unit="patient", mode="local")
    others = [Laplace(4.0), Gaussian(3.0, 1.0, 2)]
    spent_by = by_hospital(local, PARAMETERS, np.array([3, 3, 2]), others)
    expected = [
        quick.epsilon(2.0, 0.4, 18, 1e-3, 2 / 9) + 0.25,
        0.0,
        quick.epsilon(2.0, 1.0, 4, 1e-3, 2 / 9) + 0.25,
    ]
    assert spent_by.tolist() == expected


def test_the_least_epsilon_is_of_hospitals_that_have_patients(federation: Federation) -> None:
    outcome = run(federation, guaranteed(federation, FedAvg(), unit="patient", mode="local"), 1)
    assert outcome.privacy is not None
    assert outcome.privacy.by_hospital is not None
    epsilon, noise = outcome.privacy.by_hospital["least"]
    assert epsilon == quick.epsilon(2.0, 4 / 13, 3 * 4, 1e-3, 0.0)
    assert noise == 2.0


@pytest.mark.parametrize(("rounds", "exposed"), [(0, False), (1, True)])
def test_the_server_sees_one_round_of_sums_as_well_as_many(federation: Federation, rounds: int, exposed: bool) -> None:
    ledger = Ledger()
    for round in range(rounds):
        ledger.add(round + 1, "update", np.arange(6), 4)
    guarantee = statement(job := guaranteed(federation), federation, ledger, guarantee_of(job, federation))
    assert guarantee is not None
    assert math.isinf(guarantee.covered["server"]) == exposed
    assert (guarantee.covered["outsider"] > 0) == exposed


def test_noise_on_bits_that_costs_the_whole_budget_is_refused(federation: Federation) -> None:
    with pytest.raises(ConfigError, match=r"^privacy.adaptive.bits: noise of 1 on .* set more than 1$"):
        check_job(guaranteed(federation, adaptive={"bits": 1.0}), federation)
    check_job(guaranteed(federation, adaptive={"bits": math.nextafter(1.0, 2.0)}), federation)
    with pytest.raises(ConfigError, match=r"set more than 1, or sample more hospitals \(now .* expected in a round\)$"):
        check_job(guaranteed(federation, adaptive={}), federation)
    assert bit_noise(section(adaptive={}).adaptive, 30.0) == 1.5


def test_the_largest_clip_is_taken_and_none_above_it(federation: Federation) -> None:
    job = guaranteed(federation)
    largest = largest_clip(parameters_of(job, federation), 2.0)
    assert (
        largest
        == largest_clip(replace(PARAMETERS, rate=1.0), 0.5) / 2
        == 2 * largest_clip(replace(PARAMETERS, rate=0.5), 2.0)
    )
    check_job(guaranteed(federation, clip=largest), federation)
    with pytest.raises(ConfigError, match=r"^privacy.clip: .* is more than sums can hold"):
        check_job(guaranteed(federation, clip=math.nextafter(largest, math.inf)), federation)


def test_a_step_of_pooled_gradients_is_as_long_as_the_problem_says(federation: Federation) -> None:
    class Faster(FedAvg):
        def problem(self, view, state, ids):
            return replace(super().problem(view, state, ids), training=LocalTraining(learning_rate=0.3))

    pooled = {"unit": "patient", "mode": "pooled", "rate": 0.5, "clip": 0.5}
    by_problem = run(federation, guaranteed(federation, Faster(), {"learning_rate": 0.1}, **pooled), 1).models
    as_configured = run(federation, guaranteed(federation, FedAvg(), {"learning_rate": 0.3}, **pooled), 1).models
    np.testing.assert_array_equal(by_problem, as_configured)


def test_noise_on_errors_needs_a_range_of_the_label() -> None:
    noisy = section(unit="patient", statistics={"metrics": {"epsilon": 1.0}})
    with pytest.raises(ValueError, match="only if its range is known"):
        figure_noise(noisy, 0)
    assert figure_noise(noisy, 2) is not None
    assert figure_noise(None, 2) is None
    assert len(left_out(noisy)) == 1
    assert left_out(section()) == left_out(None) == []


def test_a_sum_of_one_hospital_has_a_grid_as_wide_as_that_of_two() -> None:
    """Noise of 2 * .5 in one share is 12 deviations, and 12.5 with the clip: 2^7 - 1 steps of .1 hold it."""
    parameters = replace(PARAMETERS, patients=(), left=1)
    narrow, wide = (CompressionSection(name="grid", step=0.1, bits=bits) for bits in (7, 8))
    for fewest in (1, 2):
        check_grid(wide, section(clip=0.5), replace(parameters, fewest=fewest))
        with pytest.raises(ConfigError, match=r"messages with noise .* go up to 12.5; give 8, or"):
            check_grid(narrow, section(clip=0.5), replace(parameters, fewest=fewest))


IDS = np.zeros(2, np.int64)
PLAIN = LocalProblem(IDS, Upload(np.ones(2)))


@pytest.mark.parametrize(
    ("problem", "pooled", "contrasts", "why"),
    [
        (PLAIN, True, False, None),
        (LocalProblem(IDS), True, False, None),
        (LocalProblem(IDS, Upload(single=True)), False, False, None),
        (LocalProblem(IDS, Upload(single=True)), True, False, "sends each update separately"),
        (LocalProblem(IDS, Upload(np.ones((2, 2)), sums=2)), False, False, None),
        (LocalProblem(IDS, Upload(np.ones((2, 2)), sums=2)), True, False, "adds an update to several sums"),
        (LocalProblem(IDS - 2, Upload(np.ones(2))), True, False, "starts from models that stay at hospitals"),
        (LocalProblem(IDS - 2, Upload(np.ones(2))), False, False, None),
        (LocalProblem(IDS, Upload(np.ones(2), losses=True)), False, False, "sends hospitals' losses"),
        (replace(PLAIN, training=LocalTraining(carry=True)), False, False, "continues with an earlier optimiser"),
        (replace(PLAIN, training=LocalTraining(epochs=3)), False, False, "trains for more epochs than"),
        (replace(PLAIN, training=LocalTraining(epochs=np.array([0, 2]))), False, False, None),
        (replace(PLAIN, objective=Objective(frozen=np.ones(4, bool))), False, False, "freezes parameters"),
        (replace(PLAIN, objective=Objective(proximal=(Proximal(1.0, IDS),))), True, False, None),
    ],
)
def test_problems_whose_steps_cannot_be_made_noisy(problem, pooled, contrasts, why) -> None:
    if why is None:
        check_patient_problem(problem, "x", "patient", pooled=pooled, contrasts=contrasts, epochs=2)
        return
    with pytest.raises(ConfigError, match=f"because strategy 'x' {why}"):
        check_patient_problem(problem, "x", "patient", pooled=pooled, contrasts=contrasts, epochs=2)


@pytest.mark.parametrize(
    ("upload", "why"),
    [
        (None, None),
        (Upload(np.ones(2)), None),
        (Upload(), None),
        (Upload(single=True), "sends each update separately"),
        (Upload(np.ones(2), losses=True), "sends hospitals' losses"),
        (Upload(np.ones(2), what="parameters"), "sends whole models"),
        (Upload(np.ones((2, 2)), sums=2), "adds an update to several sums"),
    ],
)
def test_uploads_that_clipped_sums_are_not_enough_for(upload, why) -> None:
    if why is None:
        check_sent(LocalProblem(IDS, upload), "x")
        return
    with pytest.raises(ConfigError, match=f"^privacy.unit: strategy 'x' {why}"):
        check_sent(LocalProblem(IDS, upload), "x")
