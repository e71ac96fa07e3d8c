"""Checks, before a run begins, that a module can be trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from raysim.core.errors import ConfigError
from raysim.core.words import of_type


def check_autocast(value: object, device: str, precision: str) -> None:
    """Raise ``ConfigError`` if ``model.autocast`` is set but cannot be used on this device or in this precision."""
    if value is None:
        return
    if value != "bfloat16":
        raise ConfigError(f"model.autocast: {value!r} is not bfloat16; write bfloat16, or remove the key")
    if precision != "float32":
        raise ConfigError(
            f"model.autocast: bfloat16 needs training.precision float32, not {precision}; set training.precision: "
            "float32"
        )
    if device != "cpu":
        raise ConfigError("model.autocast: bfloat16 is for CPUs; leave it out, or set resources.device: cpu")


def check_entries(ids: NDArray[Any], entries: int) -> None:
    """Raise ``ValueError`` if one of ``ids [n, L]`` is not a whole number from 0 to ``entries - 1``."""
    wrong = ids[~((ids >= 0) & (ids < entries) & (ids == np.floor(ids)))]  # NaN is not at least 0
    if wrong.size:
        raise ValueError(
            f"a feature is {wrong[0]:g}, not an index from 0 to {entries - 1} of the model's embedding table; encode "
            "the features again, or make the table larger"
        )


def parameter_count(make: Callable[[], nn.Module]) -> int:
    """Return how many parameters the module from ``make()`` would have; 0 if this fails."""
    try:
        with torch.device("meta"):
            return sum(tensor.numel() for tensor in make().parameters())
    except Exception:  # it places its tensors itself, or constructing it fails, which is reported later
        return 0


def check_lazy(module: nn.Module, name: str) -> None:
    """Raise ``ConfigError`` if a parameter or buffer has no shape before the first call (``torch.nn.LazyLinear``)."""
    lazy = [each for each, tensor in module.state_dict(keep_vars=True).items() if nn.parameter.is_lazy(tensor)]
    if lazy:
        raise ConfigError(f"model: {name} has '{lazy[0]}' without a shape; use layers that have sizes, not lazy ones")


def check_module(module: nn.Module, name: str, n_features: int, n_outputs: int) -> bool:
    """Check that a module can be trained, and return whether it draws random numbers in training (dropout).

    Raises ``ConfigError`` if the module has no parameters, initial values that are not finite, or a layer with several
    names. Raises it also if the module cannot turn rows ``[n, n_features]`` into outputs ``[n, n_outputs]``, if it
    changes these rows, or if evaluation draws random numbers or combines rows. Modules with a ``lookup`` are not
    checked for combining rows. The check may change the module's buffers.
    """
    like = next(module.parameters(), None)
    if like is None:
        raise ConfigError(f"model: {name} has no parameters to train")
    _check_parts(module, name)
    X = torch.zeros(3, n_features, dtype=like.dtype)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            outputs = module.eval()(X)
            between = torch.get_rng_state()
            module.train()(X)
            draws = not torch.equal(between, torch.get_rng_state())
    except Exception as error:  # whatever the user's module raises
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"model: {name} cannot be called with 3 rows of {n_features} features ({text})") from error
    if not isinstance(outputs, torch.Tensor):
        raise ConfigError(f"model: {name} returns {of_type(outputs)}; return one tensor of shape (3, {n_outputs})")
    if outputs.shape != (3, n_outputs):
        raise ConfigError(
            f"model: {name} turns 3 rows into outputs of shape {tuple(outputs.shape)}, not (3, {n_outputs})"
        )
    if _changes_rows(module.eval(), X):
        raise ConfigError(f"model: {name} changes its input in place; compute a new tensor, such as x + 1 for x += 1")
    if getattr(module, "lookup", None) is None and _combines_rows(module.eval(), X):
        raise ConfigError(f"model: {name} combines rows when it is evaluated; compute each row's output from this row")
    if not torch.equal(before, between):
        raise ConfigError(f"model: {name} uses random numbers when it is evaluated; use them in training only")
    return draws


def _check_parts(module: nn.Module, name: str) -> None:
    """Raise ``ConfigError`` if an initial value is not finite, or if a layer has several names.

    ``torch.func.functional_call`` would not restore the parameters of a layer with several names.
    """
    for each, tensor in module.state_dict().items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ConfigError(
                f"model: {name} starts with '{each}' not finite; start with finite numbers, or register a constant "
                "with persistent=False"
            )
    names: dict[nn.Module, str] = {}
    for each, part in module.named_modules(remove_duplicate=False):
        holds = [*part.parameters(recurse=False), *part.buffers(recurse=False)]
        if holds and names.setdefault(part, each) != each:
            raise ConfigError(
                f"model: {name} has one layer under the names '{names[part]}' and '{each}'; keep one name, and call "
                "the layer twice"
            )


def _changes_rows(module: nn.Module, X: torch.Tensor) -> bool:
    """Return whether the module changes its input, shown by rows of other values than ``X``."""
    rows = torch.linspace(-1.0, 1.0, X.numel(), dtype=X.dtype).reshape(X.shape)
    given = rows.clone()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(rows)
    except Exception:  # a module of indices takes only some values
        return False
    return not torch.equal(rows, given)


def _combines_rows(module: nn.Module, X: torch.Tensor) -> bool:
    """Return whether the first row's output at ``X`` has a gradient other than 0 with respect to another row."""
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            (slope,) = torch.autograd.grad(module(X.requires_grad_())[0].sum(), X, allow_unused=True)
    except RuntimeError:  # the outputs have no gradient, as those of indices
        return False
    return slope is not None and bool(slope[1:].nan_to_num().any())
