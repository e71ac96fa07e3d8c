"""Newton: the exact regression on all hospitals' rows, from sums of gradients and second derivatives.

Y. Wu, X. Jiang, J. Kim, L. Ohno-Machado: *Grid Binary LOgistic REgression (GLORE)*, JAMIA 2012; D. Firth: *Bias
Reduction of Maximum Likelihood Estimates*, Biometrika 1993; K.-Y. Liang, S. Zeger: *Longitudinal Data Analysis Using
Generalized Linear Models*, Biometrika 1986 (robust standard errors, which are valid if hospitals differ).

In each round, every hospital sends the loss, gradient and Hessian over its rows. The server adds these sums and takes
Newton's step, halved if the loss rises. After some five to eight rounds the coefficients are the maximum-likelihood fit
of the pooled rows, and hospitals are called once more, for standard errors.

- Columns that are constant, or linear combinations of earlier columns, get the coefficient 0. With a ridge penalty,
  linear combinations are included.
- If a linear combination of columns separates the classes, coefficients would grow without limit. With ``firth: auto``
  the regression is then fitted with Firth's penalty.
- ``solver: lbfgs`` is for wide tables and requires a ridge penalty; see :mod:`raysim.strategies.regressions.wide`.
- ``ridge`` adds ``ridge / 2 |beta|^2`` to the loss, without the intercept. ``beta`` are the coefficients of
  preprocessed features.

Under a privacy guarantee for patients (``privacy: {unit: patient, mode: pooled}``), rows are clipped to
``privacy.clip`` and sums are noisy (see :mod:`raysim.strategies.regressions.noisy_newton`). All configured rounds are
run, and standard errors are undefined.

All hospitals with training rows take part in every round. Without a privacy guarantee, a round is repeated if a
hospital's answer is lost. Traffic of a round: each hospital receives p float64 numbers for p columns, the intercept
included, and sends ``1 + p + p (p + 1) / 2`` float64 numbers. With Firth's penalty, a round has this traffic twice, and
each hospital also receives ``p (p + 1) / 2`` float64 numbers and p truth values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    POOLED,
    Answers,
    Call,
    Calls,
    FederationView,
    Ids,
    Needs,
    Noise,
    NonNegativeFloat,
    State,
    Training,
    Uncertainty,
    own_state,
)
from raysim.strategies.regressions.exact import HiddenSums, asked
from raysim.strategies.regressions.families import Family
from raysim.strategies.regressions.label_size import ScaledState, with_scale
from raysim.strategies.regressions.newton_steps import Fit, independent, log_determinant
from raysim.strategies.regressions.noisy_newton import MOST_NOISY, BoundedSums, stepped
from raysim.strategies.regressions.standard_errors import Ending, Errors, by_hospital, model_based
from raysim.strategies.regressions.sums_program import (
    MOST_COLUMNS,
    RegressionSums,
    as_beta,
    as_theta,
    check_linear,
    family_of,
    sums_of,
    symmetric,
    uncertainty_of,
    units,
    upper,
)
from raysim.strategies.regressions.wide import WideState, wide_round

WIDEST = 2000
"""The largest number of columns for which ``solver: lbfgs`` computes standard errors, which need second derivatives."""


@dataclass(frozen=True, eq=False)
class NewtonState(ScaledState):
    """The state of Newton's method.

    Row 0 of ``models`` has the coefficients at which sums are computed next; at the end, the fitted ones.
    """

    fit: Fit | None = None
    separated: bool = False
    ending: Ending | None = None
    """The sums for standard errors; None until the fit has ended; always None under a privacy guarantee."""


@dataclass(frozen=True)
class Newton(HiddenSums):
    """Newton's method for regressions; the fields are its settings."""

    title: ClassVar[str] = "Newton (exact regression)"
    needs: ClassVar[Needs] = Needs("programs", by="row")

    family: Literal["auto", "logistic", "linear", "poisson"] = "auto"
    """The family of the regression. ``auto``: logistic for two classes, Poisson for a model of counts, otherwise
    linear."""
    ridge: NonNegativeFloat = 0.0
    """The weight of the penalty on squared coefficients; the intercept is not penalised."""
    firth: Literal["auto", "always", "never"] = "auto"
    """When Firth's penalty is used: ``auto`` uses it if the classes are separated."""
    solver: Literal["newton", "lbfgs"] = "newton"
    """The solver. ``lbfgs`` is for wide tables: it uses only gradients, and needs a ridge."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "lbfgs" and not self.ridge:
            raise ValueError(
                "ridge: 0 gives lbfgs no unique optimum if columns are collinear; set it to 1, for example"
            )
        if self.firth == "always" and (self.ridge or self.family in ("linear", "poisson")):
            raise ValueError("firth: 'always' is for logistic regression without ridge; use auto")

    def check_training(self, training: Training) -> None:
        most = None if self.solver == "lbfgs" else MOST_NOISY if training.noisy else MOST_COLUMNS
        check_linear(training, "newton", weighs=True, most=most)
        family = family_of(training).name
        if self.family not in ("auto", family):
            label = f"has {training.classes} classes" if training.classes else "is a number"
            remedy = "model: poisson_regression" if (self.family, family) == ("poisson", "linear") else "family: auto"
            raise ValueError(
                f"strategy.family: '{self.family}' does not fit, because the label {label} and the model is "
                f"{family}; use {remedy}"
            )
        reasons = {f"family: '{family}'": family != "logistic", "firth: 'always'": self.firth == "always"}
        for what, unbounded in (reasons | {"solver: 'lbfgs'": self.solver == "lbfgs"}).items():
            if training.noisy and unbounded:
                raise ValueError(
                    f"strategy.{what} sends sums without a bound per row, so privacy cannot be guaranteed; use a "
                    "logistic regression with firth: auto, or leave privacy out"
                )
        if self.firth == "always" and not training.classes:
            raise ValueError("strategy.firth: 'always' is for a label of two classes; use auto")

    def setup(self, view: FederationView) -> State:
        self._check_rows(view)
        kind = WideState if self.solver == "lbfgs" else NewtonState
        return kind(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        sizes = np.array([view.sizes[view.trainable].sum()]) if POOLED in ids else view.sizes[ids]
        if isinstance(state, WideState):
            wide = yield from wide_round(view, state, ids, sizes, self.ridge)
            if not wide.ended or wide.ending is not None or len(view.initial) > WIDEST:
                return wide
            family, (grid, scale) = family_of(view), units(view, wide.scale, sizes)
            program = RegressionSums(family.name, len(view.initial), grid, last=True, scale=scale)
            answers = yield from asked(Call(program, {"beta": as_beta(view, wide.models[0]) * scale}, ids), wide)
            return replace(wide, ending=_ending(int(view.sizes[view.trainable].sum()), len(ids), answers, scale))
        own, family, p = own_state(state, NewtonState), family_of(view), len(view.initial)
        if view.noise is not None:
            return (yield from self._noisy(view, own, view.noise, ids))
        if own.ending is not None:
            return own
        own = yield from with_scale(view, own, ids)
        rows = int(view.sizes[view.trainable].sum())
        grid, scale = units(view, own.scale, sizes)
        program = RegressionSums(family.name, p, grid, scale=scale)
        fit = own.fit or Fit(as_beta(view, own.models[0]) * scale, self.ridge, self.ridge > 0, self.firth == "always")
        answers = yield from asked(Call(program, {"beta": fit.beta}, ids), own)
        sums = sums_of(rows, answers.sums)
        if fit.firth:
            keep = independent(sums.hessian) if fit.keep is None else fit.keep
            if np.isfinite(log_determinant(sums.hessian, keep)):  # else the step was too long, and is halved
                received = {"beta": fit.beta, "information": upper(sums.hessian), "keep": keep}
                answers = yield from asked(Call(program, received, ids), own)
                sums = sums._replace(gradient=answers.sums["gradient"])
        fit = fit.updated(sums)
        own = replace(own, separated=own.separated or fit.status == "separated")
        if fit.status == "separated" and self.firth == "auto":
            fit = Fit(np.zeros(p), firth=True, keep=fit.keep)
        own = replace(own, models=as_theta(view, fit.beta / scale)[None], fit=fit)
        if fit.going:
            return own
        answers = yield from asked(Call(replace(program, last=True), {"beta": fit.beta}, ids), own)
        return replace(own, ending=_ending(rows, len(ids), answers, scale))

    def _noisy(self, view: FederationView, own: NewtonState, noise: Noise, ids: Ids) -> Calls:
        """Run a round under a privacy guarantee: one Newton step from noisy sums."""
        beta = as_beta(view, own.models[0])
        answers: Answers = yield Call(BoundedSums(len(beta), noise.clip), {"beta": beta}, ids)
        if not len(answers.ids):
            return own
        return replace(own, models=as_theta(view, stepped(beta, answers.sums, noise, self.ridge))[None])

    def done(self, view: FederationView, state: State) -> bool:
        if isinstance(state, WideState):
            return state.ended and (state.ending is not None or len(view.initial) > WIDEST)
        return own_state(state, NewtonState).ending is not None

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        if isinstance(state, WideState):
            if state.ending is None:
                return None
            found = Fit(as_beta(view, state.models[0]), self.ridge, keep=np.diag(state.ending.information) > 0)
            return uncertainty_of(view, state.models[0], *_errors(family_of(view), found, state.ending))
        own = own_state(state, NewtonState)
        fit, ending = own.fit, own.ending
        if fit is None or ending is None or fit.keep is None or fit.status != "converged":
            return None
        return uncertainty_of(view, own.models[0], *_errors(family_of(view), fit, ending))

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        if isinstance(state, WideState):
            return state.facts
        own = own_state(state, NewtonState)
        if own.fit is None:
            return {}
        facts = {
            "converged": float(own.fit.status == "converged"),
            "separated": float(own.separated),
            "halvings": float(own.fit.halvings),
        }
        if own.fit.keep is not None:
            facts["columns_left_out"] = float((~own.fit.keep).sum())
        if own.ending is not None and own.fit.keep is not None:
            free = own.ending.rows - int(own.fit.keep.sum())
            facts["loss"] = own.ending.loss
            facts["dispersion"] = own.ending.pearson / free if free > 0 else np.nan
            family, (counted, labels, already) = family_of(view), own.ending.outcomes.tolist()
            if family.name != "linear":
                facts["deviance"] = 2 * (own.ending.loss + already)
                facts["deviance_of_the_mean"] = 2 * (counted * family.alone(labels / counted) + already)
        return facts


def _ending(rows: int, hospitals: int, answers: Answers, scale: float) -> Ending:
    """Return hospitals' sums at the final coefficients.

    During the fit, labels are multiplied by ``scale``. All returned sums but ``outcomes`` are in the original unit of
    the label.
    """
    sums = sums_of(rows, answers.sums)
    return Ending(
        rows,
        hospitals,
        sums.loss / scale**2,
        float(answers.sums["pearson"]) / scale**2,
        answers.sums["outcomes"],
        sums.hessian,
        symmetric(answers.sums["scores"]) / scale**2,
    )


def _errors(family: Family, fit: Fit, ending: Ending) -> tuple[Errors, Errors]:
    """Return the model-based and the robust standard errors."""
    keep = np.ones(len(fit.beta), np.bool_) if fit.keep is None else fit.keep
    free = ending.rows - int(keep.sum())
    linear = family.name == "linear"
    model = model_based(
        ending.information,
        keep,
        ridge=fit.ridge,
        variance=ending.pearson / free if linear and free > 0 else 1.0 if free > 0 else np.nan,
        rows=ending.rows if linear else np.inf,
    )
    return model, by_hospital(ending.information, ending.meat, keep, ending.hospitals, ending.rows, fit.ridge)
