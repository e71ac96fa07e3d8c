"""The networks of published experiments, against the same written with torch's own layers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.training import machine_code
from raysim.training.base import ContrastTerm, Layout, Moments, Optimizer, Task
from raysim.training.kernels.batched import Cohort
from raysim.training.kernels.modules import generic, visit
from raysim.training.kernels.modules.flat import FlatModule
from raysim.training.kernels.modules.generic import ModuleModel
from raysim.training.kernels.modules.lookup import condense
from raysim.training.kernels.modules.vmapped import Vmapped
from raysim.training.models import build_model
from raysim.training.networks import dropout
from raysim.training.networks.dropout import Dropout, mask
from raysim.training.networks.images import CifarCnn, FashionCnn
from raysim.training.networks.recurrent import Gates, recurrences
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
            if isinstance(part, Dropout | nn.Dropout):
                part.eval()
    for ours, theirs in zip(gradients(net, X, y), gradients(plain, X, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    drops = [part.rate for part in net.modules() if isinstance(part, Dropout)]
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


def test_a_mask_keeps_the_mean() -> None:
    torch.manual_seed(0)
    drawn = mask(torch.empty(200_000, dtype=torch.float64), 0.2)
    assert drawn.unique().tolist() == [0.0, 65536 / (65536 - 13107)]  # a fifth of 65,536 is 13,107.2
    assert abs(drawn.mean() - 1) < 0.01  # nine standard deviations
    assert mask(torch.empty(dropout.LARGE, dtype=torch.float64), 0.2).max() == drawn.max()
    assert mask(torch.empty(dropout.LARGE - 1), 0.2).unique().tolist() == [0.0, 1.25]
    layer, x = Dropout(0.5), torch.ones(8)
    assert layer.eval()(x) is x
    assert set(layer.train()(torch.ones(100)).tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("n", [dropout.LARGE - 1, dropout.LARGE, dropout.LARGE + 3])
def test_a_mask_follows_torchs_generator(n: int) -> None:
    like = torch.empty(n // 3, 3) if n % 3 == 0 else torch.empty(n)
    torch.manual_seed(0)
    first, second = mask(like, 0.5), mask(like, 0.5)
    assert first.shape == like.shape
    assert (first != second).double().mean() > 0.4
    torch.manual_seed(0)
    assert torch.equal(mask(like, 0.5), first)
    assert torch.equal(mask(like, 0.5), second)


def split_mix(seed: int, k: int) -> int:
    """Number ``k`` of Java's SplittableRandom, as its paper writes it."""
    z = (seed + (k + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


@pytest.mark.parametrize("n", [*range(12), 40_000])
def test_a_large_mask_has_a_part_of_a_word_for_each_number(n: int) -> None:
    assert [split_mix(1234567, k) for k in range(2)] == [6457827717110365317, 3203168211198807973]  # published
    drawn, seed, quarter = np.full(n + 4, 7.0), 2**63 - 5, -(-n // 4)
    words = np.array([split_mix(seed, k) for k in range(quarter)], np.uint64)
    parts = np.concatenate([words >> np.uint64(16 * j) & np.uint64(65535) for j in range(4)])[:n]
    values = np.array([0, 1.5])
    for dropped in (20_000, *parts[:: max(quarter, 1)]):  # and what stands in a mask itself
        machine_code.function("masks", "store", "nnaan", drawn.dtype)(
            seed, int(dropped), values.ctypes.data, drawn.ctypes.data, n
        )
        np.testing.assert_array_equal(drawn[:n], np.where(parts < dropped, 0, 1.5))
        assert (drawn[n:] == 7).all()


def test_seeds_of_large_masks_have_63_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(dropout, "function", lambda *_: lambda seed, *_: seeds.append(seed))
    for _ in range(100):
        mask(torch.empty(dropout.LARGE), 0.5)
    assert len(set(seeds)) == 100
    assert 2**62 < max(seeds) < 2**63


def test_a_large_mask_lies_in_memory_as_what_it_is_for() -> None:
    images = torch.empty(2, 16, 32, 16).contiguous(memory_format=torch.channels_last)
    torch.manual_seed(0)
    drawn = mask(images, 0.5)
    assert drawn.stride() == images.stride()
    torch.manual_seed(0)
    assert torch.equal(drawn.permute(0, 2, 3, 1).flatten(), mask(images.new_empty(images.numel()), 0.5))
    assert mask(torch.empty(64, 256).T[:100], 0.5).shape == (100, 64)
    assert mask(torch.empty(2, 8192, dtype=torch.bfloat16), 0.5).dtype == torch.bfloat16


lengths = pytest.mark.parametrize("n", [dropout.LARGE - 1, dropout.LARGE])


@lengths
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_rate_of_one_leaves_nothing(n: int, dtype: torch.dtype) -> None:
    x = torch.ones(n, dtype=dtype)
    assert torch.equal(Dropout(1.0)(x), nn.Dropout(1.0)(x))


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"a probability, not {rate}"):
        Dropout(rate)


@lengths
def test_masks_in_float16_are_those_of_float32(n: int) -> None:
    drawn = []
    for dtype in (torch.float16, torch.float32):
        torch.manual_seed(0)
        drawn.append(mask(torch.empty(n, dtype=dtype), 0.2))
    assert drawn[0].dtype == torch.float16
    assert torch.equal(drawn[0], drawn[1].half())


@lengths
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_masks_for_what_is_no_real_number_are_refused(n: int, dtype: torch.dtype) -> None:
    with pytest.raises(NotImplementedError, match="not implemented for"):
        mask(torch.ones(n, dtype=dtype), 0.5)


def reference(inputs: Tensor, matrix: Tensor, drop: Tensor | None, begun: Tensor) -> Tensor:
    """The recurrence by autograd, a row that has not begun being put back to zero."""
    h = c = inputs.new_zeros(inputs.shape[1], matrix.shape[1])
    for s, u in enumerate(inputs):
        g, i, f, o = (u + (h if drop is None else h * drop) @ matrix.T).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        if s < len(begun):
            h, c = h * begun[s], c * begun[s]
    return h


def alone(*gates: Any) -> Tensor:
    (state,) = recurrences([Gates(*gates)])
    return state


@settings(max_examples=30, deadline=None)
@given(T=st.integers(0, 5), B=st.integers(1, 4), H=st.integers(1, 3), dropped=st.booleans(), seed=st.integers(0, 99))
def test_the_recurrence_and_its_derivatives(T: int, B: int, H: int, dropped: bool, seed: int) -> None:
    torch.manual_seed(seed)
    late = torch.randint(0, T + 1, (B,))
    begun = (torch.arange(int(late.max()))[:, None] >= late).double().unsqueeze(2)
    drop = mask(torch.empty(B, H, dtype=torch.float64), 0.5) if dropped else None
    upstream = torch.randn(B, H, dtype=torch.float64)
    results = []
    for function in (alone, reference):
        torch.manual_seed(seed)
        inputs = torch.randn(T, B, 4 * H, dtype=torch.float64, requires_grad=True)
        matrix = torch.randn(4 * H, H, dtype=torch.float64, requires_grad=True)
        out = function(inputs, matrix, drop, begun)
        by = (
            torch.autograd.grad(out, (inputs, matrix), upstream, allow_unused=True, materialize_grads=True) if T else ()
        )
        results.append((out.detach(), *by))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def some_gates(seed: int, T: int, B: int, H: int, dtype: torch.dtype, dropped: bool) -> tuple[Gates, Tensor]:
    """Gates of ``B`` rows, of which most begin late, and the gradient of what is made of them."""
    generator = torch.Generator().manual_seed(seed)
    late = torch.randint(0, T + 1, (B,), generator=generator)
    begun = (torch.arange(int(late.max()))[:, None] >= late).to(dtype).unsqueeze(2)
    inputs, matrix, state = (
        torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((T, B, 4 * H), (4 * H, H), (B, H))
    )
    drop = (torch.rand(B, H, generator=generator) < 0.5).to(dtype) if dropped else None
    return Gates(inputs.requires_grad_(), matrix.requires_grad_(), drop, begun), state


def states_and_gradients(several: list[tuple[Gates, Tensor]]) -> list[tuple[bytes, ...]]:
    """Of each: the state and its derivatives by inputs and matrix."""
    states = recurrences([gates for gates, _ in several])
    by = torch.autograd.grad(
        states, [t for gates, _ in several for t in (gates.inputs, gates.matrix)], [upstream for _, upstream in several]
    )
    tensors = zip(states, by[::2], by[1::2], strict=True)
    return [tuple(t.detach().numpy().tobytes() for t in of) for of in tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dropped", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("H", [UNITS, 3])
def test_who_shares_a_recurrence_changes_no_bit(count: int, dropped: bool, dtype: torch.dtype, H: int) -> None:
    shapes = [(9, 32), (9, 32), (12, 32), (2, 7), (9, 1), (5, 1), (12, 32), (0, 32), (1, 7), (30, 32), (4, 7), (9, 32)]
    several = [some_gates(seed, *shape, H, dtype, dropped) for seed, shape in enumerate(shapes)]
    # one whose products are infinite, and so no numbers: it has fewer steps than some, and more than others
    bad, upstream = some_gates(99, 10, 32, H, dtype, dropped)
    broken = replace(bad, matrix=torch.full_like(bad.matrix, np.inf).requires_grad_()), upstream
    with np.errstate(all="ignore"):
        expected = [states_and_gradients([each])[0] for each in several]
        order = np.random.default_rng(count).permutation(len(several))
        for first in range(0, len(several), count):
            members = order[first : first + count].tolist()
            made = states_and_gradients([broken, *(several[k] for k in members)])
            assert made[1:] == [expected[k] for k in members]
            assert made[:1] == states_and_gradients([broken])


def test_text_lstm_is_torchs_lstm_over_the_tokens() -> None:
    net = TextLstm(7, 3, 50, 6).double().eval()
    lstm = nn.LSTM(6, UNITS).double()
    order = np.concatenate([np.arange(UNITS) + UNITS * k for k in (1, 2, 0, 3)])  # torch begins with the input gate
    lstm.weight_ih_l0.data, lstm.weight_hh_l0.data = net.inputs.weight.data[order], net.recurrent.weight.data[order]
    lstm.bias_ih_l0.data, lstm.bias_hh_l0.data = net.inputs.bias.data[order], torch.zeros(4 * UNITS).double()
    rows = rng().integers(1, 50, (5, 7))
    rows[1, :3], rows[2, 4:], rows[3, [1, 4]], rows[4] = 0, 0, 0, 0
    for x, z in zip(torch.from_numpy(rows), net(torch.from_numpy(rows.astype(float))), strict=True):
        states, _ = lstm(net.embedding(x[x > 0]).unsqueeze(1)) if x.any() else (torch.zeros(1, 1, UNITS).double(), None)
        torch.testing.assert_close(z, net.head(states[-1])[0], rtol=0, atol=1e-12)


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
                lambda epoch, h=h: stream(1, "batch", h, epoch),  # type: ignore[misc]
                frozen=np.arange(len(start)) % 3 == 0 if h == 4 else None,
                weights=draws.random(n) if h == 5 else None,
            )
        )
    return tasks


@pytest.mark.parametrize("batch_size", [0, 4, 8])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_hospitals_that_train_side_by_side_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, optimizer: str, batch_size: int
) -> None:
    model = build_model("text_lstm", 6, 3, options=TEXT)
    terms, tasks = Optimizer(optimizer, 0.1, batch_size), text_tasks(model)
    broken = replace(tasks[3], learning_rate=1e30)
    expected = [model.train([task], terms)[0].tobytes() for task in tasks]
    shared: list[int] = []

    def joint(several: list[Gates]) -> list[Tensor]:
        shared.append(len(several))
        return recurrences(several)

    monkeypatch.setattr(TextLstm, "joint", staticmethod(joint))
    for limit in (1, 2, 7, 30):
        monkeypatch.setattr(generic, "TOGETHER", limit)
        shared.clear()
        with np.errstate(all="ignore"):
            whole = model.train([*tasks, broken], terms)
            backwards = model.train([broken, *tasks[::-1]], terms)[:0:-1]
            parts = [*model.train(tasks[:2], terms), *model.train(tasks[2:], terms)]
        for thetas in (whole[:-1], backwards, parts):
            assert [theta.tobytes() for theta in thetas] == expected
        assert max(shared) == min(limit, 9)  # of the ten one has no rows


