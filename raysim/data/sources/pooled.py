"""Pooled data sets without hospitals, divided among clients by a partition protocol.

The configuration gives the number of clients and the partition, which decides how much clients differ. For
``data.split: {column: part}``, each client's rows are divided 80/20 into training and test, stratified by class.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from raysim.core.errors import DataError
from raysim.core.section import Seed
from raysim.core.words import counted
from raysim.data.records import Records
from raysim.data.sources.partition import dirichlet, holdout, similarity

PART = "part"
"""The name of the column that divides rows into training and test, for ``data.split: {column: part}``."""


class Alternatives(BaseModel):
    """A section in which one key decides which other keys have an effect; keys without effect are refused.

    A written configuration omits these keys, so that it can be read again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the name of the deciding key, and the names of the keys that have no effect with its present value."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _no_idle_key(self) -> Self:
        decides, idle = self.idle()
        for key in idle:
            if key in self.model_fields_set:
                raise ValueError(f"{key}: has no effect where {decides} is {getattr(self, decides)}; leave it out")
        return self

    @model_serializer(mode="wrap")
    def _without_idle_keys(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        _, idle = self.idle()
        return {key: value for key, value in write(self).items() if key not in idle}


class Partition(Alternatives):
    """The rule that assigns rows to clients: ``dirichlet`` with ``alpha``, or ``similarity`` with ``share``."""

    name: Literal["dirichlet", "similarity"] = "dirichlet"
    """``dirichlet``: shares of classes are sampled. ``similarity``: a share of rows is divided at random, the others in
    order of class.
    """
    alpha: float = Field(
        0.3,
        gt=0,
        allow_inf_nan=False,
        description="dirichlet: with a small value hospitals differ, with a large value they are alike",
    )
    min_size: int = Field(10, ge=0, description="dirichlet: fewest rows of a client")
    share: float = Field(
        0.0, ge=0, le=1, description="similarity: 1 gives clients that are alike, 0 gives shards of one or few classes"
    )

    def idle(self) -> tuple[str, tuple[str, ...]]:
        return "name", ("share",) if self.name == "dirichlet" else ("alpha", "min_size")

    def home(self, labels: NDArray[np.int64], clients: int, seed: int) -> NDArray[np.int64]:
        """Return the client of each row, ``[N]``. ``labels [N]`` are the class indices of the rows."""
        if self.name == "similarity":
            return similarity(labels, clients, self.share, seed)
        return dirichlet(labels, clients, self.alpha, seed, min_size=self.min_size)


class Pooled(BaseModel):
    """A pooled data set, divided among ``clients`` hospitals by ``partition`` with random numbers from ``seed``. If
    ``rows`` is given, a random sample of at most ``rows`` rows is used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    untouched: ClassVar[bool] = False
    """Whether the values must not be preprocessed (``data.preprocessing: none``)."""
    tabular: ClassVar[bool] = True
    """Whether columns are checked for revealing the label; False for pictures and texts."""

    stratified: ClassVar[bool] = True
    """Whether the part of a row in the column :data:`PART` depends on other rows."""

    clients: int = Field(100, ge=1)
    """Number of hospitals among which the rows are divided."""
    partition: Partition = Field(default_factory=Partition)
    rows: int | None = Field(None, ge=1, description="number of rows to use, sampled at random; null: all")
    seed: Seed = Field(0, description="seed of the partition, the holdout and the sample; the run has a separate seed")

    def files(self) -> Iterator[Path]:
        """Return the files that the source reads; none for a data set without files."""
        return iter(())

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        """Return the whole data set: features ``[N, F]``, class indices ``[N]``, names of the classes, and a note on
        the data.
        """
        raise NotImplementedError

    def reserve(self, by: str | None, column: str | None) -> Pooled:
        """Return this source unchanged. Raises ``DataError`` if ``by`` is given, or if ``column`` is neither None nor
        ``PART``.
        """
        if by is not None:
            raise DataError(f"data.split.by: '{by}', but these rows have no groups; use row")
        if column not in (None, PART):
            raise DataError(f"data.split.column: '{column}' does not exist; use '{PART}', the stratified holdout")
        return self

    def read(self) -> Records:
        """Return the rows, divided among clients. Raises ``DataError`` if a class has no rows or the partition
        fails.
        """
        features, y, classes, note = self.pool()
        chosen = self.sample(y, classes)
        if len(chosen) < len(y):
            features, y = features.iloc[chosen].reset_index(drop=True), y[chosen]
        home = self.partition.home(y, self.clients, self.seed)
        names = np.array([f"client_{j + 1}" for j in range(self.clients)])
        partition = self.partition.model_dump(
            include={"name", "alpha" if self.partition.name == "dirichlet" else "share"}
        )
        # Only dirichlet leaves clients without a row, and only where min_size: 0 allows it.
        without = self.clients - len(np.unique(home))
        left_out = f"; left out: {counted(without, 'client')} that got no row" if without else ""
        return Records(
            features=features,
            y=y,
            classes=classes,
            silo=names[home],
            part=holdout(y, home, self.seed),
            notes=(
                note,
                f"{counted(len(y), 'row')} to {counted(self.clients, 'client')} by {partition}, seed "
                f"{self.seed}{left_out}",
            ),
        )

    def sample(self, y: NDArray[np.int64], classes: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the positions of the rows to use, ascending: all rows, or a random sample of ``self.rows`` rows.
        Raises ``DataError`` if a class has none of these rows.
        """
        from raysim.core.streams import stream

        check_classes(y, classes, "data.source: the pool", "check the files of the source")
        if self.rows is None or self.rows >= len(y):
            return np.arange(len(y))
        chosen = np.sort(stream(self.seed, "sample of rows").permutation(len(y))[: self.rows])
        check_classes(y[chosen], classes, f"data.rows: a sample of {self.rows:,}", "draw more")
        return chosen


class Homed(Pooled, Alternatives):
    """A pooled data set in which each row has an origin, such as a user. With ``silo: partition``, a partition assigns
    hospitals; with any other ``silo``, the origins are the hospitals.
    """

    silo: str = "partition"
    smallest: int = Field(
        10, ge=1, description="fewest rows of a hospital, unless silo is partition; smaller hospitals are left out"
    )

    @property
    def selected_by_size(self) -> bool:
        """Whether hospitals with few rows are left out."""
        return self.silo != "partition"

    def idle(self) -> tuple[str, tuple[str, ...]]:
        return "silo", ("smallest",) if self.silo == "partition" else ("clients", "partition")

    def homed(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str, NDArray[Any]]:
        """Return the result of :meth:`pool`, and an array ``[N]`` with the origin of each row, such as its user."""
        raise NotImplementedError

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        features, y, classes, note, _ = self.homed()
        return features, y, classes, note

    def read(self) -> Records:
        if self.silo == "partition":
            return super().read()
        features, y, classes, note, homes = self.homed()
        chosen = self.sample(y, classes)
        codes, names = pd.factorize(homes[chosen])
        sizes = np.bincount(codes)
        large = sizes >= self.smallest
        if not large.any():
            raise DataError(
                f"data.smallest: {self.smallest:,} rows are more than any {self.silo} has (the largest: "
                f"{sizes.max():,}); lower it"
            )
        selected, codes = chosen[large[codes]], codes[large[codes]]
        check_classes(
            y[selected],
            classes,
            f"data.smallest: the pool of hospitals with {self.smallest:,} rows or more",
            "lower it",
        )
        return Records(
            features=features.iloc[selected].reset_index(drop=True),
            y=y[selected],
            classes=classes,
            silo=np.asarray(names, dtype=object)[codes],
            part=holdout(y[selected], codes, self.seed),
            notes=(
                note,
                f"{counted(len(selected), 'row')} by {self.silo}; left out: {int((~large).sum()):,} of {len(names):,} "
                f"with fewer than {counted(self.smallest, 'row')}",
            ),
        )


def pixels(images: NDArray[np.uint8]) -> pd.DataFrame:
    """Return the pixels of images ``[N, ...]`` as columns of values in [0, 1], flattened in the order of the axes."""
    flat = images.reshape(len(images), -1).astype(np.float32) / np.float32(255)
    return pd.DataFrame(flat, columns=[f"pixel_{j}" for j in range(flat.shape[1])])


def read_csv(file: Path, wrong: str, **options: Any) -> pd.DataFrame:
    """Read a CSV file. Raises ``DataError`` for an unreadable file. ``wrong`` is the fault that the message states
    after the file's name.
    """
    try:
        table: pd.DataFrame = pd.read_csv(file, **options)
        return table
    except (ValueError, OSError) as error:
        raise DataError(f"data.path: {file} {wrong} ({str(error).splitlines()[0]}); fetch it again") from None


def existing(path: Path, names: list[str], what: str) -> list[Path]:
    """Return the paths of the files ``names`` in the folder ``path``. Raises ``DataError`` that names the first missing
    file.
    """
    for name in names:
        if not (path / name).is_file():
            raise DataError(f"data.path: {path} has no {name}; name the folder of {what}")
    return [path / name for name in names]


def check_labels(labels: NDArray[Any], classes: int, what: str) -> None:
    """Raise ``DataError`` unless ``labels`` is an array ``[n]`` of whole numbers from 0 to ``classes - 1``."""
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        raise DataError(
            f"data.path: {what} holds labels of shape {labels.shape} and type {labels.dtype}, not one whole number "
            "per row; fetch the publisher's files again"
        )
    strange = np.flatnonzero(~((labels >= 0) & (labels < classes) & (labels == np.floor(labels))))
    if len(strange):
        raise DataError(
            f"data.path: {what} holds labels outside 0..{classes - 1}, the first {labels[strange[0]]} in row "
            f"{strange[0] + 1:,}; fetch the publisher's files again"
        )


def check_homes(names: pd.Series, silo: str, what: str) -> None:
    """Raise ``DataError`` if the name of a row's hospital is empty. The error names the first such row, counted from 1;
    ``what`` is the name of the data set.

    If ``silo`` is ``partition``, names are not checked.
    """
    if silo == "partition":
        return
    empty = np.flatnonzero(names.str.strip().fillna("") == "")
    if len(empty):
        raise DataError(
            f"data.silo: {silo}, but {what} has {counted(len(empty), 'row')} without a value "
            f"(first: row {empty[0] + 1:,}); remove these rows"
        )


def check_classes(y: NDArray[np.int64], classes: tuple[str, ...], what: str, remedy: str) -> None:
    """Raise ``DataError`` if a class has no row."""
    absent = np.flatnonzero(np.bincount(y, minlength=len(classes)) == 0)
    if len(absent):
        named = ", ".join(f"'{classes[c]}'" for c in absent)
        raise DataError(f"{what} has no row of class {named}; {remedy}")
