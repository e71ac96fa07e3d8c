"""The interface of a strategy: what each hospital minimises and how the server combines what comes back.

A strategy is a frozen dataclass. Its fields are its hyper-parameters, its methods are pure, and what it carries from
round to round is an explicit value, :class:`State`. The engine calls, once a round and in this order, ``select``,
``problem`` and ``aggregate``; before the first round ``setup``, after the last ``personalize``; ``serve`` says which
model each hospital uses. Every method has a default, and the defaults together are federated averaging. What
hospitals minimise, and what comes back, is told in :mod:`raysim.strategies.problem`; what the server may ask hospitals
beside that, in :mod:`raysim.strategies.questions`.

Shapes: ``N`` hospitals in the federation, ``H`` in the cohort, ``P`` scalars of a model, ``M`` models in the bank,
``G`` sums that hospitals' deltas go into. Server-side arrays are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

# All names of the interface can be imported from here.
from raysim.strategies.problem import LAST as LAST
from raysim.strategies.problem import MIXTURE as MIXTURE
from raysim.strategies.problem import OWN as OWN
from raysim.strategies.problem import POOLED as POOLED
from raysim.strategies.problem import Contrast as Contrast
from raysim.strategies.problem import Floats as Floats
from raysim.strategies.problem import Ids as Ids
from raysim.strategies.problem import LocalProblem as LocalProblem
from raysim.strategies.problem import Pull as Pull
from raysim.strategies.problem import Update as Update
from raysim.strategies.problem import Variates as Variates
from raysim.strategies.questions import Ask as Ask
from raysim.strategies.questions import Division as Division
from raysim.strategies.questions import GroupSizes as GroupSizes
from raysim.strategies.questions import HospitalRows as HospitalRows
from raysim.strategies.questions import MeanLoss as MeanLoss
from raysim.strategies.questions import Question as Question


class Unfit(ValueError):
    """Raised in ``setup`` for a federation with which the strategy is not defined, where that is found out by asking.

    The message begins with the field: ``features: ...``.
    """


@dataclass(frozen=True, eq=False)
class Draw:
    """What a selection chooses from: ``candidates [M]``, ascending, with ``sizes [M]`` > 0 training rows.

    ``memory`` is what the selection remembers, ``rng`` the stream of this draw. ``losses(ids)`` asks these candidates
    for their mean training loss under the model that they would start from, ``[len(ids)]``.
    """

    candidates: Ids
    sizes: Ids
    rng: np.random.Generator
    memory: Any
    losses: Callable[[Ids], Floats]


class Selection:
    """Which hospitals take part in a round. Derive from it, make it a frozen dataclass, and define ``pick``."""

    hears_losses: ClassVar[bool] = False
    """Whether participants also send their mean training loss under the model they received."""

    def check_training(self, training: Training) -> None:
        """As :meth:`Strategy.check_training`."""

    def setup(self, view: FederationView) -> Any:
        """What the selection remembers before the first round; may ask hospitals. Plain values and arrays only."""
        return None

    def pick(self, draw: Draw) -> Ids:
        """Ascending ids out of the candidates."""
        raise NotImplementedError

    def observe(self, memory: Any, update: Update) -> Any:
        """What it remembers after a round."""
        return memory


@dataclass(frozen=True, eq=False)
class FederationView:
    """What the server knows of the federation, and how it asks for more.

    ``names [N]``, ``sizes [N]`` training rows, ``classes`` of the label, ``initial [P]`` the common starting
    parameters, of which ``parameters`` says by name where each tensor lies, in order, and ``measured`` which of them no
    gradient moves (running statistics); ``local_epochs``, ``learning_rate`` and ``selection`` as configured, ``memory``
    what the selection remembers. ``rng(purpose, *key)`` is a stream of the run's seed. ``ask(question)`` returns one
    answer per hospital in id order; hospitals without training rows answer too.

    Of unreliable hospitals, ``available [N]`` says which can be selected now, ``staleness [N]`` how often the global
    model has changed since each hospital of the cohort received it, and ``round_seconds [N]`` how long a round takes
    each; None where all are there, nobody is late, and no time passes. ``round`` (1, 2, ...) is the one whose cohort is
    called, 0 before.
    """

    names: tuple[str, ...]
    sizes: Ids
    classes: int
    initial: Floats
    local_epochs: int
    learning_rate: float
    selection: Selection
    memory: Any
    rng: Callable[..., np.random.Generator]
    ask: Ask
    parameters: Mapping[str, slice] = field(default_factory=dict)
    measured: frozenset[str] = frozenset()
    available: NDArray[np.bool_] | None = None
    staleness: Ids | None = None
    round_seconds: Floats | None = None
    round: int = 0

    @property
    def trainable(self) -> Ids:
        """Ids of the hospitals that have training rows, ascending."""
        return np.flatnonzero(self.sizes > 0)

    @property
    def present(self) -> Ids:
        """Those of them that can be selected now."""
        ids = self.trainable
        return ids if self.available is None else ids[self.available[ids]]


@dataclass(frozen=True, eq=False)
class State:
    """What a strategy carries from round to round.

    ``bank [M, P]``: the server's models, row 0 the global one. ``cluster [N]``: the bank row of each hospital's
    cluster model, or None for strategies without clusters. Strategies that carry more derive from this class.
    """

    bank: Floats
    cluster: Ids | None = None


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Training:
    """What a run trains and how: the model's tensors by name, in order, and the configured optimiser's name.

    ``classes`` of the label, 0 where it is a real number. ``patients()`` gives the attributes of all patients, as
    :class:`HospitalRows` does those of one hospital.
    """

    parameters: Mapping[str, slice]
    optimizer: str
    classes: int = 2
    patients: Callable[[], Mapping[str, NDArray[Any]]] = dict


@dataclass(frozen=True)
class Asynchrony:
    """Rounds without a common start: ``concurrency`` hospitals are in training at any time, and the server renews its
    model whenever ``buffer`` updates have arrived.

    Both are at most the number of hospitals with training rows. A hospital starts from the model of its moment, and is
    not asked again before its update has been used.
    """

    concurrency: int
    buffer: int


class Strategy:
    """A way of federating. Derive from this class, make it a frozen dataclass, and override what differs."""

    yardstick: ClassVar[bool] = False
    """Whether it only bounds what federating can reach. Reports show a yardstick and never recommend it."""

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        """Raise ``ValueError`` for hyper-parameters that do not fit hospitals with these names and training rows.

        Called before anything starts; the message begins with the field: ``clusters: 9 is more than ...``.
        """

    def check_training(self, training: Training) -> None:
        """Raise ``ValueError`` for a model or an optimiser with which the strategy is not defined.

        Called before anything starts; the message begins with the configuration's key: ``training.optimizer: ...``.
        """

    def uses_selection(self) -> bool:
        """Whether the configured selection says who takes part. Where it does not, hospitals tell it nothing."""
        return True

    def asynchrony(self) -> Asynchrony | None:
        """How hospitals take part without waiting for each other, or None: in rounds.

        Where there is one, the bank is the global model alone, and a round is one renewal of it: ``problem`` and
        ``aggregate`` are about the updates that went into it. Row 0 then stands for the model that a hospital received,
        however old: ``view.staleness``.
        """
        return None

    def setup(self, view: FederationView) -> State:
        """The state before the first round; may ask hospitals about their data. May raise :class:`Unfit`."""
        return State(bank=view.initial[None, :].copy())

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        """The cohort of ``round`` (1, 2, ...): ascending ids, or ``[POOLED]``.

        A selection that asks for losses hears those under hospitals' cluster models, or else the global one.
        """
        return choose(view, state, view.trainable, "sample", round, start=state.cluster)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        """What the cohort minimises."""
        return LocalProblem(start=np.zeros_like(ids), weight=shares(view.sizes[ids]))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        """The state after a round in which at least one hospital trained."""
        return replace(state, bank=state.bank + update.sums)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        """Which model serves each hospital: ``{model served: [N] bank rows, or OWN}``, the headline model last.

        ``[N, G]`` bank rows: which model serves each group of its rows (:meth:`division`).

        May ask hospitals what each of them would find out by itself: here that is a measurement and no traffic.
        """
        return {"global": np.zeros(len(view.sizes), dtype=np.int64)}

    def mixture(self, view: FederationView, state: State) -> Floats | None:
        """The weights of bank rows ``[N, M]`` that make a hospital's model where ``MIXTURE`` is named, or None."""
        return None

    def division(self, view: FederationView, state: State) -> Division | None:
        """How hospitals' rows are cut into groups, for strategies whose models belong to groups of patients."""
        return None

    def private(self, view: FederationView) -> NDArray[np.bool_] | None:
        """The parameters ``[P]`` that never leave a hospital, or None.

        Wherever a model of the bank is a hospital's start or serves it, these are the hospital's own: those that it
        had when it last trained, the model's until then.
        """
        return None

    def personalize(self, view: FederationView, state: State) -> LocalProblem | None:
        """What every hospital with training rows minimises once after the last round, or None."""
        return None

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        """What the strategy has to tell of a finished run beside its models, by name: an optimum's bound, say."""
        return {}


