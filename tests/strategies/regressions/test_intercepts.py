"""Shared slopes with own or random intercepts over federations: statsmodels' and gpboost's fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from raysim.config.plugins import construct
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.job_checks import check_job
from raysim.metrics.measures import FIGURES
from raysim.strategies.base import FederationView, State
from raysim.strategies.references.local import RIDGES, Local
from raysim.strategies.regressions.families import LOGISTIC, POISSON, Family
from raysim.strategies.regressions.left_out import shrunk
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.regressions.newton_steps import fitted
from raysim.strategies.regressions.own_intercepts import OwnIntercepts, OwnInterceptsState
from raysim.strategies.regressions.random_intercepts import RandomIntercepts
from tests.conftest import job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import LINEAR_MODEL, POISSON_MODEL, federation_of
from tests.strategies.regressions.tables import table_g, table_t

T, G = table_t(), table_g()


def se(outcome: Outcome) -> np.ndarray:
    assert outcome.uncertainty is not None
    return np.roll(outcome.uncertainty.se, 1)


def intercepts(outcome: Outcome) -> list[float]:
    """Of every hospital that has one, in order; the last parameter is the intercept."""
    return [float(outcome.own_models[h][-1]) for h in sorted(outcome.own_models)]


@pytest.fixture
def three(tmp_path: Path) -> Federation:
    return federation_of(tmp_path / "t", T, T.y)


@pytest.fixture
def eight(tmp_path: Path) -> Federation:
    return federation_of(tmp_path / "g", G, G.y)


def test_own_intercepts_are_dummies(three: Federation):
    outcome = run_strategy(three, OwnIntercepts(), rounds=20)
    assert outcome.rounds_run == 6
    assert_allclose(outcome.models[0, :2], (1.9375732528, -1.4273866334), atol=1e-9)
    assert_allclose(intercepts(outcome), (-0.4355150344, -0.0467167947, 1.1172113891), atol=1e-9)
    assert_allclose(se(outcome)[1:], (0.6693801792, 0.6635574228), atol=1e-9)
    assert outcome.facts == {
        "converged": 1.0,
        "separated": 0.0,
        "halvings": 0.0,
        "hospitals_left_out": 0.0,
        "loss": pytest.approx(16.7188885946),
    }
    assert outcome.models[0, 2] == pytest.approx(np.mean(intercepts(outcome)), abs=1e-9)
    sent = [(each.kind, each.sent.tolist()) for each in outcome.ledger.entries if each.program and each.round < 6]
    kinds = {"loss": 2, "gradient": 2, "hessian": 3, "intercepts": 1, "size": 1}
    assert sent == 5 * [(kind, 3 * [8 * numbers]) for kind, numbers in kinds.items()]
    assert outcome.rounds[0].bytes_down == 3 * (8 * 5 + 1)


def test_own_intercepts_of_a_number(tmp_path: Path):
    federation = federation_of(tmp_path / "r", T, T.real, 0)
    outcome = run_strategy(federation, OwnIntercepts(), rounds=20, model=LINEAR_MODEL)
    dummies = np.column_stack([np.eye(3)[T.hospital], T.X[:, 1:]])
    due, rss, *_ = np.linalg.lstsq(dummies, T.real, rcond=None)
    assert_allclose([*intercepts(outcome), *outcome.models[0, :2]], due, atol=1e-9)
    spread = np.sqrt(np.diag(np.linalg.inv(dummies.T @ dummies)) * rss / 31)
    assert_allclose(se(outcome)[1:], spread[3:], atol=1e-8)


def test_a_hospital_of_one_class_adds_nothing_and_is_served_the_mean(tmp_path: Path, three: Federation):
    more = np.concatenate([T.hospital, [3] * 5])
    table = T._replace(X=np.concatenate([T.X, T.X[:5]]), hospital=more, y=np.concatenate([T.y, np.ones(5)]))
    outcome = run_strategy(federation_of(tmp_path / "more", table, table.y), OwnIntercepts(), rounds=20)
    assert_allclose(outcome.models, run_strategy(three, OwnIntercepts(), rounds=20).models, atol=1e-11)
    assert outcome.facts["hospitals_left_out"] == 1
    assert set(outcome.own_models) == {0, 1, 2}
    # The mean is an intercept that somebody has fitted, so that it is judged there too.
    assert not any(untrained.any() for untrained in outcome.untrained.values())
    assert np.isfinite(outcome.figures["personal"][3, FIGURES.index("log_loss")])


def test_own_intercepts_of_counts_are_dummies(tmp_path: Path):
    counts = np.where(T.hospital == 1, 0.0, T.counts)
    federation = federation_of(tmp_path / "c", T, counts, 0)
    outcome = run_strategy(federation, OwnIntercepts(), rounds=20, model=POISSON_MODEL)
    some = T.hospital != 1  # the intercept of counts that are all 0 is not finite
    dummies = np.column_stack([np.eye(3)[T.hospital], T.X[:, 1:]])[some][:, [0, 2, 3, 4]]
    fit = fitted(POISSON, dummies, counts[some])
    assert_allclose(outcome.models[0, :2], fit.beta[2:], atol=1e-9)
    assert_allclose(np.array(intercepts(outcome)), fit.beta[:2], atol=1e-9)
    covariance = np.linalg.inv(POISSON.sums(dummies, counts[some], fit.beta).hessian)
    assert_allclose(se(outcome)[1:], np.sqrt(np.diag(covariance))[2:], atol=1e-9)
    assert outcome.facts["hospitals_left_out"] == 1.0
    alone = run_strategy(federation, Local(solve=True), rounds=2, model=POISSON_MODEL)
    best = shrunk(POISSON, *T._replace(y=counts).of(0), RIDGES).best
    assert_allclose(np.roll(alone.own_models[0], 1), best, atol=1e-9)


def test_separated_slopes_are_reported_and_a_ridge_bounds_them(tmp_path: Path):
    y = (T.X[:, 1] > 0).astype(float)
    federation = federation_of(tmp_path / "s", T, y)
    outcome = run_strategy(federation, OwnIntercepts(), rounds=60)
    assert (outcome.facts["separated"], outcome.facts["converged"], outcome.uncertainty) == (1.0, 0.0, None)
    assert outcome.ended
    held = run_strategy(federation, OwnIntercepts(ridge=1.0), rounds=60)
    assert (held.facts["separated"], held.facts["converged"]) == (0.0, 1.0)
    dummies = np.eye(3)[T.hospital]

    def loss(beta: np.ndarray) -> float:
        eta = dummies @ beta[:3] + T.X[:, 1:] @ beta[3:]
        return float(np.sum(np.logaddexp(0, eta) - y * eta) + beta[3:] @ beta[3:] / 2)

    best = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    assert_allclose([*intercepts(held), *held.models[0, :2]], best.x, atol=1e-5)


@dataclass(frozen=True)
class Far(OwnIntercepts):
    """Begins far from the optimum, from where whole steps overshoot."""

    def setup(self, view: FederationView) -> State:
        return OwnInterceptsState(models=view.initial[None].copy(), slopes=np.array([-6.0, 4.0]), step=np.zeros(2))


def test_a_step_that_is_too_long_is_halved(three: Federation):
    outcome, usual = run_strategy(three, Far(), rounds=25), run_strategy(three, OwnIntercepts(), rounds=25)
    assert outcome.facts["converged"] == 1.0
    assert outcome.facts["halvings"] > 2
    assert_allclose(outcome.models, usual.models, atol=1e-9)
    assert_allclose(intercepts(outcome), intercepts(usual), atol=1e-9)


def test_random_intercepts(eight: Federation):
    outcome = run_strategy(eight, RandomIntercepts(), rounds=60)
    assert (outcome.facts["converged"], outcome.facts["separated"]) == (1.0, 0.0)
    assert_allclose(np.roll(outcome.models[0], 1), (-0.1663947081, 1.3305525389, -1.0120204034), atol=1e-6)
    assert outcome.facts["variance_between"] == pytest.approx(2.8407519355, abs=1e-5)
    assert outcome.facts["log_likelihood"] == pytest.approx(-48.3294335522, abs=1e-9)
    assert_allclose(se(outcome), (0.6598690898, 0.3557266830, 0.4025127207), atol=1e-4)
    modes = (-2.1676489417, 0.8692620582, -0.5952710830, 2.2379837935, 0.5486840745, -1.7409146957, 1.5927376752, -0.71)
    found = np.array(intercepts(outcome)) - outcome.models[0, -1]
    assert_allclose(found[:7], modes[:7], atol=1e-5)
    assert outcome.rounds_run < 30


def test_alike_hospitals_have_the_pooled_slopes(tmp_path: Path):
    alike = G._replace(X=np.tile(T.X, (3, 1)), y=np.tile(T.y, 3), hospital=np.arange(108) // 36)
    federation = federation_of(tmp_path / "alike", alike, alike.y)
    outcome, pooled = (
        run_strategy(federation, RandomIntercepts(), rounds=60),
        run_strategy(federation, Newton(), rounds=20),
    )
    assert outcome.facts["variance_between"] < 1e-3
    assert (outcome.facts["converged"], outcome.facts["separated"]) == (1.0, 0.0)
    assert_allclose(outcome.models, pooled.models, atol=2e-3)


@pytest.mark.parametrize("strategy", [OwnIntercepts(), RandomIntercepts()], ids=lambda each: type(each).__name__)
def test_neither_placement_nor_masks_change_a_bit_and_models_have_private_intercepts(eight: Federation, strategy):
    job = job_of(eight, strategy, rounds=6)
    alone = run(eight, job, 1)
    same_models(alone, run(eight, job, 8))
    for mode in ("model", "execute"):
        same_models(alone, run(eight, replace(job, secure=SecureSection(mode=mode)), 3))
    assert alone.private is not None
    assert alone.private.tolist() == [False, False, True]


def test_coefficients_of_separated_classes_are_no_fit(tmp_path: Path):
    """A line separates the classes, so that the likelihood has no maximum."""
    apart = G._replace(y=(G.X[:, 1] > np.median(G.X[:, 1])).astype(float))
    outcome = run_strategy(federation_of(tmp_path / "apart", apart, apart.y), RandomIntercepts(), rounds=60)
    assert (outcome.facts["separated"], outcome.facts["converged"]) == (1.0, 0.0)
    assert outcome.rounds_run < 30
    assert np.isfinite(outcome.models).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_classes_that_are_separated_within_hospitals_are_no_fit(tmp_path: Path, seed: int):
    """Every hospital has its own threshold of one score: coefficients and the spread of intercepts grow together."""
    rng = np.random.default_rng(seed)
    hospital = np.repeat(np.arange(8), 15)
    X = np.column_stack([np.ones(120), rng.normal(size=(120, 2))])
    y = (X[:, 1] - X[:, 2] / 2 + rng.normal(size=8)[hospital] > 0).astype(float)
    federation = federation_of(tmp_path / "within", G._replace(X=X, y=y, hospital=hospital), y)
    outcome = run_strategy(federation, RandomIntercepts(), rounds=100)
    assert (outcome.facts["separated"], outcome.facts["converged"]) == (1.0, 0.0)
    assert np.abs(outcome.models).max() < 100
    held = run_strategy(federation, RandomIntercepts(ridge=1.0), rounds=100)
    assert (held.facts["separated"], held.facts["converged"]) == (0.0, 1.0)


@pytest.mark.parametrize(("family", "ridge"), [(LOGISTIC, 2.0), (POISSON, 2.0)])
def test_random_intercepts_maximise_laplaces_likelihood(tmp_path: Path, family: Family, ridge: float):
    """The likelihood is written apart, with the mode of each intercept by bisection, and maximised without gradients
    of it."""
    y = G.y if family is LOGISTIC else np.floor(np.abs(4 * G.real)) + G.y
    federation = federation_of(tmp_path / "g", G, y, 2 if family is LOGISTIC else 0)
    model = {} if family is LOGISTIC else {"model": POISSON_MODEL}
    outcome = run_strategy(federation, RandomIntercepts(ridge=ridge), rounds=80, **model)
    assert outcome.facts["converged"] == 1.0

    def loss(point: np.ndarray) -> float:
        beta, precision, total = point[:3], np.exp(-2 * point[3]), ridge * float(point[1:3] @ point[1:3]) / 2
        for h in range(8):
            eta, own = G.X[G.hospital == h] @ beta, y[G.hospital == h]
            low, high = -60.0, 60.0
            for _ in range(100):
                u = (low + high) / 2
                low, high = (u, high) if (own - family.mean(eta + u)).sum() > u * precision else (low, u)
            W = float(family.weight(family.mean(eta + u)).sum())
            total += float(family.loss(eta + u, own).sum()) + u**2 * precision / 2 + np.log1p(W / precision) / 2
        return total

    found = np.array([*np.roll(outcome.models[0], 1), np.log(outcome.facts["variance_between"]) / 2])
    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-7})
    assert_allclose(found, best.x, atol=2e-5)
    assert outcome.facts["log_likelihood"] == pytest.approx(
        -loss(found) + ridge * float(found[1:3] @ found[1:3]) / 2, abs=1e-8
    )
    # Standard errors: the inverse of the second derivatives, with the penalty's part taken out of the middle.
    steps = 1e-4 * np.eye(4)
    second = np.array(
        [[loss(found + a + b) - loss(found + a) - loss(found + b) + loss(found) for a in steps] for b in steps]
    )
    bread, weights = np.linalg.inv(second / 1e-8), np.diag([0, ridge, ridge, 0])
    spread = np.sqrt(np.diag(bread @ (second / 1e-8 - weights) @ bread))[:3]
    assert_allclose(se(outcome), spread, rtol=2e-3)


def test_penalties_that_random_intercepts_do_not_have_are_refused_in_a_line(tmp_path: Path):
    with pytest.raises(
        ConfigError, match=r"^strategy\.firth: 'auto' is a penalty that random_intercepts does not have"
    ):
        construct(RandomIntercepts, {"firth": "auto"}, "strategy")
    federation = federation_of(tmp_path / "r", G, G.real, 0)
    with pytest.raises(ConfigError, match=r"^strategy\.ridge: 1 is a penalty, but restricted maximum"):
        check_job(job_of(federation, RandomIntercepts(ridge=1.0), model=LINEAR_MODEL), federation)
