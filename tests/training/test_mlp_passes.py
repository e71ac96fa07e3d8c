"""A perceptron's products in pieces equal those of whole matrices."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from raysim.training import products
from raysim.training.base import Optimizer, Task
from raysim.training.kernels import mlp_passes
from raysim.training.kernels.mlp import MlpModel
from raysim.training.kernels.mlp_passes import Passes
from raysim.training.losses import LOG_LOSS
from raysim.training.products import LEAST_PIECE, SMALL, cut

WIDTHS = (7, 64, 48, 2)


@pytest.fixture(autouse=True)
def _fresh_cuts() -> Iterator[None]:
    cut.cache_clear()
    yield
    cut.cache_clear()


def trained(optimizer: str, small: int, monkeypatch: pytest.MonkeyPatch, *, decay: float = 0.0) -> np.ndarray:
    """The parameters after two epochs of batches of 5 on 13 rows, with products of up to ``small`` multiplications."""
    for module in (mlp_passes, products):
        monkeypatch.setattr(module, "has_small_products", lambda: small > 0)
    monkeypatch.setattr(products, "SMALL", small)
    cut.cache_clear()
    rng = np.random.default_rng(3)
    model = MlpModel(WIDTHS, "default", "float64")
    X, y, start = rng.standard_normal((13, 7)), rng.integers(0, 2, 13), model.initial(rng)
    task = Task(X, y, start, [], 2, 0.1, lambda epoch: np.random.default_rng(epoch))
    return model.train([task], Optimizer(optimizer, 0.1, 5, decay))[0]


@pytest.mark.parametrize(("optimizer", "decay"), [("sgd", 0.0), ("sgd", 0.1), ("momentum", 0.0), ("adam", 0.0)])
def test_steps_in_pieces_are_those_of_whole_products(
    optimizer: str, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(optimizer, 0, monkeypatch, decay=decay)
    assert cut(64, 48, 5) == (1, 64, 5)
    in_pieces = trained(optimizer, 48 * LEAST_PIECE * 5, monkeypatch, decay=decay)
    assert cut(64, 48, 5) == (4, 16, 5)
    np.testing.assert_allclose(in_pieces, whole, rtol=1e-9, atol=1e-12)


def test_a_product_is_cut_where_its_pieces_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_small_products", lambda: True)
    assert cut(256, 100, 32) == (1, 256, 32)
    assert cut(128, 256, 32) == (2, 64, 32)  # 1,048,576 multiplications
    assert cut(2048, 288, 32) == (32, 64, 32)
    assert cut(250, 100, 64) == (2, 125, 64)
    assert cut(127, 256, 32) == (1, 127, 32)  # a prime number
    assert cut(64, 4096, 32) == (1, 64, 32)  # even the least piece would be large
    assert cut(16, 2500, 32) == (1, 16, 32)  # halves would be small, but have too few rows
    assert cut(0, 5, 3) == (1, 0, 3)
    p, rows, batch = cut(1024, 512, 32)
    assert p > 1
    assert rows >= LEAST_PIECE
    assert rows * 512 * batch <= SMALL


def test_a_product_in_pieces_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_small_products", lambda: True)
    monkeypatch.setattr(products, "SMALL", 16 * 5 * 3)
    assert cut(48, 5, 3) == (3, 16, 3)
    rng = np.random.default_rng(0)
    matrix, columns, out = rng.integers(-9, 9, (48, 5)) * 1.0, rng.integers(-9, 9, (5, 3)) * 1.0, np.empty((48, 3))
    products.multiply(matrix, columns, out)
    np.testing.assert_array_equal(out, matrix @ columns)


def test_nothing_is_cut_where_small_products_are_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "has_small_products", lambda: False)
    assert cut(128, 256, 32) == (1, 128, 32)


@pytest.mark.parametrize(
    ("rows", "theta"),
    [
        (np.ones((4, 3)), np.ones(12)),
        (np.ones((4, 2), np.float32), np.ones(12)),
        (np.ones((2, 4)).T, np.ones(12)),
        (np.ones((4, 2)), np.ones(13)),
        (np.ones((4, 2)), np.ones(12, np.float32)),
        (np.ones((4, 2)), np.ones(24)[::2]),
    ],
)
def test_memory_that_is_not_as_it_is_read_is_refused(rows: np.ndarray, theta: np.ndarray) -> None:
    passes = Passes((2, 2, 2), np.dtype(np.float64), LOG_LOSS)

    def outputs() -> None:
        passes.begin(theta, theta)
        passes.outputs(rows, 0, 4)

    with pytest.raises(ValueError, match="one after the other are needed"):
        outputs()


def test_what_is_not_given_is_not_read() -> None:
    passes, rows, theta = Passes((2, 2, 2), np.dtype(np.float64), LOG_LOSS), np.ones((5, 2)), np.ones(12)
    frozen = np.ones(12)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="rows 0 to 2 of 5, after parameters are given"):
        passes.outputs(rows, 0, 2)
    with pytest.raises(ValueError, match="must not be read-only"):
        passes.begin(theta, frozen)
    passes.begin(frozen)
    passes.outputs(rows, 0, 2)
    with pytest.raises(ValueError, match="no target that a step may change"):
        passes.step(1.0, (1.0, 1.0))
    passes.begin(theta, theta)
    for low, high in ((3, 9), (-1, 2), (2, 1)):
        with pytest.raises(ValueError, match=f"rows {low} to {high} of 5"):
            passes.outputs(rows, low, high)
    passes.outputs(rows, 0, 2)
    passes.end()
    with pytest.raises(ValueError, match="no batch before its outputs"):
        passes.step(1.0, (1.0, 1.0))


def test_memory_and_rows_are_given_back() -> None:
    passes, rows, theta = Passes((2, 2, 2), np.dtype(np.float64), LOG_LOSS), np.ones((500, 2)), np.ones(12)
    passes.begin(theta, theta)
    passes.outputs(rows, 0, 500)
    memory, given = weakref.ref(passes._activations), weakref.ref(rows)
    del rows
    passes.end()
    assert given() is None
    passes.give_back()
    assert memory() is None
