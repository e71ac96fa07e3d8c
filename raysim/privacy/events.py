"""Events: the privacy cost of noisy releases, as plain values that an accountant composes.

Two federations are neighbours if they differ in one unit (a hospital, a patient) that is in one of them and contributes
zero in the other. A hospital that contributes zero remains in the list, so the number of hospitals is public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Gaussian:
    """Releases with normal noise.

    With ``rate`` below 1 each unit takes part with this probability (Poisson sampling), and the adversary does not know
    which units take part.
    """

    multiplier: float
    """The standard deviation, in units of the sensitivity."""
    rate: float = 1.0
    """The probability with which a unit is in a release."""
    count: int = 1
    """The number of such releases."""


@dataclass(frozen=True)
class Laplace:
    """Releases with Laplace noise."""

    multiplier: float
    """The scale, in units of the sensitivity."""
    count: int = 1
    """The number of such releases."""


@dataclass(frozen=True)
class Repeated:
    """Releases of a sum with normal noise, to which a unit may contribute several times, such as a patient at several
    hospitals."""

    multiplier: float
    """The standard deviation, in units of the largest contribution of the unit at one hospital."""
    rate: float
    """The probability with which the unit contributes at a hospital, independently for each hospital."""
    places: int
    """The number of hospitals at which the unit has data."""
    count: int = 1
    """The number of such releases."""


Single = Gaussian | Laplace
Event = Single | Repeated

Written = tuple[Literal["normal", "laplace"], float, float, int]
"""An event as plain values for a file: the noise, its multiplier, the rate, and the count."""


def written(event: Single) -> Written:
    """Return the plain values of an event."""
    if isinstance(event, Laplace):
        return "laplace", event.multiplier, 1.0, event.count
    return "normal", event.multiplier, event.rate, event.count


def read(values: Written) -> Single:
    """Return the event from its plain values: the inverse of :func:`written`."""
    noise, multiplier, rate, count = values
    return Laplace(multiplier, count) if noise == "laplace" else Gaussian(multiplier, rate, count)
