"""The loops of Winograd's convolution, and the memory that they compute in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from raysim.training.loops.winograd.points import plane
from raysim.training.machine_code import function
from raysim.training.networks.winograd import layer as layers
from raysim.training.networks.winograd.chain import Parameters, chain
from raysim.training.networks.winograd.memory import MEMORY, Memory
from raysim.training.networks.written import Array


def points(flat: Array, rows: int, columns: int) -> Array:
    return flat.reshape(36, -1)[:, : rows * columns].reshape(36, rows, columns)


def called(name: str, *sizes: int) -> Callable[..., None]:
    """A loop over three arrays."""
    loop = function("winograd.weights", name, "aaa", np.float64, *sizes, "float64")
    return lambda *arrays: loop(*(array.ctypes.data for array in arrays))


@pytest.mark.parametrize(("channels", "maps", "width"), [(3, 5, 7), (4, 2, 4), (1, 1, 1)])
def test_weights_are_multiplied_at_36_points(channels: int, maps: int, width: int) -> None:
    """The polynomials of Lavin and Gray: at a point t a row of weights is its value there, times what divides it."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(maps, channels, 3, 3))
    divided = np.array([4, -6, -6, 24, 24, 1])
    values = np.array([[1, t, t * t] for t in (0, 1, -1, 2, -2)] + [[0, 0, 1]]) / divided[:, None]
    expected = np.einsum("pi,qj,baij->pqab", values, values, weight).reshape(36, channels, maps)
    strip = np.empty(36 * max(width, maps))
    for turned, shape in (False, (width, maps)), (True, (maps, channels)):
        flat = np.full(36 * plane(*shape) + 40, np.nan)
        called("of_weights", channels, maps, width, turned)(weight, strip, flat)
        assert np.isnan(flat[-40:]).all()
        stored = points(flat[:-40], *shape)
        np.testing.assert_allclose(
            stored.transpose(0, 2, 1) if turned else stored[:, :channels], expected, rtol=0, atol=1e-14
        )
        assert turned or not stored[:, channels:].any()
    by_points, by_weight = rng.normal(size=36 * plane(width, maps)), np.empty_like(weight)
    called("by_weights", channels, maps, width)(by_points, strip, by_weight)
    by = points(by_points, width, maps)[:, :channels].reshape(6, 6, channels, maps)
    np.testing.assert_allclose(by_weight, np.einsum("pi,qj,pqab->baij", values, values, by), rtol=0, atol=1e-13)


def results(dtype: Any) -> list[Array]:
    """Of a forward and a backward pass of two layers."""
    rng = np.random.default_rng(1)
    x, by_pooled = rng.normal(size=(40, 8, 4, 16)).astype(dtype), rng.normal(size=(40, 4, 2, 5)).astype(dtype)
    parameters = [
        Parameters(*(rng.normal(size=shape).astype(dtype) for shape in ((b, a, 3, 3), (b,), (b,), (b,))))
        for a, b in ((16, 6), (6, 5))
    ]
    arithmetic = chain(8, 4, (16, 6, 5), np.dtype(dtype))
    pooled, images, norms = arithmetic.forward(x, parameters, [1e-5, 1e-3])
    by_x, by_parameters = arithmetic.backward(by_pooled, images, norms, parameters, True)
    assert by_x is not None
    return [pooled, by_x, *(array for own in by_parameters for array in own)]


def test_no_bit_depends_on_what_was_computed_before() -> None:
    first = results(np.float32)
    results(np.float64)
    MEMORY._bytes[:] = 255  # no numbers
    for a, b in zip(first, results(np.float32), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("places", [1, 3])
def test_any_number_of_tiles_may_be_computed_at_once(places: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = results(np.float64)
    monkeypatch.setattr(layers, "PLACES", places)
    chain.cache_clear()
    for a, b in zip(expected, results(np.float64), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-8)
    chain.cache_clear()


def test_memory_has_room_for_all_and_begins_with_lines_of_the_cache() -> None:
    memory = Memory()
    for dtype in (np.float32, np.float64):
        arrays = memory.take(dtype, 3, 16, 33, 1)
        for k, array in enumerate(arrays):
            assert array.dtype == dtype
            assert array.ctypes.data % 64 == 0
            array[:] = k
        assert [array.tolist() for array in arrays] == [[k] * n for k, n in enumerate((3, 16, 33, 1))]
    (again,) = memory.take(np.float64, 3)
    assert again.ctypes.data == arrays[0].ctypes.data
    whole = np.empty(1000, np.uint8)
    for first in range(64):  # wherever an array of numpy's begins
        memory._bytes = whole[first:]
        assert [array.ctypes.data % 64 for array in memory.take(np.float32, 3, 17)] == [0, 0]
        assert np.shares_memory(memory._bytes, whole)
    (large,) = memory.take(np.float64, 10**5)
    assert len(large) == 10**5
    assert np.shares_memory(large, memory.take(np.float64, 10**5)[0])


def test_each_thread_has_memory_of_its_own() -> None:
    memory = Memory()
    (mine,) = memory.take(np.float32, 8)
    others: list[Array] = []
    thread = threading.Thread(target=lambda: others.extend(memory.take(np.float32, 8)))
    thread.start()
    thread.join()
    assert not np.shares_memory(mine, others[0])
