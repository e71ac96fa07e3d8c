"""Logistic regression in numpy: one logit for two classes, a softmax for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from raysim.training.base import Model
from raysim.training.kernels.linear import LinearModel
from raysim.training.losses import LOG_LOSS


@dataclass(frozen=True)
class LogisticRegression:
    """The family ``logistic_regression``, which has no options."""

    linear: ClassVar[bool] = True
    """Whether models are linear: with one coefficient for each feature, and a constant."""

    def bind(self, n_features: int, n_classes: int, *, init: str, device: str, precision: str) -> Model:
        """Return the model for ``F`` features and ``C`` classes.

        Initial parameters are always zero.
        """
        host = LogisticModel(n_features, n_classes, precision)
        if device == "cpu":
            return host
        from raysim.training.kernels.batched import Cohort, Dense

        return Cohort(host, Dense((n_features, host.outputs)), device=device, precision=precision)


class LogisticModel(LinearModel):
    """Logistic regression with the parameters ``weight [C, F]`` and ``bias [C]``.

    For two classes they are ``[1, F]`` and ``[1]``: the only output is the log-odds of class 1.
    """

    def __init__(self, n_features: int, n_classes: int, precision: str) -> None:
        super().__init__(n_features, 1 if n_classes == 2 else n_classes, precision, LOG_LOSS)
