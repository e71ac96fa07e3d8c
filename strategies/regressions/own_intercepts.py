"""Own intercepts: a regression with common slopes, and a separate intercept for each hospital.

The result equals a regression on the pooled rows with fixed effects of hospitals (D. Y. Lin, D. Zeng: *On the relative
efficiency of using summary statistics versus individual-level data in meta-analysis*, Biometrika 2010).

In each round, a hospital sends its loss, its intercept, and the slopes' gradient and Hessian with the intercept
eliminated (a Schur complement). The server takes Newton's step of the slopes, and each hospital then changes its own
intercept accordingly.

Hospitals without an intercept use the mean of all other hospitals' intercepts. For this mean, the intercepts are summed
over hospitals in every round, because any round may be the last. The server learns only the mean; with ``sums: clear``,
it learns each intercept.

The fit leaves out a hospital whose labels are all of one class or, in a Poisson regression, all 0, because it has no
finite intercept. With many small hospitals, slopes are biased away from 0 (the incidental parameter problem);
``random_intercepts`` is then better. If a linear combination of features separates the classes, the fit ends
and is reported as separated, unless there is a ``ridge`` penalty.

Traffic of a round, with q features: each hospital receives ``2 q + 1`` float64 numbers and a truth value, and sends
``4 + q + q (q + 1) / 2`` float64 numbers. The round in which the fit converges has this traffic twice.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from raysim.strategies.regressions.hospital_effects import Own, eliminated
from raysim.strategies.regressions.label_size import ScaledState, with_scale
from raysim.strategies.regressions.newton_steps import CALLS, ROSE, STOP, independent, separated
from raysim.strategies.regressions.sums_program import (
    Grid,
    as_theta,
    check_linear,
    family_of,
    normal_uncertainty,
    symmetric,
    triangle,
    units,
    upper,
)


@dataclass(frozen=True, eq=False)
class OwnInterceptsState(ScaledState):
    """The state of the fit. Row 0 of ``models`` has the slopes that are tried next, and the mean of the intercepts."""

    slopes: Floats | None = None
    """The last slopes at which the loss did not rise, ``[q]``; None before the first round."""
    step: Floats | None = None
    """Newton's step from ``slopes``, ``[q]``; None before the first round."""
    share: float = 1.0
    """The share of ``step`` that is tried next."""
    loss: float = np.inf
    """The penalised loss at ``slopes``; after convergence, the loss of the final fit without the penalty."""
    taken: bool = True
    calls: int = 0
    halvings: int = 0
    decrements: tuple[float, ...] = ()
    """For each step, the expected fall of the loss."""
    separated: bool = False
    """Whether a linear predictor separates the classes."""
    se: Floats | None = None
    """Standard errors of the slopes, ``[q]``; None until the fit has converged."""
    left_out: int = 0
    """The number of hospitals that are left out because their labels are all of one class or, in a Poisson regression,
    all 0."""


@dataclass(frozen=True)
class InterceptSums(Program):
    """A hospital's intercept, and its sums (:class:`Eliminated`) at this intercept and the received q slopes.

    ``hospitals`` is 1. A hospital that the fit leaves out sends 0 for ``hospitals`` and for all sums.
    """

    family: str
    q: int
    grid: Grid
    bias: int
    """The index of the intercept among the model's parameters."""
    scale: float = 1.0
    """The factor by which labels are multiplied in the fit."""
    name: str = "own_intercepts"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {
            "loss": self.grid.send("loss"),
            "gradient": self.grid.send("gradient", (self.q,)),
            "hessian": self.grid.send("hessian", triangle(self.q)),
            "own": self.grid.send("loss"),
            "intercept": self.grid.send("intercepts"),
            "hospitals": Send(kind="size", bits=0),
        }

    @property
    def keeps(self) -> Mapping[str, Keep]:
        point = Keep((3 + self.q,))
        return {"taken": point, "tried": point, "model": Keep((self.q + 1,))}

    def run(self, at: Context) -> Reply:
        y, q = at.rows.y.astype(np.float64) * self.scale, self.q
        slopes, step, share = at.received["slopes"], at.received["step"], float(at.received["share"])
        nothing = {"loss": 0.0, "gradient": np.zeros(q), "hessian": np.zeros(triangle(q)), "own": 0.0}
        if (self.family == "logistic" and y.min() == y.max()) or (self.family == "poisson" and y.max() == 0):
            return Reply(nothing | {"intercept": 0.0, "hospitals": 0})
        taken = at.memory.get("tried" if at.received["taken"] else "taken")
        intercept = 0.0
        if taken is not None:
            # The move starts at the last accepted point and uses the share of the step that is tried.
            whole = Own(float(taken[0]), float(taken[1]), float(taken[2]), taken[3:]).moved(step)
            intercept = float(taken[0]) + share * (whole - float(taken[0]))
        sums, own = eliminated(FAMILIES[self.family], at.rows.X.astype(np.float64), y, intercept, slopes)
        tried = np.array([own.intercept, own.gradient, own.curvature, *own.cross])
        model = np.zeros(q + 1)
        model[self.bias] = intercept / self.scale
        sent = {"loss": sums.loss, "gradient": sums.gradient, "hessian": upper(sums.hessian), "own": sums.own}
        sent = self.grid.sent(sent, at)
        memory = {"tried": tried, "model": model} | ({} if taken is None else {"taken": taken})
        return Reply(sent | {"intercept": self.grid.within(intercept), "hospitals": 1}, memory)


