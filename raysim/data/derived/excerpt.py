"""Federations made of some rows of another federation: test rows alone, or the rows of one hospital."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation, write


def excerpt(federation: Federation, rows: NDArray[np.int64], folder: Path) -> Federation:
    """Store the rows at the ascending positions ``rows [n]`` of ``federation`` in the new folder ``folder``. All of
    them become test rows, without features.

    All hospitals are included, even a hospital without any of these rows.
    """
    home = np.repeat(np.arange(len(federation.hospitals)), federation.totals)[rows]
    counts = np.bincount(home, minlength=len(federation.hospitals))
    ends = np.cumsum(counts)
    nothing = np.empty((len(rows), 0), dtype=np.float32)
    folder.mkdir(parents=True)
    write(
        folder,
        X=nothing,
        y=federation.y[rows],
        observed=nothing.astype(np.bool_),
        bounds=np.stack([ends - counts] * 3 + [ends], axis=1).astype(np.int64),
        patients={name: values[rows] for name, values in federation.patients.items()},
        source_rows=federation.source_rows[rows],
        people=federation.identities[rows],
        meta={
            "hospitals": list(federation.hospitals),
            "features": [],
            "classes": list(federation.classes),
            "attributes": federation.attributes,
            "notes": [],
            "preprocessing_scalars": 0,
            "fingerprint": federation.fingerprint,
        },
    )
    return Federation.open(folder)


def newcomer(
    federation: Federation, hospital: int, train: NDArray[np.int64], test: NDArray[np.int64], folder: Path
) -> Federation:
    """Store one hospital as a federation in ``folder``, which must exist, and return the federation.

    ``train`` and ``test`` are the positions in ``federation`` of the hospital's new training and test rows. Features
    are copied without a new preprocessing.
    """
    rows = np.concatenate([train, test])
    write(
        folder,
        X=federation.X[rows],
        y=federation.y[rows],
        observed=federation.observed[rows],
        bounds=np.array([[0, len(train), len(train), len(rows)]], dtype=np.int64),
        patients={},
        source_rows=federation.source_rows[rows],
        preprocessing=federation.preprocessing,
        meta={
            "hospitals": [federation.hospitals[hospital]],
            "features": list(federation.features),
            "classes": list(federation.classes),
            "attributes": {},
            "notes": [],
            "preprocessing_scalars": 0,
            "fingerprint": federation.fingerprint,
        },
    )
    return Federation.open(folder)
