"""Linear regression with random intercepts, against statsmodels' MixedLM (REML)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.config.sections.secure import SecureSection
from raysim.strategies.problem import Floats
from raysim.strategies.regressions.linear_mixed import Mixed, mixed, next_ratio
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.regressions.random_intercepts import RandomIntercepts
from tests.conftest import job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.regressions.federations import LINEAR_MODEL, federation_of
from tests.strategies.regressions.tables import table_g, table_t

T, G = table_t(), table_g()


def of_all(ratio: float) -> Mixed:
    parts = [mixed(G.X[G.hospital == h], G.real[G.hospital == h], ratio) for h in range(8)]
    return Mixed(*(np.sum([np.asarray(p[k]) for p in parts], axis=0) for k in range(4)))


def test_the_restricted_likelihood() -> None:
    tried: list[tuple[float, float]] = []
    while True:
        ratio, found = next_ratio(tried)
        fit = of_all(ratio).restricted(96)
        if found:
            break
        tried.append((ratio, fit.by_ratio))
    assert fit.value == pytest.approx(-115.5482940074, abs=1e-9)
    assert_allclose(fit.beta, (1.0102195982, 1.0605159236, -0.5529367328), atol=1e-9)
    # The variances are known to half as many digits, for the likelihood is flat around its maximum.
    assert fit.variance == pytest.approx(0.4499563348, abs=1e-8)
    assert fit.variance * ratio == pytest.approx(2.1284729863, abs=1e-6)
    assert_allclose(fit.se, (0.5203332, 0.0745518, 0.0875047), atol=1e-7)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 5.0])
def test_its_derivative_is_that_of_its_value(ratio: float) -> None:
    small = 1e-5
    above, below, far = (of_all(ratio + step).restricted(96).value for step in (small, -small, 2 * small))
    if ratio:
        numeric = (above - below) / (2 * small)
    else:
        numeric = (4 * above - 3 * of_all(0.0).restricted(96).value - far) / (2 * small)
    assert of_all(ratio).restricted(96).by_ratio == pytest.approx(numeric, rel=1e-4)


def intercepts(stored: dict[int, Floats]) -> list[float]:
    return [float(stored[h][-1]) for h in sorted(stored)]


@pytest.mark.parametrize("unit", [1.0, 2000.0])
def test_a_federation(tmp_path: Path, unit: float) -> None:
    federation = federation_of(tmp_path / "g", G, G.real * unit, 0)
    outcome = run_strategy(federation, RandomIntercepts(), rounds=40, model=LINEAR_MODEL)
    assert (outcome.facts["converged"], outcome.ended) == (1.0, True)
    beta = np.roll(outcome.models[0], 1)
    assert_allclose(beta / unit, (1.0102195982, 1.0605159236, -0.5529367328), atol=1e-9)
    between, within = (outcome.facts[name] / unit**2 for name in ("variance_between", "variance_within"))
    assert (between, within) == pytest.approx((2.1284729863, 0.4499563348), abs=1e-6)
    assert outcome.uncertainty is not None
    assert_allclose(np.roll(outcome.uncertainty.se, 1) / unit, (0.5203332, 0.0745518, 0.0875047), atol=1e-7)
    assert outcome.uncertainty.effect == "difference"
    # The best predictions: residuals' means, drawn to 0 by their reliability.
    left = np.array([(G.real - G.X @ (beta / unit))[G.hospital == h].mean() for h in range(8)])
    drawn = left * between / (between + within / 12)
    assert_allclose(np.array(intercepts(outcome.own_models)) / unit, beta[0] / unit + drawn, atol=1e-8)


def test_alike_hospitals_have_the_pooled_fit(tmp_path: Path) -> None:
    alike = G._replace(X=np.tile(T.X, (3, 1)), hospital=np.arange(108) // 36)
    federation = federation_of(tmp_path / "alike", alike, np.tile(T.real, 3), 0)
    outcome = run_strategy(federation, RandomIntercepts(), rounds=40, model=LINEAR_MODEL)
    assert (outcome.facts["variance_between"], outcome.rounds_run) == (0.0, 1)
    assert_allclose(outcome.models, run_strategy(federation, Newton(), rounds=20, model=LINEAR_MODEL).models, atol=1e-9)
    assert_allclose(intercepts(outcome.own_models), [outcome.models[0, -1]] * 3, atol=1e-12)


def test_neither_placement_nor_masks_change_a_bit(tmp_path: Path) -> None:
    federation = federation_of(tmp_path / "g", G, G.real, 0)
    job = job_of(federation, RandomIntercepts(), rounds=5, model=LINEAR_MODEL)
    alone = run(federation, job, 1)
    same_models(alone, run(federation, job, 8))
    same_models(alone, run(federation, replace(job, secure=SecureSection(mode="model")), 3))