def test_only_networks_with_a_middle_that_is_shared_have_copies_side_by_side() -> None:
    for name, copies in (("text_lstm", 3), ("text_dense", 1)):
        model = build_model(name, 6, 3, options=TEXT)
        assert isinstance(model, ModuleModel)
        assert len(model._copies(3)) == copies
        assert len(model._copies(1)) == 1


def test_moments_go_on_where_hospitals_train_side_by_side() -> None:
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
    with pytest.raises(ValueError, match="not an id below"):
        model.train([tasks[0], replace(tasks[3], X=tasks[3].X + 30), tasks[1]], terms)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.train(tasks, terms).tobytes() == expected


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("name", ["text_lstm", "text_dense"])
@pytest.mark.parametrize("terms", ["none", "towards the start", "towards another", "linear", "frozen"])
def test_looking_up_a_part_equals_training_the_whole(optimizer: str, name: str, terms: str) -> None:
    part, whole = (build_model(name, 6, 3, options=TEXT, precision="float64") for _ in range(2))
    assert isinstance(part, ModuleModel)
    assert isinstance(whole, ModuleModel)
    whole._flat.lookup = None
    task = text_task(part, 9)
    other = task.start + 0.1
    task = {
        "none": task,
        "towards the start": replace(task, pulls=[(0.5, task.start), (0.0, other)]),
        "towards another": replace(task, pulls=[(0.5, task.start), (0.2, other)]),
        "linear": replace(task, linear=np.full(len(other), 0.01)),
        "frozen": replace(task, frozen=np.arange(len(other)) % 3 == 0),
    }[terms]
    small = condense(task, part.layout, "embedding.weight", Optimizer("sgd", 0.1, 0))
    if terms in ("towards another", "linear"):  # which move every entry
        assert small is None
    else:
        assert small is not None
        assert small.layout.shapes[0] == (len({0, *task.X.ravel()}), 4)
        assert len(small.task.start) == small.layout.size < part.layout.size
    how = Optimizer(optimizer, 0.05, 4)
    ends = [model.train([task], how)[0] for model in (part, whole)]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)
    table = part.layout.split(ends[0] - task.start)["embedding.weight"]
    moved = set(np.flatnonzero(table.any(axis=1)).tolist())
    if terms in ("none", "towards the start"):
        assert moved == {int(i) for i in task.X.ravel()} - {0}


