"""The interface of a strategy: what each hospital minimises, and how the server combines the results.

A strategy is a frozen dataclass. Its fields are its hyper-parameters, and its methods are pure. Whatever changes from
round to round is in :class:`State`. The engine calls ``setup`` before the first round, ``round`` once a round, and
``personalize`` after the last round. ``serve`` returns which model each hospital uses. By default, ``round`` is
federated training: ``select`` chooses the hospitals, ``problem`` returns what they minimise, and ``aggregate`` combines
their updates. The defaults together are federated averaging.

Other modules of the interface:

- :mod:`raysim.strategies.problem`: what hospitals minimise, and what they send back.
- :mod:`raysim.strategies.programs`: other computations that a strategy may request from hospitals.
- :mod:`raysim.strategies.row_statistics`: client programs that compute statistics of hospitals' rows.
- :mod:`raysim.strategies.view`: the arguments that a strategy receives.

Shapes: ``N`` hospitals in the federation, ``H`` hospitals in the cohort of a round, ``P`` scalars of a model, ``M``
models of the server, ``G`` sums to which hospitals' updates are added. Server-side ``Floats`` are float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

# All names of the interface can be imported from here.
from raysim.core.early_stopping import Held as Held
from raysim.core.early_stopping import Stop as Stop
from raysim.strategies.fields import BelowOne as BelowOne
from raysim.strategies.fields import Invalid as Invalid
from raysim.strategies.fields import Limit as Limit
from raysim.strategies.fields import NonNegativeFloat as NonNegativeFloat
from raysim.strategies.fields import NonNegativeInt as NonNegativeInt
from raysim.strategies.fields import PositiveInt as PositiveInt
from raysim.strategies.fields import Settings as Settings
from raysim.strategies.fields import ShareOfOne as ShareOfOne
from raysim.strategies.fields import Unfit as Unfit
from raysim.strategies.fields import UnitInterval as UnitInterval
from raysim.strategies.fields import above as above
from raysim.strategies.fields import at_least as at_least
from raysim.strategies.fields import below_one as below_one
from raysim.strategies.fields import one_of as one_of
from raysim.strategies.fields import share_of_one as share_of_one
from raysim.strategies.fields import within as within
from raysim.strategies.problem import DELTA as DELTA
from raysim.strategies.problem import LAST as LAST
from raysim.strategies.problem import MIXTURE as MIXTURE
from raysim.strategies.problem import OWN as OWN
from raysim.strategies.problem import POOLED as POOLED
from raysim.strategies.problem import Floats as Floats
from raysim.strategies.problem import Ids as Ids
from raysim.strategies.problem import LocalProblem as LocalProblem
from raysim.strategies.problem import LocalTraining as LocalTraining
from raysim.strategies.problem import Mask as Mask
from raysim.strategies.problem import Objective as Objective
from raysim.strategies.problem import Proximal as Proximal
from raysim.strategies.problem import RowGroups as RowGroups
from raysim.strategies.problem import Update as Update
from raysim.strategies.problem import Upload as Upload
from raysim.strategies.programs import Added as Added
from raysim.strategies.programs import Answers as Answers
from raysim.strategies.programs import Bound as Bound
from raysim.strategies.programs import Call as Call
from raysim.strategies.programs import Caller as Caller
from raysim.strategies.programs import Calls as Calls
from raysim.strategies.programs import Context as Context
from raysim.strategies.programs import Keep as Keep
from raysim.strategies.programs import LocalModel as LocalModel
from raysim.strategies.programs import Program as Program
from raysim.strategies.programs import Reply as Reply
from raysim.strategies.programs import Rows as Rows
from raysim.strategies.programs import Send as Send
from raysim.strategies.programs import TrainLocally as TrainLocally
from raysim.strategies.row_statistics import Counts as Counts
from raysim.strategies.row_statistics import Division as Division
from raysim.strategies.row_statistics import GroupSizes as GroupSizes
from raysim.strategies.row_statistics import MeanLoss as MeanLoss
from raysim.strategies.row_statistics import Newcomers as Newcomers
from raysim.strategies.row_statistics import Size as Size
from raysim.strategies.row_statistics import Statistic as Statistic
from raysim.strategies.row_statistics import group_sizes as group_sizes
from raysim.strategies.row_statistics import losses_of as losses_of
from raysim.strategies.row_statistics import mean_losses as mean_losses
from raysim.strategies.row_statistics import row_sums as row_sums
from raysim.strategies.row_statistics import statistics_of as statistics_of
from raysim.strategies.sums import BOUNDED as BOUNDED
from raysim.strategies.sums import CLUSTERS as CLUSTERS
from raysim.strategies.sums import Needs as Needs
from raysim.strategies.uncertainty import Uncertainty as Uncertainty
from raysim.strategies.view import Draw as Draw
from raysim.strategies.view import FederationView as FederationView
from raysim.strategies.view import Noise as Noise
from raysim.strategies.view import Selection as Selection
from raysim.strategies.view import State as State
from raysim.strategies.view import Training as Training

S = TypeVar("S", bound=State)

OF_STEPS = frozenset({"learning_rate", "batch_size", "local_epochs", "optimizer", "weight_decay"})
"""The keys of the configuration's section ``training`` that control hospitals' gradient descent."""


@dataclass(frozen=True)
class Asynchrony:
    """Training without synchronous rounds: the server updates its model whenever a buffer of updates is full.

    A hospital is not called again while it trains, or while its update is in the buffer. ``concurrency`` and ``buffer``
    are reduced to the number of hospitals with training rows if they exceed it.
    """

    concurrency: int
    """The largest number of hospitals that train at the same time."""
    buffer: int
    """The number of updates that the server collects before it updates the model."""


class Strategy(Settings):
    """A federated method. To define one, derive a frozen dataclass from this class and override some of its methods."""

    is_reference: ClassVar[bool] = False
    """Whether the strategy is a reference for comparison, such as training on pooled rows. Reports never recommend a
    reference, except training alone."""
    title: ClassVar[str] = ""
    """The strategy's name in reports if its configuration has no label; empty or inherited: the name of the class."""
    alone: ClassVar[bool] = False
    """Whether hospitals train alone and share nothing. Reports compare federated strategies with training alone."""
    serves: ClassVar[tuple[str, ...]] = ("global",)
    """The names of the models that hospitals use: ``global``, ``cluster`` (the model of the hospital's cluster,
    ``state.cluster``) or ``personal`` (the hospital's own model, ``OWN``). Reports compare strategies by the model that
    is named last. For models with other names, override :meth:`serve`."""
    needs: ClassVar[Needs] = BOUNDED
    """Whether the strategy needs only sums of hospitals' updates, or more. Some needs rule out privacy guarantees."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Advice for keys that similar strategies have, but this one lacks. A key maps to the words that follow the key and
    its value in the error message."""
    takes_trees: ClassVar[bool] = False
    """Whether the strategy can train boosted trees, whose parameters cannot be averaged."""

    def with_trees(self) -> Strategy:
        """Return the strategy's counterpart for boosted trees, or the strategy itself if it has no counterpart.

        Raises ``ValueError`` if a setting has no meaning for trees. The message begins with the setting's name.
        """
        return self

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        """Raise ``ValueError`` if a hyper-parameter does not fit the hospitals' ``names`` and numbers of training rows.

        The method is called before anything starts. The message begins with the setting's name, for example
        ``clusters: 9 is more than ...``.
        """

    def hides_sums(self) -> bool:
        """Whether the strategy uses secure aggregation for what client programs send, even if the configuration sets
        neither ``secure`` nor ``privacy``."""
        return False

    def remark(self, sizes: Ids) -> str:
        """Return a line to print before training, which explains the effect of a setting; empty: no line is printed.

        ``sizes [N]`` are the hospitals' numbers of training rows.
        """
        return ""

    def check_training(self, training: Training) -> None:
        """Raise ``ValueError`` for a model or an optimiser with which the strategy is not defined.

        The method is called before anything starts. The message begins with the configuration's key:
        ``training.optimizer: ...``.
        """

    def uses_selection(self) -> bool:
        """Whether the configured selection (the rule for client sampling) samples the hospitals of each round."""
        return True

    def uses_training(self) -> bool:
        """Whether the configured learning rate, batch size and local epochs have an effect."""
        return True

    def unused_training(self) -> frozenset[str]:
        """Return the keys of ``training`` that have no effect for this strategy. A key that no compared strategy uses
        must stay at its default."""
        return frozenset() if self.uses_training() else OF_STEPS

    def unused_settings(self) -> Mapping[str, str]:
        """Return the settings that have no effect as configured, each mapped to a setting that would give it an
        effect.

        Example: ``{"minimum_weight": "weights: floor"}``.
        """
        return {}

    def unused_when_pooled(self) -> frozenset[str]:
        """Return the settings and the keys of ``training`` that have no effect under ``privacy.mode: pooled``.

        In this mode a hospital sends one gradient instead of a trained model. Hospitals still train personal models,
        which they do not send.
        """
        fine_tunes = type(self).personalize is not Strategy.personalize
        return frozenset({"local_epochs"} if fine_tunes else {"local_epochs", "batch_size"})

    def stops_early(self) -> bool:
        """Whether early stopping (``training.stop``) may end the strategy before its last round."""
        return self.uses_training()

    def stops_alone(self) -> bool:
        """Whether each hospital applies early stopping (``training.stop``) by itself, with its own validation rows."""
        return False

    def uses_programs(self) -> bool:
        """Whether the strategy's rounds call its own programs."""
        return type(self).round is not Strategy.round

    def asynchrony(self) -> Asynchrony | None:
        """Return how hospitals train asynchronously, or None for synchronous rounds.

        With asynchrony the server has one model, and a round is one update of this model. ``problem`` is called for
        hospitals that start, and again for all hospitals whose updates are in the buffer. ``aggregate`` receives the
        combined update of the hospitals in the buffer. In the problem, row 0 means the model that each
        hospital received, which may be older than the server's model (``view.staleness``).
        """
        return None

    def setup(self, view: FederationView) -> State:
        """Return the state before the first round.

        The method may call programs at hospitals. It raises :class:`Unfit` if the strategy is not defined for the
        federation.
        """
        return State(models=view.initial[None, :].copy())

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        """Return the ids of the hospitals that take part in ``round`` (from 1 on), ascending.

        ``[POOLED]`` means training on the pooled rows of all hospitals. By default, the configured selection chooses.
        """
        return choose(view, state, view.trainable, "sample", round, start=state.cluster)

    def round(self, view: FederationView, state: State) -> Calls:
        """Run a round: yield calls to hospitals, receive their answers, and return the state after the round.

        The default calls the built-in local training once (:class:`TrainLocally`) and then ``aggregate``. A strategy
        that overrides ``round`` decides which hospitals to call (mostly ``self.select(view, state, view.round)``) and
        which :class:`Program` they run. The number of calls may depend on earlier answers.
        """
        update = yield TrainLocally()
        return state if update is None else self.aggregate(view, state, update)

    def done(self, view: FederationView, state: State) -> bool:
        """Return whether the run ends now, before the configured number of rounds."""
        return False

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        """Return what the hospitals ``ids`` minimise in the round, how they train, and what they send."""
        return LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids])))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        """Return the state after a round with an update. Under a privacy guarantee for hospitals, a round without
        hospitals also has an update, of noise alone.

        By default, each of the server's models moves by its own weighted sum of hospitals' updates.
        """
        if update.sums.shape != state.models.shape:
            raise Invalid(
                f"upload.sums: {len(update.sums)} is not the number of models, {len(state.models)}; give each model a "
                "sum, or override aggregate"
            )
        return replace(state, models=state.models + update.sums)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        """Return which model each hospital uses if training ends with ``state``, by name (such as ``global`` or
        ``personal``).

        Each name maps to row indices of ``state.models`` or ``OWN`` (the model stored at the hospital), ``[N]``. If
        rows are divided into groups (:meth:`division`), the array may instead be ``[N, groups]``. Reports compare
        strategies by the model that is named last. The default returns the models that :attr:`serves` names. The method
        may call hospitals; the traffic and the time of these calls are not counted.
        """
        everyone = np.zeros(len(view.sizes), dtype=np.int64)
        rows = {"global": everyone, "cluster": state.cluster, "personal": np.full_like(everyone, OWN)}
        return {name: of_model for name in self.serves if (of_model := rows[name]) is not None}

    def asks(self, rounds: int) -> Mapping[str, int]:
        """Return how often a hospital sends each kind of statistics in a run of ``rounds`` rounds. Kinds that are not
        named are sent at most once. The noise of a privacy guarantee depends on these numbers.
        """
        return {}

    def starts(self, view: FederationView) -> Floats:
        """Return the strategy's initial models, ``[K, P]``.

        A row of ``state.models`` that equals an initial model counts as untrained. Metrics are undefined for hospitals
        that use an untrained model.
        """
        return view.initial[None, :]

    def mixture(self, view: FederationView, state: State) -> Floats | None:
        """Return the weights of the server's M models in each hospital's weighted mean of them (``MIXTURE``),
        ``[N, M]``; None: no hospital uses a weighted mean."""
        return None

    def division(self, view: FederationView, state: State) -> Division | None:
        """Return the rule that divides hospitals' rows into groups, each with its own model; None: rows are not
        divided."""
        return None

    def newcomers(self, view: FederationView, state: State) -> Newcomers | None:
        """Return the rule that assigns a cluster to hospitals without training rows.

        None: such a hospital uses its cluster in ``state.cluster``. The traffic and the time of calls by this method
        are not counted.
        """
        return None

    def private(self, view: FederationView) -> Mask | None:
        """Return a mask ``[P]`` of the model parameters that never leave a hospital; None if there are none.

        When a hospital uses a model of the server, it replaces these parameters by its own values from its last local
        training. Before its first training, it uses the server's values.
        """
        return None

    def personalize(self, view: FederationView, state: State) -> LocalProblem | None:
        """Return what each hospital with training rows minimises in local training after the last round; None: no
        training."""
        return None

    def news(self, view: FederationView, state: State, row: int) -> Sequence[tuple[NDArray[Any], Ids]] | None:
        """Return what the server sends after a round so that hospitals can evaluate a model on their validation rows.

        The model is row ``row`` of ``state.models``. Each pair is an array and the ids of the hospitals that receive
        it. Arrays that hospitals have from earlier rounds or calls need not be sent again. None: hospitals receive the
        whole model.
        """
        return None

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        """Return standard errors and intervals of the global model's parameters; None: they are not estimated."""
        return None

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """Return additional numbers for the report of a run, by name: for example a lower bound on the optimum."""
        return {}


