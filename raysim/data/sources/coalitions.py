"""The synthetic data sets of CS-RCFL as a federation: few hospitals in groups; each group has one linear model.

X. Konti et al., *CS-RCFL*, numerical experiments. Hospital ``i`` has rows of features ``x ~ N(μ_i, Σ_i)``. The
hospitals of a group ``g`` have the same weights ``w_g ~ N(0, I)`` of the linear model. The label is
``y = w_g.x + N(0, 25)`` in regression. In classification it is ``y = [w_g.x > 0]``, without noise, so that the classes
are separable.

The paper does not say how means and covariances are sampled. Here ``μ_i = 0.5 N(0, I)``, and ``Σ_i`` is either
``B B' / F`` with a standard normal matrix ``B [F, F]`` for ``F`` features (``wishart``), or ``I`` (``identity``). The
choice of ``Σ_i`` decides the result in the paper's figure, see ``docs/coalitions.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raysim.core.arrays import Floats
from raysim.core.errors import DataError
from raysim.core.section import Seed
from raysim.core.streams import stream
from raysim.core.words import counted
from raysim.data.records import Records

Rows = tuple[Floats, Floats]
"""Features ``X [n, F]`` and labels ``y [n]``: real numbers in regression, 0 or 1 in classification."""

Covariance = Literal["wishart", "identity"]
SIZES = {"regression": (50, 150), "classification": (100, 200)}
NOISE = 5.0


@dataclass(frozen=True, eq=False)
class CoalitionSets:
    """The data sets of ``N`` hospitals in ``G`` groups, with ``F`` features.

    - ``train [N]``: each hospital's training set; ``tests [T][N]``: its ``T`` test sets.
    - ``groups [N]``: the true group of each hospital.
    - ``weights [G, F]``: the weights of the linear model of each group.
    """

    train: tuple[Rows, ...]
    tests: tuple[tuple[Rows, ...], ...]
    groups: NDArray[np.int64]
    weights: Floats


def coalition_sets(
    rng: np.random.Generator,
    task: Literal["regression", "classification"],
    *,
    hospitals: int = 10,
    groups: int = 3,
    features: int = 50,
    tests: int = 10,
    test_rows: int = 100,
    covariance: Covariance = "wishart",
) -> CoalitionSets:
    """Sample the data sets of hospitals, which are divided into groups of at least one hospital.

    The number of rows of a training set is uniformly distributed: 50 to 150 in regression, 100 to 200 in
    classification. Raises ``ValueError`` if there are more groups than hospitals.
    """
    if not 1 <= groups <= hospitals:
        raise ValueError(f"groups: {groups} must be between 1 and {hospitals}, the number of hospitals")
    low, high = SIZES[task]
    sizes = rng.integers(low, high + 1, hospitals)
    weights = rng.standard_normal((groups, features))
    # Every group gets one hospital; the remaining hospitals get a random group; then the groups are shuffled.
    group_of = rng.permutation(np.concatenate([np.arange(groups), rng.integers(0, groups, hospitals - groups)]))
    means = 0.5 * rng.standard_normal((hospitals, features))
    factors = rng.standard_normal((hospitals, features, features)) / np.sqrt(features)

    def draw(i: int, n: int) -> Rows:
        X = rng.standard_normal((n, features))
        X = means[i] + (X @ factors[i].T if covariance == "wishart" else X)
        scores = X @ weights[group_of[i]]
        if task == "regression":
            return X, scores + NOISE * rng.standard_normal(n)
        return X, (scores > 0).astype(np.float64)

    train = tuple(draw(i, int(sizes[i])) for i in range(hospitals))
    repeated = tuple(tuple(draw(i, test_rows) for i in range(hospitals)) for _ in range(tests))
    return CoalitionSets(train, repeated, group_of, weights)


PART = "part"
"""The name of the column that divides rows into training and test sets, for ``data.split: {column: part}``."""


class Coalitions(BaseModel):
    """The synthetic data sets of CS-RCFL: hospitals in groups, each group with one linear model.

    Each hospital trains on 50 to 150 rows in regression and 100 to 200 in classification. With
    ``data.split: {column: part}``, its test rows are the rows of its ``tests`` test sets. The true group is the
    hospital's attribute ``group``.
    """

    invented: ClassVar[bool] = True

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Literal["classification", "regression"] = "classification"
    """Whether the label is a class or a number."""
    hospitals: int = Field(10, ge=1)
    """Number of hospitals."""
    groups: int = Field(3, ge=1, description="groups of hospitals that share a true model")
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
        """Return no files: the data are sampled from the fields alone."""
        return iter(())

    def reserve(self, by: str | None, column: str | None) -> Coalitions:
        """Return this source unchanged. Raises ``DataError`` if ``by`` is given, or if ``column`` is neither None nor
        ``PART``.
        """
        if by is not None:
            raise DataError(f"data.split.by: '{by}', but these rows have no groups; use row")
        if column not in (None, PART):
            raise DataError(
                f"data.split.column: '{column}' does not exist; use '{PART}', the column of the "
                "sampled training and test sets"
            )
        return self

    def read(self) -> Records:
        """Sample the training and test sets of all hospitals."""
        import pandas as pd

        sets_ = coalition_sets(
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
        sets = [sets_.train, *sets_.tests]
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
            attributes={name: {"group": f"group_{g + 1}"} for name, g in zip(names, sets_.groups, strict=True)},
            notes=(
                f"coalitions: {self.task}, {counted(self.hospitals, 'hospital')} in {counted(self.groups, 'group')}, "
                f"{counted(self.features, 'feature')}, {self.covariance} covariances, "
                f"{counted(self.tests, 'test set')} of {counted(self.test_rows, 'row')}, seed {self.seed}",
            ),
        )