def test_what_moves_all_entries_or_looks_up_none_is_trained_whole() -> None:
    layout = Layout(("table", "bias"), ((3, 2), (1,)), 0)
    task = Task(np.array([[1.0, 0.0]]), np.zeros(1), np.zeros(7), [], 1, 0.1, np.random.default_rng)
    again = replace(task, moments=Moments())
    for visited, name, decay, condensed in (
        (task, "adam", 0.0, True),
        (again, "sgd", 0.0, True),
        (again, "adam", 0.0, False),
        (task, "sgd", 0.1, False),
        (replace(task, X=np.array([[1.0, 0.5]])), "sgd", 0.0, False),
        (replace(task, X=np.array([[3.0, 0.0]])), "sgd", 0.0, False),
    ):
        small = condense(visited, layout, "table", Optimizer(name, 0.1, 0, decay))
        assert (small is not None) == condensed
    padding = replace(task, X=np.zeros((1, 2)), start=np.zeros(3))
    assert (
        condense(padding, Layout(("table", "bias"), ((1, 2), (1,)), 0), "table", Optimizer("sgd", 0.1, 0)) is not None
    )


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


@pytest.mark.parametrize("rows", [4, 1])
def test_text_dense_writes_out_what_autograd_derives(rows: int) -> None:
    torch.manual_seed(rows)
    net = TextDense(5, 3, 20, 3).double()
    x = torch.from_numpy(rng().integers(0, 9, (rows, 5)).astype(float))
    x[0, :2] = 0  # padding, whose gradient is left out
    by_output = torch.randn(rows, 3, dtype=torch.float64)
    expected = net(x)
    torch.autograd.backward(expected, by_output)
    outputs, backward = net.written(x)
    np.testing.assert_allclose(outputs, expected.detach().numpy(), rtol=0, atol=1e-14)
    gradients = [np.full(parameter.shape, 7.0) for parameter in net.parameters()]
    backward(by_output.numpy(), gradients)
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        np.testing.assert_allclose(gradient, parameter.grad.numpy(), rtol=0, atol=1e-14)
    assert (net.head[0](net.embedding(x.long()).flatten(1)) < 0).any()  # some of what ReLU is given


