"""Checks of single values: arrays, row indices of models, numbers. Each raises :class:`Invalid` naming the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.fields import Invalid
from raysim.strategies.problem import Ids, RowSentinel

INTEGERS, NUMBERS, TRUTHS = "iu", "iuf", "b"
"""The letters of numpy's ``dtype.kind`` for whole numbers, for all numbers, and for truth values."""

WORDS = {INTEGERS: "whole numbers", NUMBERS: "numbers", TRUTHS: "truth values"}


def check_array(field: str, value: Any, kinds: str, length: int, of: str, columns: int | None = None) -> None:
    """Raise :class:`Invalid` unless ``value`` is an array of finite values with ``length`` entries.

    If ``columns`` is given, the array must be ``[length, columns]``. ``kinds`` are the allowed letters of
    ``dtype.kind``. ``of`` says in messages what each entry belongs to, such as hospitals.
    """
    shape = (length,) if columns is None else (length, columns)
    wanted = f"give an array of {WORDS[kinds]}, one for each of {length} {of}" + (
        f" and {columns} columns" if columns else ""
    )
    if not isinstance(value, np.ndarray):
        raise Invalid(f"{field}: {short_form(value)} is not an array; {wanted}")
    if value.dtype.kind not in kinds:
        raise Invalid(f"{field}: has values of type {value.dtype}; {wanted}")
    if value.shape != shape:
        count = f"{len(value)} value{'s' * (len(value) != 1)}" if value.ndim == 1 else f"shape {list(value.shape)}"
        raise Invalid(f"{field}: has {count}; {wanted}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        at = int(np.flatnonzero(~np.isfinite(value).reshape(length, -1).all(axis=1))[0])
        raise Invalid(f"{field}: the value at index {at} is not finite; give finite numbers")


def check_rows(field: str, rows: Ids, models: int, *sentinels: RowSentinel) -> None:
    """Raise :class:`Invalid` unless each value of ``rows`` is an index below ``models``, or one of the
    ``sentinels``."""
    if not rows.size or (rows.min() >= 0 and rows.max() < models):
        return
    allowed = (rows >= 0) & (rows < models)
    for sentinel in sentinels:
        allowed |= rows == sentinel
    if not allowed.all():
        names = "".join(f", or {sentinel.name}" for sentinel in sentinels)
        raise Invalid(f"{field}: {rows[~allowed][0]} is not a row of state.models; give 0 to {models - 1}{names}")


def check_kind(field: str, value: Any, kind: type) -> None:
    """Raise :class:`Invalid` unless ``value`` is an instance of the class ``kind``."""
    if not isinstance(value, kind):
        raise Invalid(f"{field}: {short_form(value)} is not of type {kind.__name__}; give a value of this type")


def check_mapping(field: str, value: Any) -> None:
    """Raise :class:`Invalid` unless ``value`` is a mapping whose keys are texts."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise Invalid(f"{field}: is of type {type(value).__name__}; give a mapping whose keys are texts")


def as_array(field: str, value: Any) -> NDArray[Any]:
    """Return ``value`` as an array of numbers. Raises :class:`Invalid` for anything else."""
    try:
        array = np.asarray(value)
    except Exception as error:  # numpy and other libraries raise various errors here
        kind = type(value).__name__  # the value may be a patient's
        raise Invalid(
            f"{field}: a {kind} cannot be made into an array ({type(error).__name__}); give numbers"
        ) from None
    if array.dtype.kind not in "biuf":
        raise Invalid(f"{field}: has values of type {array.dtype}; give numbers")
    return array


def check_number(field: str, value: Any, *, above: bool = False) -> None:
    """Raise :class:`Invalid` unless ``value`` is a finite number of at least 0 or, with ``above``, above 0."""
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0 or (above and value == 0):
        raise Invalid(f"{field}: {short_form(value)} is not a number {'above' if above else 'of at least'} 0")


def check_count(field: str, value: Any, *, least: int = 0) -> None:
    """Raise :class:`Invalid` unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, Integral) or value < least:
        raise Invalid(f"{field}: {short_form(value)} is not a whole number of at least {least}")


def check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise :class:`Invalid` unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise Invalid(f"{field}: {short_form(value)} is not one of {', '.join(choices)}")


def short_form(value: Any) -> str:
    """Return ``value`` as a short text of one line, for error messages."""
    if isinstance(value, np.ndarray):
        return f"an array {list(value.shape)} of {value.dtype}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else f"a {type(value).__name__}"
