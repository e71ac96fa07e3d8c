"""The arguments of a strategy's methods: the server's view of the federation, the selection, and the state.

Shapes: ``N`` hospitals in the federation, ``H`` in the cohort, ``P`` scalars of a model, ``M`` models of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.core.early_stopping import Stop
from raysim.strategies.fields import Settings
from raysim.strategies.problem import Floats, Ids, Mask, Update
from raysim.strategies.programs import Caller
from raysim.trees.settings import TreeTask


@dataclass(frozen=True)
class Training:
    """The model of a run, and the settings of its training."""

    parameters: Mapping[str, slice]
    """The slice of each tensor in the model's parameter vector, by the tensor's name, in the order of the vector."""
    optimizer: str
    """The configured optimiser's name."""
    classes: int = 2
    """The number of classes of the label; 0 if the label is a number."""
    link: str = "identity"
    """The model's link function: ``identity``, or ``log`` if the model predicts the mean of a count."""
    weighted: bool = False
    """Whether each row's loss has a weight that depends on the row's class."""
    noisy: bool = False
    """Whether a privacy guarantee is configured, so that sums have noise."""
    patients: Callable[[], Mapping[str, NDArray[Any]]] = dict
    """A function that returns the attributes of all rows' patients by name, each with one value per row, ``[n]``."""
    trees: TreeTask | None = None
    """The task of growing trees (label, columns, settings); None if the model is not boosted trees."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """The declared limits of each feature's values, ``[F]``; see :attr:`FederationView.ranges`."""


@dataclass(frozen=True, eq=False)
class Draw:
    """What a selection receives when it samples hospitals: the candidates, and the information that it may use."""

    candidates: Ids
    """The ids of the C candidates, ``[C]``, ascending."""
    sizes: Ids
    """The number of training rows of each candidate, ``[C]``, at least 1."""
    rng: np.random.Generator
    """The random generator for this sample."""
    memory: Any
    """The last result of :meth:`Selection.observe`; in the first round, the result of :meth:`Selection.setup`."""
    losses: Callable[[Ids], Floats]
    """A function that calls the candidates with the given ids and returns each one's mean training loss,
    ``[len(ids)]``, under the model from which the candidate would start training.
    """


class Selection(Settings):
    """A rule for client sampling. To define one, derive a frozen dataclass from this class and define ``pick``."""

    uses_losses: ClassVar[bool] = False
    """Whether participants also send their mean training loss under the model that they received."""

    def check_training(self, training: Training) -> None:
        """Raise ``ValueError`` if the selection cannot be used with these training settings."""

    def setup(self, view: FederationView) -> Any:
        """Return the selection's memory before the first round: plain values and arrays.

        The method may call hospitals.
        """
        return None

    def rate(self) -> float | None:
        """Return the probability with which each candidate is sampled independently (Poisson sampling); None for other
        sampling.

        Privacy guarantees for hospitals depend on this probability.
        """
        return None

    def pick(self, draw: Draw) -> Ids:
        """Return the sampled hospitals: ascending ids among the candidates."""
        raise NotImplementedError

    def observe(self, memory: Any, update: Update) -> Any:
        """Return the selection's memory after a round; ``memory`` is the memory before the round."""
        return memory


@dataclass(frozen=True)
class Noise:
    """The noise that a privacy guarantee adds to sums from client programs."""

    clip: float
    """``privacy.clip``: strategies should declare this bound, or a smaller one, for their programs' sums."""
    multiplier: float
    """The standard deviation of the noise on each number of a sum, as a multiple of the declared bound."""


