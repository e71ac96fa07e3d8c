"""Sources whose records a test writes down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict

from raysim.data.records import Records


class Fixed(BaseModel):
    """Gives ``Fixed.kept[name]``; ``file`` stands for the file that they are read from."""

    model_config = ConfigDict(frozen=True)

    kept: ClassVar[dict[str, Records]] = {}
    reads: ClassVar[list[str]] = []

    name: str
    file: Path | None = None

    def files(self) -> Iterator[Path]:
        return iter([] if self.file is None else [self.file])

    def read(self) -> Records:
        Fixed.reads.append(self.name)
        return Fixed.kept[self.name]


class Parted(Fixed):
    """A source whose records have a column of parts, ``part``."""

    def reserve(self, by: str | None, column: str | None) -> Parted:
        return self


def fixed(records: Records, name: str, file: Path | None = None) -> Fixed:
    """A source of ``records``; two of one name are the same to the cache."""
    Fixed.kept[name] = records
    return Fixed(name=name, file=file)


def records(
    columns: dict[str, Sequence[Any]],
    y: Sequence[int],
    silo: Sequence[str],
    classes: Sequence[str] = ("no", "yes"),
    **more: Any,
) -> Records:
    """Records from lists; text columns become categories."""
    frame = {
        name: pd.Categorical(values) if any(isinstance(v, str) for v in values) else np.array(values, np.float32)
        for name, values in columns.items()
    }
    return Records(
        features=pd.DataFrame(frame),
        y=np.array(y, np.int64),
        classes=tuple(classes),
        silo=np.array(silo, object),
        **more,
    )
