"""Meta-analysis, ODAL and ensembles over federations: the numbers of other programs, and what leaves a hospital."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.job_checks import check_job
from raysim.strategies.base import Rows
from raysim.strategies.regressions.ensemble import Ensemble
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.meta_analysis import MetaAnalysis
from raysim.strategies.regressions.newton_steps import fitted
from raysim.strategies.regressions.odal import LeadFit, Odal
from raysim.strategies.regressions.sums_program import upper
from tests.conftest import job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import LINEAR_MODEL, federation_of
from tests.strategies.regressions.tables import table_t

T = table_t()
OWN = np.array(
    [
        (-0.3735841502, 1.5642212930, -0.8787701998),
        (-0.0889273789, 2.6009767240, -3.0814067388),
        (1.2269033326, 2.1836158990, -1.0306266215),
    ]
)


def beta(outcome: Outcome) -> np.ndarray:
    return np.roll(outcome.models[0], 1)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return federation_of(tmp_path / "t", T, T.y)


def of_copies(folder: Path, copies: int) -> Federation:
    """Hospitals with every row of theirs so many times: the same fits, and enough rows for sums that are not hidden."""
    table = T._replace(X=np.repeat(T.X, copies, axis=0), hospital=np.repeat(T.hospital, copies))
    return federation_of(folder / "copies", table, np.repeat(T.y, copies))


def test_means_by_information(federation: Federation):
    outcome = run_strategy(federation, MetaAnalysis(local_fit="likelihood"))
    assert_allclose(beta(outcome), (0.1632951800, 1.5449320571, -1.0413610157), atol=1e-6)
    assert outcome.uncertainty is not None
    assert_allclose(np.roll(outcome.uncertainty.se, 1), (0.4541016972, 0.6466264625, 0.6624628135), atol=1e-6)
    assert outcome.rounds_run == 1
    assert outcome.facts["hospitals_left_out"] == 0


@pytest.mark.parametrize("combine", ["fixed", "random"])
def test_means_of_each_coefficient(federation: Federation, combine):
    outcome = run_strategy(federation, MetaAnalysis(combine=combine, local_fit="likelihood"))
    assert_allclose(beta(outcome), (0.1305694108, 1.9388695863, -1.2393487870), atol=1e-6)
    assert outcome.uncertainty is not None
    assert_allclose(np.roll(outcome.uncertainty.se, 1), (0.4745947504, 0.6871856780, 0.6807208536), atol=1e-6)
    assert outcome.facts["greatest_variance_between"] == 0


def test_random_effects_where_hospitals_differ(tmp_path: Path):
    """Three hospitals whose intercepts differ: DerSimonian and Laird's by hand."""
    X = np.column_stack([np.ones(120), np.tile([-1.0, 1.0], 60), np.tile([1.0, 1.0, -1.0, -1.0], 30)])
    share = np.repeat([0.2, 0.5, 0.85], 40)
    y = (np.tile(np.arange(40) * 17 % 40 / 40, 3) < share).astype(float)
    table = T._replace(X=X, y=y, hospital=np.repeat([0, 1, 2], 40))
    federation = federation_of(tmp_path / "d", table, y)
    fits = [fitted(LOGISTIC, *table.of(h)).beta for h in range(3)]
    v = np.array([np.diag(np.linalg.inv(LOGISTIC.sums(*table.of(h), fits[h]).hessian)) for h in range(3)])
    w, b = 1 / v, np.array(fits)
    mean = (w * b).sum(axis=0) / w.sum(axis=0)
    Q = (w * (b - mean) ** 2).sum(axis=0)
    between = np.maximum(Q - 2, 0) / (w.sum(axis=0) - (w**2).sum(axis=0) / w.sum(axis=0))
    again = 1 / (v + between)
    outcome = run_strategy(federation, MetaAnalysis(combine="random", local_fit="likelihood"))
    assert_allclose(beta(outcome), (again * b).sum(axis=0) / again.sum(axis=0), atol=1e-5)
    assert outcome.facts["greatest_variance_between"] == pytest.approx(between.max(), abs=1e-4)
    assert between.max() > 0.5


def test_hospitals_without_a_fit_are_left_out_and_counted(federation: Federation, tmp_path: Path):
    hospital = np.where(np.arange(36) < 3, 3, T.hospital)
    y = np.where(hospital == 1, 1.0, T.y)
    cut = federation_of(tmp_path / "cut", T._replace(hospital=hospital, y=y), y)
    for strategy in (MetaAnalysis(local_fit="likelihood"), Ensemble(local_fit="likelihood")):
        outcome = run_strategy(cut, strategy)
        assert outcome.facts["hospitals_left_out"] == 2
        assert np.isfinite(outcome.models).all()


