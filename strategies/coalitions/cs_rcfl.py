"""CS-RCFL: hospitals form coalitions whose members' models fit each other's rows, even if the rows change a little.

X. Konti et al., *CS-RCFL*: robust transfer losses (eq. 12 and 13), the coalition program (11), coalition models (6).

All steps run before any round:

1. Each hospital fits a linear model to its own rows and sends it.
2. A lead hospital (here the server) shuffles the models and sends them to all hospitals.
3. Hospital i answers with the robust loss ``L_ij`` of each model j: the worst mean loss over all distributions within
   the distance ε_i of the hospital's rows.
4. The lead divides the hospitals into exactly K coalitions S with the smallest
   ``sum over S of (1/|S|) sum over i, j in S of L_ij``.
5. Each hospital uses the mean of its coalition's models. No rounds are needed: set ``training.rounds: 0``.

Choices: models have an intercept. Its feature is the constant 1 in all distributions of step 3. Hospitals minimise
the mean loss of their rows or, with ``robust``, the robust loss. Training without ``robust`` adds a ridge of 1e-6,
because separable rows have no optimum. The paper gives no cost κ of a label change; the default is 1. The run's
``facts`` state by how much the cost of the coalitions can exceed the optimum. Hospitals without training rows use the
mean of all models. For labels of two classes and ε of at least κ/2, models can be compared, but not trained robustly.

``clusters: each`` is the paper's local training, or with ``robust`` its robust local training. ``transfer: plain`` is
the paper's non-robust clustering.

Traffic: each of N hospitals once sends its model of P scalars, receives all N models, and sends N losses. With
``clusters: each``, each hospital only sends its model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from raysim.strategies.base import (
    OF_STEPS,
    FederationView,
    Floats,
    Ids,
    Limit,
    Needs,
    PositiveInt,
    State,
    Strategy,
    Training,
    at_least,
    statistics_of,
)
from raysim.strategies.coalitions.robust.fits import LinearModelFit, RadiusRule, RobustTransferLoss
from raysim.strategies.coalitions.solver.solve import Coalitions, coalition_models, find_coalitions
from raysim.strategies.shared.clustering import check_enough_hospitals, members


@dataclass(frozen=True, eq=False)
class CoalitionState(State):
    """The state of CS-RCFL. With ``clusters: each``, ``value``, ``bound`` and ``seconds`` are None."""

    value: float | None = None
    """The cost of the coalitions that were found."""
    bound: float | None = None
    """A lower bound on the cost of any division of the hospitals into K coalitions."""
    seconds: float | None = None
    """The duration of the search for coalitions in seconds."""


@dataclass(frozen=True)
class CsRcfl(Strategy):
    """Coalitions of hospitals by robust transfer losses (CS-RCFL)."""

    title: ClassVar[str] = "CS-RCFL"
    needs: ClassVar[Needs] = Needs.more("compares single hospitals' updates")
    serves = ("cluster",)

    clusters: PositiveInt | Literal["each"] = 3
    """K, the number of coalitions; with ``each`` every hospital uses its own model."""
    radius: float = 0.5
    """ε: the radius of the ball of distributions over which the worst loss is computed."""
    small_radius: float | None = None
    """The radius of small hospitals; null means ``radius``."""
    small: int = 100
    """A hospital with at most this many training rows is small."""
    radii: tuple[float, ...] = ()
    """A grid from which each hospital chooses its radius by cross-validation; empty: ``radius`` or ``small_radius``."""
    folds: int = 5
    """The number of folds of the cross-validation over ``radii``."""
    kappa: float = 1.0
    """κ: the cost of a flipped label; with ``.inf`` labels cannot change."""
    transfer: Literal["robust", "plain"] = "robust"
    """The losses by which hospitals compare models: ``robust``, or ``plain`` (robust losses with radius 0)."""
    robust: bool = False
    """Whether hospitals train their own models with the robust loss instead of the mean loss."""
    seconds: Annotated[float, Limit(at_least, 0, finite=False)] = 60.0
    """The time limit for finding coalitions, in seconds; the local search is never interrupted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rule.check()

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        if self.clusters != "each":
            check_enough_hospitals(self.clusters, sizes)

    def check_training(self, training: Training) -> None:
        bias = training.parameters.get("bias", slice(0, 0))
        if set(training.parameters) != {"weight", "bias"} or bias.stop - bias.start != 1:
            raise ValueError(
                "model: strategy cs_rcfl is for linear models of two classes or a real-valued label; choose "
                "logistic_regression or linear_regression, or another strategy"
            )
        try:
            self._rule.check_trainable(training.classes, self.robust)
        except ValueError as error:
            raise ValueError(f"strategy.{error}") from None

    def setup(self, view: FederationView) -> CoalitionState:
        ids = view.trainable
        fit = LinearModelFit(view.classes, view.initial.shape, self._rule if self.robust else None)
        models = statistics_of(view, fit, ids)
        if self.clusters == "each":
            labels, coalitions = np.arange(len(ids)), None
        else:
            coalitions = find_coalitions(
                self._losses(view, ids, models), self.clusters, view.rng("coalitions"), seconds=self.seconds
            )
            labels = coalitions.labels
        models = np.vstack([models.mean(axis=0), coalition_models(models, labels)])
        cluster = np.zeros(len(view.sizes), dtype=np.int64)
        cluster[ids] = 1 + labels
        return _state(models, cluster, coalitions)

    def unused_settings(self) -> Mapping[str, str]:
        searched = {} if self.clusters != "each" else dict.fromkeys(("transfer", "seconds"), "clusters: 3")
        if not (self.robust or (self.transfer == "robust" and self.clusters != "each")):
            rule = ("radius", "small_radius", "small", "radii", "folds", "kappa")
            return searched | dict.fromkeys(rule, "robust: true")
        if self.radii:
            return searched | dict.fromkeys(("radius", "small_radius", "small"), "radii: []")
        small = {"small": "small_radius"} if self.small_radius is None else {}
        return searched | small | {"folds": "radii"}

    def unused_training(self) -> frozenset[str]:
        return OF_STEPS | {"rounds"}  # models are fitted in the set-up only

    def uses_selection(self) -> bool:
        return False

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        return np.empty(0, dtype=np.int64)

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        if not isinstance(state, CoalitionState) or state.value is None or state.bound is None or state.seconds is None:
            return {}
        coalitions = Coalitions(members(state), state.value, state.bound, state.seconds)
        return {
            "coalition_cost": coalitions.value,
            "coalition_bound": coalitions.bound,
            "coalition_gap": coalitions.gap,
            "coalition_seconds": coalitions.seconds,
        }

    @property
    def _rule(self) -> RadiusRule:
        return RadiusRule(self.radius, self.small_radius, self.small, self.radii, self.folds, self.kappa)

    def _losses(self, view: FederationView, ids: Ids, models: Floats) -> Floats:
        """Return the losses ``[i, j]`` of hospital j's model on hospital i's rows, for hospitals ``ids``."""
        # Shuffled, so that no hospital can tell whose model is whose.
        order = view.rng("shuffle").permutation(len(ids))
        rule = self._rule if self.transfer == "robust" else None
        program = RobustTransferLoss(view.classes, rule, len(ids))
        losses = np.empty((len(ids), len(ids)))
        losses[:, order] = statistics_of(view, program, ids, models[order])
        return losses


def _state(models: Floats, cluster: Ids, coalitions: Coalitions | None) -> CoalitionState:
    if coalitions is None:
        return CoalitionState(models, cluster)
    return CoalitionState(models, cluster, coalitions.value, coalitions.bound, coalitions.seconds)
