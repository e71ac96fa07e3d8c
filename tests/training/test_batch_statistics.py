"""Modules whose training depends on more than a row and its parameters: batch norm's statistics and dropout's masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.engine.messages.plan import ModelSpec
from raysim.strategies.one_model.adaptive import FedAdagrad
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedprox import FedProx
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.kernels.modules.local_sgd import seed
from raysim.training.models import build_model
from tests.conftest import MakeFederation, run_strategy


class Normed(nn.Sequential):
    """Batch norm, then logistic regression: the statistics are those of the rows themselves."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(nn.BatchNorm1d(n_features), nn.Linear(n_features, n_outputs))


class Deep(nn.Sequential):
    """Both, and a layer between."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        norm, drop = nn.BatchNorm1d(6), nn.Dropout(0.4)
        super().__init__(nn.Linear(n_features, 6), norm, nn.ReLU(), drop, nn.Linear(6, n_outputs))


class Functional(nn.Linear):
    """Dropout that no layer announces."""

    def forward(self, X: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(X, 0.5, self.training))


class Restless(nn.Linear):
    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X + torch.rand_like(X))


DEEP = ModelSpec(None, f"{__name__}.Deep", {}, "default")
NORMED = ModelSpec(None, f"{__name__}.Normed", {}, "default")


def bound(cls: type[nn.Module], F: int = 3, C: int = 2, precision: str = "float64") -> ModuleModel:
    model = build_model(cls, F, C, options={}, precision=precision)
    assert isinstance(model, ModuleModel)
    return model


def batches_of(*key: int) -> Callable[[int], np.random.Generator]:
    return lambda epoch: stream(7, "batch", *key, epoch)


def task_of(model: ModuleModel, n: int, *, hospital: int = 0, round: int = 0, epochs: int = 2) -> Task:
    rng = np.random.default_rng(n)
    X, y = rng.normal(2.0, 3.0, size=(n, 3)), rng.integers(0, 2, n)
    return Task(X, y, model.initial(np.random.default_rng(1)), [], epochs, 0.1, batches_of(round, hospital))


def by_hand(cls: type[nn.Module], model: ModuleModel, task: Task, batch: int) -> NDArray[np.float64]:
    """The guaranteed loop, written out: what a lone row does, and where masks come from."""
    net = cls(3, 2).double()
    views = {name: torch.from_numpy(view.copy()) for name, view in model.layout.split(task.start).items()}
    net.load_state_dict(views, strict=False)
    solver = torch.optim.SGD(net.parameters(), lr=task.learning_rate)
    norms = [part for part in net.modules() if isinstance(part, nn.BatchNorm1d)]
    n = len(task.y)
    for epoch in range(task.epochs):
        rng = task.batches(epoch)
        order = rng.permutation(n) if batch < n else np.arange(n)
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        for low, high in pairwise([*range(0, n, batch), n]):
            net.train()
            for norm in norms:
                norm.train(high - low > 1)
            solver.zero_grad()
            rows = order[low:high]
            loss = nn.functional.cross_entropy(net(torch.from_numpy(task.X[rows])), torch.from_numpy(task.y[rows]))
            torch.autograd.backward(loss)
            solver.step()
    state = net.state_dict()
    return torch.cat([state[name].reshape(-1) for name in model.layout.names]).numpy()


def test_statistics_follow_the_parameters_and_begin_as_the_module_makes_them() -> None:
    for init in ("default", "zeros"):
        model = build_model(Normed, 3, 2, options={}, init=init)
        assert model.layout.names == ("0.weight", "0.bias", "1.weight", "1.bias", "0.running_mean", "0.running_var")
        assert model.layout.shapes[-2:] == ((3,), (3,))
        start = model.layout.split(model.initial(np.random.default_rng(0)))
        assert not start["0.running_mean"].any()
        np.testing.assert_array_equal(start["0.running_var"], 1.0)
        assert start["0.weight"].any() == (init == "default")


def test_statistics_of_one_full_batch_by_hand() -> None:
    model = bound(Normed)
    task = replace(task_of(model, 5, epochs=1), proximal=[(3.0, np.full(model.layout.size, 9.0))])
    linear = np.full(model.layout.size, 0.5)
    for given in (task, replace(task, linear=linear)):
        (theta,) = model.train([given], Optimizer("sgd", 0.1, 0))
        after = model.layout.split(theta)
        # torch's momentum .1, and the variance without bias; neither a gradient nor a proximal term nor a rate
        np.testing.assert_allclose(after["0.running_mean"], 0.1 * task.X.mean(0), atol=1e-12)
        np.testing.assert_allclose(after["0.running_var"], 0.9 + 0.1 * task.X.var(0, ddof=1), atol=1e-12)
        assert (after["0.weight"] > model.layout.split(task.start)["0.weight"] + 1).all()


@pytest.mark.parametrize("cls", [Normed, Deep, Functional])
@pytest.mark.parametrize(("n", "batch"), [(8, 4), (9, 4), (1, 4), (3, 1), (2, 2)])
def test_training_equals_the_documented_loop(cls: type[nn.Module], n: int, batch: int) -> None:
    model = bound(cls)
    task = task_of(model, n)
    (theta,) = model.train([task], Optimizer("sgd", 0.1, batch))
    np.testing.assert_allclose(theta, by_hand(cls, model, task, batch), atol=1e-12)
    if n == 1 and cls is not Functional:
        moved = model.layout.split(theta - task.start)
        assert not any(moved[name].any() for name in moved if "running" in name)
        assert np.isfinite(theta).all()
        assert moved[next(iter(moved))].any()


@pytest.mark.parametrize("batch", [0, 4])
def test_neighbours_order_and_torchs_own_numbers_change_no_bit(batch: int) -> None:
    model = bound(Deep, precision="float32")
    tasks = [task_of(model, n, hospital=h) for h, n in enumerate((9, 1, 0, 6, 12))]
    terms = Optimizer("adam", 0.1, batch)
    state = torch.get_rng_state()
    together = model.train(tasks, terms)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    np.testing.assert_array_equal(model.train(tasks[::-1], terms)[::-1], together)
    np.testing.assert_array_equal(np.concatenate([model.train([task], terms) for task in tasks]), together)


@pytest.mark.parametrize("cls", [Deep, Functional])
def test_masks_differ_between_hospitals_rounds_and_epochs(cls: type[nn.Module]) -> None:
    model = bound(cls)
    task = task_of(model, 6)
    terms = Optimizer("sgd", 0.1, 0)  # full batches: no permutation that could differ
    (same, again) = model.train([task, task], terms)
    np.testing.assert_array_equal(same, again)
    others = [replace(task, batches=batches_of(*key)) for key in ((0, 1), (1, 0))]
    alike = replace(task, batches=lambda epoch: stream(7, "batch", 0, 0, 0))
    assert not any((theta == same).all() for theta in model.train([*others, alike], terms))


def test_evaluation_uses_running_statistics_and_no_masks() -> None:
    model = bound(Deep)
    task = task_of(model, 20)
    (theta,) = model.train([task], Optimizer("sgd", 0.1, 4))
    all_rows = model.logits(theta, task.X)
    np.testing.assert_allclose(np.concatenate([model.logits(theta, row[None]) for row in task.X]), all_rows, atol=1e-12)
    net = Deep(3, 2).double()
    net.load_state_dict({k: torch.from_numpy(v) for k, v in model.layout.split(theta).items()}, strict=False)
    z = net.eval()(torch.from_numpy(task.X)).detach().numpy()
    np.testing.assert_allclose(all_rows, z[:, 1] - z[:, 0], atol=1e-12)


def test_averaged_statistics_are_the_clients_by_rows(federate: MakeFederation) -> None:
    federation = federate([4, 12])
    outcome = run_strategy(federation, FedAvg(), model=NORMED, rounds=1, batch_size=0)
    parts = [federation.X[federation.rows(h, "train")].astype(float) for h in (0, 1)]
    mean = 0.1 * (0.25 * parts[0].mean(0) + 0.75 * parts[1].mean(0))
    variance = 0.9 + 0.1 * (0.25 * parts[0].var(0, ddof=1) + 0.75 * parts[1].var(0, ddof=1))
    np.testing.assert_allclose(outcome.models[0][-6:], [*mean, *variance], atol=1e-9)


@pytest.mark.parametrize("strategy", [FedAvg(), FedProx(mu=0.5)])
def test_placement_changes_no_bit(federate: MakeFederation, strategy: Any) -> None:
    federation = federate([9, 4, 13, 0, 1, 6])
    found = [
        run_strategy(federation, strategy, actors=actors, model=DEEP, precision="float32").models
        for actors in (1, 2, 6)
    ]
    for models in found[1:]:
        np.testing.assert_array_equal(models, found[0])


def test_a_variance_below_zero_is_taken_as_zero(federate: MakeFederation) -> None:
    model = bound(Normed)
    task = task_of(model, 6)
    broken, mended = task.start.copy(), task.start.copy()
    broken[-1], mended[-1] = -0.3, 0.0
    np.testing.assert_array_equal(model.logits(broken, task.X), model.logits(mended, task.X))
    terms = Optimizer("sgd", 0.1, 1)
    ends = model.train([replace(task, start=broken), replace(task, start=mended)], terms)
    np.testing.assert_array_equal(ends[0], ends[1])
    outcome = run_strategy(
        federate([8, 8]), FedAdagrad(server_learning_rate=30.0, tau=0.001), model=NORMED, learning_rate=0.01
    )
    assert outcome.models[0][-3:].min() < 0
    assert np.isfinite(outcome.metrics["global"]["log_loss"])


def test_frozen_statistics_stay() -> None:
    model = bound(Normed)
    task = task_of(model, 7)
    frozen = np.zeros(model.layout.size, np.bool_)
    frozen[-6:] = True
    frozen[0] = True
    (theta,) = model.train([replace(task, frozen=frozen)], Optimizer("adam", 0.1, 3))
    np.testing.assert_array_equal(theta[frozen], task.start[frozen])
    assert (theta[1:-6] != task.start[1:-6]).all()


def test_what_is_not_sent_is_initialised_again() -> None:
    class Counting(nn.Sequential):
        def __init__(self, F: int, C: int) -> None:
            super().__init__(nn.BatchNorm1d(F, momentum=None), nn.Linear(F, C))  # a mean over all batches so far
            self.register_buffer("shift", torch.ones(1), persistent=False)

    model = bound(Counting)
    assert not {"0.num_batches_tracked", "shift"} & set(model.layout.names)
    task = task_of(model, 6, epochs=1)
    first, second = (model.train([task], Optimizer("sgd", 0.1, 0)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(model.layout.split(first[0])["0.running_mean"], task.X.mean(0), atol=1e-12)


@pytest.mark.parametrize(("cls", "alone"), [(Normed, True), (Deep, True), (Functional, True), (nn.Linear, False)])
def test_what_must_be_trained_one_by_one_on_a_gpu_too(cls: type[nn.Module], alone: bool) -> None:
    assert bound(cls).batches is not alone


def test_evaluation_that_cannot_be_repeated_is_refused() -> None:
    with pytest.raises(ConfigError, match="Restless uses random numbers when it is evaluated"):
        bound(Restless)


def test_random_buffers_are_those_of_seed_0_in_the_model_and_outside_it() -> None:
    class RandomBuffer(nn.Linear):
        def __init__(self, F: int, C: int) -> None:
            super().__init__(F, C)
            self.register_buffer("scale", torch.rand(F))
            self.register_buffer("shift", torch.rand(F), persistent=False)

        def forward(self, X: Tensor) -> Tensor:
            return super().forward(X * self.scale + self.shift)

    model = build_model(RandomBuffer, 3, 2, options={}, precision="float64", init="zeros")
    assert isinstance(model, ModuleModel)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = RandomBuffer(3, 2)
    start = model.initial(np.random.default_rng(1))
    assert start.tolist() == [0.0] * 8 + module.scale.tolist()
    theta = np.arange(11.0)
    (weight, bias, scale), X = np.split(theta, [6, 8]), np.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]])
    outputs = (X * scale + module.shift.double().numpy()) @ weight.reshape(2, 3).T + bias
    np.testing.assert_allclose(model.logits(theta, X), outputs[:, 1] - outputs[:, 0], atol=1e-12)
    np.testing.assert_allclose(
        model.as_module(theta)(torch.from_numpy(X)).detach().numpy(), outputs[:, 1] - outputs[:, 0], atol=1e-12
    )


@pytest.mark.parametrize("persistent", [True, False])
def test_one_buffer_of_either_kind_is_trained_with_hospital_by_hospital(persistent: bool) -> None:
    class Shifted(nn.Linear):
        def __init__(self, F: int, C: int) -> None:
            super().__init__(F, C)
            self.register_buffer("shift", torch.ones(F), persistent)

    model = bound(Shifted)
    assert not model.batches
    assert model.unclippable == ("measures rows as it trains" if persistent else None)


def test_a_gpu_s_generator_is_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    for device in ("cuda", "cpu"):
        with torch.random.fork_rng(devices=[]):
            seed(device, 7)
            assert (torch.initial_seed() == 7) == (device == "cpu")
    assert seeds == [7]
