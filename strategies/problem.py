"""What each hospital minimises in a round, how it trains, and what it sends back.

Shapes: ``H`` hospitals in the cohort, ``P`` scalars of a model, ``M`` models of the server, ``G`` sums that hospitals'
deltas go into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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
    NEAREST = -5


POOLED = HospitalSentinel.POOLED
"""The rows of all hospitals together, as if they were one hospital's: a cohort of its own."""

OWN = RowSentinel.OWN
"""The parameters that the hospital kept. Until it has kept some: its mixture of the server's models, for strategies
that have one, else row 0."""

MIXTURE = RowSentinel.MIXTURE
"""The hospital's mixture of the server's models (:meth:`raysim.strategies.base.Strategy.mixture`)."""

LAST = RowSentinel.LAST
"""The final parameters of the problem before this one (:attr:`LocalProblem.then`)."""

NEAREST = RowSentinel.NEAREST
"""The model row, out of 1 to G (one for each sum), with the least mean loss on the hospital's training rows; ties go to
the first. Only the hospital knows which row it is: it sends its delta into that row's sum and zeros into all others."""


class Message(Protocol):
    """How a hospital transforms its delta before sending it, together with some numbers that are summed like it.

    The message object travels to the hospitals, so it is small and its fields are plain values. It lets the server
    learn from sums alone what would otherwise need the updates of single hospitals.
    """

    @property
    def numbers(self) -> int:
        """E, the number of numbers sent with the vector."""
        ...

    @property
    def counts(self) -> bool:
        """Whether the numbers are always a single 1 among zeros."""
        ...

    def made(self, delta: Floats, group: int, loss: float) -> tuple[Floats, Floats]:
        """The vector ``[P]`` and the numbers ``[E]`` of a hospital whose ``delta [P]`` goes into sum ``group``.

        ``loss``: the mean loss of its training rows under the model that it started from.
        """
        ...


@dataclass(frozen=True, eq=False)
class Proximal:
    """A proximal term ``weight/2 * |theta - towards|^2``."""

    weight: float | Floats
    """One weight for all hospitals, or ``[H]``; at least 0."""
    towards: Ids
    """The row of ``State.models`` that the term is towards, ``[H]``."""


@dataclass(frozen=True, eq=False)
class Variates:
    """Control variates (SCAFFOLD): ``server - own`` is added to the gradient of every step, then ``own`` is updated.

    Each hospital keeps its own variate, 0 at first, and sends the change of it beside its upload.
    """

    server: Floats
    """The server's variate ``[P]``."""
    weight: Floats
    """The factor of each hospital's change in :attr:`Update.variates`, ``[H]``."""
    renew: Literal["steps", "gradient"] = "steps"
    """How ``own`` is updated: by the ``steps``, ``own - server + (start - end) / (steps * learning rate)``, or as the
    full-batch ``gradient`` at the start."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """A contrastive term (MOON): ``weight`` times the mean over a batch of
    ``softplus((cos(z, z_own) - cos(z, z_start)) / temperature)``.

    ``z`` is the representation of a row, the input of the last layer, by the model being trained; ``z_start`` that by
    the model that the hospital started from; ``z_own`` that by its kept model (``z_start`` until it has kept one).
    """

    weight: float
    temperature: float


@dataclass(frozen=True, eq=False)
class Objective:
    """What a hospital minimises: the mean loss of its training rows, and these terms."""

    proximal: tuple[Proximal, ...] = ()
    """Proximal terms."""
    variates: Variates | None = None
    """Control variates; only in the problem that a local update begins with, which then uploads."""
    contrast: Contrast | None = None
    """A contrastive term."""
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
    message: Message | None = None
    """How a hospital transforms its delta first; None: the hospital sends the delta itself, and no numbers."""


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
    """The model row that each hospital starts from, ``[H]``, or ``OWN``, ``MIXTURE`` or ``NEAREST`` (then all do); in
    ``then`` also ``LAST``."""
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

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """This problem and those that follow it, in order."""
        return (self,) if self.then is None else (self, *self.then.chain)

    @property
    def sent(self) -> Upload | None:
        """The upload of the whole chain; None: nothing leaves a hospital."""
        return next((phase.upload for phase in self.chain if phase.upload is not None), None)

    @property
    def chosen(self) -> bool:
        """Whether hospitals choose by themselves the model that they start from."""
        return bool((self.start == NEAREST).any())

    @property
    def keeps(self) -> bool:
        """Whether a hospital remembers anything of the chain."""
        return any(
            phase.training.keep or phase.training.carry or phase.objective.variates is not None for phase in self.chain
        )

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
    variates: Floats | None = None
    """The weighted sum of the changes of control variates, ``[P]``, where there are some."""
    numbers: Floats | None = None
    """The weighted sums of the numbers that hospitals' messages added, ``[E]``, where there are some."""
    problem: LocalProblem | None = None
    """The problem that hospitals minimised."""
