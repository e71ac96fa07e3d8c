"""How sure the coefficients of a regression are."""

from __future__ import annotations

from dataclasses import dataclass

from raysim.strategies.problem import Floats


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
