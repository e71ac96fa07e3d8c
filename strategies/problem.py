"""What each hospital minimises in a round, how it trains, and what it sends back.

Shapes: ``H`` hospitals in the cohort, ``P`` scalars of a model, ``M`` models of the server, ``G`` sums that hospitals'
deltas go into.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raysim.strategies.programs import Program

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class HospitalSentinel(IntEnum):
    """A special value in place of a hospital's id."""

    # The streams of batches are keyed by it: another value would be other batches.
    POOLED = -1


class RowSentinel(IntEnum):
    """A special value in place of a model row, in the fields that mention it."""

    OWN = -2
    MIXTURE = -3
    LAST = -4


POOLED = HospitalSentinel.POOLED
"""The rows of all hospitals together, as if they were one hospital's: a cohort of its own."""

OWN = RowSentinel.OWN
"""The parameters that the hospital kept. Until it has kept some: its mixture of the server's models, for strategies
that have one, else row 0."""

MIXTURE = RowSentinel.MIXTURE
"""The hospital's mixture of the server's models (:meth:`raysim.strategies.base.Strategy.mixture`)."""

LAST = RowSentinel.LAST
"""The final parameters of the problem before this one (:attr:`LocalProblem.then`)."""

DELTA = "delta"
"""What a program that trains calls its delta: ``[P]``, or ``[G, P]`` where it has a part in every sum."""


@dataclass(frozen=True, eq=False)
class Proximal:
    """A proximal term ``weight/2 * |theta - towards|^2``."""

    weight: float | Floats
    """One weight for all hospitals, or ``[H]``; at least 0."""
    towards: Ids
    """The row of ``State.models`` that the term is towards, ``[H]``."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a hospital minimises: the mean loss of its training rows, and these terms."""

    proximal: tuple[Proximal, ...] = ()
    """Proximal terms."""
    contrast: tuple[float, float] | None = None
    """The weight and the temperature of a contrastive term (MOON): ``weight`` times the mean over a batch of
    ``softplus((cos(z, z_own) - cos(z, z_start)) / temperature)``. ``z`` is the representation of a row, the input of
    the last layer, by the model being trained; ``z_start`` that by the model that the hospital started from; ``z_own``
    that by its kept model (``z_start`` until it has kept one)."""
    frozen: Mask | None = None
    """A mask ``[P]`` of the parameters that are not trained."""


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """How a hospital trains. None means as configured."""

    epochs: int | Ids | None = None
    """Passes over its training rows: one number for all hospitals, or ``[H]``."""
    learning_rate: float | None = None
    """The optimiser's learning rate."""
    batch_size: int | None = None
    """Rows in a mini-batch; 0 is all of them."""
    optimizer: Literal["sgd", "momentum", "adam"] | None = None
    """The optimiser's name."""
    keep: bool = False
    """Whether it keeps the resulting parameters as its own model."""
    carry: bool = False
    """Whether its optimiser continues from the state of the last such local update; otherwise it starts afresh."""


