"""A guarantee of privacy with its noise, and what it rests on. They are values: :mod:`.calibration` makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from raysim.config.sections.privacy import PrivacySection


@dataclass(frozen=True)
class Terms:
    """What a guarantee rests on."""

    rounds: int
    """How many rounds there are."""
    rate: float
    """The probability of each hospital to take part in a round."""
    hospitals: int
    """How many hospitals have training rows; all, where nobody is to know which have."""
    patients: tuple[int, ...] = ()
    """Units at each hospital, where they are patients or rows, ``[N]``."""
    batch: int = 0
    """How many units make a batch; 0: all."""
    epochs: int = 1
    """Epochs of a local update."""
    secure: bool = False
    """Whether the server learns sums alone."""
    left: int = 0
    """How many shares of the noise are at least in a sum of all hospitals that is opened."""
    fewest: int = 0
    """As ``left``, for the smallest sum that a peer can be in."""
    sampled: bool = True
    """Whether units are drawn at random for sums in mode ``pooled``; else all are in them, as in client programs."""
    evaluations: int = 1
    """How often models are evaluated, at most."""

    @property
    def units(self) -> int:
        """How many units there are."""
        return sum(self.patients) if self.patients else self.hospitals

    @property
    def rates(self) -> tuple[float, ...]:
        """The chance of each unit to be in a step of its hospital, ``[N]``."""
        return tuple(min(1.0, self.batch / n) if self.batch and n else 1.0 for n in self.patients)

    @property
    def steps(self) -> tuple[int, ...]:
        """How many steps each hospital makes in a local update, ``[N]``."""
        return tuple(self.epochs * (math.ceil(n / self.batch) if self.batch else 1) for n in self.patients)


@dataclass(frozen=True, eq=False)
class Guarantee:
    """A guarantee of privacy with its noise."""

    section: PrivacySection
    """It, with epsilon and the noise multiplier filled in."""
    terms: Terms
    """What it rests on."""
    parts: tuple[Any, ...]
    """The parts of the job that it follows from."""
