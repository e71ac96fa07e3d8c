"""The uncertainty of a regression's coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from raysim.strategies.problem import Floats

Effect: TypeAlias = Literal["odds ratio", "rate ratio", "difference"]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors and confidence intervals of the global model's P parameters, in the order of the parameter
    vector.

    Undefined values are NaN.
    """

    se: Floats
    """Standard errors from the likelihood."""
    low: Floats
    """The lower end of each 95 % interval by ``se``."""
    high: Floats
    """The upper end of each 95 % interval by ``se``."""
    se_robust: Floats
    """Robust standard errors, which are valid if hospitals differ."""
    low_robust: Floats
    """The lower end of each 95 % interval by ``se_robust``."""
    high_robust: Floats
    """The upper end of each 95 % interval by ``se_robust``."""
    effect: Effect
    """The meaning of a coefficient: the logarithm of an odds or rate ratio, or a difference of the outcome."""
