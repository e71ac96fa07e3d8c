"""Meta-analysis: every hospital fits its own regression, and the fits are averaged, weighted by precision.

B. J. Becker, M.-J. Wu: *The Synthesis of Regression Slopes in Meta-Analysis*, Statistical Science 2007; R. DerSimonian,
N. Laird: *Meta-Analysis in Clinical Trials*, Controlled Clinical Trials 1986.

The method takes one round. With ``combine: information`` the mean is ``(sum I_i)^-1 sum I_i b_i``, where ``I_i`` is
hospital i's information matrix and ``b_i`` its coefficients. A hospital adds nothing to a coefficient that it cannot
estimate. ``fixed`` and ``random`` average each coefficient separately. For ``random``, the first call estimates the
variance of each coefficient between hospitals. The weights in a second call depend on this variance. Hospitals fit with
Firth's penalty unless ``local_fit`` is ``likelihood``, because plain maximum-likelihood estimates of small hospitals
are biased away from 0. Hospitals that have no more rows than columns, or whose fit does not converge, are left out.

Traffic, once (with ``random``, twice): each hospital receives p float64 numbers for p coefficients, and sends
``1 + 6 p + p (p + 1) / 2`` float64 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    FederationView,
    Floats,
    Ids,
    Needs,
    State,
    Training,
    Uncertainty,
    own_state,
)
from raysim.strategies.regressions.exact import HiddenSums
from raysim.strategies.regressions.local_fits import InformationSums, LocalFit, univariate_means
from raysim.strategies.regressions.one_shot import Information
from raysim.strategies.regressions.sums_program import as_theta, check_linear, normal_uncertainty, symmetric


@dataclass(frozen=True, eq=False)
class MetaState(State):
    """The state of a meta-analysis, with its result after the only round."""

    se: Floats | None = None
    """Standard errors of the coefficients, the intercept first, ``[p]``; None before the round."""
    used: int = 0
    between: Floats | None = None
    """The variance of each coefficient between hospitals, ``[p]``; None before the round."""


@dataclass(frozen=True)
class MetaAnalysis(HiddenSums):
    """A meta-analysis of hospitals' own regressions; the fields are its settings."""

    title: ClassVar[str] = "Meta-analysis"
    one_round: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs.more("sends sums of hospitals' own fits")

    combine: Literal["information", "fixed", "random"] = "information"
    """How fits are averaged: by information matrices, or each coefficient separately with fixed or random effects."""
    local_fit: LocalFit = "firth"
    """How hospitals fit their own regressions: with Firth's penalty, or by the plain likelihood."""

    def check_training(self, training: Training) -> None:
        check_linear(training, "meta_analysis", ("logistic",))

    def setup(self, view: FederationView) -> State:
        self._check_rows(view)
        return MetaState(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        own, p = own_state(state, MetaState), len(view.initial)
        program = InformationSums(p, self.local_fit)
        answers = yield Call(program, {"spread": np.zeros(p)}, ids)
        if not answers.counts.any():
            return own
        sums = answers.sums
        beta, covariance = Information(sums["weighted"], symmetric(sums["total"])).combined()
        variance = np.diag(covariance)
        means, spread, _, between = univariate_means(sums["univariate"])
        if self.combine == "random":
            answers = yield Call(program, {"spread": between}, ids)
            means, spread, _, _ = univariate_means(answers.sums["univariate"])
        if self.combine != "information":
            beta, variance = means, spread
        models = as_theta(view, beta)[None]
        return replace(own, models=models, se=np.sqrt(variance), used=int(sums["hospitals"]), between=between)

    def done(self, view: FederationView, state: State) -> bool:
        return own_state(state, MetaState).se is not None

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        own = own_state(state, MetaState)
        return None if own.se is None else normal_uncertainty(view, own.models[0], own.se)

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        own = own_state(state, MetaState)
        if own.se is None or own.between is None:
            return {}
        return {
            "hospitals_left_out": float(len(view.trainable) - own.used),
            "greatest_variance_between": float(own.between.max(initial=0.0)),
        }
