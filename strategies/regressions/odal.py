"""ODAL: one hospital maximises its own likelihood, corrected by the gradients of all hospitals at a common point.

R. Duan et al.: *Learning from electronic health records across multiple sites*, JAMIA 2020 (ODAL, ODAL2); J. Tong et
al.: *Robust-ODAL*, AMIA 2020.

The method takes one round of three calls, or four with ``robust: true``:

1. Hospitals send their own regressions. The common point is the mean of their coefficients, weighted by information
   matrices (see ``meta_analysis``).
2. All hospitals send their gradients and Hessians at the common point.
3. One hospital, the lead, maximises a surrogate likelihood and sends the coefficients. The surrogate is the lead's own
   likelihood, corrected by the mean gradient over all rows, and for ``order: 2`` also by the mean Hessian.

With ``robust: true``, hospitals also send their mean gradients in a call before the last. For each coefficient, the
median of these gradients replaces the mean over all rows.

If the surrogate likelihood has no maximum, the model is the common point, or with ``order: 2`` the result of one Newton
step from it.

Our choice: the lead is the hospital with the most training rows. Standard errors are computed from the information
matrix of all rows at the common point. The server receives the gradients of single hospitals only with ``sums: clear``,
which ``robust`` requires.

Traffic, once: each hospital receives ``4 p + 1`` float64 numbers for p coefficients, and with ``order: 2`` another
``p (p + 1) / 2``. It sends the numbers of ``meta_analysis``, those of a round of ``newton``, and p + 1 numbers more.
With ``robust``, each hospital receives and sends another p numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    Context,
    FederationView,
    Floats,
    Ids,
    Limit,
    Needs,
    Program,
    Reply,
    Send,
    State,
    Training,
    Uncertainty,
    Unfit,
    own_state,
    within,
)
from raysim.strategies.regressions.exact import HiddenSums, asked
from raysim.strategies.regressions.families import LOGISTIC, Sums
from raysim.strategies.regressions.local_fits import InformationSums, LocalFit
from raysim.strategies.regressions.newton_steps import Fit, independent
from raysim.strategies.regressions.one_shot import Information, Surrogate
from raysim.strategies.regressions.sums_program import (
    Grid,
    RegressionSums,
    as_theta,
    check_linear,
    design,
    normal_uncertainty,
    sums_of,
    symmetric,
    upper,
)


@dataclass(frozen=True, eq=False)
class OdalState(State):
    """The state of ODAL, with its result after the only round."""

    se: Floats | None = None
    """Standard errors of the coefficients, the intercept first, ``[p]``; None before the round."""
    converged: bool = False
    """Whether the lead hospital found a maximum of the surrogate likelihood."""


@dataclass(frozen=True)
class OwnGradient(Program):
    """The mean gradient over a hospital's rows. The server receives each hospital's gradient, not the sum."""

    p: int
    name: str = "gradient"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"gradient": Send((self.p,), kind="gradient", how="each")}

    def run(self, at: Context) -> Reply:
        sums = LOGISTIC.sums(design(at.rows.X), at.rows.y.astype(np.float64), at.received["beta"])
        return Reply({"gradient": sums.gradient / sums.rows})


@dataclass(frozen=True)
class LeadFit(Program):
    """The coefficients that maximise the lead hospital's surrogate likelihood.

    All hospitals but the lead send zeros.
    """

    p: int
    second: bool
    name: str = "lead"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"beta": Send((self.p,), kind="coefficients", bits=30), "converged": Send(kind="size", bits=0)}

    def run(self, at: Context) -> Reply:
        if at.hospital != at.received["lead"]:
            return Reply({"beta": np.zeros(self.p), "converged": 0.0})
        X, y, point = design(at.rows.X), at.rows.y.astype(np.float64), at.received["beta"]
        hessian = symmetric(at.received["hessian"]) if self.second else np.empty((0, 0))
        everybody = Sums(1.0, 0.0, at.received["gradient"], hessian)
        surrogate = Surrogate.of(point, everybody, LOGISTIC.sums(X, y, point), second=self.second)
        fit = surrogate.fitted(LOGISTIC, X, y)
        converged = fit.status == "converged" and bool(np.isfinite(fit.beta).all())
        beta = fit.beta
        if not converged:
            # If the lead has too few rows, its surrogate has no maximum.
            beta = Fit(point).updated(surrogate.sums(LOGISTIC.sums(X, y, point), point)).beta if self.second else point
        return Reply({"beta": beta, "converged": float(converged)})


@dataclass(frozen=True)
class Odal(HiddenSums):
    """A lead hospital's fit, corrected by all hospitals' gradients (ODAL); the fields are its settings."""

    title: ClassVar[str] = "ODAL"
    one_round: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs.more("sends the lead hospital's fit")

    order: Annotated[int, Limit(within, 1, 2)] = 2
    """The order of the correction: 1 corrects gradients, 2 also second derivatives."""
    robust: bool = False
    """Whether the correction uses the median of hospitals' mean gradients in place of the mean gradient over all
    rows."""
    local_fit: LocalFit = "firth"
    """How hospitals fit their own regressions: with Firth's penalty, or by the plain likelihood."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.robust and self.sums != "clear":
            raise ValueError(
                "robust: true needs each hospital's gradient, which secure aggregation hides; write sums: clear"
            )

    def check_training(self, training: Training) -> None:
        check_linear(training, "odal", ("logistic",))

    def setup(self, view: FederationView) -> State:
        self._check_rows(view)
        if self.robust and view.hides:
            raise Unfit("robust: true needs each hospital's gradient, which secure aggregation hides; leave secure out")
        return OdalState(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        own, p = own_state(state, OdalState), len(view.initial)
        rows = int(view.sizes[ids].sum())
        answers = yield from asked(Call(InformationSums(p, self.local_fit), {"spread": np.zeros(p)}, ids), own)
        point, _ = Information(answers.sums["weighted"], symmetric(answers.sums["total"])).combined()
        program = RegressionSums(LOGISTIC.name, p, Grid.of(view.sizes[ids]))
        answers = yield from asked(Call(program, {"beta": point}, ids), own)
        everybody = sums_of(rows, answers.sums)
        gradient = everybody.gradient / rows
        if self.robust:
            answers = yield from asked(Call(OwnGradient(p), {"beta": point}, ids), own)
            gradient = np.median(answers.each["gradient"], axis=0)
        received = {"beta": point, "gradient": gradient, "lead": ids[int(np.argmax(view.sizes[ids]))]}
        if self.order == 2:
            received["hessian"] = upper(everybody.hessian / rows)
        answers = yield from asked(Call(LeadFit(p, self.order == 2), received, ids), own)
        keep = independent(everybody.hessian)
        se = np.full(p, np.nan)
        se[keep] = np.sqrt(np.diag(np.linalg.inv(everybody.hessian[np.ix_(keep, keep)])))
        sums = answers.sums
        return replace(own, models=as_theta(view, sums["beta"])[None], se=se, converged=bool(sums["converged"]))

    def done(self, view: FederationView, state: State) -> bool:
        return own_state(state, OdalState).se is not None

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        own = own_state(state, OdalState)
        return None if own.se is None else normal_uncertainty(view, own.models[0], own.se)

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        return {"converged": float(own_state(state, OdalState).converged)}
