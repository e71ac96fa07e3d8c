"""Snapshot Serengeti: predict an animal's species from volunteers' other answers about its pictures.

A. Swanson, M. Kosmala, C. Lintott, R. Simpson, A. Smith, C. Packer: *Snapshot Serengeti, high-frequency annotated
camera trap images of 40 mammalian species in an African savanna*, Scientific Data 2, 2015.

The file is ``SnapshotSerengeti_v2_1_annotations.csv``, as LILA BC publishes it: a row for each species in each capture.

The features are tabular: the number of animals, their behaviour (as shares of the volunteers), the time of day and of
year, and the position of the camera. The paper of Clust-PSI-PFL reports 286,586 rows of 13 classes, but not how the
rows were selected. Here rows are the captures that show a single species, and classes are the 13 species with the most
captures; ``blank``, ``empty`` and ``human`` do not count as species. The volunteers' agreement
(``p_users_identified_this_species``, ``pielous_evenness_index``) is not a feature, because it is known only once the
label is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from raysim.core.errors import DataError
from raysim.data.sources.pooled import Homed, read_csv

PATTERN = "SnapshotSerengeti*annotations*.csv"
COUNTS = ("count_min", "count_median", "count_max")
BEHAVIOURS = ("standing", "resting", "moving", "eating", "interacting", "young_present")
NO_ANIMAL = ("blank", "empty", "human")
BANDS = {"11-50": "11", "Nov-50": "11", "51+": "51"}
"""For each range in a column of counts, the lower end of the range, which replaces it. In the file, a spreadsheet has
turned the range 11-50 into ``Nov-50``.
"""

_YEAR, _DAY = 365.25, 86_400.0  # days, seconds


class Serengeti(Homed):
    """Snapshot Serengeti: which of the ``species`` most frequent species a capture shows, from the folder ``path``.

    Features are count, behaviour, time and place. With ``silo: site``, each camera site is a hospital, and the position
    of the camera is not a feature.
    """

    predicts: ClassVar[str] = "species of an animal"

    path: Path
    """The folder of LILA's table of annotations."""
    silo: Literal["partition", "site"] = "partition"
    """What counts as a hospital: parts of a ``partition``, or each ``site`` of a camera."""
    species: int = Field(13, ge=2, description="number of species that are classes, the most frequent")

    def files(self) -> Iterator[Path]:
        files = sorted(self.path.glob(PATTERN))
        if not files:
            raise DataError(f"data.path: {self.path} has no {PATTERN}; name LILA's folder of annotations")
        if len(files) > 1:
            raise DataError(f"data.path: {self.path} has {files[0].name} and {files[1].name}; keep one")
        return iter(files)

    def homed(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str, NDArray[Any]]:
        (file,) = self.files()
        table = _annotations(file)
        animals = table[table["question__species"].isin(self._most_frequent(table, file))].reset_index(drop=True)
        classes = tuple(sorted(animals["question__species"].unique()))
        y = animals["question__species"].map({name: c for c, name in enumerate(classes)}).to_numpy(np.int64)
        features = _features(animals, file, place=self.silo != "site")
        note = f"Snapshot Serengeti: {len(animals):,} captures of {len(classes)} species, of {len(table):,}"
        return features, y, classes, note, animals["site"].to_numpy(object)

    def _most_frequent(self, table: pd.DataFrame, file: Path) -> list[str]:
        # Ties go to the name that comes first.
        frequency = table["question__species"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
        if len(frequency) < self.species:
            raise DataError(f"data.species: {self.species}, but {file.name} has {len(frequency)} species; lower it")
        return [str(name) for name in frequency.index[: self.species]]


def _annotations(file: Path) -> pd.DataFrame:
    """Read the captures (photo series) that show a single species. All columns are texts; an empty field is missing."""
    questions = [f"question__{name}" for name in ("species", *COUNTS, *BEHAVIOURS)]
    wanted = ["capture_id", "site", "capture_date_local", "capture_time_local", *questions]
    table = read_csv(file, "is not LILA's table of annotations", usecols=wanted, dtype=str)
    for column in ("capture_id", "site", "question__species"):
        missing = np.flatnonzero(table[column].isna())
        if len(missing):
            raise DataError(f"data.path: {file} has no {column} in row {missing[0] + 1:,}; remove that row")
    table["question__species"] = table["question__species"].str.lower()
    alone = ~table["capture_id"].duplicated(keep=False) & ~table["question__species"].isin(NO_ANIMAL)
    return table[alone].reset_index(drop=True)


def _features(animals: pd.DataFrame, file: Path, *, place: bool) -> pd.DataFrame:
    """Compute the features as float32 columns, with NaN for a question without an answer or a missing time."""
    columns = {name: _numbers(animals[f"question__{name}"], file) for name in (*COUNTS, *BEHAVIOURS)}
    time = pd.to_timedelta(animals["capture_time_local"], errors="coerce").dt.total_seconds().to_numpy(np.float64)
    date = pd.to_datetime(animals["capture_date_local"], format="ISO8601", errors="coerce")
    day = date.dt.day_of_year.to_numpy(np.float64)
    for name, turn in (("day", time / _DAY), ("year", day / _YEAR)):
        columns[f"{name}_sin"], columns[f"{name}_cos"] = np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)
    if place:  # a site is a cell of a grid: a letter and a number
        cell = animals["site"].str.extract(r"^([A-Z])(\d+)$")
        columns["site_row"] = (
            cell[0].map(lambda letter: ord(letter) - ord("A"), na_action="ignore").to_numpy(np.float64)
        )
        columns["site_column"] = cell[1].to_numpy(np.float64)
    return pd.DataFrame(columns).astype(np.float32)


def _numbers(column: pd.Series, file: Path) -> NDArray[np.float64]:
    values = pd.to_numeric(column.replace(BANDS), errors="coerce")
    strange = np.flatnonzero(values.isna() & column.notna())
    if len(strange):
        raise DataError(
            f"data.path: {file} has '{column.iloc[strange[0]]}' as {column.name}, which is not a number; correct it"
        )
    return values.to_numpy(np.float64)
