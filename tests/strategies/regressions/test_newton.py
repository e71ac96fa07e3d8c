"""Newton over federations: the fits of other programs on pooled rows, to the digits that they give."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError, HospitalFailed
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.job_checks import check_job
from raysim.strategies.base import Strategy, Training, Uncertainty
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import RIDGES, Local
from raysim.strategies.regressions import newton_steps
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.left_out import shrunk
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.regressions.newton_steps import fitted
from raysim.strategies.regressions.own_intercepts import OwnIntercepts
from raysim.strategies.regressions.random_intercepts import RandomIntercepts
from tests.conftest import MLP, job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import LINEAR_MODEL, POISSON_MODEL, federation_of
from tests.strategies.regressions.tables import SEPARATED, table_t

T = table_t()
POOLED = (0.2099782522, 1.8253260800, -1.3068987085)


def beta(values: np.ndarray) -> np.ndarray:
    """Intercept first, of parameters in the model's order."""
    return np.roll(values, 1)


def errors(outcome: Outcome) -> Uncertainty:
    assert outcome.uncertainty is not None
    return outcome.uncertainty


@pytest.fixture
def binary(tmp_path: Path) -> Federation:
    return federation_of(tmp_path / "t", T, T.y)


def test_logistic(binary: Federation):
    outcome = run_strategy(binary, Newton(), rounds=20)
    assert [row.round for row in outcome.rounds] == [1, 2, 3, 4, 5]
    assert_allclose(beta(outcome.models[0]), POOLED, atol=1e-9)
    found = errors(outcome)
    assert_allclose(beta(found.se), (0.4214956543, 0.6322417539, 0.6083514798), atol=1e-9)
    assert_allclose(beta(found.low), (-0.6161380, 0.5861550, -2.4992457), atol=1e-7)
    assert_allclose(beta(found.high), (1.0360946, 3.0644971, -0.1145517), atol=1e-7)
    assert_allclose(beta(found.se_robust), (0.4751718611, 0.2026311330, 0.5462898295), atol=2e-9)
    assert outcome.facts["loss"] == pytest.approx(17.9020417188, abs=1e-9)
    assert outcome.facts | {"converged": 1.0, "separated": 0.0, "columns_left_out": 0.0} == outcome.facts


def test_ridge(binary: Federation):
    outcome = run_strategy(binary, Newton(ridge=1.0), rounds=20)
    assert_allclose(beta(outcome.models[0]), (0.1555292713, 1.2736356377, -0.8223408821), atol=1e-9)
    assert_allclose(beta(errors(outcome).se), (0.3792800, 0.3885693, 0.3963999), atol=1e-7)


def test_firth(binary: Federation):
    outcome = run_strategy(binary, Newton(firth="always"), rounds=60)
    assert_allclose(beta(outcome.models[0]), (0.1810072179, 1.5914945346, -1.1323131879), atol=1e-9)
    assert outcome.facts["converged"] == 1.0


def test_a_step_beyond_all_weight_is_halved_under_firth(binary: Federation, monkeypatch: pytest.MonkeyPatch):
    """If all weights are 0, the information has no inverse, and no hospital is asked for Firth's gradient."""
    steps = itertools.chain([1e5], itertools.repeat(1.0))
    whole = newton_steps._step

    def too_long(*given: np.ndarray) -> np.ndarray | None:
        step = whole(*given)
        return None if step is None else step * next(steps)

    monkeypatch.setattr(newton_steps, "_step", too_long)
    outcome = run_strategy(binary, Newton(firth="always"), rounds=100)
    assert_allclose(beta(outcome.models[0]), (0.1810072179, 1.5914945346, -1.1323131879), atol=1e-9)
    assert outcome.facts["converged"] == 1.0
    assert outcome.facts["halvings"] > 10


