"""Ensemble: the mean of the log-odds of hospitals' own regressions.

P. Patil, G. Parmigiani: *Training replicable predictors in multiple studies*, PNAS 2018 (stacked weights).

The method takes one round. The mean of the log-odds of logistic models is the log-odds of one model with the mean
coefficients. The weights of hospitals' models are proportional to rows, equal, or ``stacked``. For ``stacked``, each
hospital predicts probabilities for its rows with the models of all hospitals; the predictions of its own model count as
0. Non-negative least squares regresses the outcome on these probabilities; the coefficients, scaled to sum to 1, are
the weights. Hospitals whose regression cannot be fitted are left out.

With ``stacked`` and H models, only hospitals with at least ``max(5 H, 30)`` rows send sums of predictions, so that
single rows stay hidden.

Traffic, once: each hospital sends p + 1 float64 numbers for p coefficients. With ``stacked``, each hospital with enough
rows also receives the H models with their hospitals' ids, and sends ``H (H + 3) / 2`` float64 numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    Call,
    Calls,
    Context,
    FederationView,
    Floats,
    Ids,
    Needs,
    Program,
    Reply,
    Send,
    State,
    Training,
    Unfit,
    own_state,
)
from raysim.strategies.regressions.exact import Exact, rows_needed
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.local_fits import Coefficients, LocalFit
from raysim.strategies.regressions.one_shot import stacked
from raysim.strategies.regressions.sums_program import as_theta, check_linear, design, symmetric, triangle, upper


@dataclass(frozen=True, eq=False)
class EnsembleState(State):
    """The state of an ensemble.

    ``members [N]`` has the weights of the N hospitals' models; it is None before the first round.
    """

    members: Floats | None = None


@dataclass(frozen=True)
class Predictions(Program):
    """Sums over a hospital's rows from which the server computes the ``stacked`` weights.

    ``products`` has, for each pair of models, the sum over rows of the product of their predictions. ``with_outcome``
    has, for each model, the sum over rows of the product of its prediction and the outcome.
    """

    models: int
    name: str = "predictions"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {
            "products": Send(triangle(self.models), kind="products", bits=30),
            "with_outcome": Send((self.models,), kind="products", bits=30),
        }

    def run(self, at: Context) -> Reply:
        Z = LOGISTIC.mean(design(at.rows.X) @ at.received["models"].T)
        Z[:, at.received["hospitals"] == at.hospital] = 0.0
        return Reply({"products": upper(Z.T @ Z), "with_outcome": Z.T @ at.rows.y})


def _readable(view: FederationView, models: int) -> Ids:
    return view.trainable[view.sizes[view.trainable] >= rows_needed(models)]


@dataclass(frozen=True)
class Ensemble(Exact):
    """An ensemble of hospitals' own logistic regressions; the fields are its settings."""

    title: ClassVar[str] = "Ensemble of own regressions"
    one_round: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs.more("sends hospitals' own fits")

    combine: Literal["rows", "uniform", "stacked"] = "rows"
    """The weights of hospitals' models: by rows, equal, or by the models' predictions at other hospitals
    (``stacked``)."""
    local_fit: LocalFit = "firth"
    """How hospitals fit their own regressions: with Firth's penalty, or by the plain likelihood."""

    def check_training(self, training: Training) -> None:
        check_linear(training, "ensemble", ("logistic",))

    def setup(self, view: FederationView) -> State:
        models = int((view.sizes > len(view.initial)).sum())
        if self.combine == "stacked" and len(view.trainable) and not len(_readable(view, models)):
            raise Unfit(
                f"combine: stacked needs a hospital with at least {rows_needed(models)} rows, because sums of products "
                f"of {models} models' predictions would reveal fewer rows; write combine: rows"
            )
        return EnsembleState(models=view.initial[None].copy())

    def steps(self, view: FederationView, state: State, ids: Ids) -> Calls:
        own = own_state(state, EnsembleState)
        each = (yield Call(Coefficients(len(view.initial), self.local_fit), {}, ids)).each
        fits = each["fitted"] > 0
        models, hospitals = each["beta"][fits], ids[fits]
        weights = view.sizes[hospitals].astype(np.float64) if self.combine == "rows" else np.ones(len(models))
        if self.combine == "stacked" and len(models) > 1:
            received = {"models": models, "hospitals": hospitals}
            sums = (yield Call(Predictions(len(models)), received, _readable(view, len(models)))).sums
            weights = stacked(symmetric(sums["products"]), sums["with_outcome"])
        members, total = np.zeros(len(view.sizes)), float(weights.sum())
        if not total:
            return replace(own, members=members)
        members[hospitals] = weights / total
        return replace(own, models=as_theta(view, members[hospitals] @ models)[None], members=members)

    def done(self, view: FederationView, state: State) -> bool:
        return own_state(state, EnsembleState).members is not None

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        members = own_state(state, EnsembleState).members
        if members is None:
            return {}
        return {
            "hospitals_left_out": float((members[view.trainable] == 0).sum()),
            "greatest_weight": float(members.max()),
        }
