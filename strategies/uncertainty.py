"""How sure the coefficients of a regression are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from raysim.strategies.problem import Floats

Effect: TypeAlias = Literal["odds ratio", "rate ratio", "difference"]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Of the parameters ``[P]`` of the global model, in their order; NaN where undefined."""

    se: Floats
    """Standard errors, as the likelihood gives them."""
    low: Floats
    """The lower end of each 95 % interval."""
    high: Floats
    """The upper end."""
    se_robust: Floats
    """Standard errors that hold where hospitals differ."""
    low_robust: Floats
    """The lower end of each 95 % interval by these."""
    high_robust: Floats
    """The upper end."""
    effect: Effect
    """What a coefficient is: the logarithm of one of the ratios, or a difference of the outcome."""