def test_separated_classes_are_noticed_and_firth_fits_them(tmp_path: Path):
    X, y = SEPARATED
    three = T._replace(X=X, y=y, hospital=np.array([0, 0, 1]))
    federation = federation_of(tmp_path / "s", three, y)
    outcome = run_strategy(federation, Newton(), rounds=100)
    assert outcome.facts["separated"] == outcome.facts["converged"] == 1.0
    assert_allclose(beta(outcome.models[0]), (3.4789389141, 3.6620409622, -5.1268573471), atol=1e-8)
    fit = run_strategy(federation, Newton(firth="never"), rounds=100)
    assert (fit.facts["separated"], fit.facts["converged"]) == (1.0, 0.0)
    assert fit.uncertainty is None


def test_poisson(tmp_path: Path):
    federation = federation_of(tmp_path / "c", T, T.counts, 0)
    job = job_of(federation, Newton(family="poisson"), rounds=20, model=POISSON_MODEL, predictions=True)
    check_job(job, federation)
    outcome = run(federation, job, 2)
    assert len(outcome.rounds) == 6
    assert_allclose(beta(outcome.models[0]), (1.0023244381, 0.0033834491, 0.0658350992), atol=1e-9)
    assert_allclose(beta(errors(outcome).se), (0.1010293935, 0.1165483796, 0.1379642128), atol=1e-9)
    assert outcome.facts["dispersion"] == pytest.approx(0.7446864955, abs=1e-9)
    assert outcome.facts["deviance"] == pytest.approx(27.8051304375, abs=1e-9)
    counted = T.counts[T.counts > 0]
    baseline = 2 * (counted @ np.log(counted / T.counts.mean()))
    assert outcome.facts["deviance_of_the_mean"] == pytest.approx(baseline, abs=1e-8)
    means = np.exp(T.X @ beta(outcome.models[0]))
    assert_allclose(outcome.predictions["global"][:12], means[:12], rtol=1e-12)
    assert outcome.rounds[-1].training_loss == pytest.approx(np.mean(means - T.counts * np.log(means)), abs=1e-9)
    fractions = federation_of(tmp_path / "fractions", T, T.counts + 0.5, 0)
    with pytest.raises(HospitalFailed, match=r"data\.label: family poisson needs whole numbers of at least 0"):
        run_strategy(fractions, Newton(family="poisson"), model=POISSON_MODEL)
    assert_allclose(
        run_strategy(federation, Newton(), rounds=20, model=POISSON_MODEL).models, outcome.models, rtol=0, atol=0
    )
    for family, model in (("poisson", LINEAR_MODEL), ("linear", POISSON_MODEL)):
        with pytest.raises(
            ConfigError, match=rf"strategy\.family: '{family}' does not fit, because the label .* use \w+: \w+"
        ):
            check_job(job_of(federation, Newton(family=family), model=model), federation)
    with pytest.raises(
        HospitalFailed, match="counts are fitted without steps of gradient descent; choose a strategy for regressions"
    ):
        run_strategy(federation, FedAvg(), model=POISSON_MODEL)


def test_linear(tmp_path: Path):
    federation = federation_of(tmp_path / "t", T, T.real, 0)
    outcome = run_strategy(federation, Newton(), rounds=20, model=LINEAR_MODEL)
    assert len(outcome.rounds) == 2
    assert_allclose(beta(outcome.models[0]), (1.0079187896, 1.1471332877, -0.6013655179), atol=1e-9)
    assert_allclose(beta(errors(outcome).se), (0.1791668694, 0.2060785416, 0.2461664597), atol=1e-9)
    assert outcome.facts["dispersion"] == pytest.approx(1.1532755425, abs=1e-9)


@pytest.mark.parametrize("unit", [2.0**-30, 100.0, 1e6])
def test_a_label_has_the_same_fit_in_any_unit(tmp_path: Path, unit: float):
    federation = federation_of(tmp_path / "t", T, T.real * unit, 0)
    dummies = np.column_stack([T.X[:, 1:], np.eye(3)[T.hospital]])
    own = np.linalg.lstsq(dummies, T.real, rcond=None)[0][:2]
    for strategy, slopes in ((Newton(), (1.1471332877, -0.6013655179)), (OwnIntercepts(), own)):
        outcome = run_strategy(federation, strategy, rounds=20, model=LINEAR_MODEL)
        assert_allclose(outcome.models[0][:2] / unit, slopes, rtol=1e-8)
        assert outcome.facts["converged"] == 1.0
        assert np.isfinite(errors(outcome).se[:2]).all()
    newton = run_strategy(federation, Newton(), rounds=20, model=LINEAR_MODEL)
    assert_allclose(beta(errors(newton).se) / unit, (0.1791668694, 0.2060785416, 0.2461664597), rtol=1e-8)
    assert newton.facts["dispersion"] / unit**2 == pytest.approx(1.1532755425, rel=1e-8)


