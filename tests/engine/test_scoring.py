"""One product for the rows of many hospitals: the bits of one hospital at a time, whoever is beside it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.engine.measuring import scoring
from raysim.engine.measuring.scoring import PartRows, joined
from raysim.training.kernels import mlp
from raysim.training.models import build_model

PARTS = ("train", "validation", "test")


def federation(sizes, features):
    """Hospitals of so many training rows, and a third as many test rows behind them."""
    rng = np.random.default_rng(len(sizes))
    stops = np.cumsum([n + n // 3 for n in sizes])
    starts = stops - [n + n // 3 for n in sizes]
    X = rng.normal(size=(stops[-1] if sizes else 0, features)).astype(np.float32)

    def rows(hospital, part):
        cut = starts[hospital] + sizes[hospital]
        return slice(starts[hospital], cut) if part == "train" else slice(cut, stops[hospital])

    bounds = np.array(
        [[begin, begin + size, begin + size, stop] for begin, size, stop in zip(starts, sizes, stops, strict=True)],
        np.int64,
    )
    return SimpleNamespace(X=X, y=np.arange(len(X)) % 2, rows=rows, bounds=bounds.reshape(-1, 4))


def one_at_a_time(model, models, served, data, hospitals, part):
    return np.concatenate(
        [model.logits(models[k], data.X[data.rows(h, part)]) for h, k in zip(hospitals, served, strict=True)]
    )


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=9),
    features=st.integers(1, 70),
    part=st.sampled_from(["train", "test"]),
    seed=st.integers(0, 99),
)
def test_joined_outputs_are_those_of_one_hospital_at_a_time(sizes, features, part, seed):
    rng = np.random.default_rng(seed)
    data, model = federation(sizes, features), build_model("logistic_regression", features, 2, options={})
    hospitals = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)].tolist()
    models = rng.normal(size=(3, features + 1)).astype(np.float32)
    served = rng.integers(0, 3, len(hospitals))
    rows = PartRows.of(data, hospitals, part)
    expected = one_at_a_time(model, models, served, data, hospitals, part)
    np.testing.assert_array_equal(joined(model.logits, models, served, rows), expected)
    assert rows.y.tolist() == [y for h in hospitals for y in data.y[data.rows(h, part)]]


@pytest.mark.parametrize("chunk", [1, 7 * 4 * 5, 2**20])
def test_rows_that_are_not_kept_are_gathered_piece_by_piece(monkeypatch, chunk):
    monkeypatch.setattr(scoring, "CACHED_BYTES", 0)
    monkeypatch.setattr(scoring, "CHUNK_BYTES", chunk)
    data, model = federation([5, 0, 12, 3], 7), build_model("logistic_regression", 7, 2, options={})
    models = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    served = np.array([1, 1, 0, 0])
    rows = PartRows.of(data, [3, 1, 0, 2], "train")
    assert rows.features is None
    np.testing.assert_array_equal(
        joined(model.logits, models, served, rows), one_at_a_time(model, models, served, data, [3, 1, 0, 2], "train")
    )


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_a_perceptron_scores_rows_in_blocks_with_the_bits_that_each_hospital_has_alone(sizes, seed):
    rng = np.random.default_rng(seed)
    data, model = federation(sizes, 5), mlp.MlpModel((5, 8, 4, 2), "default", "float64")
    hospitals = rng.permutation(len(sizes)).tolist()
    models = np.stack([model.initial(rng) for _ in range(2)])
    served = rng.integers(0, 2, len(hospitals))
    outputs = joined(model._logits_in_blocks, models, served, PartRows.of(data, hospitals, "train"))
    singly = one_at_a_time(model, models, served, data, hospitals, "train")
    np.testing.assert_allclose(outputs, singly, rtol=0, atol=1e-12)
    if model.logits_of_many is not None:
        alone = [
            model.logits_of_many(models[k], data.X[data.rows(h, "train")])
            for h, k in zip(hospitals, served, strict=True)
        ]
        np.testing.assert_array_equal(outputs, np.concatenate(alone))


def test_rows_are_scored_in_blocks_only_where_a_row_may_move(monkeypatch):
    in_blocks, dtype = mlp.MlpModel._logits_in_blocks, np.dtype("float64")
    mlp.rows_may_move.cache_clear()
    monkeypatch.setattr(mlp.MlpModel, "_logits_in_blocks", lambda self, theta, X: X.sum(1))
    assert mlp.rows_may_move((3, 4, 2), dtype)

    def last_rows_differ(self, theta, X):
        return np.concatenate([X[:-8].sum(1), np.nextafter(X[-8:].sum(1), np.inf)])

    mlp.rows_may_move.cache_clear()
    monkeypatch.setattr(mlp.MlpModel, "_logits_in_blocks", last_rows_differ)
    assert not mlp.rows_may_move((3, 4, 2), dtype)
    assert mlp.MlpModel((3, 4, 2), "default", "float64").logits_of_many is None
    monkeypatch.setattr(mlp.MlpModel, "_logits_in_blocks", in_blocks)
    mlp.rows_may_move.cache_clear()
    assert mlp.MlpModel((3, 4, 3), "default", "float64").logits_of_many is None, "of three classes"
