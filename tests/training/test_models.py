"""From names to models: families, options, the start, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.training.base import Optimizer, Task
from raysim.training.kernels.logistic import LogisticModel
from raysim.training.kernels.modules.checks import check_module, parameter_count
from raysim.training.kernels.modules.exported import dense
from raysim.training.losses import row_losses
from raysim.training.models import build_model


class Wide(nn.Sequential):
    def __init__(self, n_features: int, n_outputs: int, width: int = 6) -> None:
        super().__init__(nn.Linear(n_features, width), nn.Tanh(), nn.Linear(width, n_outputs))


class Narrow(nn.Linear):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(n_features - 1, n_outputs)


class Flat(nn.Linear):
    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X).sum(1)


class InPlace(nn.Linear):
    def forward(self, X: Tensor) -> Tensor:
        X += 1
        return super().forward(X)


class Cut(nn.Linear):
    """Changes no row of zeros."""

    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X.relu_())


class Pair(nn.Linear):
    def forward(self, X: Tensor) -> Any:
        return super().forward(X), X


class Centred(nn.Linear):
    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X - X.mean(0))


class OneNorm(nn.Linear):
    """Each row is divided by its norm, which has no gradient at 0."""

    def forward(self, X: Tensor) -> Tensor:
        return super().forward(X / X.norm(dim=1, keepdim=True).clamp_min(1e-12))


class TwoInputs(nn.Linear):
    def forward(self, X: Tensor, hidden: Tensor) -> Tensor:
        return super().forward(X) + hidden


class Lazy(nn.Sequential):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(nn.LazyLinear(n_outputs))


class NoSuper(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        self.layer = nn.Linear(n_features, n_outputs)


class Masked(nn.Linear):
    """A constant that is not finite, of which a module makes no part of its state."""

    def __init__(self, n_features: int, n_outputs: int, persistent: bool) -> None:
        super().__init__(n_features, n_outputs)
        self.register_buffer("mask", torch.tensor([-torch.inf]), persistent)


class TwoNames(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(n_features, n_features)
        self.last = nn.Linear(n_features, n_outputs)


class Tied(nn.Module):
    """Two layers share their weight."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(n_features, n_features), nn.Linear(n_features, n_features)
        self.second.weight = self.first.weight
        self.last = nn.Linear(n_features, n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        outputs: Tensor = self.last(self.second(torch.tanh(self.first(X))))
        return outputs


@dataclass(frozen=True)
class Ridge:
    """A family as a user's package might add it."""

    strength: float = 1.0

    def bind(self, n_features: int, n_classes: int, **_: Any) -> LogisticModel:
        return LogisticModel(n_features, n_classes, "float64")


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_layouts_are_those_of_torch() -> None:
    logistic = build_model("logistic_regression", 7, 2, options={})
    assert (logistic.layout.names, logistic.layout.shapes) == (("weight", "bias"), ((1, 7), (1,)))
    mlp = build_model("mlp", 7, 3, options={"hidden": [5]})
    assert mlp.layout.names == ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")
    assert mlp.layout.shapes == ((5, 7), (5,), (3, 5), (3,))
    assert build_model("mlp", 100, 2, options={}).layout.size == 100 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2


def test_starts() -> None:
    assert not build_model("logistic_regression", 7, 2, options={}).initial(rng()).any()
    for family, options in (("mlp", {"hidden": [50]}), (Wide, {"width": 50})):
        model = build_model(family, 25, 2, options=options)
        state = torch.random.get_rng_state()
        start = model.initial(rng())
        assert torch.equal(torch.random.get_rng_state(), state)
        assert start.dtype == np.float64
        np.testing.assert_array_equal(model.initial(rng()), start)
        first, bias, last, _ = model.layout.split(start).values()
        for part, bound in ((first, 0.2), (bias, 0.2), (last, 50**-0.5)):
            assert 0.9 * bound < np.abs(part).max() <= bound
        assert not build_model(family, 25, 2, options=options, init="zeros").initial(rng()).any()


def test_a_module_s_start_is_its_own_under_the_sampled_seed() -> None:
    start = build_model(Wide, 3, 2, options={"width": 4}).initial(rng())
    with torch.random.fork_rng():
        torch.manual_seed(int(rng().integers(2**63 - 1)))
        parameters = torch.cat([part.detach().double().reshape(-1) for part in Wide(3, 2, width=4).parameters()])
    assert start.tolist() == parameters.tolist()


def test_a_users_module_trains_and_predicts() -> None:
    model = build_model(f"{__name__}.Wide", 2, 2, options={"width": 4}, precision="float64")
    X, start = np.array([[1.0, 0], [0, 1], [1, 1]]), model.initial(rng())
    task = Task(X, np.array([0, 1, 1]), start, [(0.0, start)], 200, 0.5, np.random.default_rng)
    (theta,) = model.train([task], Optimizer("sgd", 0.5, 2))
    assert (model.logits(theta, X) > 0).tolist() == [False, True, True]


def test_a_users_family_is_taken() -> None:
    assert build_model(f"{__name__}.Ridge", 3, 2, options={"strength": 2.0}).layout.size == 4


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("mpl", {}, "model.name: 'mpl' is not a known name; did you mean 'mlp'?"),
        ("mlp", {"hiden": [3]}, "model.hiden: is not an option of MLP; did you mean 'hidden'?"),
        ("mlp", {"hidden": [3, 0]}, "model.hidden: [3, 0] is not a list of whole numbers of at least 1"),
        ("mlp", {"hidden": "big"}, "model.hidden: 'big' is not a list of whole numbers of at least 1"),
        (
            "logistic_regression",
            {"l2": 1},
            "model.l2: is not an option of LogisticRegression; LogisticRegression has no options",
        ),
        ("no_such_module.Net", {}, "model.class: 'no_such_module.Net' cannot be imported"),
        ("builtins.len", {}, "model: 'builtins.len' is not a class"),
        ("builtins.int", {}, "model: int is neither a torch.nn.Module nor a model class with the method 'bind'"),
        (Wide, {"depth": 2}, "model.options: {depth: 2} does not construct Wide"),
        (Narrow, {}, "model: Narrow cannot be called with 3 rows of 4 features (RuntimeError: mat1 and mat2 shapes"),
        (Flat, {}, "model: Flat turns 3 rows into outputs of shape (3,), not (3, 2)"),
        (Pair, {}, "model: Pair returns a tuple; return one tensor of shape (3, 2)"),
        (InPlace, {}, "model: InPlace changes its input in place"),
        (Cut, {}, "model: Cut changes its input in place"),
        (Centred, {}, "model: Centred combines rows when it is evaluated"),
        (TwoInputs, {}, "model: TwoInputs cannot be called with 3 rows of 4 features (TypeError: "),
        (Lazy, {}, "model: Lazy has '0.weight' without a shape"),
        (NoSuper, {}, "model.options: {} does not construct NoSuper: AttributeError: cannot assign module"),
        (Masked, {"persistent": True}, "model: Masked starts with 'mask' not finite"),
        (TwoNames, {}, "model: TwoNames has one layer under the names 'first' and 'second'"),
    ],
)
def test_what_is_refused(family: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build_model(family, 4, 2, options=options)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(("family", "options"), [(OneNorm, {}), (Masked, {"persistent": False}), (Tied, {})])
def test_a_model_that_is_taken_is_copied_for_export(family: Any, options: dict[str, Any]) -> None:
    model = build_model(family, 4, 2, options=options, precision="float64")
    theta, X = model.initial(rng()), rng().normal(size=(5, 4))
    exported = model.as_module(theta)(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(exported, model.logits(theta, X), rtol=1e-12)


def test_terms_are_checked() -> None:
    for field, arguments in (
        ("n_features", {"n_features": 0}),
        ("n_classes", {"n_classes": 1}),
        ("model.init", {"init": "ones"}),
        ("run.precision", {"precision": "float16"}),
    ):
        with pytest.raises(ConfigError, match=field):
            build_model("mlp", **{"n_features": 2, "n_classes": 2, "options": {}, **arguments})


def test_parameters_are_counted_without_memory_and_are_none_where_that_fails() -> None:
    assert parameter_count(lambda: nn.Linear(10**9, 10**6)) == 10**15 + 10**6
    assert parameter_count(lambda: Wide(3, 2, height=4)) == 0


class OneEntry(nn.Module):
    """Its only feature is the number of an entry, of which there is one."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.entries = nn.Embedding(1, n_outputs)

    def forward(self, X: Tensor) -> Tensor:
        return self.entries(X[:, 0].long())


def test_a_module_is_tried_with_rows_of_zeros() -> None:
    assert not check_module(OneEntry(1, 2), "OneEntry", 1, 2)


def test_the_built_in_families_start_without_torch() -> None:
    code = """
import sys, numpy as np
from raysim.training.base import Optimizer, Task
from raysim.training.models import build_model
for family in ("logistic_regression", "mlp"):
    model = build_model(family, 3, 2, options={})
    start = model.initial(np.random.default_rng(0))
    task = Task(np.ones((5, 3)), np.array([0, 1, 0, 1, 1]), start, [], 2, .1, np.random.default_rng)
    model.logits(model.train([task], Optimizer("adam", .1, 2))[0], np.ones((2, 3)))
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("outputs", [np.array([np.nan, np.inf]), np.array([[np.nan, 0.0], [np.inf, np.inf]])])
def test_the_losses_of_a_model_that_has_diverged_are_undefined_without_a_warning(outputs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not np.isfinite(row_losses("log_loss", outputs, np.array([1, 1]))).any()


def test_layers_as_a_module_say_their_shapes_and_what_they_should():
    """(1, -2) gives relu(-1) = 0 three times, (2, 1) gives 3 three times, which add up to 9; then 1 is added."""
    module = dense([(np.ones((3, 2)), np.zeros(3)), (np.ones((1, 3)), np.ones(1))])
    layers = [layer for layer in module.children() if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(2, 3), (3, 1)]
    said = module(torch.tensor([[1.0, -2.0], [2.0, 1.0]], dtype=torch.float64))
    assert said.tolist() == [1.0, 10.0]
    lone = dense([(np.array([[1.0, 2.0]]), np.array([3.0]))])
    assert lone(torch.tensor([[1.0, -2.0]], dtype=torch.float64)).tolist() == [0.0]
    several = dense([(np.ones((1, 2)), np.zeros(1)), (np.ones((2, 1)), np.array([0.0, -4.0]))])
    assert several(torch.tensor([[1.0, 2.0]], dtype=torch.float64)).tolist() == [[3.0, -1.0]]


@pytest.mark.parametrize(
    ("family", "classes", "options"),
    [
        ("logistic_regression", 2, {}),
        ("logistic_regression", 3, {}),
        ("linear_regression", 0, {}),
        ("mlp", 2, {"hidden": [4, 3]}),
        ("mlp", 3, {"hidden": [4]}),
        ("mlp", 0, {"hidden": []}),
        (f"{__name__}.Wide", 2, {}),
        (f"{__name__}.Wide", 4, {}),
        (f"{__name__}.Wide", 0, {}),
    ],
)
def test_a_model_as_a_module_says_what_the_model_says(family: str, classes: int, options: dict[str, Any]) -> None:
    model: Any = build_model(family, 5, classes, options=options, precision="float64")
    theta, X = rng().normal(size=model.layout.size), rng().normal(size=(6, 5))
    said = model.as_module(theta)(torch.from_numpy(X)).detach().numpy()
    assert said.shape == ((6, classes) if classes > 2 else (6,))
    np.testing.assert_allclose(said, model.logits(theta, X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_exported_counts_have_the_largest_count_of_the_model(precision: str) -> None:
    model: Any = build_model("poisson_regression", 1, 0, options={}, precision=precision)
    theta, X = np.array([1.0, 0.0], precision), np.array([[-200], [0], [79], [81], [1000], [np.inf]], precision)
    said = model.as_module(theta)(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(said, model.logits(theta, X), rtol=1e-5)
    assert np.isfinite(said).all()


def test_zeros_need_no_draw() -> None:
    generator = rng()
    assert not build_model(f"{__name__}.Wide", 5, 2, options={}, init="zeros").initial(generator).any()
    assert generator.bit_generator.state == rng().bit_generator.state
