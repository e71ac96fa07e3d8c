"""ACSIncome: does a person earn more than 50,000 dollars a year?

F. Ding, M. Hardt, J. Miller, L. Schmidt: *Retiring Adult: New Datasets for Fair Machine Learning*, NeurIPS 2021.

The files are the person files ``psam_p<state>.csv`` of the American Community Survey, as folktables downloads them.
Rows are people older than 16 years who worked at least an hour a week, had an income above 100 dollars and have a
survey weight of at least 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from raysim.core.errors import DataError
from raysim.data.sources.pooled import Pooled, read_csv

FEATURES = ["AGEP", "COW", "SCHL", "MAR", "OCCP", "POBP", "RELP", "WKHP", "SEX", "RAC1P"]
ABOVE = 50_000


class AcsIncome(Pooled):
    """ACSIncome: incomes above 50,000 dollars, from the survey's person files below the folder ``path``."""

    predicts: ClassVar[str] = "income above 50,000 dollars"

    path: Path
    """The folder of the survey's files."""
    states: tuple[str, ...] | None = Field(None, min_length=1)
    """Codes of the states to use, as in file names, such as ["06", "48"]; null uses all states in the folder."""

    def files(self) -> Iterator[Path]:
        files = sorted(self.path.rglob("psam_p*.csv"))
        if not files:
            raise DataError(f"data.path: {self.path} has no psam_p<state>.csv; name folktables' data folder")
        if self.states is None:
            return iter(files)
        of_state = {file: file.stem.removeprefix("psam_p") for file in files}
        for state in self.states:
            if state not in of_state.values():
                states = ", ".join(sorted(set(of_state.values())))
                raise DataError(f"data.states: '{state}' has no psam_p{state}.csv in {self.path}; known: {states}")
        return (file for file, state in of_state.items() if state in self.states)

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        parts = []
        for file in self.files():
            columns = [*FEATURES, "PINCP", "PWGTP"]
            table = read_csv(file, "is not an ACS person file", usecols=columns, dtype=np.float64)
            eligible = (table["AGEP"] > 16) & (table["PINCP"] > 100) & (table["WKHP"] > 0) & (table["PWGTP"] >= 1)
            parts.append(table[eligible])
        rows = pd.concat(parts, ignore_index=True)
        if rows.empty:
            raise DataError(f"data.path: {self.path} has no adult with an income; name more states")
        y = (rows["PINCP"].to_numpy() > ABOVE).astype(np.int64)
        note = f"ACSIncome: {len(rows):,} persons of {len(parts)} files"
        return rows[FEATURES].astype(np.float32), y, (f"up to {ABOVE}", f"above {ABOVE}"), note
