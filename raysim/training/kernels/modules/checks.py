"""Checks, before a run begins, that a module can be trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from raysim.core.errors import ConfigError


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
    wrong = ids[~((ids >= 0) & (ids < entries))]  # NaN is neither
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


def check_module(module: nn.Module, name: str, n_features: int, n_outputs: int) -> bool:
    """Check that a module can be trained, and return whether it draws random numbers in training (dropout).

    Raises ``ConfigError`` if the module has no parameters, if it cannot turn rows ``[n, n_features]`` into outputs
    ``[n, n_outputs]``, or if it draws random numbers when it is evaluated. The check may change the module's buffers.
    """
    like = next(module.parameters(), None)
    if like is None:
        raise ConfigError(f"model: {name} has no parameters to train")
    X = torch.zeros(3, n_features, dtype=like.dtype)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            shape = tuple(module.eval()(X).shape)
            between = torch.get_rng_state()
            module.train()(X)
            draws = not torch.equal(between, torch.get_rng_state())
    except (RuntimeError, ValueError, IndexError) as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"model: {name} cannot be called with 3 rows of {n_features} features ({text})") from error
    if shape != (3, n_outputs):
        raise ConfigError(f"model: {name} turns 3 rows into outputs of shape {shape}, not (3, {n_outputs})")
    if not torch.equal(before, between):
        raise ConfigError(f"model: {name} uses random numbers when it is evaluated; use them in training only")
    return draws
