"""Compose a privacy loss distribution with itself, as the library dp-accounting does, in less time.

The library first bounds the losses that it stores, by sums of exponentials of forty orders, each summed over
logarithms. Here these are powers of one array. A bound is a whole number and therefore equals the library's, unless it
is within the error of the sums of the next one; then the library computes it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

ORDERS = 20
"""Orders on either side of 0, in units of one over the length."""

ERROR = 1e-11
"""Largest error of the logarithm of a sum; relative if the logarithm is above 1."""

Bounds = Callable[..., tuple[int, int]]


@contextlib.contextmanager
def quick() -> Iterator[None]:
    """A context in which the library composes with :func:`bounds`, in less time."""
    from dp_accounting.pld import common

    before = common.compute_self_convolve_bounds
    common.compute_self_convolve_bounds = partial(bounds, before)
    try:
        yield
    finally:
        common.compute_self_convolve_bounds = before


def bounds(
    library: Bounds,
    probabilities: ArrayLike,
    count: int,
    tail_mass_truncation: float = 0,
    orders: Sequence[float] | None = None,
) -> tuple[int, int]:
    """Return the first and last stored place of ``count`` convolutions of ``probabilities [n]`` with themselves.

    ``library`` is the library's slower function for it; ``tail_mass_truncation`` is the mass that may lie beyond.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    if tail_mass_truncation == 0 or orders is not None or len(values) == 0:
        return library(probabilities, count, tail_mass_truncation, orders)
    step, power = np.exp(np.arange(len(values)) / len(values)), np.ones(len(values))
    sums: list[Any] = []
    for _ in range(ORDERS):
        power = power * step
        sums += [(values * power).sum(), (values / power).sum()]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(np.array(sums).reshape(ORDERS, 2))
    scale = len(values) / np.arange(1, ORDERS + 1)[:, None]
    limits = (count * logs + math.log(2 / tail_mass_truncation)) * scale * (1, -1)
    wrong = ERROR * (count * np.maximum(np.abs(logs), 1) + abs(math.log(2 / tail_mass_truncation))) * scale
    # Negated, so that the library is asked where a limit is NaN.
    if not (np.abs(limits - np.rint(limits)) > wrong).all():
        return library(probabilities, count, tail_mass_truncation, orders)
    return max(0, math.floor(limits[:, 1].max())), min((len(values) - 1) * count, math.ceil(limits[:, 0].min()))
