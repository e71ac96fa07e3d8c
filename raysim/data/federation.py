"""The data of all hospitals, immutable and memory-mapped.

The rows of all hospitals are concatenated. Within a hospital, training rows are first, then validation rows, then test
rows. A federation is a folder of numpy arrays and JSON files. Every process maps features and labels into memory, and
reads only the rows that it uses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core import mapped
from raysim.data.checks.suspects import Leaks, Suspect, suspects_of
from raysim.data.columns import Column
from raysim.data.fitted import Numeric, Preprocessing
from raysim.metrics.labels import CLASSIFICATION, REGRESSION, TaskKind
from raysim.metrics.segments import ranges

PARTS = ("train", "validation", "test")

_CODES, _TEXTS = "codes of ", "texts of "
"""The prefixes of the names of the two arrays of a stored :class:`Coded` attribute."""


_SCORES = "scores.npz"


@dataclass(frozen=True, eq=False, repr=False)
class Coded:
    """The texts of ``N`` rows, ``texts[codes]``; each different text is stored once."""

    codes: NDArray[np.int64]
    texts: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> NDArray[np.str_]:
        return np.asarray(self.texts[self.codes[rows]])


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """All hospitals' rows, and the known attributes of rows, patients and hospitals.

    There are ``N`` rows, ``H`` hospitals, and ``F`` features after preprocessing. The first ``D`` features contain
    values, and the others flag missing values.
    """

    folder: Path
    X: NDArray[np.float32]
    """The features, ``[N, F]``."""
    y: NDArray[Any]
    """The labels, ``[N]``: class indices (int64), or real numbers (float64)."""
    observed: NDArray[np.bool_]
    """Whether each of the first ``D`` features of each row was recorded, ``[N, D]``. False for a missing value, even if
    it was imputed in ``X``.
    """
    bounds: NDArray[np.int64]
    """The positions at which each hospital's training, validation and test rows begin, and its test rows end,
    ``[H, 4]``.

    Hospital ``h`` trains on rows ``bounds[h, 0]:bounds[h, 1]``, validates on ``bounds[h, 1]:bounds[h, 2]`` and tests on
    ``bounds[h, 2]:bounds[h, 3]``.
    """
    hospitals: tuple[str, ...]
    """The names of the hospitals, ``[H]``."""
    features: tuple[str, ...]
    """The names of the features, ``[F]``."""
    classes: tuple[str, ...]
    """The names of the classes, ``[C]``; empty for a real-valued label."""
    attributes: dict[str, list[str]]
    """The value of each attribute of hospitals, such as ``region``, for each of the ``H`` hospitals."""
    notes: tuple[str, ...]
    """Notes on the data, one line for each."""
    fingerprint: str
    """A digest of all rows and names, from which changed data are recognised when a run is resumed."""
    preprocessing_scalars: int
    """The number of scalars that each hospital sent to fit the preprocessing. It is the mean, rounded up, if hospitals
    sent different numbers.
    """
    warnings: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    leaks: Leaks = field(default_factory=Leaks)
    quality: tuple[Suspect, ...] = ()
    """The findings in the data other than leaks, mostly differences between hospitals, the gravest first."""
    preprocessing_noise: str = ""
    """A description of the noise on the sums from which preprocessing was computed; empty without noise."""

    def __repr__(self) -> str:
        """Return the sizes alone: printing a federation must not show rows of patients."""
        rows, features = self.X.shape
        return f"<federation: {len(self.hospitals)} hospitals, {rows} rows, {features} features>"

    @staticmethod
    def open(folder: Path | str) -> Federation:
        """Map the federation that :func:`write` stored in ``folder`` into memory, without reading its rows."""
        folder = Path(folder)
        path = folder / "federation.json"
        state = path.stat()
        meta = _described(path, (state.st_size, state.st_mtime_ns, state.st_ino))
        return Federation(
            folder=folder,
            X=_mapped(folder / "X.npy"),
            y=_mapped(folder / "y.npy"),
            observed=_mapped(folder / "observed.npy"),
            bounds=np.load(folder / "bounds.npy"),
            hospitals=meta["hospitals"],
            features=tuple(meta["features"]),
            classes=tuple(meta["classes"]),
            attributes=meta["attributes"],
            notes=tuple(meta["notes"]),
            fingerprint=meta["fingerprint"],
            preprocessing_scalars=meta["preprocessing_scalars"],
            warnings=tuple(meta.get("warnings", ())),
            columns=tuple(Column(**column) for column in meta.get("columns", ())),
            leaks=Leaks.of(meta.get("leaks", {})),
            quality=suspects_of(meta.get("quality", ())),
            preprocessing_noise=meta.get("preprocessing_noise", ""),
        )

    @staticmethod
    def of_real_label(folder: Path | str) -> bool:
        """Whether the label of the federation stored in ``folder`` is a real number."""
        return _mapped(Path(folder) / "y.npy").dtype.kind == "f"

    @property
    def task(self) -> TaskKind:
        """The kind of label: classes or a real number."""
        return CLASSIFICATION if self.classes else REGRESSION

    @cached_property
    def patient_attributes(self) -> tuple[str, ...]:
        """The names of the attributes in :attr:`patients`."""
        with np.load(self.folder / "patients.npz") as arrays:
            return tuple(name.removeprefix(_CODES) for name in arrays.files if not name.startswith(_TEXTS))

    @cached_property
    def patients(self) -> dict[str, NDArray[Any]]:
        """Patient attributes ``{name: [N]}``: ``sex`` and ``ethnicity`` as text, ``age`` in years (NaN: unknown)."""
        with np.load(self.folder / "patients.npz") as arrays:
            return {
                name: arrays[_TEXTS + name][arrays[_CODES + name]] if _CODES + name in arrays else arrays[name]
                for name in self.patient_attributes
            }

    @cached_property
    def scores(self) -> dict[str, NDArray[np.float64]]:
        """The values of existing clinical scores, ``{name: [N]}``; NaN for rows without a value."""
        path = self.folder / _SCORES
        if not path.is_file():
            return {}
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}

    @cached_property
    def people(self) -> NDArray[np.int64]:
        """The patient of each row, ``[N]``: all rows of a patient have the same number, even at several hospitals.

        If the source does not identify patients, each row counts as a patient. Raises ``FileNotFoundError`` if
        ``split.by`` names a column, because patients are then unknown.
        """
        return np.asarray(np.load(self.folder / "people.npy"))

    @cached_property
    def source_rows(self) -> NDArray[np.int64]:
        """The position of each row in the source's file or frame, from 0, ``[N]``."""
        return np.asarray(np.load(self.folder / "source_rows.npy"))

    @cached_property
    def identities(self) -> NDArray[np.int64]:
        """An integer that identifies the patient of each row, ``[N]``, and is the same under every split. If patients
        are unknown or each row counts as a patient, the integer is the row's position in the source.
        """
        try:
            people = self.people
        except FileNotFoundError:
            return self.source_rows
        # Rows that count as patients are numbered by position, which another division changes.
        return self.source_rows if np.array_equal(people, np.arange(len(people))) else people

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """The fitted preprocessing that turned the source's columns into features."""
        return Preprocessing.of(json.loads((self.folder / "preprocessing.json").read_text()))

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The number of categories of each feature, ``[F]``; 0 for a feature whose values are not positions of
        categories.
        """
        try:
            return self.preprocessing.levels
        except FileNotFoundError:  # arrays without preprocessing
            return (0,) * len(self.features)

    @cached_property
    def limits(self) -> tuple[tuple[float, float] | None, ...]:
        """The declared least and greatest value of each feature, ``[F]``; None for a feature without limits."""
        try:
            return self.preprocessing.limits
        except FileNotFoundError:  # arrays without preprocessing
            return (None,) * len(self.features)

    def rows(self, hospital: int, part: str) -> slice:
        """Return the slice of ``X`` and ``y`` that contains one part (``train``, ``validation`` or ``test``) of a
        hospital.
        """
        k = PARTS.index(part)
        return slice(int(self.bounds[hospital, k]), int(self.bounds[hospital, k + 1]))

    def sizes(self, part: str) -> NDArray[np.int64]:
        """Return the number of rows of one part (``train``, ``validation`` or ``test``) at each hospital, ``[H]``."""
        k = PARTS.index(part)
        return self.bounds[:, k + 1] - self.bounds[:, k]

    @property
    def totals(self) -> NDArray[np.int64]:
        """The number of all rows of each hospital, ``[H]``."""
        return self.bounds[:, 3] - self.bounds[:, 0]


def write(
    folder: Path,
    *,
    X: NDArray[np.float32],
    y: NDArray[Any],
    observed: NDArray[np.bool_],
    bounds: NDArray[np.int64],
    patients: Mapping[str, NDArray[Any] | Coded],
    meta: dict[str, Any],
    scores: Mapping[str, NDArray[np.float64]] | None = None,
    source_rows: NDArray[np.int64] | None = None,
    preprocessing: Preprocessing | None = None,
    people: NDArray[np.int64] | Literal["rows"] | None = "rows",
) -> None:
    """Store a federation's arrays in ``folder``; ``meta`` has the other fields of :class:`Federation`, as JSON values.

    ``X`` and ``observed`` may already be memory-mapped files of ``folder``. If ``source_rows`` is None, the source has
    the same rows in the same order. If ``preprocessing`` is None, the source's columns are the features. ``people [N]``
    identifies the patient of each row; ``"rows"`` means that each row is one patient, and None that patients are
    unknown.
    """
    if people is not None:
        np.save(folder / "people.npy", np.arange(len(y)) if isinstance(people, str) else people)
    if preprocessing is None:
        columns = tuple(Numeric(name) for name in meta["features"])
        preprocessing = Preprocessing("none", columns, classes=tuple(meta["classes"]))
    for name, array in (("X", X), ("observed", observed)):
        if not mapped.is_at(array, folder / f"{name}.npy"):
            np.save(folder / f"{name}.npy", array)
    np.save(folder / "y.npy", y)
    np.save(folder / "bounds.npy", bounds)
    np.save(folder / "source_rows.npy", np.arange(len(y)) if source_rows is None else source_rows)
    (folder / "preprocessing.json").write_text(json.dumps(preprocessing.tree()))
    stored: dict[str, NDArray[Any]] = {}
    for name, values in patients.items():
        if isinstance(values, Coded):
            stored |= {_CODES + name: values.codes, _TEXTS + name: values.texts}
        else:
            stored[name] = values
    np.savez(folder / "patients.npz", **stored)  # type: ignore[arg-type]  # its stub has no open keywords
    if scores:
        np.savez(folder / _SCORES, **scores)  # type: ignore[arg-type]  # its stub has no open keywords
    (folder / "federation.json").write_text(json.dumps(meta))


@lru_cache(maxsize=4)
def _described(path: Path, state: tuple[int, int, int]) -> Mapping[str, Any]:
    """Read ``federation.json``, cached by the file's size, time of modification and inode (``state``)."""
    meta: dict[str, Any] = json.loads(path.read_text())
    once: dict[str, str] = {}
    attributes = {name: [once.setdefault(text, text) for text in texts] for name, texts in meta["attributes"].items()}
    return meta | {"hospitals": tuple(meta["hospitals"]), "attributes": attributes}


def _mapped(path: Path) -> NDArray[Any]:
    # A plain view of the mapping: slicing np.memmap itself takes several microseconds per hospital.
    return np.asarray(np.load(path, mmap_mode="r"))


def pooled_rows(federation: Federation) -> NDArray[np.int64]:
    """Return the positions of all hospitals' training rows among all rows of the federation, ascending."""
    return ranges(federation.bounds[:, 0], federation.sizes("train"))