def choose(
    view: FederationView, state: State, candidates: Ids, purpose: str, *key: int, start: Ids | None = None
) -> Ids:
    """Return the ids of the hospitals that the configured selection samples, ascending.

    ``candidates`` are ascending ids of hospitals with training rows; those that are unavailable now are left out.
    ``purpose`` and ``key`` identify the random stream. ``start [N]`` is the row of ``state.models`` that each hospital
    would start from (None: the global model).

    Raises :class:`Invalid` if a candidate's start is ``OWN``, ``MIXTURE`` or ``LAST``, or if the selection returns
    anything but ascending ids of candidates.
    """
    if start is not None and (start[candidates] < 0).any():
        raise Invalid(
            "start: has OWN, MIXTURE or LAST, but a selection needs rows of state.models; give only such rows"
        )
    if view.available is not None:
        candidates = candidates[view.available[candidates]]
    if not len(candidates):
        return candidates

    def losses_of(ids: Ids) -> Floats:
        rows = np.zeros_like(ids) if start is None else start[ids]
        losses = np.empty(len(ids))
        for row in np.unique(rows):
            # No hospital is sent a model that it would not start from.
            theirs = rows == row
            losses[theirs] = mean_losses(view, state.models[row][None, :], ids[theirs])[:, 0]
        return losses

    draw = Draw(candidates, view.sizes[candidates], view.rng(purpose, *key), view.memory, losses_of)
    picked = view.selection.pick(draw)
    ids = isinstance(picked, np.ndarray) and picked.dtype.kind in "iu"
    if not (ids and np.isin(picked, candidates).all() and (np.diff(picked) > 0).all()):
        selection = type(view.selection).__name__
        raise Invalid(f"select: selection {selection} picks {picked!r}; pick ascending ids out of the candidates")
    return picked


def shares(sizes: Ids) -> Floats:
    """Return the share ``n_i / sum n_j`` of each of H hospitals in the training rows of these hospitals,
    ``sizes [H]``."""
    return sizes / max(int(sizes.sum()), 1)


def sent_weights(update: Update) -> Floats:
    """Return the weights with which hospitals' updates were summed, ``[H]``, or ``[H, G]`` for G sums."""
    sent = None if update.problem is None else update.problem.sent
    if sent is None or sent.weight is None:
        raise TypeError(
            "update: has no weights of hospitals; let problem() return a LocalProblem with Upload(weight=...)"
        )
    return sent.weight


def own_state(state: State, kind: type[S]) -> S:
    """Return ``state``, typed as the class ``kind``. Raises ``TypeError`` if ``state`` is of another class."""
    if not isinstance(state, kind):
        raise TypeError(f"state: is of type {type(state).__name__}; pass the {kind.__name__} that setup returned")
    return state
