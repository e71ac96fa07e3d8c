"""What actors send back, merged by hand: order of ids, stable entries, exact sums, and numbers sent beside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from raysim.core.errors import HospitalFailed
from raysim.core.exact import ExactSum
from raysim.engine.messages.plan import PartialResult
from raysim.engine.messages.update_sums import sum_count
from raysim.engine.server.last_steps import existing
from raysim.engine.server.merging import summed, update_of
from raysim.strategies.base import OWN, Ids, LocalProblem, LocalTraining, RowGroups, Update, Upload
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.linear import LinearModel
from raysim.virtual_time.synchronous import discounted
from tests.conftest import MakeFederation, run_strategy
from tests.engine.probing import Beside


def merged(partials: Sequence[PartialResult], problem: LocalProblem, ids: Ids, size: int) -> Update:
    """The update of a cohort ``ids`` that minimised ``problem``, of models of ``size`` scalars."""
    return update_of(summed(partials, max(sum_count(problem, size), 1), size), partials, problem, ids)


def partial(ids: list[int], sums: list[list[float]], **parts: Any) -> PartialResult:
    """What an actor sends whose hospitals ``ids`` made these ``sums [G, P]``."""
    exact = ExactSum(len(sums), len(sums[0]))
    for g, row in enumerate(sums):
        exact.add(g, 1.0, np.array(row))
    return PartialResult(ids=np.array(ids), units=exact.units, **parts)


IDS = np.array([0, 2, 3, 7])
PARTIALS = [
    partial([3], [[1.0, 0.5], [0.0, 2.0]], deltas=np.array([[3.0, 3.5]]), losses=np.array([0.3])),
    partial([0, 7], [[0.25, 0.0], [1.0, 1.0]], deltas=np.array([[0.0, 0.5], [7.0, 7.5]]), losses=np.array([0.0, 0.7])),
    PartialResult(),
    partial([2], [[-1.0, 0.0], [0.0, -4.0]], deltas=np.array([[2.0, 2.5]]), losses=np.array([0.2])),
]


def test_whatever_the_order_of_actors_the_update_is_in_order_of_ids():
    problem = LocalProblem(
        start=np.zeros(4, np.int64), upload=Upload(np.ones((4, 2)), sums=2, single=True, losses=True)
    )
    for order in permutations(PARTIALS):
        update = merged(order, problem, IDS, size=2)
        assert update.ids.tolist() == IDS.tolist()
        assert update.sums.tolist() == [[0.25, 0.5], [1.0, -1.0]]
        assert update.deltas is not None
        assert update.deltas.tolist() == [[0.0, 0.5], [2.0, 2.5], [3.0, 3.5], [7.0, 7.5]]
        assert update.losses is not None
        assert update.losses.tolist() == [0.0, 0.2, 0.3, 0.7]
        assert update.numbers is None
        assert update.problem is problem


def test_what_is_sent_beside_comes_behind_the_sums():
    problem = LocalProblem(start=np.zeros(4, np.int64), upload=Upload(np.ones(4)), program=Beside(2, (2,)))
    update = merged(PARTIALS, problem, IDS, size=2)
    assert update.sums.tolist() == [[0.25, 0.5]]
    assert update.extra("more").tolist() == [1.0, -1.0]
    with pytest.raises(KeyError):
        update.extra("less")


def test_where_nobody_sends_there_is_a_sum_of_zeros():
    problem = LocalProblem(start=np.zeros(4, np.int64), training=LocalTraining(keep=True))
    update = merged([PartialResult(ids=IDS)], problem, IDS, size=3)
    assert update.sums.tolist() == [[0.0, 0.0, 0.0]]
    assert update.deltas is None
    assert update.losses is None


def test_the_entries_of_a_hospital_stay_in_their_order():
    entries = RowGroups(np.array([0, 0, 2]), np.array([0, 1, 0]), np.array([4, 5, 6]))
    problem = LocalProblem(start=np.zeros(3, np.int64), upload=Upload(np.ones(3), losses=True), groups=entries)
    later = partial([2], [[0.0]], losses=np.array([0.2]))
    update = merged([later, partial([0, 0], [[0.0]], losses=np.array([0.9, 0.1]))], problem, np.array([0, 2]), size=1)
    assert update.ids.tolist() == [0, 0, 2]
    assert update.losses is not None
    assert update.losses.tolist() == [0.9, 0.1, 0.2]


def test_control_variates_follow_the_precision_of_a_run(federate: MakeFederation):
    """In single precision SCAFFOLD is what it is in double, to single precision and not to double."""
    federation = federate([9, 4, 13, 7], features=4)
    single, double = (
        run_strategy(federation, Scaffold(), rounds=4, epochs=3, precision=precision).models
        for precision in ("float32", "float64")
    )
    apart = np.abs(single - double).max()
    assert 1e-9 < apart < 1e-5


def test_own_models_are_evaluated_once_hospitals_have_kept_some():
    serve = {"global": np.zeros(3, np.int64), "personal": np.full(3, OWN), "some": np.array([0, OWN, OWN])}
    assert list(existing(serve, None)) == ["global", "some"]
    assert list(existing(serve, [{}])) == ["global", "personal", "some"]


@pytest.mark.parametrize("weights", [np.array([0.5, 0.25, 0.25]), np.array([[0.5], [0.25], [0.25]])])
def test_late_updates_are_discounted_hospital_by_hospital(weights):
    problem = LocalProblem(start=np.zeros(3, np.int64), upload=Upload(weights))
    upload = discounted(problem, np.array([1.0, 0.5, 0.25])).upload
    assert upload is not None
    assert upload.weight is not None
    assert upload.weight.shape == weights.shape
    # .5, .125 and .0625 of together .6875, all as heavy as before.
    np.testing.assert_allclose(upload.weight.ravel(), np.array([8, 2, 1]) / 11)


@pytest.mark.parametrize("wrong", ["short", "long", "fewer", "more"])
def test_a_model_that_trains_another_length_is_an_error_with_its_hospital(
    federate: MakeFederation, monkeypatch: pytest.MonkeyPatch, wrong: str
):
    def trained(self: LinearModel, tasks: Sequence[Task], optimizer: Optimizer) -> NDArray[Any]:
        theta = train(self, tasks, optimizer)
        changes = {
            "short": theta[:, 1:],
            "long": np.hstack([theta, theta]),
            "fewer": theta[1:],
            "more": theta[[0, *range(len(theta))]],
        }
        return changes[wrong]

    train = LinearModel.train
    monkeypatch.setattr(LinearModel, "train", trained)
    with pytest.raises(
        HospitalFailed, match=r"hospital 'h0' failed .* the model's training returned an array of shape \("
    ):
        run_strategy(federate([9, 5]), FedAvg(), rounds=1)
