"""Noise on the sums of client programs, and Newton's steps from them: bounds, epsilon, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.privacy.bounding import shortened as bounded_rows
from raysim.engine.privacy.program_release import ProgramRelease
from raysim.engine.server.job_checks import check_job
from raysim.privacy import accountant
from raysim.privacy.events import Gaussian
from raysim.strategies.base import Bound, Calls, FederationView, Needs, Noise, State
from raysim.strategies.regressions import noisy_newton
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.regressions.newton_steps import fitted
from raysim.strategies.regressions.noisy_newton import FREE, BoundedSums, floor, scaled, shortened, stepped
from tests.conftest import MakeFederation, job_of, run, with_patients
from tests.engine.probing import BoundedSums as Bounded
from tests.engine.probing import Means, Probe
from tests.strategies.regressions.federations import LINEAR_MODEL, federation_of
from tests.strategies.regressions.tables import table_t

T = table_t()


def private(federation: Federation, strategy: Any, rounds: int = 4, secure: bool = False, **keys: Any) -> Job:
    """A job with noise for patients."""
    section = PrivacySection(**({"unit": "patient", "mode": "pooled", "delta": 1e-3, "clip": 3.0} | keys))
    job = replace(job_of(federation, strategy, rounds=rounds), privacy=section)
    return replace(job, secure=SecureSection(mode="execute")) if secure else job


def run_once(federation: Federation, job: Job, actors: int = 1) -> Outcome:
    check_job(job, federation)
    return run(federation, job, actors)


@pytest.fixture
def binary(tmp_path) -> Federation:
    return federation_of(tmp_path / "t", T, T.y)


def test_with_the_golden_ratio_the_hessian_is_free() -> None:
    a = np.linspace(0, 1, 100_001)

    def longest(cR: float) -> float:
        return float((a * np.sqrt(1 + cR**2 * (1 - a) ** 2)).max())

    assert_allclose(FREE, 3.3302, atol=5e-5)
    assert longest(FREE) <= 1 + 1e-12
    assert_allclose(longest(3.4), 1.0131, atol=5e-5)


@given(seed=st.integers(0, 2**16), length=st.floats(0.1, 30), scale=st.floats(0.01, 100))
def test_a_row_adds_no_more_than_the_bound(seed: int, length: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    X, y = shortened(scale * rng.normal(size=(30, 4)), length), rng.integers(2, size=30)
    mu = LOGISTIC.mean(X @ rng.normal(scale=5 / length, size=4))
    row, column = np.triu_indices(4)
    hessian = X[:, row] * X[:, column] * scaled(4, length) * LOGISTIC.weight(mu)[:, None]
    added = np.hstack([X * (y - mu)[:, None], hessian])
    assert np.linalg.norm(added, axis=1).max() <= length * (1 + 1e-12)
    assert_allclose(bounded_rows(added, length), added, rtol=1e-12)


@pytest.mark.parametrize(
    ("calls", "multiplier"), [(4, 7.4613), (6, 9.1381), (20, 16.6839), (30, 20.4335), (60, 28.8973)]
)
def test_the_noise_of_so_many_calls_at_epsilon_1(calls: int, multiplier: float) -> None:
    found = accountant.calibrated(lambda z: [Gaussian(z, 1.0, calls)], 1.0, 1e-5)
    assert_allclose(found, multiplier, atol=2e-4)


def test_the_floor_is_about_the_greatest_eigenvalue_of_the_noise() -> None:
    p, rng = 31, np.random.default_rng(0)
    norms = []
    for _ in range(50):
        noise = np.zeros((p, p))
        noise[np.triu_indices(p)] = rng.normal(size=p * (p + 1) // 2) / np.where(
            np.equal(*np.triu_indices(p)), 1, 2**0.5
        )
        norms.append(np.abs(np.linalg.eigvalsh(noise + np.triu(noise, 1).T)).max())
    of_formula = floor(Noise(2.0, 1.0), p) / (2.0**2 / FREE)
    assert_allclose((np.mean(norms), of_formula), (7.5, 7.9), atol=0.15)
    assert max(norms) < 1.1 * of_formula


def test_without_noise_the_steps_end_at_the_fit_of_shortened_rows(binary: Federation) -> None:
    outcome = run_once(binary, private(binary, Newton(), rounds=12, noise_multiplier=0.0, declared_public=("sizes",)))
    expected = fitted(LOGISTIC, shortened(T.X, 3.0), T.y).beta
    assert np.linalg.norm(T.X, axis=1).max() < 3.0
    assert_allclose(np.roll(outcome.models[0], 1), expected, atol=1e-5)
    close = run_once(binary, private(binary, Newton(), rounds=12, noise_multiplier=0.0, clip=1.5))
    assert_allclose(np.roll(close.models[0], 1), fitted(LOGISTIC, shortened(T.X, 1.5), T.y).beta, atol=1e-5)
    assert outcome.uncertainty is None


def test_epsilon_is_that_of_one_noisy_sum_a_round(binary: Federation) -> None:
    job = private(binary, Newton(), rounds=4, epsilon=1.0, declared_public=("sizes", "metrics"))
    outcome = run_once(binary, job)
    statement = outcome.privacy
    assert statement is not None
    z = statement.noise_multiplier
    assert z is not None
    assert_allclose(accountant.epsilon([Gaussian(z, 1.0, 4)], 1e-3), 1.0, rtol=1e-4)
    assert_allclose(statement.epsilons["outsider"], 1.0, rtol=1e-4)
    assert statement.epsilons["server"] > 1.5  # without secure aggregation it sees each share of the noise alone
    assert statement.covers == ("update",)
    assert not statement.not_private
    assert_allclose(statement.at_two_hospitals, accountant.epsilon([Gaussian(z / 2, 1.0, 4)], 1e-3))
    hidden = run_once(binary, replace(job, secure=SecureSection(mode="execute")))
    assert hidden.privacy is not None
    assert_allclose(hidden.privacy.epsilons["server"], 1.0, rtol=1e-4)
    assert_allclose(hidden.models, outcome.models)
    assert_allclose(run_once(binary, job, actors=3).models, outcome.models, rtol=0, atol=0)


def test_shares_add_up_to_the_noise_of_the_sum() -> None:
    program = BoundedSums(3, 5.0)
    layout, hospitals, z = SumLayout(program), 40, 2.0
    each = [ProgramRelease("patient", 1, z / hospitals**0.5, "seeded", 1, t) for t in range(300)]
    sums = np.array([[release.units(program, layout, h) for h in range(hospitals)] for release in each]).sum(axis=1)
    assert (sums[:, -1] == 0).all()  # how many hospitals answered is public
    drawn = sums[:, :-1] * 2.0**-noisy_newton.BITS
    assert_allclose(drawn.std(axis=0), z * 5.0, rtol=0.15)
    assert_allclose(np.corrcoef(drawn.T) - np.eye(9), 0, atol=0.25)


@given(seed=st.integers(0, 2**16))
def test_a_step_is_never_long_nor_up_a_flat_hessian(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sums = {"gradient": 100 * rng.normal(size=3), "hessian": 100 * rng.normal(size=6)}
    beta = rng.normal(size=3)
    step = stepped(beta, sums, Noise(1.0, 1.0), 0.0) - beta
    assert np.linalg.norm(step) <= 2 + 1e-9
    assert step @ sums["gradient"] > 0


@dataclass(frozen=True)
class Private(Bounded):
    """Sums of features under a guarantee."""

    needs = Needs("programs")


@dataclass(frozen=True)
class Some(Private):
    """The same of the first two hospitals: each would know half of the noise."""

    def round(self, view: FederationView, state: State) -> Calls:
        yield replace(next(super().round(view, state)), ids=view.trainable[:2])
        return state


@dataclass(frozen=True)
class Loose(Probe):
    """Sums without bounds."""

    needs = Needs("programs")


@dataclass(frozen=True)
class Single(Means):
    """Numbers of single hospitals."""

    needs = Needs("programs")


@pytest.mark.parametrize(
    ("strategy", "keys", "line"),
    [
        (Loose(each=False), {}, r"program 'probe' sends '\w+' without a bound; choose another strategy or leave"),
        (Single(), {}, r"program 'mean' sends 'each' separately"),
        (Private(Bound("hospital", 1.0)), {}, "program 'bounded' bounds 'sum' by hospital"),
        (Some(Bound("row", 1.0)), {}, "program 'bounded' calls 2 of 4 hospitals"),
        (
            Newton(),
            {"unit": "hospital", "mode": "distributed"},
            "^strategy.name: 'Newton' bounds the contribution of each row, so",
        ),
        (Newton(), {"rate": 0.5}, r"^privacy.rate: 0.5 samples patients, but strategy 'Newton' sums over all"),
        (Newton(), {"mode": "local"}, r"^strategy.name: 'Newton' has client programs, which privacy.mode: local"),
        (Newton(firth="always"), {}, r"^strategy.firth: 'always' sends sums without a bound per row"),
        (
            Bounded(Bound("row", 1.0)),
            {},
            r"^strategy.name: 'BoundedSums' has client programs, which privacy.mode: pool",
        ),
    ],
)
def test_what_is_not_hidden_is_refused_in_a_line(federate: MakeFederation, strategy: Any, keys: Any, line: str) -> None:
    federation = with_patients(federate([9, 8, 7, 9]))
    with pytest.raises(ConfigError, match=line) as refused:
        run_once(federation, private(federation, strategy, secure="unit" in keys, noise_multiplier=1.0, **keys))
    assert "\n" not in str(refused.value)


def test_a_number_has_no_bound(tmp_path) -> None:
    federation = federation_of(tmp_path / "t", T, T.real, 0)
    job = private(federation, Newton(), noise_multiplier=1.0)
    with pytest.raises(ConfigError, match=r"^strategy.family: 'linear' sends sums without a bound per row"):
        check_job(replace(job, work=replace(job.work, model=LINEAR_MODEL)), federation)


@pytest.mark.parametrize(
    ("unit", "mode", "by"), [("patient", "pooled", "row"), ("hospital", "distributed", "hospital")]
)
def test_any_program_with_a_bound_gets_noise(federate: MakeFederation, unit: str, mode: str, by: Any) -> None:
    federation = with_patients(federate([9, 8, 7, 9]))
    keys = {"unit": unit, "mode": mode, "clip": 2.0, "secure": True}
    exact = run_once(federation, private(federation, Private(Bound(by, 2.0)), rounds=1, noise_multiplier=0.0, **keys))
    noisy = run_once(federation, private(federation, Private(Bound(by, 2.0)), rounds=1, noise_multiplier=1.0, **keys))
    moved = (noisy.models - exact.models)[0, :-1]
    assert 0.1 < np.linalg.norm(moved) / np.sqrt(len(moved)) < 8.0
    assert noisy.privacy is not None
    assert noisy.privacy.covers == ("update",)
