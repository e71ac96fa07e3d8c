"""Noisy messages that are rounded to a common grid before they are added up: what sums tell, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.special import ndtr

from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.core.exact import FRACTION_BITS, ExactSum, exact_multiple
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.engine.server.job_checks import check_job
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, job_of, run

REACH = 150
"""Of chances of multiples, from -REACH to REACH."""


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([9, 4, 13, 7, 5, 6])


# --- what a sum of multiples tells


def chances(update: float, share: float, coin: float) -> np.ndarray:
    """Of each multiple that one hospital sends: floor(update + share * normal + coin), in steps."""
    edges = np.arange(-REACH, REACH + 2) - coin - update
    return np.diff(ndtr(edges / share))


def of_sum(updates: list[float], share: float, coins: list[float]) -> np.ndarray:
    """Of each sum of multiples, computed by adding up hospital after hospital."""
    total = np.zeros(2 * REACH + 1)
    total[REACH] = 1.0
    for update, coin in zip(updates, coins, strict=True):
        total = np.convolve(total, chances(update, share, coin))[REACH:-REACH]
    return total


def of_noisy_sum(updates: list[float], share: float, coins: list[float]) -> np.ndarray:
    """Of one normal draw with the noise of all shares and even numbers of one step beside it, at whole numbers."""
    waves = np.linspace(-40.0, 40.0, 16001)
    m, at = len(updates), np.arange(-REACH, REACH + 1)
    spread = np.exp(-m * (share * waves) ** 2 / 2) * np.sinc(waves / (2 * np.pi)) ** m
    shift = sum(updates) + sum(coins) - m / 2
    return np.array([np.trapezoid(spread * np.cos(waves * (k - shift)), waves) for k in at]) / (2 * np.pi)


COINS = [0.1, 0.85, 0.4, 0.6]


@pytest.mark.parametrize("updates", [[0.0, 0.0], [0.3, -7.9, 2.25], [11.4, 0.0, 0.49, -3.0]])
def test_a_sum_of_multiples_is_spread_as_a_noisy_sum_where_shares_have_three_steps(updates):
    coins = COINS[: len(updates)]
    fine = of_sum(updates, 3.0, coins)
    assert np.abs(fine - of_noisy_sum(updates, 3.0, coins)).sum() < 1e-12
    coarse = of_sum(updates, 0.3, coins)
    assert np.abs(coarse - of_noisy_sum(updates, 0.3, coins)).sum() > 0.01


def delta(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_a_hospitals_presence_is_hidden_as_by_the_noise_itself_and_not_by_a_coarse_grid(epsilon):
    """Four hospitals whose shares make up noise of one clip; one has an update as long as the clip, or nothing."""
    normal = ndtr(0.5 - epsilon) - math.exp(epsilon) * ndtr(-0.5 - epsilon)
    worst = {}
    for share in (3.0, 0.1):
        clip = share * math.sqrt(4)
        others = [2.3 * share, -1.1 * share, 0.0]
        deltas = []
        for coin in (0.8, 0.9):
            there, gone = (of_sum([update, *others], share, [coin, *COINS[:3]]) for update in (clip, 0.0))
            deltas += [delta(there, gone, epsilon), delta(gone, there, epsilon)]
        worst[share] = max(deltas)
    assert 0.9 * normal < worst[3.0] <= normal + 1e-12
    assert worst[0.1] > 1.2 * normal


@example(1.1e-4, 2**30 + 1, -1.0)
@given(st.floats(1e-12, 1e3), st.integers(-(2**31), 2**31), st.sampled_from([-1.0, 1.0]))
def test_multiples_are_terms_without_rounding(value, multiple, sign):
    number = exact_multiple(sign * value)
    assert number == pytest.approx(sign * value, rel=2.0**-21, abs=2.0**-FRACTION_BITS)
    units = int(number * 2**FRACTION_BITS)
    assert units == number * 2**FRACTION_BITS
    if abs(units * multiple) < 2**62:
        total = ExactSum(1, 1)
        total.add(0, number, np.array([float(multiple)]))
        assert int(total.units[0, 0]) == units * multiple


# --- whole runs


def job(federation: Federation, way: str, **keys) -> Job:
    unit = {"unit": "patient", "rate": 0.5} if way == "pooled" else {"unit": "hospital", "mode": "distributed"}
    guarantee = PrivacySection(**{"noise_multiplier": 2.0, "delta": 1e-3, "clip": 0.5} | unit | keys)
    strategy = FedAvg() if way == "pooled" else FedAvg(weights="uniform")
    return replace(job_of(federation, strategy, rounds=1), privacy=guarantee, secure=SecureSection())


def on_grid(whole: Job, step: float = 0.07, bits: int = 12, **keys) -> Job:
    return replace(whole, compression=CompressionSection(name="grid", step=step, bits=bits, **keys))


@pytest.mark.parametrize("mode", ["pooled", "distributed"])
def test_the_sum_is_whole_steps_and_near_the_sum_without_a_grid(federation, mode):
    whole = job(federation, mode)
    compressed = on_grid(whole)
    check_job(compressed, federation)
    plain, outcome = run(federation, whole, 1), run(federation, compressed, 1)
    weight = 1 / 6 if mode == "distributed" else 0.1 / (0.5 * 44)
    counts = exact_multiple(weight * 0.07)
    multiples = outcome.models[0] / counts
    assert (multiples == np.rint(multiples)).all()
    assert (multiples != 0).any()
    assert np.abs(outcome.models[0] - plain.models[0]).max() < 6 * counts
    assert (outcome.models != plain.models).all()
    assert outcome.privacy.epsilons == plain.privacy.epsilons
    assert outcome.privacy.not_private == plain.privacy.not_private
    for secure in ({"mode": "execute"}, {}):
        other = run(federation, replace(compressed, secure=SecureSection(**secure)), 2)
        np.testing.assert_array_equal(other.models, outcome.models)


@pytest.mark.parametrize("mode", ["pooled", "distributed"])
def test_what_is_added_up_are_whole_numbers_of_steps(federation, mode, monkeypatch):
    added, add = [], ExactSum.add
    monkeypatch.setattr(ExactSum, "add", lambda self, *term: (added.append(term), add(self, *term))[1])
    run(federation, on_grid(job(federation, mode)), 1)
    weight = 1 / 6 if mode == "distributed" else -0.1 / (0.5 * 44)
    assert [w for _, w, _ in added] == [exact_multiple(weight * 0.07)] * 6
    vectors = np.array([vector for *_, vector in added])
    assert (vectors == np.rint(vectors)).all()
    assert np.abs(vectors).max() > 5


def test_without_secure_sums_messages_are_as_long_as_their_bits(federation):
    compressed = replace(on_grid(job(federation, "pooled"), bits=12), secure=None)
    check_job(compressed, federation)
    outcome = run(federation, compressed, 1)
    (sent,) = [each for _, kind, _, each, _ in outcome.ledger.entries if kind == "update"]
    assert (np.asarray(sent) == 6 + 4).all()  # four scalars of 12 bits, and the number of rows
    np.testing.assert_array_equal(outcome.models, run(federation, on_grid(job(federation, "pooled")), 1).models)


def test_hospitals_that_are_lost_leave_a_sum_of_whole_steps(federation):
    lossy = replace(job(federation, "distributed"), secure=SecureSection(threshold=4, drop={"mask": 0.3}))
    compressed = replace(on_grid(lossy), rounds=4)
    check_job(compressed, federation)
    models = [run(federation, compressed, actors).models for actors in (1, 2)]
    np.testing.assert_array_equal(models[0], models[1])


@pytest.mark.parametrize(
    ("mode", "keys", "privacy", "line"),
    [
        # Shares of the noise have 2 * .5 / sqrt(6) = .408 each.
        ("distributed", {"step": 0.137}, {}, r"compression.step: 0.137 .*privacy.mode: distributed.*at most 0.13$"),
        ("pooled", {"step": 0.137}, {}, r"compression.step: 0.137 .*privacy.mode: pooled.*at most 0.13$"),
        # .5 + 12 * 1 / sqrt(5) = 5.87 is 84 steps; 13 patients of .5 beside the noise are 171.
        (
            "distributed",
            {"bits": 7},
            {},
            r"compression.bits: 7 can represent numbers up to 4.41.*up to 5.87; give 8, "
            r"or",
        ),
        ("pooled", {"bits": 8}, {}, r"compression.bits: 8 can represent numbers up to 8.89.*up to 11.9; give 9, or"),
        ("distributed", {}, {"adaptive": {"bits": 5.0}}, r"compression.name: 'grid' .*privacy.adaptive"),
        ("pooled", {}, {"sizes": "noisy"}, r"compression.name: 'grid' .*privacy.sizes: noisy"),
        ("pooled", {"feedback": "ef"}, {}, r"compression.name: 'grid' .*grid without feedback, can"),
    ],
)
def test_grids_that_the_noise_does_not_cover_are_refused(federation, mode, keys, privacy, line):
    with pytest.raises(ConfigError, match=line):
        check_job(on_grid(job(federation, mode, **privacy), **keys), federation)


def test_what_is_advised_is_taken(federation):
    check_job(on_grid(job(federation, "distributed"), step=0.13, bits=8), federation)
    check_job(on_grid(job(federation, "distributed"), bits=8), federation)
    check_job(on_grid(job(federation, "pooled"), bits=9), federation)
    # Without noise nothing is guaranteed, and nothing refused.
    check_job(on_grid(job(federation, "pooled", noise_multiplier=0.0), step=9.0), federation)


def test_the_server_puts_nothing_on_a_grid_before_its_own_noise(federation):
    central = replace(job(federation, "distributed", mode="central"), secure=None)
    with pytest.raises(ConfigError, match=r"compression.name: 'grid' can lengthen updates"):
        check_job(on_grid(central), federation)


def test_clusters_have_a_grid_with_shares_of_their_own(federate):
    federation = federate([30, 4, 33, 7, 5, 36])
    clustered = replace(job(federation, "distributed"), strategy=Clustered(clusters=2, signature=("size",)))
    fine = on_grid(clustered, step=0.1, bits=10)
    check_job(fine, federation)
    models = [run(federation, fine, actors).models for actors in (1, 2)]
    np.testing.assert_array_equal(models[0], models[1])
