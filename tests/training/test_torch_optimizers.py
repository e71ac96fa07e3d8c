"""The autograd loop's optimisers against the classes of ``torch.optim``, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from raysim.training.base import Layout, Moments, Optimizer, Task
from raysim.training.kernels.modules.local_sgd import ProximalTerms
from raysim.training.kernels.modules.optimizers import make_solver

SHAPES = ((3, 2), (5,), (2,))
LAYOUT = Layout(("a", "b", "c"), SHAPES, 0)
PLAIN = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
}


def parameters() -> list[nn.Parameter]:
    draws = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=draws)) for shape in SHAPES]


def gradients(step: int) -> list[torch.Tensor | None]:
    """Of a step; the second parameter has none before the third step, and the last has none at all."""
    draws = torch.Generator().manual_seed(step)
    drawn = [torch.randn(shape, generator=draws) for shape in SHAPES]
    return [drawn[0], drawn[1] if step >= 2 else None, None]


def moved(given: list[nn.Parameter], solver: object, steps: range) -> None:
    for step in steps:
        for parameter, gradient in zip(given, gradients(step), strict=True):
            parameter.grad = gradient
        solver.step()


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_steps_are_those_of_torchs_classes(name: str) -> None:
    steps = range(2, 7) if name == "momentum" else range(5)  # there torch fails for gradients that come late
    ours, theirs = parameters(), parameters()
    moved(ours, make_solver(name, ours, 0.1), steps)
    moved(theirs, PLAIN[name](theirs), steps)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(ours[2], parameters()[2])
    assert not torch.equal(ours[1], parameters()[1])


def test_a_gradient_that_comes_late_begins_a_momentum_of_its_own() -> None:
    late, alone = parameters(), parameters()
    moved(late, make_solver("momentum", late, 0.1), range(5))
    solver = make_solver("momentum", alone[1:2], 0.1)
    for step in range(2, 5):
        alone[1].grad = gradients(step)[1]
        solver.step()
    assert torch.equal(late[1], alone[1])
    assert not torch.equal(late[1], parameters()[1])


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_who_goes_on_from_what_was_left_goes_where_one_would_have_gone_at_once(name: str) -> None:
    at_once, in_parts, moments = parameters(), parameters(), Moments()
    moved(at_once, make_solver(name, at_once, 0.1), range(3, 8))
    for steps in (range(3, 5), range(5, 8)):
        solver = make_solver(name, in_parts, 0.1)
        solver.resume(LAYOUT, moments)
        moved(in_parts, solver, steps)
        solver.leave(LAYOUT, moments)
    for a, b in zip(at_once, in_parts, strict=True):
        assert torch.equal(a, b)
    assert moments.steps == (5 if name == "adam" else 0)
    assert (moments.first is None, moments.second is None) == (name == "sgd", name != "adam")
    if moments.first is not None:
        np.testing.assert_array_equal(moments.first[-2:], 0)
        assert moments.first[:-2].all()


def test_proximal_terms_are_added_to_gradients_or_replace_missing_ones() -> None:
    first, second = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([3.0]))
    second.grad = torch.tensor([1.0])
    start, anchor = np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0])
    task = Task(np.zeros((1, 1)), np.zeros(1), start, [(0.5, anchor)], 1, 0.1, np.random.default_rng)
    ProximalTerms(task, Optimizer("sgd", 0.1, 0), [first, second], Layout(("a", "b"), ((2,), (1,)), 0)).add_gradient()
    assert first.grad is not None
    assert first.grad.tolist() == [0.5, 1.0]
    assert second.grad.tolist() == [1.0 + 0.5 * (3 - 1)]


def test_large_parameters_move_as_torchs_class_moves_them() -> None:
    """Its kernel for all parameters at once rounds in another way than that for one by one, in one of 200 numbers."""
    start, draws = torch.linspace(-1, 1, 20_000), torch.Generator().manual_seed(1)
    ours, theirs = [nn.Parameter(start.clone())], [nn.Parameter(start.clone())]
    solvers = make_solver("adam", ours, 0.1), PLAIN["adam"](theirs)
    for _ in range(5):
        ours[0].grad = torch.randn(20_000, generator=draws)
        theirs[0].grad = ours[0].grad.clone()
        for solver in solvers:
            solver.step()
    assert torch.equal(ours[0], theirs[0])


def test_one_parameter_is_enough() -> None:
    parameter, layout, moments = nn.Parameter(torch.tensor([1.0, 2.0])), Layout(("a",), ((2,),), 0), Moments()
    task = Task(np.zeros((1, 1)), np.zeros(1), np.ones(2), [(2.0, np.ones(2))], 1, 0.1, np.random.default_rng)
    ProximalTerms(task, Optimizer("adam", 0.1, 0), [parameter], layout).add_gradient()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [0.0, 2.0]
    solver = make_solver("adam", [parameter], 0.1)
    solver.step()
    solver.leave(layout, moments)
    assert moments.first == pytest.approx([0.0, 0.2])
    assert moments.steps == 1
