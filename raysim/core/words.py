"""Numbers and values in sentences: counts with their nouns, and values as a configuration has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun; ``plural`` where that is not the noun with an s.

    >>> counted(1, "row"), counted(1841, "hospital"), counted(2, "class", "classes")
    ('1 row', '1,841 hospitals', '2 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def chance(p: float, draws: int | None = None) -> str:
    """A p as text: two digits, never 0. Of so many ``draws`` none is below ``1 / (draws + 1)``.

    >>> chance(0.0312), chance(0.0099), chance(0.0, 1999), chance(1 / 50, 49), chance(float("nan"))
    ('p = 0.03', 'p < 0.01', 'p < 0.01', 'p <= 0.02', 'p undefined')
    """
    if math.isnan(p):
        return "p undefined"
    if draws is not None and draws + 1 < 100 and p <= 1 / (draws + 1):
        return f"p <= {1 / (draws + 1):.2f}"
    return f"p = {p:.2f}" if p >= 0.01 else "p < 0.01"


def as_yaml(value: Any) -> str:
    """A value of a configuration as its YAML file has it, with texts in quotes.

    >>> as_yaml(None), as_yaml([1, True, "x"]), as_yaml({"mu": None})
    ('null', "[1, true, 'x']", '{mu: null}')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_yaml(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    return repr(value)