@dataclass(frozen=True, eq=False)
class Upload:
    """What leaves the hospital after its local update. The number of its training rows goes with it."""

    weight: Floats | None = None
    """The weight of what a hospital sends in its sum, ``[H]``, or in each sum, ``[H, G]``. Required unless the server
    sees each hospital's delta by itself (``single``)."""
    sum_index: Ids | None = None
    """The sum that each hospital's vector goes into, ``[H]``; None: the first."""
    sums: int = 1
    """G, the number of sums."""
    what: Literal["delta", "parameters"] = "delta"
    """What is summed: the parameters after training less those before, or the parameters themselves."""
    single: bool = False
    """Whether the server also receives each delta by itself, so that actors cannot add them up before sending."""
    losses: bool = False
    """Whether a hospital also sends its mean training loss under the model that it starts from."""
    beside: int = 0
    """How many numbers the engine has hospitals send beside their vectors."""
    weight_beside: Floats | None = None
    """The weight of all that a program sends beside its delta, ``[H]``; None: that of the delta."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The ``H`` entries of a problem whose entries are groups of hospitals' rows rather than hospitals.

    A hospital has an entry for each group that it trains on; :meth:`raysim.strategies.base.Strategy.division` defines
    the groups.
    """

    hospital: Ids
    """The hospital of each entry, ``[H]``, ascending."""
    group: Ids
    """The group of rows of each entry, ``[H]``."""
    rows: Ids
    """The training rows in each entry, ``[H]``."""


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """What each of ``H`` hospitals minimises in a round, how it trains, and what it sends.

    Federated averaging is ``LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids])))``.
    """

    start: Ids
    """The model row that each hospital starts from, ``[H]``, or ``OWN`` or ``MIXTURE``; in ``then`` also ``LAST``."""
    upload: Upload | None = None
    """What leaves the hospital, or nothing. At most one problem of a chain uploads."""
    objective: Objective = field(default_factory=Objective)
    """The terms that are minimised beside the loss."""
    training: LocalTraining = field(default_factory=LocalTraining)
    """How hospitals train: epochs, rates, batches, and whether they keep the result."""
    then: LocalProblem | None = None
    """The problem that the same hospitals minimise next, in the same local update."""
    groups: RowGroups | None = None
    """The ``H`` entries where they are groups of rows; given by the first problem, for the whole chain."""
    program: Program | None = None
    """What each hospital runs in place of the configured training: it receives ``theta [P]``, the parameters that it
    starts from, and sends its ``delta`` and whatever else it declares; all of that is weighted and summed."""
    received: Mapping[str, Any] = field(default_factory=dict)
    """The arrays that each hospital receives for its program beside ``theta``, by name."""

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """This problem and those that follow it, in order."""
        return (self,) if self.then is None else (self, *self.then.chain)

    @property
    def sent(self) -> Upload | None:
        """The upload of the whole chain; None: nothing leaves a hospital."""
        return next((phase.upload for phase in self.chain if phase.upload is not None), None)

    @property
    def spread(self) -> bool:
        """Whether each hospital has a part in every sum, so that nobody sees which one its delta is for."""
        return self.program is not None and len(self.program.sends[DELTA].shape) > 1

    @property
    def extras(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The kind and the shape of what its program sends beside the delta, by name."""
        sends = {} if self.program is None else self.program.sends
        return {name: (send.kind, send.shape) for name, send in sends.items() if name != DELTA}

    @property
    def beside(self) -> int:
        """E, how many numbers a hospital sends beside its vectors."""
        sent = self.sent
        return 0 if sent is None else sent.beside + sum(math.prod(shape) for _, shape in self.extras.values())

    @property
    def keeps(self) -> bool:
        """Whether a hospital remembers anything of the chain."""
        keeps = self.program is not None and bool(self.program.keeps)
        return keeps or any(phase.training.keep or phase.training.carry for phase in self.chain)

    def entries(self, ids: Ids) -> Ids:
        """The hospital of each entry, ``[H]``: the cohort ``ids`` one by one, or the hospitals of its groups."""
        return ids if self.groups is None else self.groups.hospital


@dataclass(frozen=True, eq=False)
class Update:
    """What came back from a round."""

    ids: Ids
    """The hospital of each entry of the problem, ``[H]``."""
    sums: Floats
    """The weighted sums of what hospitals sent, ``[G, P]``; zeros where nobody sent anything."""
    deltas: Floats | None = None
    """Each hospital's delta, ``[H, P]``, where the upload asked for ``single`` ones."""
    losses: Floats | None = None
    """The mean training loss of each entry before training, ``[H]``, where the upload or the selection asks for it."""
    numbers: Floats | None = None
    """The weighted sums of what hospitals sent beside their deltas, one behind the other, ``[E]``."""
    problem: LocalProblem | None = None
    """The problem that hospitals minimised."""

    def beside(self, name: str) -> Floats:
        """The weighted sum of what a program sent beside its delta under this name."""
        if self.numbers is None or self.problem is None:
            raise TypeError(f"the update has no '{name}'")
        first = 0
        for each, (_, shape) in self.problem.extras.items():
            if each == name:
                return self.numbers[first : first + math.prod(shape)].reshape(shape)
            first += math.prod(shape)
        raise KeyError(name)