@dataclass(frozen=True)
class OwnIntercepts(PrivateIntercepts):
    """A regression with an intercept for each hospital. The family is the model's: logistic, linear, or Poisson."""

    title: ClassVar[str] = "Own intercepts"

    def check_training(self, training: Training) -> None:
        check_linear(training, "own_intercepts")

    def setup(self, view: FederationView) -> State:
        self._check_rows(view)
        return OwnInterceptsState(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        own, q = own_state(state, OwnInterceptsState), len(view.initial) - 1
        if own.se is not None or own.separated:
            return own
        family = family_of(view)
        own = yield from with_scale(view, own, ids)
        grid, scale = units(view, own.scale, view.sizes[ids])
        bias = int(np.arange(q + 1)[view.parameters["bias"]][0])
        program = InterceptSums(family.name, q, grid, bias, scale)
        step = np.zeros(q) if own.step is None else own.step
        slopes = np.zeros(q) if own.slopes is None else own.slopes + own.share * step
        received = {"slopes": slopes, "step": step, "share": own.share, "taken": own.taken}
        answers = yield from asked(Call(program, received, ids), own)
        sums = answers.sums
        own = replace(own, calls=own.calls + 1, left_out=len(ids) - int(sums["hospitals"]))
        mean = float(sums["intercept"]) / max(float(sums["hospitals"]), 1.0)
        loss = float(sums["loss"]) + self.ridge * float(slopes @ slopes) / 2
        if not loss <= own.loss + ROSE * (1 + abs(own.loss)):
            own = replace(own, share=own.share / 2, taken=False, halvings=own.halvings + 1)
            return replace(own, models=self._models(view, mean, own))
        hessian = symmetric(sums["hessian"])
        keep = independent(hessian)
        hessian += self.ridge * np.eye(q)
        gradient = sums["gradient"] - self.ridge * slopes
        step = np.zeros(q)
        step[keep] = np.linalg.solve(hessian[np.ix_(keep, keep)], gradient[keep])
        own = replace(own, slopes=slopes, step=step, share=1.0, loss=loss, taken=True)
        own = replace(own, models=self._models(view, mean, own))
        fall = (float(gradient @ step) + float(sums["own"])) / 2
        own = replace(own, decrements=(*own.decrements, fall))
        if fall > STOP * (1 + abs(loss)):
            apart = not self.ridge and family.name != "linear"
            return replace(own, separated=apart and separated(own.decrements, hessian[np.ix_(keep, keep)]))
        received = {"slopes": slopes + step, "step": step, "share": 1.0, "taken": True}
        answers = yield from asked(Call(program, received, ids), own)
        sums, se, variance = answers.sums, np.full(q, np.nan), 1.0
        if family.name == "linear":
            free = int(view.sizes[ids].sum()) - int(keep.sum()) - len(ids)
            variance = 2 * float(sums["loss"]) / free if free > 0 else np.nan
        information = symmetric(sums["hessian"])[np.ix_(keep, keep)]
        inverse = np.linalg.inv(information + self.ridge * np.eye(len(information)))
        se[keep] = np.sqrt(np.diag(inverse @ information @ inverse) * variance) / scale
        mean = float(sums["intercept"]) / max(float(sums["hospitals"]), 1.0)
        return replace(own, models=self._models(view, mean, own), loss=float(sums["loss"]), se=se)

    def _models(self, view: FederationView, intercept: float, own: OwnInterceptsState) -> Floats:
        slopes = np.zeros(len(view.initial) - 1) if own.slopes is None else own.slopes
        step = np.zeros_like(slopes) if own.step is None else own.share * own.step
        return as_theta(view, np.concatenate([[intercept], slopes + step]) / units(view, own.scale, view.sizes)[1])[
            None
        ]

    def done(self, view: FederationView, state: State) -> bool:
        own = own_state(state, OwnInterceptsState)
        return own.se is not None or own.separated or own.calls >= CALLS

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        own = own_state(state, OwnInterceptsState)
        if own.se is None:
            return None
        return normal_uncertainty(view, own.models[0], np.concatenate([[np.nan], own.se]))

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        own = own_state(state, OwnInterceptsState)
        facts = {
            "converged": float(own.se is not None),
            "separated": float(own.separated),
            "halvings": float(own.halvings),
            "hospitals_left_out": float(own.left_out),
        }
        scale = units(view, own.scale, view.sizes)[1]
        return facts | ({"loss": own.loss / scale**2} if np.isfinite(own.loss) else {})
