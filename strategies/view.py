"""The arguments of a strategy: the federation as its server sees it, the selection, and the strategy's own state.

Shapes: ``N`` hospitals in the federation, ``H`` in the cohort, ``P`` scalars of a model, ``M`` models of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats, Ids, Mask, Update
from raysim.strategies.questions import Ask
from raysim.trees.settings import TreeTask


@dataclass(frozen=True)
class Training:
    """What a run trains, and how."""

    parameters: Mapping[str, slice]
    """The model's tensors by name, in order."""
    optimizer: str
    """The configured optimiser's name."""
    classes: int = 2
    """Of the label; 0 where it is a real number."""
    link: str = "identity"
    """What the model's outputs are of its linear parts: ``identity``, or ``log`` for means of counts."""
    weighted: bool = False
    """Whether losses are weighted by class."""
    noisy: bool = False
    """Whether a guarantee of privacy is asked for, so that sums have noise."""
    patients: Callable[[], Mapping[str, NDArray[Any]]] = dict
    """``patients()``: the attributes of all patients, as :class:`HospitalRows` gives those of one hospital."""
    trees: TreeTask | None = None
    """What trees are grown for, where the model is boosted trees; else None."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """As :attr:`FederationView.ranges`."""


@dataclass(frozen=True, eq=False)
class Draw:
    """The candidates of one draw of a selection, and what it may use to choose among them."""

    candidates: Ids
    """The ids of M hospitals, ``[M]``, ascending."""
    sizes: Ids
    """Their training rows, ``[M]``, each above 0."""
    rng: np.random.Generator
    """The stream of this draw."""
    memory: Any
    """What the selection remembers from earlier rounds."""
    losses: Callable[[Ids], Floats]
    """``losses(ids)`` asks these candidates for their mean training loss under the model that they would start from,
    ``[len(ids)]``."""


class Selection:
    """Which hospitals take part in a round. Derive from it, make it a frozen dataclass, and define ``pick``."""

    uses_losses: ClassVar[bool] = False
    """Whether participants also send their mean training loss under the model they received."""

    def check_training(self, training: Training) -> None:
        """As :meth:`Strategy.check_training`."""

    def setup(self, view: FederationView) -> Any:
        """What the selection remembers before the first round; may ask hospitals. Plain values and arrays only."""
        return None

    def rate(self) -> float | None:
        """The probability with which each candidate takes part independently (Poisson sampling); None: drawn otherwise.

        Privacy guarantees for hospitals depend on it.
        """
        return None

    def pick(self, draw: Draw) -> Ids:
        """Ascending ids out of the candidates."""
        raise NotImplementedError

    def observe(self, memory: Any, update: Update) -> Any:
        """What the selection remembers after a round."""
        return memory


@dataclass(frozen=True)
class Noise:
    """The noise that hides units in the sums of client programs, where a guarantee of privacy asks for it."""

    clip: float
    """``privacy.clip``: the bound that programs are to declare."""
    multiplier: float
    """The standard deviation of the noise on each number of a sum, in bounds."""


@dataclass(frozen=True, eq=False)
class FederationView:
    """What the server knows of the federation, and how it asks for more."""

    names: tuple[str, ...]
    """The hospitals' names, in order of their ids."""
    sizes: Ids
    """Training rows of each hospital, ``[N]``."""
    classes: int
    """Of the label; 0 where it is a real number."""
    initial: Floats
    """The common starting parameters, ``[P]``."""
    local_epochs: int
    """As configured."""
    learning_rate: float
    """As configured."""
    selection: Selection
    """As configured."""
    memory: Any
    """What the selection remembers from earlier rounds."""
    rng: Callable[..., np.random.Generator]
    """``rng(purpose, *key)``: a stream of the run's seed."""
    ask: Ask
    """``ask(question)``: one answer per hospital in id order; hospitals without training rows answer too."""
    parameters: Mapping[str, slice] = field(default_factory=dict)
    """The slice of each tensor in the model's parameters, by name and in order."""
    measured: frozenset[str] = frozenset()
    """The tensors that no gradient moves, such as running statistics."""
    available: Mask | None = None
    """Which hospitals can be selected now, ``[N]``; None where all are always there."""
    staleness: Ids | None = None
    """How often the global model has changed since each hospital of the cohort received it, ``[N]``; None: never."""
    round_seconds: Floats | None = None
    """How long a round takes each hospital, ``[N]``; None where no time passes."""
    round: int = 0
    """The present round (1, 2, ...), 0 before the first."""
    rounds: int = 0
    """The most rounds that the run may have, as configured."""
    most_calls: int = 0
    """The most calls that a round may make."""
    link: str = "identity"
    """As :attr:`Training.link`."""
    hides: bool = False
    """Whether the server may learn only sums over all hospitals. What programs send ``summed`` is then hidden but for
    its sum, and ``each`` is refused; hospitals choose and count by themselves (:attr:`LocalProblem.program`)."""
    optimizer: str = "sgd"
    """As configured."""
    momentum: float = 0.0
    """The coefficient of the configured optimiser's momentum; 0 where it has none."""
    batch_size: int = 0
    """As configured; 0 is all rows."""
    noise: Noise | None = None
    """The noise on sums of client programs; None without a guarantee of privacy."""
    trees: TreeTask | None = None
    """What trees are grown for, where the model is boosted trees; else None."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """The declared least and greatest value of each feature that is a number as it was recorded, ``[F]``."""
    least_members: int = 1
    """The fewest hospitals with training rows in a cluster; strategies merge smaller clusters."""
    _found: list[Ids] = field(default_factory=list, repr=False)
    """The last ``sizes`` and their trainable ids: views that differ in the round share it."""

    @property
    def trainable(self) -> Ids:
        """Ids of the hospitals that have training rows, ascending; not to be written to."""
        if not self._found or self._found[0] is not self.sizes:
            ids = np.flatnonzero(self.sizes > 0)
            ids.flags.writeable = False
            self._found[:] = [self.sizes, ids]
        return self._found[1]

    @property
    def local_steps(self) -> Ids:
        """How many batches the configured local training of each hospital takes in a round, ``[N]``; 0 without rows."""
        batches = -(-self.sizes // self.batch_size) if self.batch_size else (self.sizes > 0).astype(np.int64)
        steps: Ids = self.local_epochs * batches
        return steps

    @property
    def present(self) -> Ids:
        """Ids of the trainable hospitals that can be selected now, ascending."""
        ids = self.trainable
        return ids if self.available is None else ids[self.available[ids]]


@dataclass(frozen=True, eq=False)
class State:
    """The state of a strategy between rounds. Strategies with more state derive from this class."""

    models: Floats
    """The server's models ``[M, P]``, and nothing else; row 0 is the global one."""
    cluster: Ids | None = None
    """The model row of each hospital's cluster model, ``[N]``, or None for strategies without clusters."""
