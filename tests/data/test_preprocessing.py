"""Scaling, imputation, categories and flags, against numbers worked by hand."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from raysim.core.errors import DataError
from raysim.data.fitted import Numeric, Preprocessing, scaled
from raysim.data.preprocessing import Prepared, Scaler, prepare, sums
from raysim.data.raw_columns import RawColumns
from raysim.data.tables.rules import Reading

NAN = np.nan


def frame(**columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            name: pd.Categorical(values) if any(isinstance(v, str) for v in values) else np.array(values, np.float32)
            for name, values in columns.items()
        }
    )


def prepared(features: pd.DataFrame, train: list[bool], method: str = "standard") -> Prepared:
    return prepare(features, np.arange(len(features)), np.array(train), method, hospitals=1)


def test_standard_by_hand() -> None:
    # Training rows of a: 1, 3, missing: mean 2, population deviation 1. b is constant. c is whole.
    features = frame(a=[1, 3, NAN, 5, NAN], b=[7, 7, 7, 9, 7], c=[0, 2, 4, 2, 2])
    matrix = prepared(features, [True, True, True, False, False])
    assert matrix.names == ("a", "b", "c", "a_missing")
    root = np.sqrt(8 / 3)
    expected = [[-1, 0, -2 / root, 0], [1, 0, 0, 0], [0, 0, 2 / root, 1], [3, 0, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(matrix.X, expected, rtol=1e-6)
    assert matrix.X.dtype == np.float32
    np.testing.assert_array_equal(matrix.observed, [[c != 2 and c != 4, True, True] for c in range(5)])
    assert matrix.scalars == 9  # count, sum and sum of squares of three features


def test_median_by_hand() -> None:
    # Training: 1, 2, 9 and a missing one: mean 4, median 2, population deviation sqrt(38 / 3).
    matrix = prepared(frame(a=[1, 2, 9, NAN, 4]), [True] * 4 + [False], "median")
    np.testing.assert_allclose(matrix.X[:, 0], np.array([-3, -2, 5, -2, 0]) / np.sqrt(38 / 3), rtol=1e-6)
    np.testing.assert_array_equal(matrix.X[:, 1], [0, 0, 0, 1, 0])
    assert matrix.scalars == 3 + 3  # the sums, and every observed value


def test_none_leaves_values_and_refuses_missing_ones() -> None:
    matrix = prepared(frame(a=[1, 2.5], b=["x", "y"]), [True, True], "none")
    assert matrix.scalars == 2  # which categories there are
    np.testing.assert_array_equal(matrix.X, [[1, 1, 0], [2.5, 0, 1]])
    with pytest.raises(
        DataError, match=r"data.preprocessing: none, but feature 'a' has 1 missing values; use standard"
    ):
        prepared(frame(a=[1, NAN]), [True, False], "none")


def test_categories_are_those_of_training() -> None:
    # "z" is never trained on, and a row without a category has a flag.
    features = frame(unit=["MICU", "SICU", "MICU", None, "z"], a=[1, 2, 3, 4, 5])
    matrix = prepared(features, [True, True, True, True, False])
    assert matrix.names == ("unit=MICU", "unit=SICU", "a", "unit_missing")
    np.testing.assert_array_equal(matrix.X[:, [0, 1, 3]], [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(matrix.observed[:, 0], [True, True, True, False, True])
    assert matrix.scalars == 3 + 2


@pytest.mark.parametrize("method", ["standard", "median"])
def test_without_flags_the_other_columns_keep_their_bits(method: str) -> None:
    features = frame(unit=["MICU", None, "MICU", None, "z"], a=[1, NAN, 3, 4, NAN], b=[1, 2, 3, 4, 5])
    train = np.array([True, True, True, True, False])
    flagged = prepare(features, np.arange(5), train, method, 1)
    plain = prepare(features, np.arange(5), train, method, 1, flags=False)
    assert flagged.names == (*plain.names, "unit_missing", "a_missing")
    np.testing.assert_array_equal(plain.X, flagged.X[:, :3])
    np.testing.assert_array_equal(plain.observed, flagged.observed)
    assert plain.scalars == flagged.scalars


@pytest.mark.parametrize("method", ["standard", "median"])
def test_a_column_without_a_training_value_is_left_out(method: str) -> None:
    """It would be a constant, and its flag a second intercept."""
    given = frame(a=[NAN, NAN, 3], b=[None, None, "x"], c=[1, 2, 3])
    matrix = prepared(given, [True, True, False], method)
    assert matrix.names == ("c",)
    assert matrix.left_out == ("a", "b")
    np.testing.assert_array_equal(matrix.X, prepared(given[["c"]], [True, True, False], method).X)
    with pytest.raises(DataError, match="no feature has a value in training rows"):
        prepared(given[["a"]], [True, True, False], method)


def test_order_and_train_are_of_the_new_order() -> None:
    features = frame(a=[100, 1, 3])
    matrix = prepare(features, np.array([1, 2, 0]), np.array([True, True, False]), "standard", hospitals=1)
    np.testing.assert_allclose(matrix.X[:, 0], [-1, 1, 98], rtol=1e-6)


def test_test_rows_change_nothing() -> None:
    train = [True] * 6 + [False] * 3
    values = [1, 2, 3, NAN, 5, 6]
    one = prepared(frame(a=[*values, 7, 8, 9], b=[*"xyxyxy", "x", "y", "y"]), train)
    two = prepared(frame(a=[*values, NAN, 1e6, -3], b=[*"xyxyxy", "new", "x", "x"]), train)
    np.testing.assert_array_equal(one.X[:6], two.X[:6])
    assert one.names == two.names


@settings(max_examples=50, deadline=None)
@given(
    values=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 40), st.integers(1, 4)),
        elements=st.one_of(st.floats(-1e3, 1e3, width=32), st.just(NAN)),
    ),
    data=st.data(),
)
def test_sums_of_hospitals_are_those_of_all_rows(values: np.ndarray, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    centre = np.arange(values.shape[1], dtype=float)
    both = sums(values[:cut], centre) + sums(values[cut:], centre)
    pooled = sums(values, centre)
    np.testing.assert_array_equal(both.count, pooled.count)
    np.testing.assert_allclose(both.total, pooled.total, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(both.squares, pooled.squares, rtol=1e-12, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    values=hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 30), st.integers(1, 3)),
        elements=st.one_of(st.integers(-50, 50).map(float), st.just(NAN)),
    ),
    offset=st.sampled_from([0.0, 1e6]),
)
def test_scaler_is_the_pooled_mean_and_deviation(values: np.ndarray, offset: float) -> None:
    values = values + offset
    zero = sums(values)
    mean = zero.total / np.maximum(zero.count, 1)
    scaler = Scaler.of(zero, sums(values, mean))
    for j in range(values.shape[1]):
        column = values[:, j][~np.isnan(values[:, j])]
        features = scaled(values, scaler.mean, scaler.std, scaler.mean)[:, j]
        if len(column) == 0 or np.ptp(column) == 0:
            assert (features == 0).all()
            continue
        wanted = (values[:, j] - column.mean()) / column.std()
        np.testing.assert_allclose(features, np.nan_to_num(wanted), atol=1e-7)


def test_a_large_offset_does_not_eat_the_deviation() -> None:
    # Sums of squares around zero would lose it: 1e9 squared has no digit left for 1.
    values = 1e9 + np.array([[0.0], [1.0], [2.0], [1.0]])
    zero = sums(values)
    scaler = Scaler.of(zero, sums(values, zero.total / zero.count))
    np.testing.assert_allclose(scaler.std, [np.sqrt(0.5)], rtol=1e-9)
    # 0.1 has no exact sum, yet a constant column is zero.
    constant = np.full((1000, 1), 0.1, np.float32)
    zero = sums(constant)
    scaler = Scaler.of(zero, sums(constant, zero.total / zero.count))
    assert (scaled(constant, scaler.mean, scaler.std, scaler.mean) == 0).all()


def test_a_column_that_is_constant_but_for_rounding_is_zero_and_one_that_varies_a_little_is_not() -> None:
    """The mean of 1,000 times 0.1 is not 0.1, so that the deviation is not 0."""
    rows = 1000
    constant, varied = np.full(rows, 0.1), 1e6 + np.tile([0.0, 1e-3], rows // 2)
    assert sums(constant[:, None], constant.sum() / rows).squares[0] > 0
    matrix = prepared(pd.DataFrame({"constant": constant, "varied": varied}), [True] * rows)
    assert (matrix.X[:, 0] == 0).all()
    np.testing.assert_allclose(matrix.X[:, 1], np.tile([-1, 1], rows // 2), rtol=1e-3)


@pytest.mark.parametrize(("hospitals", "scalars"), [(1, 5), (2, 3), (4, 2), (5, 1), (9, 1), (0, 5)])
def test_medians_cost_every_observed_value_shared_among_hospitals(hospitals: int, scalars: int) -> None:
    """Five values of two features and three sums of each: a hospital sends so many of the values, rounded up."""
    features = frame(a=[1, 2, 9, NAN], b=[NAN, 3, 4, NAN])
    order, train = np.arange(4), np.ones(4, dtype=bool)
    for method, sent in (("standard", 6), ("median", 6 + scalars)):
        assert prepare(features, order, train, method, hospitals).scalars == sent


@pytest.mark.parametrize("train", [[True, True, True], [True, False, True], [True, False, False]])
def test_infinite_values_are_refused(train: list[bool]) -> None:
    with pytest.raises(DataError, match=r"feature 'b' holds an infinite value.*correct it or leave it empty"):
        prepared(frame(a=[1, 2, 3], b=[1, np.inf, -np.inf]), train)


def test_floats_of_one_type_are_taken_as_they_are_and_others_in_float64() -> None:
    single = pd.DataFrame({"a": np.array([1.5, 2.5], np.float32), "b": np.array([3.5, 4.5], np.float32)})
    assert RawColumns.of(single).values.dtype == np.float32
    assert RawColumns.of(single.astype({"b": np.float64})).values.dtype == np.float64
    assert RawColumns.of(single.astype({"b": np.int8})).values.dtype == np.float64
    assert RawColumns.of(single.astype(np.int32)).values.dtype == np.float64


def test_no_two_features_have_one_name() -> None:
    columns = {
        "x": np.array([1.0, np.nan, 3.0], np.float32),
        "x_missing": np.array([0.0, 1.0, 0.0], np.float32),
        "unit": pd.Categorical(["a", "b=c", "a"]),
        "unit=b": pd.Categorical(["c", "c", "d"]),
    }
    order = np.arange(3)
    prepared = prepare(pd.DataFrame(columns), order, np.ones(3, np.bool_), "standard", 1)
    assert prepared.names == (
        *("x", "x_missing", "unit=a", "unit=b=c", "unit=b=c (2)", "unit=b=d"),
        "x_missing (2)",
    )
    np.testing.assert_array_equal(prepared.X[:, 6], [0, 1, 0])
    again = Preprocessing.of(json.loads(json.dumps(prepared.preprocessing.tree())))
    assert again.features == prepared.names


def test_rules_of_reading_are_kept_and_older_ones_understood() -> None:
    reading = Reading({"x": ("?", "00")}, {"<": "half"}, ",", ";", "cp1252")
    fitted = Preprocessing("none", (Numeric("x"),), reading=reading)
    tree = json.loads(json.dumps(fitted.tree()))
    assert Preprocessing.of(tree) == fitted
    older = {key: value for key, value in tree.items() if key not in ("missing", "censored", "decimal", "separator")}
    assert Preprocessing.of(older | {"na_values": ["-1"]}).reading.na_values == ("-1",)
    with pytest.raises(ValueError, match="'double' is not a rule for values beyond a limit"):
        Preprocessing.of(tree | {"censored": {"<": "double"}})
