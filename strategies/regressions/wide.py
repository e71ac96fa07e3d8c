"""Limited-memory BFGS on sums: the regression of wide tables, whose hospitals send gradients and no second derivatives.

See :mod:`.lbfgs`.

At p columns a round of Newton's steps takes ``p (p + 1) / 2`` numbers of each hospital, this one ``p + 1``, and some
thirty to a hundred rounds. What the second derivatives would tell, that columns are collinear or classes separated, it
cannot know: so it needs a penalty, under which there is one optimum. They are asked for once, at the end, for standard
errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import Call, Calls, FederationView, Floats, Ids, State
from raysim.strategies.regressions.label_size import LabelSize, scale_of
from raysim.strategies.regressions.lbfgs import ARMIJO, Pairs, remembered, uphill
from raysim.strategies.regressions.newton_steps import ROSE
from raysim.strategies.regressions.standard_errors import Ending
from raysim.strategies.regressions.sums_program import RegressionSums, as_theta, family_of, units

STOP = 1e-13
"""The last step is that from which the loss is to fall by no more than this share of 1 + the loss."""
PAIRS = 20
"""How many earlier steps the curvature is made of."""


@dataclass(frozen=True, eq=False)
class WideState(State):
    """Row 0 of the models has the coefficients that are tried next, and in the end the fit."""

    scale: float | None = None
    """What labels are multiplied by in the fit; None before they were asked for."""
    at: Floats | None = None
    """The last coefficients whose loss fell, ``[p]``; None before the first round."""
    loss: float = np.inf
    """The penalised loss there."""
    gradient: Floats | None = None
    """Its gradient there, downhill."""
    step: Floats | None = None
    """The step from there, ``[p]``."""
    share: float = 1.0
    """How much of it is tried."""
    pairs: Pairs = ()
    halvings: int = 0
    ended: bool = False
    ending: Ending | None = None
    """What standard errors come from; None until the fit has ended."""

    @property
    def facts(self) -> dict[str, float]:
        """How the fit has ended."""
        return {"converged": float(self.ended), "halvings": float(self.halvings)}


def wide_round(view: FederationView, own: WideState, ids: Ids, rows: Ids, ridge: float) -> Calls:
    """A round: the gradient at the next point. ``rows``: those of each hospital, or of all together where pooled."""
    if own.ended:
        return own
    family, p = family_of(view), len(view.initial)
    if own.scale is None and family.name != "logistic":
        answers = yield Call(LabelSize(), {}, ids)
        if len(answers.ids) < len(ids):
            return own
        own = replace(own, scale=scale_of(answers))
    grid, scale = units(view, own.scale, rows)
    beta = np.zeros(p) if own.at is None or own.step is None else own.at + own.share * own.step
    answers = yield Call(RegressionSums(family.name, p, grid, second=False, scale=scale), {"beta": beta}, ids)
    if len(answers.ids) < len(ids):
        return own
    weights = np.append(0.0, np.full(p - 1, ridge))
    loss = float(answers.sums["loss"]) + float(weights @ beta**2) / 2.0
    gradient = answers.sums["gradient"] - weights * beta
    before, slope, way = own.at, own.gradient, own.step
    if before is not None and slope is not None and way is not None:
        predicted = own.share * float(slope @ way)
        if not loss <= own.loss - ARMIJO * predicted + ROSE * (1 + abs(own.loss)):
            share = own.share / 2
            models = as_theta(view, (before + share * way) / scale)[None]
            return replace(own, share=share, halvings=own.halvings + 1, models=models)
        own = replace(own, pairs=remembered(own.pairs, beta - before, slope - gradient, PAIRS))
    pairs = own.pairs
    length = float(pairs[-1][0] @ pairs[-1][1]) / float(pairs[-1][1] @ pairs[-1][1]) if pairs else 1 / float(rows.sum())
    step = uphill(gradient, pairs, lambda rest: rest * length)
    own = replace(own, at=beta, loss=loss, gradient=gradient, step=step, share=1.0)
    ended = float(gradient @ step) / 2 <= STOP * (1 + abs(loss))
    return replace(own, ended=ended, models=as_theta(view, (beta + step) / scale)[None])
