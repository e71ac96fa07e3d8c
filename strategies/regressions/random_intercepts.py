"""Random intercepts: common slopes, and hospitals' intercepts with an estimated variance around their mean.

N. E. Breslow, D. G. Clayton: *Approximate Inference in Generalized Linear Mixed Models*, JASA 1993; Laplace's
approximation of the likelihood.

Hospital i's intercept is the common intercept plus ``u_i``, which is normal with standard deviation ``tau``. The
hospital computes the mode of ``u_i`` and predicts with it. In each round, hospitals send their contributions to the
approximate log-likelihood, to its gradient by the coefficients and ``ln tau``, and to its curvature. The server takes
steps with this curvature, corrected by earlier gradients (L-BFGS). The intercepts of small hospitals shrink to the
common intercept. This shrinkage avoids the bias of the slopes in ``own_intercepts``. ``u_i`` is not sent, but
with ``sums: clear`` the server can compute it from a hospital's sums. Hospitals without training rows use the common
intercept.

Without a ``ridge`` penalty, the fit stops as ``separated`` in two cases. First, one hyperplane separates the classes of
all hospitals; the sign is that steps hardly get shorter. Second, parallel hyperplanes separate the classes within each
hospital; the sign is that ``tau`` exceeds 30.

Counts are fitted with the same approximation. Other numeric labels are fitted with the exact likelihood, and a
``ridge`` is then not possible (:mod:`raysim.strategies.regressions.linear_mixed`).

Traffic of a round, with p columns, the intercept included: each hospital receives p + 1 float64 numbers and sends
``3 + p + p (p + 1) / 2``. After the fit has converged, hospitals are called once more for standard errors. They then
send the same sums again, and ``(p + 1) (p + 2) / 2`` second derivatives. For a numeric label other than counts, each
hospital receives p + 1 numbers and sends ``2 + (p + 1) (p + 2)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    Context,
    FederationView,
    Floats,
    Ids,
    Keep,
    Program,
    Reply,
    Send,
    State,
    Training,
    Uncertainty,
    own_state,
)
from raysim.strategies.regressions.exact import PrivateIntercepts, asked
from raysim.strategies.regressions.families import FAMILIES
from raysim.strategies.regressions.hospital_effects import laplace
from raysim.strategies.regressions.label_size import ScaledState, with_scale
from raysim.strategies.regressions.lbfgs import ARMIJO, Pairs, remembered, uphill
from raysim.strategies.regressions.linear_mixed import MixedState, mixed_round
from raysim.strategies.regressions.newton_steps import ROSE, RUNS, independent
from raysim.strategies.regressions.sums_program import (
    Grid,
    as_theta,
    check_linear,
    design,
    family_of,
    normal_uncertainty,
    symmetric,
    triangle,
    units,
    upper,
)

STOP = 1e-13
"""The fit has converged if a step is expected to raise the log-likelihood ``l`` by at most ``STOP (1 + |l|)``."""
PAIRS = 10
"""The number of earlier steps by which L-BFGS corrects the curvature."""
FALLING, SHORTER = 0.6, 0.8
"""A step counts as diverging if its expected rise of the likelihood is below ``FALLING`` times the previous step's, but
its length is above ``SHORTER`` times the previous step's."""
WIDEST = math.log(30.0)
"""Without a ridge, a fit ends as separated if the logarithm of the intercepts' standard deviation exceeds this
number."""
MOVES = 1e-3
"""A step that changes coefficients by less than this share of the largest one does not count as diverging."""
DIFFERENCE = 1e-5
"""For numerical second derivatives, gradients are computed at this distance on both sides of a point."""


@dataclass(frozen=True, eq=False)
class RandomInterceptsState(ScaledState):
    """The state of the fit. Row 0 of ``models`` has the coefficients that are tried next, with the common intercept."""

    at: Floats | None = None
    """The last accepted coefficients and ``ln tau``, ``[p + 1]``; None before the first round."""
    value: float = -np.inf
    """The approximate log-likelihood at ``at``, less the ridge penalty."""
    gradient: Floats | None = None
    """The gradient of ``value`` at ``at``, ``[p + 1]``; after convergence, at the point before the last step. None
    before the first round."""
    step: Floats | None = None
    """The next step from ``at``, ``[p + 1]``; None before the first round."""
    share: float = 1.0
    """The share of ``step`` that is tried next."""
    pairs: Pairs = ()
    """Earlier steps, each with the decrease of the gradient along it."""
    rises: tuple[tuple[float, float], ...] = ()
    """For each of the last steps, the expected rise of the log-likelihood and the largest change of a coefficient."""
    separated: bool = False
    covariance: Floats | None = None
    """The covariance of coefficients and ``ln tau``, ``[p + 1, p + 1]``; None until the fit has converged."""


