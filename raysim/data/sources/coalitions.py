"""The synthetic sets of CS-RCFL as a federation: hospitals in groups that share one linear law."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raysim.core.errors import DataError
from raysim.core.section import Seed
from raysim.core.streams import stream
from raysim.core.words import counted
from raysim.data.records import Records
from raysim.data.sources.coalition_sets import Covariance, coalition_sets

PART = "part"
"""The column of the sampled training and test sets, for ``data.split: {column: part}``."""


class Coalitions(BaseModel):
    """The synthetic data sets of CS-RCFL: hospitals in groups, each group with one linear law.

    Each hospital trains on 50 to 150 rows in regression and 100 to 200 in classification. Its ``tests`` test sets
    together are its test part (``data.split: {column: part}``). The true group is the hospital's attribute ``group``.
    """

    invented: ClassVar[bool] = True

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["classification", "regression"] = "classification"
    """Whether the label is a class or a number."""
    hospitals: int = Field(10, ge=1)
    """Number of hospitals."""
    groups: int = Field(3, ge=1, description="groups of hospitals that share a law")
    features: int = Field(50, ge=1)
    """Number of features."""
    tests: int = Field(10, ge=1, description="test sets of a hospital")
    test_rows: int = Field(100, ge=1, description="rows of a test set")
    covariance: Covariance = Field(
        "wishart", description="covariance of a hospital's features: wishart (different at each hospital) or identity"
    )
    seed: Seed = Field(0, description="seed of the sets; the run has a separate seed")

    @model_validator(mode="after")
    def _consistent(self) -> Coalitions:
        if self.groups > self.hospitals:
            raise ValueError(f"groups: {self.groups} is more than the {self.hospitals} hospitals; lower it")
        return self

    def files(self) -> Iterator[Path]:
        """Return no files: the fields alone decide what is sampled."""
        return iter(())

    def reserve(self, by: str | None, column: str | None) -> Coalitions:
        """Return this source. Raises ``DataError`` unless ``data.split`` names no column, or ``PART``."""
        if by is not None:
            raise DataError(f"data.split.by: '{by}', but these rows have no groups; use row")
        if column not in (None, PART):
            raise DataError(f"data.split.column: '{column}' does not exist; use '{PART}', the sampled sets")
        return self

    def read(self) -> Records:
        """Sample the sets."""
        import pandas as pd

        drawn = coalition_sets(
            stream(self.seed, "coalitions"),
            self.task,
            hospitals=self.hospitals,
            groups=self.groups,
            features=self.features,
            tests=self.tests,
            test_rows=self.test_rows,
            covariance=self.covariance,
        )
        names = [f"hospital_{h + 1}" for h in range(self.hospitals)]
        sets = [drawn.train, *drawn.tests]
        X = np.concatenate([X for rows in sets for X, _ in rows])
        y = np.concatenate([y for rows in sets for _, y in rows])
        sizes = [[len(y) for _, y in rows] for rows in sets]
        classed = self.task == "classification"
        return Records(
            features=pd.DataFrame(X.astype(np.float32), columns=[f"x{j + 1}" for j in range(self.features)]),
            y=y.astype(np.int64) if classed else y,
            classes=("negative", "positive") if classed else (),
            silo=np.concatenate([np.repeat(np.array(names, object), counts) for counts in sizes]),
            part=np.concatenate([np.full(sum(counts), 2 if k else 0, np.int8) for k, counts in enumerate(sizes)]),
            attributes={name: {"group": f"group_{g + 1}"} for name, g in zip(names, drawn.groups, strict=True)},
            notes=(
                f"coalitions: {self.task}, {counted(self.hospitals, 'hospital')} in {counted(self.groups, 'group')}, "
                f"{counted(self.features, 'feature')}, {self.covariance} covariances, "
                f"{counted(self.tests, 'test set')} of {counted(self.test_rows, 'row')}, seed {self.seed}",
            ),
        )
