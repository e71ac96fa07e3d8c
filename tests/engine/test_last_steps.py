"""What follows the last round whatever the strategy: fine-tuning equals that of strategies that do it themselves, and
recalibration serves one more model, from validation rows alone, whose ranks are those of the model before it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from raysim.config.sections.evaluation import ClinicalSection, EvaluationSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.engine.server.job_checks import check_job
from raysim.statistics.clinical.recalibration import UNTRAINED, estimated_prior, fit, rows_of
from raysim.statistics.clinical.recalibration_benefit import from_counts
from raysim.strategies.base import OWN
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.shared.personalization import RECALIBRATED, LastSteps, Personalization, Recalibration
from raysim.traffic.ledger import MEASURED, RECALIBRATION
from tests.conftest import MakeFederation, job_of, run_strategy

TRAIN, TEST, VALIDATION = [30, 20, 12, 25, 40], [60, 40, 15, 30, 50], [20, 20, 0, 4, 16]
EB = LastSteps(recalibration=Recalibration())
TUNED = Personalization(2, 0.05)


def steps(method: str) -> LastSteps:
    return LastSteps(recalibration=Recalibration(method=method))


@pytest.mark.parametrize("method", ["eb", "intercept", "logistic", "closed"])
def test_shifts_are_those_of_validation_rows(method, federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    outcome = run_strategy(federation, FedAvg(), last=steps(method), predictions=True, actors=2)
    z, held = outcome.predictions["global"], [federation.rows(h, "validation") for h in range(5)]
    offsets = np.concatenate([[0], np.cumsum(VALIDATION)])
    rows = rows_of(np.concatenate([z[r] for r in held]), np.concatenate([federation.y[r] for r in held]), offsets)
    prior = estimated_prior(from_counts(outcome.validation_scores["global"])) if method == "eb" else None
    shifts, found = fit(rows, method, prior), outcome.recalibrated
    assert found is not None
    assert found.of == "global"
    assert found.prior == prior
    assert np.allclose(found.shifts.intercept, shifts.intercept, atol=1e-9)
    assert np.allclose(found.shifts.slope, shifts.slope, atol=1e-9)
    assert found.shifts.reason.tolist() == shifts.reason.tolist()
    assert found.rows.tolist() == VALIDATION
    if prior is not None:
        assert found.shifts.intercept[2] == prior.mean  # no rows: the mean of all
    # Every row of every part is shifted, and nothing else is.
    whole = np.repeat(np.arange(5), federation.totals)
    assert np.array_equal(
        outcome.predictions[RECALIBRATED], found.shifts.intercept[whole] + found.shifts.slope[whole] * z
    )


@pytest.mark.parametrize(
    "strategy", [FedAvg(), QFedAvg(), Ditto(), FedPer(), Clustered(clusters=2), Local(), FineTuning(), Centralized()]
)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_ranks_within_hospitals_stay_and_it_is_the_headline_model(strategy, precision, federate) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    plain = run_strategy(federation, strategy, rounds=2, precision=precision)
    outcome = run_strategy(federation, strategy, rounds=2, precision=precision, last=steps("intercept"))
    assert list(outcome.figures) == [*plain.figures, RECALIBRATED]
    assert list(outcome.metrics) == list(outcome.figures) == list(outcome.serve)
    before, after = outcome.figures[list(plain.figures)[-1]], outcome.figures[RECALIBRATED]
    assert np.array_equal(before[:, 2:4], after[:, 2:4], equal_nan=True)
    assert not np.array_equal(before[:, 4], after[:, 4], equal_nan=True)
    model = outcome.recalibrated.of
    assert all(map(np.array_equal, outcome.pairs[model], outcome.pairs[RECALIBRATED]))
    assert np.array_equal(outcome.sketches[model], outcome.sketches[RECALIBRATED])
    # All that a run without it has is the same, bit for bit.
    assert np.array_equal(plain.models, outcome.models)
    for name, figures in plain.figures.items():
        assert np.array_equal(figures, outcome.figures[name], equal_nan=True)


def test_observed_equals_expected_on_the_fitting_rows(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    outcome = run_strategy(federation, FedAvg(), last=steps("intercept"), predictions=True)
    for h in np.flatnonzero(outcome.recalibrated.shifts.reason == ""):
        rows = federation.rows(int(h), "validation")
        assert expit(outcome.predictions[RECALIBRATED][rows]).sum() == pytest.approx(federation.y[rows].sum(), abs=1e-7)


@pytest.mark.parametrize("clinical", [ClinicalSection(), None])
def test_its_cost_is_in_the_ledger_and_in_the_last_round(clinical, federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    plain, outcome = (run_strategy(federation, FedAvg(), last=last, clinical=clinical) for last in (LastSteps(), EB))
    counts = outcome.validation_scores["global"]
    paid = [(t, b.tolist()) for t, kind, _, b, _ in outcome.ledger.entries if kind == RECALIBRATION]
    assert paid == [(3, (4 * counts.scalars).tolist())]
    assert outcome.traffic.up == plain.traffic.up + 4 * counts.scalars.sum()
    assert outcome.traffic.down == plain.traffic.down + 8 * 5
    assert outcome.ledger.sent_by_round() == {
        0: outcome.setup.up,
        **{row.round: row.bytes_up for row in outcome.rounds},
    }
    # The counts that the server needs are not sent a second time.
    evaluations = sum(kind == MEASURED for _, kind, _, _, _ in outcome.ledger.entries)
    before = sum(kind == MEASURED for _, kind, _, _, _ in plain.ledger.entries)
    assert evaluations - before == (1 if clinical else 0)
    assert outcome.facts["recalibration_rows"] == sum(VALIDATION)


def test_a_run_without_rounds_pays_in_its_set_up_and_has_nothing_to_recalibrate(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    plain, outcome = (run_strategy(federation, FedAvg(), last=last, rounds=0) for last in (LastSteps(), EB))
    assert outcome.setup.up == plain.setup.up
    assert outcome.setup.down == plain.setup.down + 8 * 5
    assert outcome.recalibrated.shifts.unchanged.all()
    assert set(outcome.recalibrated.shifts.reason) == {UNTRAINED}
    assert outcome.facts["recalibration_rows"] == 0


def test_a_model_that_nobody_trained_stays_undefined(federate: MakeFederation) -> None:
    federation = federate([30, 0, 12], [60, 40, 15], validation=[20, 20, 8])
    outcome = run_strategy(federation, Local(), last=EB)
    assert outcome.untrained[RECALIBRATED].tolist() == [False, True, False]
    assert np.isnan(outcome.figures[RECALIBRATED][1, 2:]).all()
    assert outcome.recalibrated.shifts.reason.tolist() == ["", UNTRAINED, ""]
    assert outcome.recalibrated.rows.tolist() == [20, 0, 8]
    assert outcome.validation_scores["personal"].rows.tolist() == [20, 0, 8]


def test_processes_change_nothing(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    one, four = (run_strategy(federation, FedAvg(), last=EB, actors=actors) for actors in (1, 4))
    assert np.array_equal(one.figures[RECALIBRATED], four.figures[RECALIBRATED], equal_nan=True)
    assert np.array_equal(one.recalibrated.shifts.intercept, four.recalibrated.shifts.intercept)


def test_test_labels_change_no_shift(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    one = run_strategy(federation, FedAvg(), last=EB)
    y = np.array(federation.y)
    for h in range(5):
        y[federation.rows(h, "test")] ^= 1
    np.save(federation.folder / "y.npy", y)
    other = run_strategy(type(federation).open(str(federation.folder)), FedAvg(), last=EB)
    assert np.array_equal(one.recalibrated.shifts.intercept, other.recalibrated.shifts.intercept)
    assert not np.array_equal(one.figures[RECALIBRATED], other.figures[RECALIBRATED], equal_nan=True)


def test_any_strategy_fine_tunes_as_the_one_does_that_is_called_so(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    own = run_strategy(federation, FineTuning(mu=0, personalization=TUNED), actors=2)
    other = run_strategy(federation, FedAvg(), last=LastSteps(TUNED), actors=2)
    assert list(own.figures) == list(other.figures) == ["global", "personal"]
    for model, figures in own.figures.items():
        assert np.array_equal(figures, other.figures[model], equal_nan=True)
    assert [row.bytes_up for row in own.rounds] == [row.bytes_up for row in other.rounds]
    assert all(np.array_equal(theta, other.own_models[hospital]) for hospital, theta in own.own_models.items())
    assert (other.serve["personal"] == OWN).all()


def test_fine_tuning_comes_before_recalibration(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    outcome = run_strategy(federation, FedAvg(), last=LastSteps(TUNED, Recalibration()))
    assert list(outcome.figures) == ["global", "personal", RECALIBRATED]
    assert outcome.recalibrated.of == "personal"
    assert np.array_equal(outcome.figures["personal"][:, 2], outcome.figures[RECALIBRATED][:, 2], equal_nan=True)


@pytest.mark.parametrize("strategy", [Ditto(), FedPer(), Local()])
def test_models_that_the_server_does_not_have_are_not_fine_tuned(strategy, federate) -> None:
    with pytest.raises(ConfigError, match=r"^strategy.personalization: the models of strategy '\w+' belong to hosp"):
        run_strategy(federate(TRAIN, TEST), strategy, last=LastSteps(TUNED))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": PrivacySection(unit="hospital", epsilon=1.0)}, "strategy.personalization: recalibrate fits"),
        ({"secure": SecureSection()}, "strategy.personalization.method: 'eb' reads each"),
        ({"evaluation": EvaluationSection(part="validation")}, "evaluation.part: validation rows cannot evaluate"),
    ],
)
def test_refused_before_anything_starts(changes, message, federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    with pytest.raises(ConfigError, match=message):
        check_job(replace(job_of(federation, FedAvg(), last=EB), **changes), federation)


def test_refused_without_validation_rows_and_for_other_labels(federate: MakeFederation) -> None:
    without = federate(TRAIN, TEST)
    with pytest.raises(ConfigError, match=r"no hospital has validation rows, on which recalibrate is fitted"):
        check_job(job_of(without, FedAvg(), last=EB), without)
    three = federate(TRAIN, TEST, validation=VALIDATION, classes=3)
    with pytest.raises(ConfigError, match=r"two classes\), but this model predicts 3 classes"):
        check_job(job_of(three, FedAvg(), last=EB), three)


def test_secure_sums_allow_what_sends_nothing(federate: MakeFederation) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    check_job(replace(job_of(federation, FedAvg(), last=steps("closed")), secure=SecureSection()), federation)


def test_a_regression_that_hides_its_sums_unasked_is_recalibrated_by_default(federate: MakeFederation) -> None:
    """The answer of a comparison with a regression proposes ``recalibrate=both``."""
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    check_job(replace(job_of(federation, Newton(), last=steps("eb")), secure=SecureSection()), federation)
