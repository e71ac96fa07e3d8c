"""Events: the privacy cost of noisy releases, as plain values that an accountant composes.

Differential privacy compares neighbours: two federations that differ in one privacy unit (a hospital, or a patient). In
one of them, the unit contributes zero. In mode ``local``, a hospital may instead contribute any other clipped update,
which doubles the sensitivity. A hospital that contributes zero is still counted, so the number of hospitals is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Gaussian:
    """Releases with normal noise.

    If ``rate`` is below 1, each privacy unit (a hospital, or a patient) takes part with this probability (Poisson
    sampling), and the adversary does not know which units take part.
    """

    multiplier: float
    """The standard deviation of the noise, in multiples of the sensitivity (the largest change of the released values
    by one privacy unit)."""
    rate: float = 1.0
    count: int = 1


@dataclass(frozen=True)
class Laplace:
    """Releases with Laplace noise."""

    multiplier: float
    """The scale of the noise, in multiples of the sensitivity (the largest change of the released values by one privacy
    unit)."""
    count: int = 1


@dataclass(frozen=True)
class Repeated:
    """Releases, with normal noise, of a sum to which a privacy unit may contribute several times.

    For example, the unit may be a patient with data at several hospitals.
    """

    multiplier: float
    """The standard deviation of the noise, in multiples of the largest contribution of a unit at one hospital."""
    rate: float
    """The probability with which the unit contributes at a hospital, independently for each hospital."""
    places: int
    """The number of hospitals at which the unit has data."""
    count: int = 1


Single = Gaussian | Laplace
Event = Single | Repeated

Written = tuple[Literal["normal", "laplace"], float, float, int]
"""An event as plain values: the kind of noise, its multiplier, the sampling probability, and the number of releases."""


def written(event: Single) -> Written:
    """Return an event as plain values, which can be stored in a file."""
    if isinstance(event, Laplace):
        return "laplace", event.multiplier, 1.0, event.count
    return "normal", event.multiplier, event.rate, event.count


def read(values: Written) -> Single:
    """Return the event that :func:`written` converted to plain values."""
    noise, multiplier, rate, count = values
    return Laplace(multiplier, count) if noise == "laplace" else Gaussian(multiplier, rate, count)
