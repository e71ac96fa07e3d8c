"""Limited-memory BFGS on sums, for regressions of wide tables: second derivatives are sent at most once, at the end.

See :mod:`.lbfgs`. With p columns, a round of Newton's method needs ``1 + p + p (p + 1) / 2`` numbers from each
hospital. A round of this method needs only ``p + 1``, but the fit takes some thirty to a hundred rounds. The method
cannot detect collinear columns or separated classes, and therefore needs a ridge penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import Call, Calls, FederationView, Floats, Ids
from raysim.strategies.regressions.exact import asked
from raysim.strategies.regressions.label_size import ScaledState, with_scale
from raysim.strategies.regressions.lbfgs import ARMIJO, Pairs, remembered, uphill
from raysim.strategies.regressions.newton_steps import ROSE
from raysim.strategies.regressions.standard_errors import Ending
from raysim.strategies.regressions.sums_program import RegressionSums, as_theta, family_of, units

STOP = 1e-13
"""The fit has converged if the next step is expected to reduce the loss ``l`` by at most ``STOP (1 + |l|)``."""
PAIRS = 20
"""The number of earlier steps from which L-BFGS computes the curvature."""


@dataclass(frozen=True, eq=False)
class WideState(ScaledState):
    """The state of the fit.

    Row 0 of ``models`` has the coefficients that are tried next; at the end, the fitted ones.
    """

    at: Floats | None = None
    """The last accepted coefficients, ``[p]``; None before the first round."""
    loss: float = np.inf
    """The penalised loss at ``at``."""
    gradient: Floats | None = None
    """The negative gradient of the penalised loss at ``at``, ``[p]``; None before the first round."""
    step: Floats | None = None
    """The next step from ``at``, ``[p]``; None before the first round."""
    share: float = 1.0
    """The share of ``step`` that is tried next."""
    pairs: Pairs = ()
    halvings: int = 0
    ended: bool = False
    ending: Ending | None = None
    """The sums for standard errors; None until the fit has ended, or if there are too many columns."""

    @property
    def facts(self) -> dict[str, float]:
        """Return whether the fit has converged, and how often a step was halved."""
        return {"converged": float(self.ended), "halvings": float(self.halvings)}


def wide_round(view: FederationView, own: WideState, ids: Ids, rows: Ids, ridge: float) -> Calls:
    """Run a round, in which hospitals send the loss and its gradient at the next coefficients.

    ``rows`` has the number of rows of each hospital, or one total if rows are pooled.
    """
    if own.ended:
        return own
    family, p = family_of(view), len(view.initial)
    own = yield from with_scale(view, own, ids)
    grid, scale = units(view, own.scale, rows)
    beta = np.zeros(p) if own.at is None or own.step is None else own.at + own.share * own.step
    program = RegressionSums(family.name, p, grid, second=False, scale=scale)
    answers = yield from asked(Call(program, {"beta": beta}, ids), own)
    weights = np.append(0.0, np.full(p - 1, ridge))
    loss = float(answers.sums["loss"]) + float(weights @ beta**2) / 2.0
    gradient = answers.sums["gradient"] - weights * beta
    before, slope, direction = own.at, own.gradient, own.step
    if before is not None and slope is not None and direction is not None:
        predicted = own.share * float(slope @ direction)
        if not loss <= own.loss - ARMIJO * predicted + ROSE * (1 + abs(own.loss)):
            share = own.share / 2
            models = as_theta(view, (before + share * direction) / scale)[None]
            return replace(own, share=share, halvings=own.halvings + 1, models=models)
        own = replace(own, pairs=remembered(own.pairs, beta - before, slope - gradient, PAIRS))
    pairs = own.pairs
    length = float(pairs[-1][0] @ pairs[-1][1]) / float(pairs[-1][1] @ pairs[-1][1]) if pairs else 1 / float(rows.sum())
    step = uphill(gradient, pairs, lambda rest: rest * length)
    own = replace(own, at=beta, loss=loss, gradient=gradient, step=step, share=1.0)
    ended = float(gradient @ step) / 2 <= STOP * (1 + abs(loss))
    return replace(own, ended=ended, models=as_theta(view, (beta + step) / scale)[None])
