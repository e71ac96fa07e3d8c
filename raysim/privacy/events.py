"""Events: what noisy releases cost, as plain values that an accountant composes.

Two federations are neighbours where one unit (a hospital, a patient) is in one of them and contributes zero to the
other; a hospital's place in the list stays, so that all numbers of hospitals are public.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gaussian:
    """Normal noise of ``multiplier`` times the sensitivity, ``count`` times over.

    With ``rate`` below 1 each unit takes part with that probability, unseen by the adversary (Poisson sampling).
    """

    multiplier: float
    rate: float = 1.0
    count: int = 1


@dataclass(frozen=True)
class Laplace:
    """Laplace noise of scale ``multiplier`` times the sensitivity, ``count`` times over."""

    multiplier: float
    count: int = 1


@dataclass(frozen=True)
class Repeated:
    """Normal noise on a sum to which a unit may add at several ``places``, at each with probability ``rate``,
    ``count`` times over: a patient at several hospitals.
    """

    multiplier: float
    rate: float
    places: int
    count: int = 1


Event = Gaussian | Laplace | Repeated