def test_large_counts_have_the_same_slopes(tmp_path: Path):
    federation = federation_of(tmp_path / "c", T, T.counts * 30_000, 0)
    outcome = run_strategy(federation, Newton(family="poisson"), rounds=40, model=POISSON_MODEL)
    assert_allclose(beta(outcome.models[0]), (1.0023244381 + np.log(30_000), 0.0033834491, 0.0658350992), atol=1e-9)
    assert outcome.facts["deviance"] / 30_000 == pytest.approx(27.8051304375, rel=1e-9)


@pytest.mark.parametrize(
    "strategy", [Newton(), OwnIntercepts(), RandomIntercepts()], ids=lambda each: type(each).__name__
)
def test_columns_that_are_too_large_for_the_grid_are_refused(tmp_path: Path, strategy):
    wide = T._replace(X=T.X * [1, 1e4, 1])
    with pytest.raises(HospitalFailed, match=r"data\.preprocessing: a column is too large .* set standard"):
        run_strategy(federation_of(tmp_path / "x", wide, T.y), strategy)


def test_neither_placement_nor_masks_change_a_bit(binary: Federation):
    job = job_of(binary, Newton(), rounds=20)
    alone = run(binary, job, 1)
    for actors in (2, 3):
        same_models(alone, run(binary, job, actors))
    for mode in ("model", "execute"):
        hidden = replace(job, secure=SecureSection(mode=mode))
        check_job(hidden, binary)
        masked = run(binary, hidden, 2)
        same_models(alone, masked)
        assert_allclose(errors(masked).se_robust, errors(alone).se_robust, rtol=0, atol=0)


def test_one_hospital_has_its_own_fit_and_no_errors_over_hospitals(tmp_path: Path):
    alone = federation_of(tmp_path / "one", T._replace(hospital=np.zeros(36, int)), T.y)
    outcome = run_strategy(alone, Newton(), rounds=20)
    assert_allclose(beta(outcome.models[0]), fitted(LOGISTIC, T.X, T.y).beta, atol=1e-10)
    assert np.isnan(errors(outcome).se_robust).all()


def test_a_hospital_cut_in_two_changes_only_errors_over_hospitals(binary: Federation, tmp_path: Path):
    cut = np.where(np.arange(36) < 6, 3, T.hospital)
    two, one = (
        run_strategy(federation_of(tmp_path / "cut", T._replace(hospital=cut), T.y), Newton(), rounds=20),
        run_strategy(binary, Newton(), rounds=20),
    )
    assert_allclose(two.models, one.models, atol=1e-11)
    assert_allclose(errors(two).se, errors(one).se, atol=1e-11)
    assert np.abs(errors(two).se_robust - errors(one).se_robust).min() > 0.01


def test_columns_that_say_nothing_leave(tmp_path: Path):
    X = np.column_stack([T.X, T.X[:, 1], np.full(36, 2.0)])
    outcome = run_strategy(federation_of(tmp_path / "more", T._replace(X=X), T.y), Newton(), rounds=20)
    assert_allclose(beta(outcome.models[0]), (*POOLED, 0, 0), atol=1e-9)
    assert outcome.facts["columns_left_out"] == 2
    assert np.isnan(beta(errors(outcome).se)[3:]).all()


def test_what_ends_by_itself_is_not_called_untrained(binary: Federation):
    exact, few = run_strategy(binary, Newton(), rounds=20), run_strategy(binary, FedAvg(), rounds=5)
    assert (exact.ended, exact.convergence) == (True, None)
    assert not few.ended
    assert few.convergence is not None
    assert run_strategy(binary, Newton(), rounds=3).convergence is not None


