"""How many hospitals go into a call on a GPU, and what happens where it runs out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raysim.cluster.devices import settle_device
from raysim.core.errors import ResourceError
from raysim.engine.client.failure_context import named
from raysim.strategies.base import Strategy
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.training.base import DeviceFull, Moments, Optimizer, Task
from raysim.training.kernels import batch_schedule
from raysim.training.kernels.batch_schedule import groups, padded
from raysim.training.kernels.batched import Cohort, Dense
from raysim.training.kernels.logistic import LogisticModel
from raysim.training.kernels.modules.generic import Vmapped
from raysim.training.models import build_model
from tests.conftest import MakeFederation, run_strategy
from tests.training.test_kernels import make_tasks, plain_loop

F, C, HIDDEN = 16, 16, (32, 16)  # the vectors of all hospitals begin at multiples of 64 bytes


class Crowded:
    """A gradient for at most ``most`` hospitals; ``calls`` are the numbers of hospitals whose calls began."""

    def __init__(self, inner: Any, most: int) -> None:
        self._inner, self.most, self.calls = inner, most, list[int]()

    def accumulate(self, theta: Tensor, X: Tensor, y: Tensor, weight: Tensor, into: Tensor) -> None:
        self.calls.append(len(theta))
        if len(theta) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self._inner.accumulate(theta, X, y, weight, into)


def cohort(monkeypatch: pytest.MonkeyPatch, kind: str = "dense", *, most: int = 10**9) -> tuple[Cohort, Crowded]:
    monkeypatch.setattr("tests.training.test_kernels.HIDDEN", HIDDEN)
    host = plain_loop("mlp", F, C, "float32")
    gradient = Crowded(
        Dense((F, *HIDDEN, C)) if kind == "dense" else Vmapped(host.module, host.layout),
        most,
    )
    return Cohort(host, gradient, device="cpu", precision="float32"), gradient


def tasks_of(P: int, sizes: tuple[int, ...] = (70, 64, 33, 48, 40, 90)) -> list[Task]:
    tasks = make_tasks(sizes, F, C, P, proximal=1, rate=0.01, dtype=np.float32)
    frozen = np.arange(P) % 5 == 0
    return [replace(t, moments=Moments(), weights=np.linspace(0.5, 2, len(t.y)), frozen=frozen) for t in tasks]


def test_a_process_on_a_gpu_has_its_share_and_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    cudnn, claimed = SimpleNamespace(allow_tf32=True, deterministic=False), list[float]()
    monkeypatch.setattr(torch.backends, "cudnn", cudnn)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", claimed.append)
    settle_device("cpu", 0.5)
    assert cudnn.allow_tf32
    assert not claimed
    settle_device("cuda", 1.0)
    assert not claimed
    settle_device("cuda", 0.5)
    assert (cudnn.allow_tf32, cudnn.deterministic, claimed) == (False, True, [0.5])


@pytest.mark.parametrize(
    ("batch_size", "widths"),
    [
        (0, {1: 1, 2: 2, 3: 3, 5: 6, 6: 6, 7: 8, 9: 12, 13: 16, 17: 24, 33: 48, 100: 128}),
        (10, {1: 1, 5: 6, 7: 8, 9: 10, 10: 10, 11: 10, 500: 10}),
    ],
)
def test_widths(batch_size: int, widths: dict[int, int]) -> None:
    assert {n: padded(batch_size, n) for n in widths} == widths


def test_a_group_has_one_width_and_the_most_steps_first() -> None:
    tasks = make_tasks([3, 40, 9, 0, 17, 100], 2, 2, 4, epochs=1)
    assert list(groups(tasks, 8)) == [[5, 1, 4, 2], [0]]
    assert list(groups(tasks, 0)) == [[5], [1], [4], [2], [0]]


@pytest.mark.parametrize(
    ("limit", "batch_size", "value", "sizes"),
    [
        ("CELLS", 8, 3 * 8 * 2, [3, 2]),  # of 5 hospitals of 20 rows of 2 features
        ("CELLS", 8, 3 * 8 * 2 - 1, [2, 2, 1]),
        ("CELLS", 0, 3 * 24 * 2, [3, 2]),
        ("SCHEDULED", 8, 3 * 8 * 6, [3, 2]),  # in 2 epochs of 3 batches
        ("SCHEDULED", 8, 3 * 8 * 6 - 1, [2, 2, 1]),
        ("SCHEDULED", 0, 3 * 24, [3, 2]),
        ("SCHEDULED", 0, 3 * 24 - 1, [2, 2, 1]),
    ],
)
def test_a_group_is_bounded(
    limit: str, batch_size: int, value: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_schedule, limit, value)
    found = list(groups(make_tasks([20] * 5, 2, 2, 4), batch_size))
    assert [len(group) for group in found] == sizes
    assert [h for group in found for h in group] == list(range(5))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", ["dense", "vmap"])
@pytest.mark.parametrize("batch_size", [0, 16])
def test_running_out_of_memory_changes_no_bit(
    kind: str, optimizer: str, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Optimizer(optimizer, 0.01, batch_size, weight_decay=0.1)
    model, _ = cohort(monkeypatch, kind)
    tasks = tasks_of(model.layout.size, (70, 64, 66, 71, 80, 90))
    whole = model.train(tasks, terms)
    for most in (1, 4):
        model, gradient = cohort(monkeypatch, kind, most=most)
        again = [replace(task, moments=Moments()) for task in tasks]
        assert model.train(again, terms).tobytes() == whole.tobytes()
        assert max(gradient.calls) > most
        for task, other in zip(tasks, again, strict=True):
            assert task.moments is not None
            assert other.moments is not None
            assert other.moments.steps == task.moments.steps
            np.testing.assert_array_equal(other.moments.first, task.moments.first)
            np.testing.assert_array_equal(other.moments.second, task.moments.second)


@pytest.mark.parametrize("kind", ["dense", "vmap"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_no_tensor_is_made_on_another_device(kind: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's device without memory takes the place of a GPU: operations with tensors of a CPU fail on it too.
    name, options = ("mlp", {"hidden": HIDDEN}) if kind == "dense" else ("fashion_cnn", {"dense": 8})
    features = F if kind == "dense" else 784
    model = build_model(name, features, 10, options=options, device="meta")
    assert isinstance(model, Cohort)
    returned: list[torch.device] = []

    def cpu(tensor: Tensor) -> Tensor:
        returned.append(tensor.device)
        return torch.zeros(tensor.shape, dtype=tensor.dtype)

    monkeypatch.setattr(Tensor, "cpu", cpu)
    monkeypatch.setattr(Tensor, "__int__", lambda _: 1)
    P = model.layout.size
    tasks = make_tasks([20, 9], features, 10, P, proximal=1, dtype=np.float32)
    full = {"weights": np.ones(20), "frozen": np.zeros(P, bool), "linear": np.ones(P), "moments": Moments()}
    tasks[0] = replace(tasks[0], **full)
    assert model.train(tasks, Optimizer(optimizer, 0.1, 8, weight_decay=0.1)).shape == (2, P)
    assert set(returned) == {torch.device("meta")}


def test_the_next_round_begins_with_what_went_well(monkeypatch: pytest.MonkeyPatch) -> None:
    model, gradient = cohort(monkeypatch, most=3)
    tasks = make_tasks([64] * 8, F, C, model.layout.size, dtype=np.float32)
    model.train(tasks, Optimizer("sgd", 0.01, 16))
    assert {8, 4, 2} <= set(gradient.calls)
    gradient.calls.clear()
    model.train(tasks, Optimizer("sgd", 0.01, 16))
    assert set(gradient.calls) == {2}


def test_a_hospital_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch, federate: MakeFederation) -> None:
    model, _ = cohort(monkeypatch, most=0)
    tasks = make_tasks([0, 3, 64], F, C, model.layout.size, dtype=np.float32)
    with pytest.raises(DeviceFull, match=r"CUDA out of memory. Tried to allocate 2.00 GiB") as caught:
        model.train(tasks, Optimizer("sgd", 0.01, 16))
    assert caught.value.task == 2  # of the widest batches, and so the first
    federation = federate([3, 4])
    for error in (caught.value, torch.OutOfMemoryError("CUDA out of memory.\nmore")):
        with pytest.raises(ResourceError) as line, named(federation, 1, "training in round 2"):
            raise error
        assert str(line.value) == (
            f"hospital '{federation.hospitals[1]}' ran out of GPU memory while training in round 2 "
            f"({str(error).splitlines()[0]}); lower training.batch_size, raise "
            "resources.gpus_per_actor or set resources.device: cpu"
        )


@pytest.mark.parametrize(
    ("strategy", "trained", "hospital", "doing"),
    [
        (FedAvg(), [3], 2, r"training in round 1"),
        # A program trains one hospital after the other, here twice: a local update, then a gradient.
        (Scaffold(renew="gradient"), [1, 1], 0, r"running strategy 'Scaffold', round 1, program 'scaffold'"),
    ],
)
def test_the_run_ends_with_the_hospital_s_name(
    strategy: Strategy,
    trained: list[int],
    hospital: int,
    doing: str,
    federate: MakeFederation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    federation, train, calls = federate([3, 4, 5]), LogisticModel.train, list[int]()

    def full(self: LogisticModel, tasks: Sequence[Task], optimizer: Optimizer) -> Any:
        calls.append(len(tasks))
        if calls == trained:
            raise DeviceFull(len(tasks) - 1, "full")
        return train(self, tasks, optimizer)

    monkeypatch.setattr(LogisticModel, "train", full)
    with pytest.raises(
        ResourceError, match=rf"'{federation.hospitals[hospital]}' ran out of GPU memory while {doing} \(full\)"
    ):
        run_strategy(federation, strategy)
    assert calls == trained
