"""A privacy guarantee, its noise and its parameters, as plain values that :mod:`raysim.engine.privacy.calibration`
computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from raysim.config.sections.privacy import PrivacySection


@dataclass(frozen=True)
class PrivacyParameters:
    """The parameters that determine the privacy of a job, such as sampling rates and numbers of patients."""

    rounds: int
    rate: float
    """The probability with which each hospital takes part in a round."""
    hospitals: int
    """The number of hospitals with training rows, or of all hospitals if noisy sizes hide which hospitals have rows."""
    patients: tuple[int, ...] = ()
    """The number of patients or rows at each hospital, ``[N]``, noisy if exact numbers are not public; empty if the
    guarantee protects whole hospitals."""
    batch: int = 0
    """The batch size in patients or rows; 0 means that each training step uses all of them."""
    epochs: int = 1
    secure: bool = False
    """Whether secure aggregation is used."""
    left: int = 0
    """The smallest number of noise shares (one per hospital) that a sum over all hospitals contains after dropouts."""
    fewest: int = 0
    """The smallest number of noise shares that any sum contains after dropouts, such as the sum of a cluster."""
    sampled: bool = True
    """Whether patients or rows are sampled at random for each sum in mode ``pooled``. It is false for client programs,
    which use all of them."""
    asked: tuple[tuple[str, int], ...] = ()
    """The largest number of times that a hospital sends each kind of statistic or metric; 1 for a kind not listed."""

    @property
    def units(self) -> int:
        """Return the number of patients, training rows or hospitals, whichever the guarantee protects."""
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
    """The privacy section of the configuration, with epsilon and the noise multiplier filled in."""
    parameters: PrivacyParameters
    """The parameters of the job from which the guarantee was computed."""
    parts: tuple[Any, ...]
    """The parts of the job on which the noise depends; jobs with equal parts share a guarantee."""