@dataclass(frozen=True)
class MarginalSums(Program):
    """A hospital's contribution to the approximate log-likelihood, with its derivatives.

    If ``last``, it includes the second derivatives for standard errors.
    """

    family: str
    p: int
    grid: Grid
    bias: int
    """The index of the intercept among the model's parameters."""
    last: bool = False
    name: str = "random_intercepts"

    @property
    def sends(self) -> Mapping[str, Send]:
        sends = {
            "value": self.grid.send("loss"),
            "gradient": self.grid.send("gradient", (self.p + 1,)),
            "hessian": self.grid.send("hessian", triangle(self.p)),
            "spread": self.grid.send("hessian"),
        }
        return sends | ({"second": self.grid.send("hessian", triangle(self.p + 1))} if self.last else {})

    @property
    def keeps(self) -> Mapping[str, Keep]:
        return {"mode": Keep(), "model": Keep((self.p,))}

    def run(self, at: Context) -> Reply:
        X, y, p, family = design(at.rows.X), at.rows.y.astype(np.float64), self.p, FAMILIES[self.family]
        point, start = at.received["point"], float(at.memory.get("mode", 0.0))
        own = laplace(family, X, y, point[:p], float(point[p]), start)
        information = family.sums(X, y, point[:p], own.mode).hessian
        precision = float(np.exp(-2 * point[p]))
        weight = float(information[0, 0])
        cross = information[0]
        reliability = weight / (weight + precision)
        sent = {
            "value": own.value,
            "gradient": own.gradient,
            "hessian": upper(information - np.outer(cross, cross) / (weight + precision)),
            "spread": 2 * reliability**2,
        }
        if self.last:
            rows = []
            for j in range(p + 1):
                away = DIFFERENCE * np.eye(p + 1)[j]
                above, below = (
                    laplace(family, X, y, moved[:p], float(moved[p]), own.mode).gradient
                    for moved in (point + away, point - away)
                )
                rows.append((below - above) / (2 * DIFFERENCE))
            sent["second"] = upper((np.array(rows) + np.array(rows).T) / 2)
        model = np.zeros(p)
        model[self.bias] = point[0] + own.mode
        return Reply(self.grid.sent(sent, at), {"mode": own.mode, "model": model})