def choose(
    view: FederationView, state: State, candidates: Ids, purpose: str, *key: int, start: Ids | None = None
) -> Ids:
    """The configured selection among ``candidates`` (ascending, all with training rows).

    ``start [N]`` names the bank row that each hospital would start from (None: the global model). Raises
    ``ValueError`` where that is none: the server has no such model to send with a question.
    """
    if start is not None and (start[candidates] < 0).any():
        raise ValueError("start: a selection needs rows of the bank, not OWN or MIXTURE")
    if view.available is not None:
        candidates = candidates[view.available[candidates]]
    if not len(candidates):
        return candidates

    def losses(ids: Ids) -> Floats:
        rows = np.zeros_like(ids) if start is None else start[ids]
        told = np.empty(len(ids))
        for row in np.unique(rows):
            # No hospital is sent a model that it would not start from.
            theirs = rows == row
            told[theirs] = np.concatenate(view.ask(MeanLoss(), models=state.bank[row][None, :], ids=ids[theirs]))
        return told

    draw = Draw(candidates, view.sizes[candidates], view.rng(purpose, *key), view.memory, losses)
    return view.selection.pick(draw)


def shares(sizes: Ids) -> Floats:
    """``n_i / sum n_j``, the weights of federated averaging, ``[H]``."""
    return sizes / max(int(sizes.sum()), 1)


def at_least(field: str, value: float, bound: float, *, finite: bool = True) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value >= bound``, and where ``finite`` below infinity."""
    if not value >= bound:
        raise ValueError(f"{field}: {value} is not at least {bound}")
    if finite and math.isinf(value):
        raise ValueError(f"{field}: {value} is not finite; it must be at least {bound}")


def within(field: str, value: float, low: float, high: float) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``low <= value <= high``."""
    if not low <= value <= high:
        raise ValueError(f"{field}: {value} is not between {low} and {high}")


def one_of(field: str, value: str, known: Sequence[str]) -> None:
    """Raise ``ValueError`` naming ``field`` unless ``value`` is among the ``known``."""
    if value not in known:
        raise ValueError(f"{field}: '{value}' is not one of {', '.join(known)}")


def own_state(state: State, kind: type[S]) -> S:
    """``state``, which is of the ``kind`` that the strategy set up."""
    if not isinstance(state, kind):
        raise TypeError(f"{type(state).__name__} is not the state that this strategy set up")
    return state
