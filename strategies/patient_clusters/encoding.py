"""How patients are encoded before they are clustered: by a function that the configuration names, or not at all.

An encoder is a function marked by :func:`raysim.patient_encoder`. It turns values ``[n, d]`` in float64 into
``[n, e]``; what it makes of a row must not depend on other rows, and it must be there to import wherever hospitals are.
An encoder that needs training is trained beforehand, outside the run; its parameters count as no traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.process.importing import by_path
from raysim.strategies.base import Floats, Ids
from raysim.strategies.patient_clusters.continuous import chosen
from raysim.strategies.shared.encoders import MARK


def encoded(X: NDArray[Any], columns: Ids, encoder: str | None) -> Floats:
    """Patients ``X [n, F]`` by these columns, ``[n, d]``, or what the encoder makes of that, ``[n, e]``.

    Raises ``ValueError`` where the encoder does not return a row for each patient.
    """
    values = chosen(X, columns)
    if encoder is None:
        return values
    codes = np.asarray(load_encoder(encoder)(values), dtype=np.float64)
    if codes.ndim != 2 or len(codes) != len(values):
        raise ValueError(f"encoder: {encoder} made {codes.shape} of {values.shape}; it must give a row for each row")
    return codes


def check_encoder(encoder: str | None) -> None:
    """Raise ``ValueError`` for an encoder that cannot be imported."""
    if encoder is not None:
        load_encoder(encoder)


@lru_cache
def load_encoder(path: str) -> Callable[[Floats], Any]:
    """The encoder at an import path, ``package.module.function``. Raises ``ValueError`` where there is none."""
    try:
        encoder = by_path(path)
    except ValueError as error:
        raise ValueError(f"encoder: {error}") from None
    if not callable(encoder) or getattr(encoder, MARK, None) is not True:
        # Some functions of Python's run what rows say: pickle.loads takes any array for a pickle.
        raise ValueError(f"encoder: '{path}' is no encoder; mark the function that encodes rows with @patient_encoder")
    function: Callable[[Floats], Any] = encoder
    return function