@dataclass(frozen=True, eq=False)
class FederationView:
    """What the server knows about the federation, and the functions with which it can call hospitals."""

    names: tuple[str, ...]
    """The hospitals' names, in the order of their ids."""
    sizes: Ids
    """The number of training rows of each hospital, ``[N]``."""
    classes: int
    """The number of classes of the label; 0 if the label is a number."""
    initial: Floats
    """The initial parameters, ``[P]``."""
    local_epochs: int
    """The configured number of local epochs."""
    learning_rate: float
    """The configured learning rate."""
    selection: Selection
    """The configured selection."""
    memory: Any
    """The selection's memory; see :attr:`Draw.memory`."""
    rng: Callable[..., np.random.Generator]
    """A function ``rng(purpose, *key)`` that returns the random generator of the run's seed, the purpose and the
    key."""
    call: Caller
    """A function that sends a call to hospitals; see :data:`Caller`."""
    columns: int = 0
    """D, the number of features that are values. The first D features are values; the others flag missing values."""
    noisy: Callable[[str], bool] = lambda kind: False
    """A function that tells whether hospitals add noise to a kind of statistics (``privacy.statistics``). If it returns
    True, programs must send the statistics with ``how="each"``, ``by="row"`` and a bound.
    """
    parameters: Mapping[str, slice] = field(default_factory=dict)
    """The slice of each tensor in the model's parameter vector, by the tensor's name, in the order of the vector."""
    measured: frozenset[str] = frozenset()
    """The names of the tensors without a gradient, which are measured in training, such as running statistics."""
    available: Mask | None = None
    """Whether each hospital can be sampled now, ``[N]``; None: all can."""
    staleness: Ids | None = None
    """How often the global model has changed since each hospital received it, ``[N]``; 0 for hospitals that are not in
    the cohort. None for synchronous rounds."""
    round_seconds: Floats | None = None
    """The duration of a round at each hospital in virtual seconds, ``[N]``; None without a virtual clock."""
    round: int = 0
    """The current round (1, 2, ...); 0 before the first round."""
    rounds: int = 0
    """The configured maximal number of rounds."""
    most_calls: int = 0
    """The largest number of calls that a strategy may make in a round; a further call is an error."""
    link: str = "identity"
    """The link of the model; see :attr:`Training.link`."""
    hides: bool = False
    """Whether the server may learn only sums over all hospitals. If so, programs of a round may not send arrays with
    ``how="each"``. A choice that depends on one hospital must be made at the hospital, in a program
    (:attr:`LocalProblem.program`)."""
    optimizer: str = "sgd"
    """The configured optimiser's name."""
    momentum: float = 0.0
    """The momentum coefficient of the configured optimiser; 0 for optimisers without momentum."""
    batch_size: int = 0
    """The configured batch size; 0 means all rows."""
    noise: Noise | None = None
    """The noise on sums of client programs; None without a privacy guarantee."""
    trees: TreeTask | None = None
    """The task of growing trees (label, columns, settings); None if the model is not boosted trees."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """The declared smallest and largest value of each feature, ``[F]``; None for a feature that is scaled or has no
    declared limits."""
    stop: Stop | None = None
    """``training.stop``; None: no early stopping."""
    checked: Mask | None = None
    """Whether each hospital has validation rows, ``[N]``; None without early stopping."""
    least_members: int = 1
    """The minimum number of hospitals with training rows in a cluster; strategies merge smaller clusters."""

    @property
    def everyone(self) -> Ids:
        """Return the ids of all hospitals, ascending."""
        return np.arange(len(self.sizes))

    @property
    def trainable(self) -> Ids:
        """Return the ids of the hospitals with training rows, ascending."""
        return np.flatnonzero(self.sizes > 0)

    @property
    def local_steps(self) -> Ids:
        """Return the number of mini-batches that each hospital trains on in a round, ``[N]``; 0 for hospitals without
        training rows."""
        batches = -(-self.sizes // self.batch_size) if self.batch_size else (self.sizes > 0).astype(np.int64)
        return np.asarray(self.local_epochs * batches)

    @property
    def present(self) -> Ids:
        """Return the ids of the hospitals that have training rows and can be sampled now, ascending."""
        ids = self.trainable
        return ids if self.available is None else ids[self.available[ids]]


@dataclass(frozen=True, eq=False)
class State:
    """A strategy's state between rounds. Strategies with more state derive from this class."""

    models: Floats
    """The server's models ``[M, P]``, with the global model in row 0."""
    cluster: Ids | None = None
    """The index of each hospital's cluster model in ``models``, ``[N]``; None for strategies without clusters."""
