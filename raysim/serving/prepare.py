"""Rows of a table as the features of an exported model; needs pandas, and preprocessing.json beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd


def columns() -> list[dict[str, Any]]:
    """The columns that a table needs, in the order of the features."""
    described: list[dict[str, Any]] = json.loads(Path(__file__).with_name("preprocessing.json").read_text())["columns"]
    return described


def features(rows: pd.DataFrame) -> Any:
    """The features ``[n, F]``, float32, of ``n`` rows: values, then flags of missing ones."""
    values, flags = [], []
    for column in columns():
        given = rows[column["name"]]
        if column["kind"] == "numeric":
            number = given.astype("float64").astype("float32").astype("float64").fillna(column["fill"])
            varied = column["scale"] is not None
            values.append((number - column["mean"]) / column["scale"] if varied else number * 0)
        else:
            text = given.astype(object).map(lambda value: "" if pd.isna(value) else str(value))
            for category in column["categories"]:
                if column["compared_as"] == "number":
                    values.append(pd.to_numeric(text, errors="coerce") == float(category))
                elif column["compared_as"] == "truth":
                    values.append(text.str.lower() == category.lower())
                else:
                    values.append(text == category)
        if column["flagged"]:
            flags.append(given.isna())
    return pd.concat([*values, *flags], axis=1).to_numpy("float32")


def read(path: str) -> pd.DataFrame:
    """A CSV file, with the texts that stood for a missing value in training."""
    described = json.loads(Path(__file__).with_name("preprocessing.json").read_text())
    as_text = {column["name"]: str for column in described["columns"] if column["kind"] == "categorical"}
    return pd.read_csv(path, dtype=as_text, na_values=described["na_values"])
