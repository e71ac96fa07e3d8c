"""Errors in what a hospital does, with the hospital's name."""

from __future__ import annotations

from typing import Any

from raysim.core.errors import HospitalFailed, RaysimError
from raysim.data.federation import Federation
from raysim.strategies.base import POOLED
from raysim.strategies.shared import exits


class named:
    """Context that turns an error into a :class:`HospitalFailed` with the hospital's name and what it was ``doing``."""

    def __init__(self, federation: Federation, hospital: int, doing: str) -> None:
        self._name = "pooled rows" if hospital == POOLED else federation.hospitals[hospital]
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, SystemExit) and exits.of_plugin(error):
            raise HospitalFailed(
                f"hospital '{self._name}' failed while {self._doing}: what it ran {exits.said(error)}; raise an error "
                "instead"
            ) from None
        if isinstance(error, Exception) and not isinstance(error, RaysimError):
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise HospitalFailed(f"hospital '{self._name}' failed while {self._doing}: {text}") from error