@pytest.mark.parametrize(("classes", "loss"), [(0, "squared"), (0, "absolute"), (2, "log_loss"), (3, "log_loss")])
def test_a_visit_with_written_derivatives_is_that_of_autograd(
    monkeypatch: pytest.MonkeyPatch, classes: int, loss: str
) -> None:
    model = build_model("text_dense", 6, classes, options=TEXT | {"loss": loss}, precision="float64")
    task = replace(text_task(model, 9, C=classes or 3), weights=rng().random(9))
    if not classes:
        task = replace(task, y=rng().normal(size=9))
    (ours,) = model.train([task], Optimizer("adam", 0.05, 4))
    monkeypatch.setattr(visit, "WrittenModule", CifarCnn)  # which the network is not
    (plain,) = model.train([task], Optimizer("adam", 0.05, 4))
    assert ours.tobytes() != task.start.tobytes()
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-13)


def test_autograd_derives_what_is_not_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(self: TextDense, x: Tensor) -> None:
        raise AssertionError

    monkeypatch.setattr(TextDense, "written", written)
    model, halves = (build_model("text_dense", 6, 3, options=TEXT | more) for more in ({}, {"autocast": "bfloat16"}))
    task = text_task(model, 5)
    term = ContrastTerm(1.0, 0.5, model.initial(rng()), task.start + 0.01)
    for network, visited in ((model, replace(task, contrast=term)), (halves, task)):
        assert np.isfinite(network.train([visited], Optimizer("sgd", 0.1, 4))).all()
    with pytest.raises(AssertionError):
        model.train([task], Optimizer("sgd", 0.1, 4))


def test_a_visit_that_diverges_says_nothing() -> None:
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
        with pytest.raises(ValueError, match=r"not an id below model.vocabulary \(30\)"):
            model.logits(start, X)
        task = Task(X, np.array([0]), start, [], 1, 0.1, np.random.default_rng)
        with pytest.raises(ValueError, match="not an id below"):
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
