"""A hospital's half of an attack, or of the canaries of an audit: it comes before all other steps."""

from __future__ import annotations

from raysim.engine.messages.steps import HospitalStep, Leaving
from raysim.strategies.base import Floats


class Tampering(HospitalStep):
    """How some hospitals deviate from the protocol."""

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """What a hospital sends in place of ``delta [P]``, all entries below ``limit`` in magnitude."""
        raise NotImplementedError

    def forward(self, leaving: Leaving) -> None:
        leaving.update = self.update(leaving.hospital, leaving.update, leaving.limit)
        leaving.keep_private()
