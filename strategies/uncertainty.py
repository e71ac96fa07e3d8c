"""The uncertainty of a regression's coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from raysim.strategies.problem import Floats

Effect: TypeAlias = Literal["odds ratio", "rate ratio", "difference"]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors and confidence intervals of the global model's P parameters. Undefined values are NaN."""

    se: Floats
    """The model-based standard error of each parameter, ``[P]``."""
    low: Floats
    """The lower end of each parameter's 95 % confidence interval with ``se``, ``[P]``."""
    high: Floats
    """The upper end of each parameter's 95 % confidence interval with ``se``, ``[P]``."""
    se_robust: Floats
    """The robust standard error of each parameter, ``[P]``, which is valid even if hospitals differ."""
    low_robust: Floats
    """The lower end of each parameter's 95 % confidence interval with ``se_robust``, ``[P]``."""
    high_robust: Floats
    """The upper end of each parameter's 95 % confidence interval with ``se_robust``, ``[P]``."""
    effect: Effect
    """The meaning of a coefficient: the logarithm of an odds or rate ratio, or a difference of the outcome."""
