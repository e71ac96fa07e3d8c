"""The decorator that marks encoders of patients; see :mod:`raysim.strategies.patient_clusters.encoding`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from raysim.strategies.base import Floats

MARK = "encodes_patients"
"""The name of the attribute that :func:`patient_encoder` sets on a function."""

Encoder = TypeVar("Encoder", bound=Callable[[Floats], Any])


def patient_encoder(function: Encoder) -> Encoder:
    """Mark a function as an encoder of patients' rows, so that a configuration can name it."""
    setattr(function, MARK, True)
    return function
