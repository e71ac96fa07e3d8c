"""Exact sums: any order, no overflow, and what a hospital may send without an error that it diverged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from raysim.core.errors import TrainingDiverged
from raysim.core.exact import FRACTION_BITS, ExactSum, decode, exact_multiple, largest_entry
from raysim.data.federation import Federation
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.messages.update_sums import heaviest
from raysim.strategies.asynchronous.fedbuff import FedBuff
from raysim.strategies.base import LocalProblem, LocalTraining, Strategy, Upload
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.local import Local
from tests.conftest import run_strategy, store

LINEAR = ModelSpec("linear_regression", None, {}, "default")
ONE_STEP = {"rounds": 1, "batch_size": 0, "learning_rate": 0.1, "model": LINEAR}


def labelled(folder: Path, labels: np.ndarray) -> Federation:
    """A hospital for each label, with one training and one test row of it, and no feature that is not 0."""
    bounds = 2 * np.arange(len(labels))[:, None] + [0, 1, 1, 2]
    folder.mkdir(exist_ok=True)
    return store(folder, np.zeros((2 * len(labels), 1)), np.repeat(labels, 2), bounds, classes=0)


def added(weights: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    sums = ExactSum(1, vectors.shape[1])
    for weight, vector in zip(weights, vectors, strict=True):
        sums.add(0, weight, vector)
    return sums.units[0]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 20.0])
def test_no_weights_overflow_below_the_largest_entry(scale):
    rng = np.random.default_rng(0)
    weights = scale * rng.dirichlet(np.full(50, 0.1)) * rng.choice([-1, 1], 50)
    largest = largest_entry(np.abs(weights).sum())
    vectors = largest * np.column_stack([np.sign(weights), rng.uniform(-1, 1, 50)])
    units = added(weights, vectors)
    np.testing.assert_allclose(decode(units), weights @ vectors, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(units, added(weights[::-1], vectors[::-1]))


def test_odd_terms_of_51_bits_keep_their_last():
    for units in (2**51 - 1, 2**51 + 1):
        sums, unit = ExactSum(1, 2), 2.0**-FRACTION_BITS
        vectors = np.array([[units, -units]]) * unit
        sums.add(0, 1.0, vectors[0])
        assert sums.units[0].tolist() == [units, -units]


def test_terms_are_rounded_to_the_nearest_unit_and_halves_to_the_even_one():
    unit = 2.0**-44
    terms = np.array([0.4, 0.6, 1.5, 2.5, -0.4, -0.6, -1.5, -2.5])
    rounded = [0, 1, 2, 2, 0, -1, -2, -2]
    assert added(np.array([1.0]), terms[None] * unit).tolist() == rounded
    assert added(np.array([0.5]), terms[None] * 2 * unit).tolist() == rounded, "what is rounded is the weighted term"
    assert decode(np.array([3, -1])).tolist() == [3 * unit, -unit]
    three = added(np.array([1.0, 1.0, 1.0]), np.full((3, 1), 0.6 * unit))
    assert three.tolist() == [3], "each term is rounded by itself, not the sum"


def test_the_heaviest_sum_is_that_of_the_whole_chain():
    ids = np.arange(3)
    local = LocalProblem(start=ids, training=LocalTraining(keep=True))
    weights = Upload(np.array([0.5, -1.0, 2.0]), sum_index=np.array([0, 1, 1]), sums=2)
    assert heaviest(LocalProblem(start=ids, upload=weights, then=local)) == 3.0
    assert heaviest(LocalProblem(start=ids, then=LocalProblem(start=ids, upload=weights))) == 3.0
    each = LocalProblem(start=ids, upload=Upload(np.array([[1.0, 0.0], [1.0, 0.5], [0.25, 0.0]]), sums=2))
    assert heaviest(each) == 2.25
    assert heaviest(local) == 0.0
    assert largest_entry(0.0) == np.inf


@pytest.mark.parametrize("strategy", [FedAvg(), Local()], ids=lambda s: type(s).__name__)
def test_hospitals_of_a_large_federation_may_move_as_far_as_those_of_a_small_one(strategy, tmp_path):
    labels = np.random.default_rng(1).uniform(10_000, 20_000, 1000)
    outcome = run_strategy(labelled(tmp_path / "federation", labels), strategy, **ONE_STEP)
    if isinstance(strategy, FedAvg):
        np.testing.assert_allclose(outcome.models[0], [0.0, 0.1 * labels.mean()], rtol=1e-12)
    else:
        np.testing.assert_allclose([outcome.own_models[h][1] for h in range(1000)], 0.1 * labels, rtol=1e-12)


@pytest.mark.parametrize(
    ("strategy", "most"),
    [
        (FedAvg(weights="uniform"), 2.0**18),
        (FedBuff(buffer=3, concurrency=3), 2.0**18),
        (FedBuff(buffer=3, concurrency=3, server_learning_rate=20.0), 2.0**18 / 20),
    ],
    ids=["fedavg", "fedbuff", "fedbuff-rate-20"],
)
def test_only_what_would_overflow_the_sum_is_refused_whoever_serves_whom(
    strategy: Strategy, most: float, tmp_path: Path
) -> None:
    fits = labelled(tmp_path / "fits", np.array([1.0, 10 * most * 0.99, 2.0]))
    one, three = (run_strategy(fits, strategy, actors=actors, **ONE_STEP) for actors in (1, 3))
    np.testing.assert_array_equal(one.models, three.models)
    weight = 2.0**18 / most / 3
    assert one.models[0, 1] == pytest.approx(weight * (0.1 + 0.99 * most + 0.2))
    overflows = labelled(tmp_path / "overflows", np.array([1.0, 10 * most * 1.01, 2.0]))
    for actors in (1, 3):
        with pytest.raises(TrainingDiverged, match=r": 0\.1 made hospital 'h1' diverge in round 1; lower it"):
            run_strategy(overflows, strategy, actors=actors, **ONE_STEP)


def test_who_sends_nothing_diverges_only_where_parameters_are_not_finite(tmp_path):
    far = labelled(tmp_path / "far", np.array([1.0, 1e30]))
    assert run_strategy(far, Local(), **ONE_STEP).own_models[1][1] == pytest.approx(1e29)
    with pytest.raises(TrainingDiverged, match="made hospital 'h1' diverge in round 1"):
        run_strategy(labelled(tmp_path / "farther", np.array([1.0, 1e39])), Local(), precision="float32", **ONE_STEP)


@pytest.mark.parametrize(
    ("units", "nearest"),
    [(2**22 - 1, 2**22 - 1), (2**22 + 2, 2**22 + 2), (2**22 + 3, 2**22 + 4), (2**30 + 2**9, 2**30 + 2**9), (0.4, 1)],
)
def test_a_term_keeps_twenty_two_digits_and_at_least_one_unit(units, nearest):
    unit = 2.0**-FRACTION_BITS
    assert [exact_multiple(sign * units * unit) for sign in (1, -1)] == [nearest * unit, -nearest * unit]
