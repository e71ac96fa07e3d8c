"""Attributes of hospitals from a user's table: region, teaching, beds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from raysim.core.errors import DataError, nearest
from raysim.core.words import counted
from raysim.data.tables.columns import texts
from raysim.data.tables.spelling import twin_warnings

UNKNOWN, MIXED = "unknown", "mixed"
"""The texts for a missing value of an attribute, and for a value that differs between the rows of a hospital."""


def hospital_attributes(
    given: Sequence[str] | Mapping[str, Mapping[str, str]], table: pa.Table, silo: NDArray[Any]
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return ``{hospital: {attribute: value}}``, and warnings about values that differ within a hospital or only in
    spelling.

    ``given`` are the names of columns, or the values as ``{attribute: {hospital: value}}``. ``silo [N]`` is the
    hospital of each row of ``table``. Raises ``DataError`` if the mapping names a hospital without rows.
    """
    if not given:
        return {}, []
    names, of_row = np.unique(silo.astype(str), return_inverse=True)
    described: dict[str, dict[str, str]] = {name: {} for name in names.tolist()}
    warnings: list[str] = []
    if isinstance(given, Mapping):
        for attribute, values in given.items():
            for name in values:
                if name not in described:
                    raise DataError(
                        f"data.attributes.{attribute}: hospital '{name}' has no rows; {nearest(name, described)}"
                    )
            for name, of in described.items():
                of[attribute] = values.get(name, UNKNOWN)
        return described, warnings
    for attribute in given:
        different, of_value = np.unique(
            texts(table, attribute, "data.attributes", unknown=UNKNOWN).astype(str), return_inverse=True
        )
        rows = zip(different.tolist(), np.bincount(of_value).tolist(), strict=True)
        warnings += twin_warnings(f"data.attributes.{attribute}", dict(rows))
        low, high = np.full(len(names), len(different)), np.full(len(names), -1)
        np.minimum.at(low, of_row, of_value)
        np.maximum.at(high, of_row, of_value)
        for h, of in enumerate(described.values()):
            of[attribute] = str(different[low[h]]) if low[h] == high[h] else MIXED
        if mixed := int((low != high).sum()):
            first = names[int((low != high).argmax())]
            warnings.append(
                f"data.attributes: '{attribute}' differs within {counted(mixed, 'hospital')} (first: '{first}'), "
                f"which are '{MIXED}'"
            )
    return described, warnings