@dataclass(frozen=True)
class RandomIntercepts(PrivateIntercepts):
    """A regression with random intercepts. The family is the model's: logistic, linear, or Poisson."""

    title: ClassVar[str] = "Random intercepts"
    instead: ClassVar[Mapping[str, str]] = {
        "firth": "is a penalty that random_intercepts does not have; remove the key, set a ridge, or choose newton",
    }

    def check_training(self, training: Training) -> None:
        check_linear(training, "random_intercepts")
        if self.ridge and family_of(training).name == "linear":
            raise ValueError(
                f"strategy.ridge: {self.ridge:g} is a penalty, but restricted maximum likelihood has none "
                "(for a label that is a number); remove the key, or choose own_intercepts"
            )

    def setup(self, view: FederationView) -> State:
        self._check_rows(view)
        kind = MixedState if family_of(view).name == "linear" else RandomInterceptsState
        return kind(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        if isinstance(state, MixedState):
            return (yield from mixed_round(view, state, ids))
        own = own_state(state, RandomInterceptsState)
        if own.covariance is not None or own.separated:
            return own
        p, family = len(view.initial), family_of(view)
        own = yield from with_scale(view, own, ids)
        bias = int(np.arange(p)[view.parameters["bias"]][0])
        program = MarginalSums(family.name, p, units(view, own.scale, view.sizes[ids])[0], bias)
        point = np.zeros(p + 1) if own.at is None or own.step is None else own.at + own.share * own.step
        answers = yield from asked(Call(program, {"point": point}, ids), own)
        weights = self._weights(p)
        value = float(answers.sums["value"]) - float(weights @ point**2) / 2
        gradient, information = answers.sums["gradient"] - weights * point, symmetric(answers.sums["hessian"])
        before, slope = own.at, own.gradient
        if before is not None and slope is not None and own.step is not None:
            predicted = own.share * float(slope @ own.step)
            if not value >= own.value + ARMIJO * predicted - ROSE * (1 + abs(own.value)):
                own = replace(own, share=own.share / 2)
                return replace(own, models=self._models(view, own))
            own = replace(own, pairs=remembered(own.pairs, point - before, slope - gradient, PAIRS))
        step = _step(gradient, information + np.diag(weights[:p]), float(answers.sums["spread"]), own.pairs)
        rises = (*own.rises, (float(gradient @ step) / 2, float(np.abs(step[:-1]).max())))[-RUNS - 1 :]
        own = replace(own, at=point, value=value, gradient=gradient, step=step, share=1.0, rises=rises)
        if not self.ridge and (_diverges(rises, float(np.abs(point[:-1]).max())) or point[-1] > WIDEST):
            return replace(own, separated=True)
        own = replace(own, models=self._models(view, own))
        if float(gradient @ step) / 2 > STOP * (1 + abs(value)):
            return own
        answers = yield from asked(Call(replace(program, last=True), {"point": point + step}, ids), own)
        second = symmetric(answers.sums["second"])
        keep, covariance = independent(second), np.full_like(second, np.nan)
        varying = second[np.ix_(keep, keep)]
        inverse = np.linalg.inv(varying + np.diag(weights[keep]))
        covariance[np.ix_(keep, keep)] = inverse @ varying @ inverse if self.ridge else inverse
        value = float(answers.sums["value"]) - float(weights @ (point + step) ** 2) / 2
        return replace(own, at=point + step, step=np.zeros(p + 1), value=value, covariance=covariance)

    def _weights(self, p: int) -> Floats:
        """Return the weights ``[p + 1]`` of the ridge penalty; 0 for the intercept and for ``ln tau``."""
        weights = np.full(p + 1, self.ridge)
        weights[[0, -1]] = 0.0
        return weights

    def _models(self, view: FederationView, own: RandomInterceptsState) -> Floats:
        if own.at is None or own.step is None:
            return own.models
        return as_theta(view, (own.at + own.share * own.step)[:-1])[None]

    def done(self, view: FederationView, state: State) -> bool:
        if isinstance(state, MixedState):
            return state.ended
        own = own_state(state, RandomInterceptsState)
        return own.covariance is not None or own.separated

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        if isinstance(state, MixedState):
            if not state.ended or state.fit is None or state.scale is None:
                return None
            return normal_uncertainty(view, state.models[0], state.fit.se / state.scale)
        own = own_state(state, RandomInterceptsState)
        if own.covariance is None:
            return None
        with np.errstate(invalid="ignore"):
            return normal_uncertainty(view, own.models[0], np.sqrt(np.diag(own.covariance))[:-1])

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        if isinstance(state, MixedState):
            return state.facts
        own = own_state(state, RandomInterceptsState)
        if own.at is None:
            return {}
        return {
            "converged": float(own.covariance is not None),
            "separated": float(own.separated),
            "variance_between": float(np.exp(2 * own.at[-1])),
            "log_likelihood": own.value + float(self._weights(len(own.at) - 1) @ own.at**2) / 2,
        }


def _diverges(rises: Sequence[tuple[float, float]], largest: float) -> bool:
    """Return whether steps hardly get shorter, but the expected rise of the likelihood falls quickly.

    ``largest`` is the largest coefficient.
    """
    if len(rises) <= RUNS or rises[-1][1] < MOVES * largest:
        return False
    rise, length = np.array(rises).T
    return bool((rise[1:] < FALLING * rise[:-1]).all() and (length[1:] > SHORTER * length[:-1]).all())


def _step(gradient: Floats, hessian: Floats, spread: float, pairs: Pairs) -> Floats:
    """Return the next step ``[p + 1]`` of the p coefficients and ``ln tau``; the likelihood rises along it.

    ``hessian [p, p]`` is the curvature for the coefficients, and ``spread`` the curvature for ``ln tau``.
    """
    keep = independent(hessian)
    within = np.flatnonzero(keep)

    def curved(rest: Floats) -> Floats:
        step = np.zeros_like(rest)
        step[within] = np.linalg.solve(hessian[np.ix_(keep, keep)], rest[within])
        # If the data do not determine the intercepts' spread, this is a gradient step.
        step[-1] = rest[-1] / max(spread, 1.0)
        return step

    for known in (pairs, ()):
        step = uphill(gradient, known, curved)
        step[-1] = float(np.clip(step[-1], -1.0, 1.0))
        if float(gradient @ step) > 0:  # a shortened step may lead downhill
            break
    return step
