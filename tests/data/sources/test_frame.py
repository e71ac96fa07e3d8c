"""A data frame as data is the table that it would be as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from raysim.config import plugins, reading
from raysim.core.errors import ConfigError, DataError
from raysim.data.federation import Federation
from raysim.data.sources.frame import arrow_table, data_section, stored

KEYS: dict[str, Any] = {"silo": "hospital", "label": "died", "drop": ["when"]}


def stays(n: int = 60) -> pd.DataFrame:
    """Rows with every kind of column that a frame has, under an index that is not a column."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "hospital": rng.integers(1, 4, n),
            "died": rng.integers(0, 2, n).astype(bool),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(60, 10, n).round(1)),
            "beds": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "unit": pd.Categorical(rng.choice(["MICU", "SICU"], n)),
            "stage": pd.Categorical(np.where(rng.random(n) < 0.2, None, rng.integers(1, 4, n))),
            "note": rng.choice(np.array(["a", "b", None], object), n),
            "when": pd.Timestamp("2020-01-01"),
        },
        index=rng.permutation(n),
    )


def federation(section: dict[str, Any]) -> Federation:
    config = reading.resolve({"data": section})
    return plugins.build_federation(config, plugins.build_source(config.data), 0)


def test_a_frame_gives_the_federation_of_its_file(tmp_path: Path) -> None:
    frame = stays()
    frame.to_csv(tmp_path / "stays.csv", index=False)
    file = {"source": "table", "path": str(tmp_path / "stays.csv"), **KEYS, "categorical": ["unit", "stage", "note"]}
    of_file, of_frame = federation(file), federation(data_section(frame, KEYS))
    assert of_frame.fingerprint == of_file.fingerprint
    assert of_frame.hospitals == ("1", "2", "3")
    assert {"stage=1", "stage=2", "stage=3", "stage_missing", "age_missing", "beds"} < set(of_frame.features)
    np.testing.assert_array_equal(of_frame.source_rows, of_file.source_rows)


def test_equal_frames_are_one_file_and_others_are_another() -> None:
    frame = stays()
    path = stored(frame)
    written = path.stat().st_mtime_ns
    assert stored(frame.reset_index(drop=True)) == path
    assert path.stat().st_mtime_ns == written
    for other in (frame.iloc[::-1], frame[frame.columns[::-1]], frame.rename(columns={"age": "years"}), frame[:-1]):
        assert stored(other) != path
    changed = frame.copy()
    changed.iloc[7, 2] = 1.0
    assert stored(changed) != path


def test_what_is_kept_is_a_configuration_of_plain_values() -> None:
    section = data_section(stays(), KEYS | {"split": {"test": 0.5, "train": 0.5, "validation": 0}})
    config = reading.resolve({"data": section})
    again = reading.resolve(config.frozen())
    assert again == config
    assert again.data.frozen()["path"].startswith(os.environ["RAYSIM_CACHE"])


def test_a_frame_is_left_as_it_is() -> None:
    frame = stays()
    before = frame.copy(deep=True)
    stored(frame)
    pd.testing.assert_frame_equal(frame, before)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"path": "stays.csv"}, "data.path: 'stays.csv' cannot be combined with a data frame; keep one of them"),
        ({"source": "eicu"}, "data.source: 'eicu' cannot be combined with a data frame; remove the key"),
    ],
)
def test_data_in_two_places_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}$"):
        data_section(stays(), KEYS | keys)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            pd.DataFrame({"x": [1, [2]], "y": [0, 1]}),
            r"^data: column 'x' of the data frame contains values that no file can store \(.*\); convert it, or drop",
        ),
        (pd.DataFrame({"x": [1j, 2j]}), "column 'x' of the data frame contains values that no file can store"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "^data: the data frame has two columns named 'x'; rename one$"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "two columns named '1'"),
        ({"hospital": ["a"]}, "^data: a dict is not a pandas data frame; make one, or name a file"),
        (np.zeros((2, 2)), "^data: a ndarray is not a pandas data frame"),
        ("patients.csv", "^data: a str is not a pandas data frame"),
        (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "columns have several levels"),
    ],
)
def test_a_frame_that_is_no_table_is_refused(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(DataError, match=said):
        stored(frame)


def test_columns_that_are_not_asked_for_may_hold_anything() -> None:
    frame = pd.DataFrame({"x": [1, 2], "y": [1, "a"], 3: [True, None]})
    table = arrow_table(frame, "table", ["x", "3", "absent"])
    assert table.column_names == ["x", "3"]
    assert table.schema.field("3").type == pa.bool_()


def test_errors_of_the_table_name_its_column() -> None:
    with pytest.raises(DataError, match=r"^data\.silo: no column 'hospitl' in the data frame; did you mean 'hospi"):
        federation(data_section(stays(), KEYS | {"silo": "hospitl"}))
    with pytest.raises(DataError, match=r"column 'when' holds dates or times.*; drop it \(data\.drop\) or convert it"):
        federation(data_section(stays(), KEYS | {"drop": []}))
    with pytest.raises(DataError, match="has no rows"):
        federation(data_section(stays(0), KEYS))


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"^RAYSIM_CACHE: the cache folder"):
        stored(stays())
