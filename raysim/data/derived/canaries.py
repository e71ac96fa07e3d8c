"""Federations with canaries: patients or hospitals that an audit adds.

Each canary patient has a feature of its own, which is 0 in the rows of all other patients.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ids
from raysim.data.federation import Federation, write


def with_patients(
    federation: Federation, hospital: Ids, column: Ids, columns: int, length: float, rows: int, folder: Path
) -> None:
    """Add a canary patient to ``federation`` for each entry of ``hospital [m]``, and store the result in ``folder``,
    which must exist.

    Canary ``i`` has ``rows`` training rows at hospital ``hospital[i]``. ``columns`` features are added after the
    federation's own. In a canary's rows, the added feature with index ``column[i]`` is ``length``, and all other
    features are 0. Labels and attributes of these rows are copied from the first row of ``federation``.
    """
    F, total = federation.X.shape[1], len(federation.y)
    order, bounds = [], federation.bounds.copy()
    homes = np.repeat(hospital, rows)
    for h, (start, train, _, stop) in enumerate(federation.bounds.tolist()):
        canary_rows = total + np.flatnonzero(homes == h)
        order += [np.arange(start, train), canary_rows, np.arange(train, stop)]
        bounds[h, 1:] += len(canary_rows)
        bounds[h + 1 :] += len(canary_rows)
    at = np.concatenate(order)
    X = np.zeros((total + len(homes), F + columns), np.float32)
    X[:total, :F] = federation.X
    X[total + np.arange(len(homes)), F + np.repeat(column, rows)] = length
    donor = np.append(np.arange(total), np.zeros(len(homes), np.int64))
    try:
        people = federation.people
    except FileNotFoundError:  # parts are divided by a column, and only rows can be protected
        people = np.arange(total)
    new = people.max(initial=-1) + 1 + np.repeat(np.arange(len(hospital)), rows)
    _store(federation, folder, X[at], donor[at], bounds, federation.hospitals, columns, np.append(people, new)[at])


def with_hospitals(federation: Federation, donors: Ids, rows: int, columns: int, folder: Path) -> None:
    """Add a canary hospital to ``federation`` for each hospital in ``donors [m]``, and store the result in ``folder``,
    which must exist.

    ``columns`` features are added, which are 0 in all rows. The canary hospitals follow the federation's own. Canary
    hospital ``i`` has ``rows`` training rows, copied from the hospital ``donors[i]``, and no other rows.
    """
    total, bounds = len(federation.y), federation.bounds.tolist()
    copies = [np.resize(np.arange(bounds[h][0], bounds[h][1]), rows) for h in donors.tolist()]
    donor = np.concatenate([np.arange(total), *copies])
    X = np.zeros((len(donor), federation.X.shape[1] + columns), np.float32)
    X[:, : federation.X.shape[1]] = federation.X[donor]
    ends = total + rows * (1 + np.arange(len(donors)))
    more = np.column_stack([ends - rows, ends, ends, ends])
    hospitals = (*federation.hospitals, *(f"canary {k}" for k in range(len(donors))))
    _store(federation, folder, X, donor, np.vstack([federation.bounds, more]), hospitals, columns, None, donors)


def _store(
    federation: Federation,
    folder: Path,
    X: NDArray[np.float32],
    donor: Ids,
    bounds: Ids,
    hospitals: tuple[str, ...],
    columns: int,
    people: Ids | None,
    like: Ids | None = None,
) -> None:
    """Store the features ``X [n, *]``, with labels and patient attributes copied from the rows ``donor [n]`` of
    ``federation``. Added hospitals get the attributes of the hospitals ``like``.
    """
    meta: dict[str, Any] = json.loads((federation.folder / "federation.json").read_text())
    added = [] if like is None else like.tolist()
    meta |= {
        "hospitals": list(hospitals),
        "features": [*federation.features, *(f"canary {k}" for k in range(columns))],
        "attributes": {name: [*texts, *(texts[h] for h in added)] for name, texts in federation.attributes.items()},
        "fingerprint": f"{federation.fingerprint} with canaries",
    }
    write(
        folder,
        X=X,
        y=federation.y[donor],
        observed=federation.observed[donor],
        bounds=bounds,
        patients={name: values[donor] for name, values in federation.patients.items()},
        meta=meta,
        people="rows" if people is None else people,
    )
