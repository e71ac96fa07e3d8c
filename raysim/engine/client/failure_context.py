"""A context that adds the hospital's name to errors at a hospital."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from raysim.core import importing
from raysim.core.errors import HospitalFailed, RaysimError, ResourceError
from raysim.data.federation import Federation
from raysim.strategies.base import POOLED
from raysim.training.base import DeviceFull


class named:
    """A context that converts an error to a :class:`HospitalFailed`, which names the hospital. ``doing`` says what the
    hospital was doing, for the message.

    If a GPU's memory is full, the error becomes a :class:`ResourceError`. Errors of this package are not changed.
    """

    def __init__(self, federation: Federation, hospital: int, doing: str) -> None:
        self._name = "pooled rows" if hospital == POOLED else federation.hospitals[hospital]
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit) and importing.ended_by_plugin(error):
            raise HospitalFailed(
                f"hospital '{self._name}' failed while {self._doing}, because its code {importing.exit_call(error)}; "
                "raise an error instead"
            ) from None
        if isinstance(error, Exception) and of_full_memory(error):
            raise ResourceError(
                f"hospital '{self._name}' ran out of GPU memory while {self._doing} "
                f"({str(error).splitlines()[0]}); lower training.batch_size, raise resources.gpus_per_actor or set "
                "resources.device: cpu"
            ) from error
        if isinstance(error, Exception) and not isinstance(error, RaysimError):
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise HospitalFailed(f"hospital '{self._name}' failed while {self._doing}: {text}") from error


def check_rows(federation: Federation, hospital: int, part: str, doing: str) -> None:
    """Raise :class:`HospitalFailed` if the features or labels of a hospital's ``part``, such as its test rows, are not
    all finite.
    """
    rows = federation.rows(hospital, part)
    if not (np.isfinite(federation.X[rows]).all() and np.isfinite(federation.y[rows]).all()):
        with named(federation, hospital, doing):
            raise ValueError(f"its {part} rows hold values that are not finite")


def of_full_memory(error: Exception) -> bool:
    """Return whether the error means that a GPU's memory is full."""
    torch = sys.modules.get("torch")  # a process that has not imported it has no GPU
    return isinstance(error, DeviceFull) or (torch is not None and isinstance(error, torch.OutOfMemoryError))
