"""What a data source gives: one row per stay, before split and preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Records:
    """One row per stay (or other prediction), ``N`` rows, in any order.

    - ``features [N, *]``: float32 columns (NaN: not recorded) and pandas categorical columns.
    - ``y [N]``: class indices into ``classes``.
    - ``silo [N]``: the name of the hospital that holds the row, as text.
    - ``group [N]`` or None: rows of one group (a patient) are never split between parts.
    - ``part [N]`` or None: 0 train, 1 validation, 2 test, where the source itself says so.
    - ``patients``: ``sex``, ``ethnicity`` (text), ``age`` (float years, NaN unknown) where known, each ``[N]``.
    - ``attributes``: ``{silo name: {attribute: text}}``.
    - ``notes``: what was read, a line each, for ``raysim describe``; ``warnings``: said once when it is read.
    """

    features: pd.DataFrame
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    silo: NDArray[Any]
    group: NDArray[Any] | None = None
    part: NDArray[np.int8] | None = None
    patients: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Source(Protocol):
    """A data source: a frozen pydantic model of its own keys in ``data`` (``path``, ``task``, ``silo``, ...)."""

    def files(self) -> Iterator[Path]:
        """The files whose content decides what :meth:`read` gives (none for generated data).

        Raises ``DataError`` where the path or a file that cannot be missed does not exist.
        """
        ...

    def read(self) -> Records:
        """Read or generate the rows. Raises ``DataError`` naming the field, the value and the remedy."""
        ...
