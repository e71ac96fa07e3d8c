"""Splits and folds in which the part of each patient does not depend on other patients.

A privacy guarantee for patients compares the data with and without one patient. If all rows of a hospital were divided
at once, the removal of a patient would move other patients between training, validation and test. Here, the part of a
patient follows from a keyed hash of the patient's identifier. If rows are divided without regard to patients, the part
of a row follows from a hash of its content. The configured fractions of training, validation and test rows
are therefore met only on average.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.records import Records
from raysim.data.split import Split

Places = NDArray[np.float64]


def parts(split: Split, records: Records, rows: NDArray[np.int64], by: str, run: int) -> NDArray[np.int8]:
    """Return the part of each row, ``[N]``: 0 for training, 1 for validation, 2 for test.

    ``rows [N]`` are positions in ``records``. ``by`` is ``row``, ``patient`` or a column: rows of one patient, or with
    the same value in the column, are all in one part. ``run`` is the run's seed. Raises ``ValueError`` if ``split``
    reads the parts from a column of the data.
    """
    seed = split.effective_seed(run)
    if seed is None:
        raise ValueError("the split is by a column, and only a split by a seed can be computed for each row alone")
    ids = _contents(records, rows) if by == "row" or records.group is None else _ids(records, rows)
    if split.folds is None:
        place = _places(ids, seed, "split")
        return np.digitize(place, [split.train, split.train + split.validation]).clip(0, 2).astype(np.int8)
    fold = np.floor(_places(ids, seed, "folds") * split.folds)
    return np.where(fold == split.fold(run), 2, 0).astype(np.int8)


def used(split: Split, records: Records, rows: NDArray[np.int64], by: str, run: int) -> NDArray[np.bool_]:
    """Return a mask ``[N]`` of the rows that may be used for training: about the share ``split.used`` of all rows.

    The arguments are as in :func:`parts`. The rows of a small share are also in every larger share.
    """
    ids = _contents(records, rows) if by == "row" or records.group is None else _ids(records, rows)
    seed = split.effective_seed(run)
    return _places(ids, run if seed is None else seed, "used") < split.used


def _places(ids: NDArray[Any], seed: int, purpose: str) -> Places:
    """Hash each identifier in ``ids [N]`` to a number of at least 0 and below 1, with the key ``seed``."""
    import pandas as pd

    codes, distinct = pd.factorize(ids)
    key, person = seed.to_bytes(16, "little"), purpose.encode()
    hashed = (hashlib.blake2b(repr(each).encode(), digest_size=8, key=key, person=person).digest() for each in distinct)
    # 53 bits fit into a double, so that no number is rounded up to 1.
    numbers = np.array([int.from_bytes(digest, "little") >> 11 for digest in hashed], np.float64)
    return np.asarray(numbers[codes] * 2.0**-53)


def _ids(records: Records, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return one text per row, ``[N]``: the row's patient or, without a patient, a digest of the row's content."""
    import pandas as pd

    group = np.asarray(records.group, object)[rows]
    texts = np.array([_text(each) for each in group], object)
    if (unnamed := pd.isna(group)).any():
        texts[unnamed] = _contents(records, rows[unnamed])
    return texts


def _text(value: Any) -> str:
    """Return ``value`` as text; a whole number reads the same whether its column is stored as integers or as floats."""
    return str(int(value)) if isinstance(value, float | np.floating) and float(value).is_integer() else str(value)


def _contents(records: Records, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return a digest of each row's hospital, label, features, patient and patient attributes, ``[N]``.

    Classes and categories are hashed by name, because their codes depend on the values of other rows.
    """
    import pandas as pd

    label = np.array(records.classes, object)[records.y] if records.classes else records.y
    values = [records.silo, label, *records.patients.values(), *(() if records.group is None else (records.group,))]
    hashes: list[NDArray[Any]] = [pd.util.hash_array(_hashable(np.asarray(each)[rows])) for each in values]
    hashes.append(pd.util.hash_pandas_object(records.features.iloc[rows], index=False).to_numpy())
    return np.array([row.tobytes().hex() for row in np.column_stack(hashes)], object)


def _hashable(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    return np.array([_text(each) for each in values], object)
