"""A privacy guarantee, its noise and its parameters, as plain values that :mod:`.calibration` computes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from raysim.config.sections.privacy import PrivacySection


@dataclass(frozen=True)
class Terms:
    """The parameters that determine the privacy of a job's releases, such as sampling rates and numbers of patients."""

    rounds: int
    """The number of rounds."""
    rate: float
    """The probability with which each hospital takes part in a round."""
    hospitals: int
    """The number of hospitals with training rows, or of all hospitals if noisy sizes hide which hospitals have rows."""
    patients: tuple[int, ...] = ()
    """The number of units at each hospital, if units are patients or rows, ``[N]``."""
    batch: int = 0
    """The number of units in a batch; 0 means all units."""
    epochs: int = 1
    """The epochs of a local update."""
    secure: bool = False
    """Whether secure aggregation is used, so that the server receives only sums."""
    left: int = 0
    """The smallest number of hospitals' noise shares in an opened sum over all hospitals."""
    fewest: int = 0
    """The smallest number of hospitals' noise shares in the smallest opened sum."""
    sampled: bool = True
    """Whether units are sampled at random for sums in mode ``pooled``. Otherwise all units are included, as in client
    programs."""
    evaluations: int = 1
    """The largest number of evaluations of the models."""

    @property
    def units(self) -> int:
        """Return the number of privacy units in the federation: its patients, training rows or hospitals."""
        return sum(self.patients) if self.patients else self.hospitals

    @property
    def rates(self) -> tuple[float, ...]:
        """Return, for each hospital, the probability that a training step samples a given patient or row."""
        return tuple(min(1.0, self.batch / n) if self.batch and n else 1.0 for n in self.patients)

    @property
    def steps(self) -> tuple[int, ...]:
        """Return each hospital's number of training steps in a local update."""
        return tuple(self.epochs * (math.ceil(n / self.batch) if self.batch else 1) for n in self.patients)


@dataclass(frozen=True, eq=False)
class Guarantee:
    """A privacy guarantee, with the noise that it needs."""

    section: PrivacySection
    """The configuration section, with epsilon and the noise multiplier filled in."""
    terms: Terms
    """The parameters of the guarantee."""
    parts: tuple[Any, ...]
    """The parts of the job that determine the guarantee. If they are unchanged, the guarantee is reused."""