def test_hospitals_are_asked_until_it_is_done_and_sums_are_counted(binary: Federation):
    outcome = run_strategy(binary, Newton(), rounds=20)
    up = [row.bytes_up for row in outcome.rounds]
    assert up[:4] == [3 * 8 * (1 + 3 + 6)] * 4
    assert up[4] == 3 * 8 * (1 + 3 + 6) + 3 * 8 * (1 + 3 + 6 + 6 + 1 + 3)
    assert outcome.rounds[0].bytes_down == 3 * 8 * 3
    assert outcome.called is not None
    assert outcome.called.tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("strategy", "model", "line"),
    [
        (Newton(), MLP, "model.name: newton fits a regression .* and the model has layers; use logistic_regression"),
        (Newton(family="poisson"), None, "strategy.family: 'poisson' does not fit, because the label has 2"),
    ],
)
def test_what_it_does_not_fit_is_said_before_anything_starts(binary: Federation, strategy, model, line: str):
    with pytest.raises(ConfigError, match=line):
        check_job(job_of(binary, strategy, model=model), binary)


def test_three_classes_are_refused(federate):
    federation = federate([9, 9], classes=3)
    with pytest.raises(ConfigError, match=r"strategy.name: newton needs a label of two classes or a number, but"):
        check_job(job_of(federation, Newton()), federation)
    with pytest.raises(ValueError, match="firth: 'always' is for logistic regression without ridge"):
        Newton(firth="always", ridge=1.0)


def test_pooled_rows_solved_to_convergence_are_the_same_fit(binary: Federation):
    outcome, federated = (
        run_strategy(binary, Centralized(solve=True), rounds=20),
        run_strategy(binary, Newton(), rounds=20),
    )
    assert_allclose(outcome.models, federated.models, atol=1e-11)
    assert_allclose(errors(outcome).se, errors(federated).se, atol=1e-10)
    assert np.isnan(errors(outcome).se_robust).all()
    assert outcome.ledger.sent(1) == 0
    assert {kind for _, kind, _, _, _ in outcome.ledger.entries} == {"size", "rows", "metrics"}


def test_hospitals_solve_their_own_regressions(binary: Federation, tmp_path: Path):
    outcome = run_strategy(binary, Local(solve=True), rounds=20)
    assert outcome.rounds_run == 1
    assert outcome.ledger.sent(1) == 0
    for h in range(3):
        X, y = T.of(h)
        ridge = RIDGES[int(shrunk(LOGISTIC, X, y, RIDGES).loss.argmin())]
        assert_allclose(beta(outcome.own_models[h]), fitted(LOGISTIC, X, y, ridge=ridge).beta, atol=1e-9)
    first = np.isin(np.arange(36), (0, 2, 4))
    few = federation_of(tmp_path / "few", T._replace(hospital=np.where(first, 3, T.hospital)), T.y)
    of_one_class = beta(run_strategy(few, Local(solve=True), rounds=2).own_models[3])
    assert_allclose(of_one_class, (np.log(0.5 / 3.5), 0, 0), atol=1e-7)
    with pytest.raises(ConfigError, match=r"model\.name: local with solve fits a regression"):
        check_job(job_of(binary, Local(solve=True), model=MLP), binary)


@pytest.mark.parametrize(
    ("strategy", "columns", "noisy"),
    [(Newton(), 5001, False), (Newton(), 1001, True), (OwnIntercepts(), 20_000, False)],
)
def test_a_table_too_wide_for_second_derivatives_is_refused(strategy: Strategy, columns: int, noisy: bool):
    def training(columns: int) -> Training:
        return Training({"weight": slice(0, columns), "bias": slice(columns, columns + 1)}, "sgd", noisy=noisy)

    with pytest.raises(ValueError, match=rf"^strategy.name: \w+ makes a matrix of {columns:,} by {columns:,} columns"):
        strategy.check_training(training(columns))
    strategy.check_training(training(1000))
    Newton(solver="lbfgs", ridge=1.0).check_training(replace(training(columns), noisy=False))