LEADS = {
    (1, False): (0.2263191363, 1.8382595374, -1.2927015409),
    (2, False): (0.2099195763, 1.8331939925, -1.3155702845),
    (1, True): (-0.0198093499, 1.5688473880, -0.8344474787),
}


@pytest.mark.parametrize(("order", "robust"), LEADS)
def test_a_lead_fits_its_surrogate(federation: Federation, tmp_path: Path, order: int, robust: bool):
    federation = federation if not robust else of_copies(tmp_path, 3)
    how = "clear" if robust else "secure"
    outcome = run_strategy(federation, Odal(order=order, robust=robust, local_fit="likelihood", sums=how))
    assert_allclose(beta(outcome), LEADS[order, robust], atol=1e-5)
    assert outcome.facts == {"converged": 1.0}


@pytest.mark.parametrize("second", [True, False])
def test_a_lead_without_a_maximum_takes_one_step_or_none(second: bool):
    """The curvature of all hospitals is far below the lead's: nothing is concave beyond a step."""
    gradient, hessian = np.array([0.4, -0.5, 0.3]), 0.01 * np.eye(3)
    received = {"beta": np.zeros(3), "gradient": gradient, "hessian": upper(hessian), "lead": np.array(4)}
    at = SimpleNamespace(rows=Rows(T.X[:12, 1:], T.y[:12], None), received=received, hospital=4)
    reply = LeadFit(3, second).run(at)
    assert reply.sent["converged"] == 0.0
    assert_allclose(reply.sent["beta"], gradient / 0.01 if second else 0.0, rtol=1e-9)
    at.hospital = 3
    assert not LeadFit(3, second).run(at).sent["beta"].any()


def test_a_lead_with_all_rows_has_the_pooled_fit(tmp_path: Path):
    alone = federation_of(tmp_path / "one", T._replace(hospital=np.zeros(36, int)), T.y)
    outcome = run_strategy(alone, Odal())
    assert_allclose(beta(outcome), (0.2099782522, 1.8253260800, -1.3068987085), atol=1e-7)


def test_the_mean_of_log_odds_is_that_of_coefficients(federation: Federation):
    for combine in ("rows", "uniform"):
        outcome = run_strategy(federation, Ensemble(combine=combine, local_fit="likelihood"))
        assert_allclose(beta(outcome), OWN.mean(axis=0), atol=1e-8)
    X, y = T.X, T.y
    eta = X @ beta(outcome)
    assert float(np.mean(np.logaddexp(0, eta) - y * eta)) == pytest.approx(0.5019691835, abs=1e-8)


def test_stacked_weights(federation: Federation, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"stacked needs a hospital with at least 30 rows, .*; write combine: rows"):
        run_strategy(federation, Ensemble(combine="stacked"))
    outcome = run_strategy(of_copies(tmp_path, 3), Ensemble(combine="stacked", local_fit="likelihood"))
    weights = np.array([0.8598596073, 0.4490136194, 0.2407407751])
    assert_allclose(beta(outcome), weights @ OWN / weights.sum(), atol=1e-6)
    assert outcome.facts["greatest_weight"] == pytest.approx(weights[0] / weights.sum(), abs=1e-7)


def test_masks_change_no_bit_and_what_is_seen_by_itself_is_refused(federation: Federation):
    secure = SecureSection(mode="execute")
    for strategy in (MetaAnalysis(), Odal()):
        job = job_of(federation, strategy)
        same_models(run(federation, job, 1), run(federation, replace(job, secure=secure), 3))
    line = (
        r"^secure.mode: 'execute' hides what each hospital sends, and strategy .*, program 'coefficients' needs 'beta"
    )
    with pytest.raises(ConfigError, match=line):
        run(federation, replace(job_of(federation, Ensemble()), secure=secure), 1)
    with pytest.raises(ConfigError, match=r"robust: true needs each hospital's gradient, .*; leave secure out"):
        run(federation, replace(job_of(federation, Odal(robust=True, sums="clear")), secure=secure), 1)
    with pytest.raises(ValueError, match=r"^robust: true needs each hospital's gradient, .*; write sums: clear"):
        Odal(robust=True)


@pytest.mark.parametrize("strategy", [MetaAnalysis(), Odal(), Ensemble()], ids=lambda each: type(each).__name__)
def test_a_real_label_is_refused(strategy, tmp_path: Path):
    federation = federation_of(tmp_path / "r", T, T.real, 0)
    with pytest.raises(ConfigError, match="needs a label of two classes, but the label is a number; choose"):
        check_job(job_of(federation, strategy, model=LINEAR_MODEL), federation)
