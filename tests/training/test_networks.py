"""The networks of published experiments, against the same written with torch's own layers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.training.base import Moments, Optimizer, Task
from raysim.training.kernels.batched import Cohort
from raysim.training.kernels.modules import generic
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel, Vmapped
from raysim.training.models import build_model
from raysim.training.networks.images import CifarCnn, FashionCnn
from raysim.training.networks.text import UNITS, TextDense, TextLstm

TEXT = {"vocabulary": 30, "dimension": 4}


def rng() -> np.random.Generator:
    return np.random.default_rng(2)


def image_task(model: Any, F: int, n: int, hospital: int = 0) -> Task:
    X, y = rng().random((n, F)), rng().integers(0, 10, n)
    return Task(X, y, model.initial(rng()), [], 2, 0.01, lambda epoch: stream(1, "batch", hospital, epoch))


def text_task(model: Any, n: int, L: int = 6, C: int = 3, optimizer_rate: float = 0.05) -> Task:
    X = rng().integers(2, 12, (n, L)).astype(float)
    X[np.arange(L) < rng().integers(0, L, n)[:, None]] = 0
    start = model.initial(rng())
    return Task(X, rng().integers(0, C, n), start, [], 3, optimizer_rate, lambda epoch: stream(1, "batch", epoch))


def same_weights(net: nn.Module, plain: nn.Module) -> nn.Module:
    """``plain`` with the parameters and buffers of ``net``, which holds them in the same order."""
    plain.load_state_dict(dict(zip(plain.state_dict(), net.state_dict().values(), strict=True)))
    return plain.double().eval()


def gradients(net: nn.Module, X: Tensor, y: Tensor) -> list[Tensor]:
    net.zero_grad()
    torch.autograd.backward(nn.functional.cross_entropy(net(X), y))
    return [p.grad for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize(("padding", "reach"), [(True, 288), (False, 32)])
def test_fashion_cnn_is_the_network_in_its_usual_order(padding: bool, reach: int) -> None:
    net = FashionCnn(784, 10, dense=20, padding=padding).double()
    sizes = ((1, 8), (8, 16), (16, 32))
    stages = [
        (nn.Conv2d(a, b, 3, padding="same" if padding else "valid"), nn.ReLU(), nn.MaxPool2d(2)) for a, b in sizes
    ]
    head = nn.Flatten(), nn.Linear(reach, 20), nn.ReLU(), nn.Linear(20, 10)
    plain = same_weights(net, nn.Sequential(nn.Unflatten(1, (1, 28, 28)), *(p for s in stages for p in s), *head))
    # whole numbers, so that many neighbours are equal: pooling and ReLU must agree about ties too
    X, y = torch.from_numpy(rng().integers(0, 2, (5, 784)).astype(float)), torch.arange(5)
    torch.testing.assert_close(net(X), plain(X), rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(net, X, y), gradients(plain, X, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_cifar_cnn_is_the_network_of_its_description() -> None:
    net = CifarCnn(3072, 10, dense=8).double()
    layers: list[nn.Module] = [nn.Unflatten(1, (3, 32, 32))]
    for a, b, drop in ((3, 32, 0.2), (32, 64, 0.3), (64, 128, 0.4)):
        for channels in (a, b):
            layers += [nn.Conv2d(channels, b, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(b)]
        layers += [nn.MaxPool2d(2), nn.Dropout(drop)]
    layers += [nn.Flatten(), nn.Linear(2048, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10)]
    plain = same_weights(net, nn.Sequential(*layers))
    X, y = torch.from_numpy(rng().random((4, 3072))), torch.arange(4)
    torch.testing.assert_close(net.eval()(X), plain(X), rtol=0, atol=1e-12)
    for both in (net, plain):  # batch statistics, without masks
        both.train()
        for part in both.modules():
            if isinstance(part, nn.Dropout):
                part.eval()
    for ours, theirs in zip(gradients(net, X, y), gradients(plain, X, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    drops = [part.p for part in net.modules() if isinstance(part, nn.Dropout)]
    assert drops == [0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(("name", "F"), [("fashion_cnn", 784), ("cifar_cnn", 3072)])
def test_images_of_another_size_are_refused(name: str, F: int) -> None:
    assert build_model(name, F, 10, options={}).layout.size > 10**5
    with pytest.raises(ConfigError, match=f"^model.name: {name} takes images of .*, {F} features, not 785$"):
        build_model(name, 785, 10, options={})
    for dense, shown in ((0, "0"), (-3, "-3"), (1.5, "1.5"), (True, "true")):
        with pytest.raises(ConfigError, match=f"^model.dense: {shown} is not a whole number of at least 1$"):
            build_model(name, F, 10, options={"dense": dense})


def test_a_cohort_of_cnns_at_once_equals_the_loop() -> None:
    loop = ModuleModel(FlatModule(FashionCnn, 784, 10, {"dense": 6}, "default", "cpu", "float64"))
    together = Cohort(loop, Vmapped(loop.module, loop.layout), device="cpu", precision="float64")
    tasks = [image_task(loop, 784, n, h) for h, n in enumerate((5, 1, 0, 4))]
    for terms in (Optimizer("sgd", 0.01, 3), Optimizer("adam", 0.01, 0)):
        np.testing.assert_allclose(together.train(tasks, terms), loop.train(tasks, terms), atol=1e-10)


def test_rows_are_evaluated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model("fashion_cnn", 784, 10, options={"dense": 6}, precision="float64")
    theta, X = model.initial(rng()), rng().random((7, 784))
    whole = model.logits(theta, X)
    monkeypatch.setattr(generic, "EVALUATED", 3)
    np.testing.assert_allclose(model.logits(theta, X), whole, atol=1e-12)
    assert model.logits(theta, X[:0]).shape == (0, 10)


def test_text_lstm_is_torchs_lstm_over_the_tokens() -> None:
    net = TextLstm(7, 3, 50, 6).double().eval()
    rows = rng().integers(1, 50, (5, 7))
    rows[1, :3], rows[2, 4:], rows[3, [1, 4]], rows[4] = 0, 0, 0, 0
    for x, z in zip(torch.from_numpy(rows), net(torch.from_numpy(rows.astype(float))), strict=True):
        embedded = net.embedding(x[x > 0]).unsqueeze(0)
        states = net.lstm(embedded)[0][0] if x.any() else torch.zeros(1, UNITS).double()
        torch.testing.assert_close(z, net.head(states[-1]), rtol=0, atol=1e-12)


def test_the_inputs_of_a_row_s_lstm_are_dropped_alike_at_all_steps() -> None:
    net, given = TextLstm(5, 3, 50, 6).double(), []
    net.drop.eval()
    net.lstm.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    X = torch.from_numpy(rng().integers(1, 50, (200, 5)).astype(float))
    torch.manual_seed(0)
    net(X)
    dropped = (given[0] == 0).double()
    torch.testing.assert_close(dropped, dropped[:, :1].expand_as(dropped))
    assert abs(float(dropped.mean()) - 0.2) < 0.04  # 3.5 standard deviations of 1,200 draws
    kept = given[0] / net.embedding(X.long())
    torch.testing.assert_close(kept[kept > 0].unique(), torch.tensor([1.25], dtype=torch.float64))
    net.eval()(X)
    torch.testing.assert_close(given[1], net.embedding(X.long()))


def test_padding_may_stand_anywhere() -> None:
    model = build_model("text_lstm", 4, 3, options=TEXT, precision="float64")
    theta = model.initial(rng())
    rows = np.array([[0, 0, 7, 9], [7, 9, 0, 0], [0, 7, 0, 9]], float)
    z = model.logits(theta, rows)
    np.testing.assert_allclose(z, z[[0, 0, 0]], atol=1e-14)
    empty = model.logits(theta, np.zeros((2, 4)))
    np.testing.assert_allclose(empty, model.layout.split(theta)["head.bias"][None].repeat(2, 0), atol=1e-14)
    assert model.logits(theta, rows[:0]).shape == (0, 3)


@pytest.mark.parametrize("rows", [np.zeros((3, 4)), np.array([[0, 0, 0, 5.0]])])
def test_texts_of_nothing_and_a_lone_one_are_trained_on(rows: NDArray[np.float64]) -> None:
    model = build_model("text_lstm", 4, 3, options=TEXT, precision="float64")
    start = model.initial(rng())
    task = Task(rows, np.zeros(len(rows), np.int64), start, [], 2, 0.1, lambda epoch: stream(1, "batch", epoch))
    (theta,) = model.train([task], Optimizer("adam", 0.1, 2))
    assert np.isfinite(theta).all()
    assert (theta[-1] != start[-1]).all()


def text_tasks(model: Any) -> list[Task]:
    """Hospitals of many sizes, texts of many lengths, one and two epochs, some with terms of their own."""
    tasks = []
    for h, (n, most) in enumerate(((9, 6), (1, 6), (0, 6), (16, 2), (8, 6), (33, 4), (7, 1), (20, 6), (12, 5))):
        draws = np.random.default_rng(h)
        X = draws.integers(2, 30, (n, 6)).astype(np.float32)
        X[np.arange(6) >= draws.integers(0, most + 1, n)[:, None]] = 0
        start = model.initial(draws).astype(np.float32)
        tasks.append(
            Task(
                X,
                draws.integers(0, 3, n),
                start,
                [(0.1, start)] if h % 2 else [],
                1 + h % 2,
                0.05 * (1 + h % 3),
                lambda epoch, h=h: stream(1, "batch", h, epoch),
                frozen=np.arange(len(start)) % 3 == 0 if h == 4 else None,
                weights=draws.random(n) if h == 5 else None,
            )
        )
    return tasks


@pytest.mark.parametrize("batch_size", [0, 4, 8])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_hospitals_that_train_in_one_call_change_no_bit(optimizer: str, batch_size: int) -> None:
    model = build_model("text_lstm", 6, 3, options=TEXT)
    terms, tasks = Optimizer(optimizer, 0.1, batch_size), text_tasks(model)
    broken = replace(tasks[3], learning_rate=1e30)
    expected = [model.train([task], terms)[0].tobytes() for task in tasks]
    whole = model.train([*tasks, broken], terms)[:-1]
    backwards = model.train([broken, *tasks[::-1]], terms)[:0:-1]
    parts = [*model.train(tasks[:2], terms), *model.train(tasks[2:], terms)]
    for thetas in (whole, backwards, parts):
        assert [theta.tobytes() for theta in thetas] == expected


def test_moments_go_on_where_hospitals_train_in_one_call() -> None:
    model = build_model("text_lstm", 6, 3, options=TEXT)
    results = []
    for together in (True, False):
        tasks = [replace(task, moments=Moments()) for task in text_tasks(model)]
        for _ in range(2):
            if together:
                thetas = model.train(tasks, Optimizer("adam", 0.1, 4))
            else:
                thetas = np.concatenate([model.train([task], Optimizer("adam", 0.1, 4)) for task in tasks])
            tasks = [replace(task, start=theta) for task, theta in zip(tasks, thetas, strict=True)]
        results.append(
            [
                (t.start.tobytes(), t.moments and t.moments.steps, t.moments and (t.moments.first, t.moments.second))
                for t in tasks
            ]
        )
    for (a, steps, first), (b, others, second) in zip(*results, strict=True):
        assert (a, steps) == (b, others)
        np.testing.assert_array_equal(first, second)


def test_one_who_cannot_train_leaves_the_others_as_they_are() -> None:
    model = build_model("text_lstm", 6, 3, options=TEXT)
    tasks, terms = text_tasks(model), Optimizer("adam", 0.1, 4)
    expected, state = model.train(tasks, terms).tobytes(), torch.get_rng_state()
    with pytest.raises(ValueError, match="a token has the id"):
        model.train([tasks[0], replace(tasks[3], X=tasks[3].X + 30), tasks[1]], terms)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.train(tasks, terms).tobytes() == expected


def test_padding_has_no_embedding() -> None:
    model = build_model("text_dense", 6, 3, options=TEXT)
    task = text_task(model, 9)
    assert (task.X == 0).any()
    (theta,) = model.train([task], Optimizer("adam", 0.1, 4))
    assert not model.layout.split(theta)["embedding.weight"][0].any()


def test_text_dense_is_its_layers() -> None:
    net = TextDense(5, 2, 20, 3).double()
    ids = rng().integers(0, 20, (4, 5))
    w = {name: p.detach().numpy() for name, p in net.named_parameters()}
    flat = w["embedding.weight"][ids].reshape(4, 15)
    hidden = np.maximum(flat @ w["head.0.weight"].T + w["head.0.bias"], 0)
    assert hidden.shape == (4, 8)
    expected = hidden @ w["head.2.weight"].T + w["head.2.bias"]
    np.testing.assert_allclose(net(torch.from_numpy(ids.astype(float))).detach().numpy(), expected, atol=1e-12)


def test_local_training_that_diverges_prints_nothing() -> None:
    model = build_model("text_dense", 6, 3, options=TEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (theta,) = model.train([replace(text_task(model, 9), learning_rate=1e30)], Optimizer("sgd", 1e30, 4))
    assert not np.isfinite(theta).all()


@pytest.mark.parametrize("name", ["text_lstm", "text_dense"])
def test_ids_that_are_not_in_the_vocabulary(name: str) -> None:
    model = build_model(name, 2, 3, options=TEXT)
    start = model.initial(rng())
    for wrong in (30.0, -1.0, np.nan):
        X = np.array([[1.0, wrong]])
        with pytest.raises(ValueError, match=r"which is not from 0 to 29; set model.vocabulary to"):
            model.logits(start, X)
        task = Task(X, np.array([0]), start, [], 1, 0.1, np.random.default_rng)
        with pytest.raises(ValueError, match="a token has the id"):
            model.train([task], Optimizer("adam", 0.1, 4))


@pytest.mark.parametrize("name", ["text_lstm", "text_dense"])
def test_options_of_text_networks(name: str) -> None:
    for options, message in (
        ({"vocabulary": 1}, "model.vocabulary: 1 is not a whole number of at least 2"),
        ({"vocabulary": 2.5}, "model.vocabulary: 2.5 is not a whole number of at least 2"),
        ({"dimension": 0}, "model.dimension: 0 is not a whole number of at least 1"),
    ):
        with pytest.raises(ConfigError) as error:
            build_model(name, 4, 2, options=options)
        assert str(error.value) == message
