"""The optional encoding of patients before they are clustered, by a function named in the configuration.

An encoder is a function marked by :func:`raysim.patient_encoder`. It maps float64 values ``[n, d]`` to codes
``[n, e]``. The code of a row must not depend on other rows, and every machine with hospitals must be able to import the
function. An encoder is trained before the run; its parameters do not count as traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.importing import by_path
from raysim.strategies.base import Floats, Ids
from raysim.strategies.patient_clusters.continuous import chosen
from raysim.strategies.shared.encoders import MARK


def encoded(X: NDArray[Any], columns: Ids, encoder: str | None) -> Floats:
    """Return the codes ``[n, e]`` that ``encoder`` computes from ``columns`` of ``X [n, F]``. Without an encoder,
    return these columns, ``[n, d]``.

    Raises ``ValueError`` if the encoder does not return one row for each patient.
    """
    values = chosen(X, columns)
    if encoder is None:
        return values
    codes = np.asarray(load_encoder(encoder)(values), dtype=np.float64)
    if codes.ndim != 2 or len(codes) != len(values):
        raise ValueError(
            f"encoder: {encoder} returned an array of shape {codes.shape} for rows of shape {values.shape}; it must "
            "return a table with one row for each input row"
        )
    return codes


def check_encoder(encoder: str | None) -> None:
    """Raise ``ValueError`` unless ``encoder`` is None or the import path of an encoder."""
    if encoder is not None:
        load_encoder(encoder)


@lru_cache
def load_encoder(path: str) -> Callable[[Floats], Any]:
    """Return the encoder at an import path, ``package.module.function``. Raises ``ValueError`` if there is none."""
    try:
        encoder = by_path(path)
    except ValueError as error:
        raise ValueError(f"encoder: {error}") from None
    if not callable(encoder) or getattr(encoder, MARK, None) is not True:
        # Some functions of Python execute their argument: pickle.loads interprets any array as a pickle.
        raise ValueError(
            f"encoder: '{path}' is not an encoder; mark the function that encodes rows with @patient_encoder"
        )
    function: Callable[[Floats], Any] = encoder
    return function
