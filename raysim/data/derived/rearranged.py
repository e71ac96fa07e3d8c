"""Federations with another division of rows into training and test, and with added rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation, write


@dataclass(frozen=True, eq=False)
class Added:
    """``k`` rows to add to a federation that has ``F`` features."""

    X: NDArray[np.float32]
    """The features after preprocessing, ``[k, F]``."""
    y: NDArray[Any]
    """The labels, ``[k]``."""
    hospital: NDArray[np.int64]
    """The index of each row's hospital, ``[k]``."""

    @staticmethod
    def none(federation: Federation) -> Added:
        """Return an ``Added`` without rows."""
        return Added(federation.X[:0], federation.y[:0], np.empty(0, np.int64))


def rearranged(federation: Federation, trained: NDArray[np.bool_], added: Added, folder: Path) -> Federation:
    """Store a federation whose hospitals train on the rows where ``trained`` is true; ``folder`` must exist.

    ``trained [N + k]`` is a mask of the ``N`` rows of ``federation``, followed by the ``k`` rows of ``added``.
    Validation rows stay validation rows, and all other rows are test rows. The result's ``source_rows`` are positions
    among the ``N + k`` rows.
    """
    people = _people(federation)
    rows, bounds = _order(federation, trained, added.hospital)
    recorded = np.ones((len(added.y), federation.observed.shape[1]), bool)
    meta = json.loads((federation.folder / "federation.json").read_text())
    write(
        folder,
        X=np.concatenate([federation.X, added.X])[rows],
        y=np.concatenate([federation.y, added.y])[rows],
        observed=np.concatenate([federation.observed, recorded])[rows],
        bounds=bounds,
        patients={name: _extended(name, values, len(added.y))[rows] for name, values in federation.patients.items()},
        meta=meta | {"fingerprint": f"{federation.fingerprint} rearranged"},
        source_rows=rows,
        preprocessing=federation.preprocessing,
        people=None if people is None else _extended("people", people, len(added.y))[rows],
    )
    return Federation.open(folder)


def _people(federation: Federation) -> NDArray[np.int64] | None:
    try:
        return federation.people
    except FileNotFoundError:
        return None


def _order(
    federation: Federation, trained: NDArray[np.bool_], added: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all rows in the new order, and each hospital's bounds in this order, ``[H, 4]``.

    Rows are numbered from 0: first the rows of ``federation``, then the added rows.
    """
    index: list[NDArray[np.int64]] = []
    bounds, at, total = np.empty_like(federation.bounds), 0, len(federation.y)
    for h, (start, train, validation, stop) in enumerate(federation.bounds.tolist()):
        free = [np.arange(start, train), np.arange(validation, stop), total + np.flatnonzero(added == h)]
        rows = np.concatenate(free)
        order = [rows[trained[rows]], np.arange(train, validation), rows[~trained[rows]]]
        bounds[h] = at + np.cumsum([0, *(len(each) for each in order)])
        at = bounds[h, 3]
        index += order
    return np.concatenate(index), bounds


def random_half(federation: Federation, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask ``[N]`` of a random half of each hospital's training and test rows."""
    trained = np.zeros(len(federation.y), bool)
    for start, train, validation, stop in federation.bounds.tolist():
        rows = rng.permutation(np.concatenate([np.arange(start, train), np.arange(validation, stop)]))
        trained[rows[: (len(rows) + int(rng.integers(2))) // 2]] = True
    return trained


def trained_on(federation: Federation) -> NDArray[np.bool_]:
    """Return a mask ``[N]`` of the rows that the hospitals of ``federation`` train on."""
    trained = np.zeros(len(federation.y), bool)
    for start, train in federation.bounds[:, :2].tolist():
        trained[start:train] = True
    return trained


def _extended(name: str, values: NDArray[Any], k: int) -> NDArray[Any]:
    if values.dtype.kind == "f":
        return np.append(values, np.full(k, np.nan))
    if values.dtype.kind in "iu":
        return np.append(values, values.max(initial=0) + 1 + np.arange(k))
    new = [f"canary {i}" for i in range(k)] if name == "patient" else ["unknown"] * k
    return np.append(values, np.array(new, dtype=object if values.dtype.kind == "O" else str))
