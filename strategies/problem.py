"""What each hospital minimises in a round, how its visit goes, and what comes back of it.

Shapes: ``H`` hospitals in the cohort, ``P`` scalars of a model, ``M`` models in the bank, ``G`` sums that hospitals'
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
    """Stands where the id of a hospital is expected."""

    # The streams of batches are keyed by it: another value would be other batches.
    POOLED = -1


class RowSentinel(IntEnum):
    """Stands where a row of the bank is expected, in the fields that name it."""

    OWN = -2
    MIXTURE = -3
    LAST = -4
    NEAREST = -5


POOLED = HospitalSentinel.POOLED
"""The rows of all hospitals together, as if they were one hospital's: a cohort of its own."""

OWN = RowSentinel.OWN
"""The hospital's own kept parameters. Until it has kept some: its mixture of the bank, for strategies that have one,
else row 0."""

MIXTURE = RowSentinel.MIXTURE
"""The hospital's mixture of the bank (:meth:`raysim.strategies.base.Strategy.mixture`)."""

LAST = RowSentinel.LAST
"""The parameters that the problem before this one ended with (:attr:`LocalProblem.then`)."""

NEAREST = RowSentinel.NEAREST
"""Of the rows 1 to G, one for each of the problem's sums, that under which the mean loss of the hospital's training
rows is least, of several the first. The hospital alone knows which: what it sends goes into that one's sum, and zeros
into all others."""


class Message(Protocol):
    """What a hospital itself makes of its delta before this leaves, with numbers beside it, which are summed as it is.

    It travels to the hospitals, so it is small and its fields are plain values. By it the server can learn from sums
    alone what it would otherwise need single updates for.
    """

    @property
    def numbers(self) -> int:
        """E, how many numbers go with the vector."""
        ...

    @property
    def counts(self) -> bool:
        """Whether the numbers are a single 1 among zeros, whatever the data are."""
        ...

    def made(self, delta: Floats, group: int, loss: float) -> tuple[Floats, Floats]:
        """The vector ``[P]`` and the numbers ``[E]`` of a hospital whose ``delta [P]`` goes into sum ``group``.

        ``loss``: the mean of its training rows under the model that it started from.
        """
        ...


@dataclass(frozen=True, eq=False)
class Pull:
    """A proximal term ``weight/2 * |theta - towards|^2``."""

    weight: float | Floats
    """One for all hospitals, or ``[H]``; at least 0."""
    towards: Ids
    """The bank row that each is pulled to, ``[H]``."""


@dataclass(frozen=True, eq=False)
class Variates:
    """Control variates (SCAFFOLD): ``server - own`` is added to the gradient of every step, then ``own`` is renewed.

    Each hospital remembers its own, 0 at first, and sends its change beside its upload.
    """

    server: Floats
    """The server's variate ``[P]``."""
    weight: Floats
    """The factor of each hospital's change in :attr:`Update.variates`, ``[H]``."""
    renew: Literal["steps", "gradient"] = "steps"
    """From the steps that it made, ``own - server + (start - end) / (steps * learning rate)``, or as the full-batch
    gradient at its start."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """A contrastive term (MOON): ``weight`` times the mean over a batch of
    ``softplus((cos(z, z_own) - cos(z, z_start)) / temperature)``.

    ``z`` is what the model being trained makes of a row below its last layer, ``z_start`` what the model that the
    hospital started from makes of it, ``z_own`` what its kept one does (the former until it has kept one).
    """

    weight: float
    temperature: float


@dataclass(frozen=True, eq=False)
class Objective:
    """What a hospital minimises: the mean loss of its training rows, and these terms."""

    pulls: tuple[Pull, ...] = ()
    """Proximal terms."""
    variates: Variates | None = None
    """Control variates; only in the problem that a visit begins with, which then uploads."""
    contrast: Contrast | None = None
    """A contrastive term."""
    frozen: Mask | None = None
    """The parameters ``[P]`` that stay what they are."""


@dataclass(frozen=True, eq=False)
class Visit:
    """How a hospital goes about it. None means as configured."""

    epochs: int | Ids | None = None
    """Passes over its training rows: one number for all hospitals, or ``[H]``."""
    learning_rate: float | None = None
    """Of its optimiser."""
    batch_size: int | None = None
    """Rows in a mini-batch; 0 is all of them."""
    optimizer: Literal["sgd", "momentum", "adam"] | None = None
    """Which optimiser."""
    keep: bool = False
    """Whether it remembers its parameters afterwards, as its own model."""
    carry: bool = False
    """Whether its optimiser goes on where that of its last such visit stopped; else it is fresh."""


@dataclass(frozen=True, eq=False)
class Upload:
    """What leaves the hospital after its visit. The number of its training rows goes with it."""

    weight: Floats | None = None
    """The factor of what it sends in the sum that this goes into, ``[H]``, or in each of the sums, ``[H, G]``. Needed
    unless the server sees each hospital's delta by itself (``single``)."""
    into: Ids | None = None
    """Which of the sums that is, ``[H]``; the first of them where None."""
    sums: int = 1
    """G, how many sums there are."""
    what: Literal["delta", "parameters"] = "delta"
    """What is summed: the parameters after training less those before, or the parameters themselves."""
    single: bool = False
    """Whether the server also receives each delta by itself: actors cannot add them up before they travel."""
    losses: bool = False
    """Whether it also sends its mean training loss under the model that it starts from."""
    message: Message | None = None
    """What the hospital itself makes of its delta first; None: nothing, and no number goes with it."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Entries of a problem that are not the cohort's hospitals one by one, but groups of their rows: ``H`` of them.

    A hospital has an entry for each group that it trains on, out of those of
    :meth:`raysim.strategies.base.Strategy.division`.
    """

    hospital: Ids
    """The hospital of each entry, ``[H]``, ascending."""
    group: Ids
    """Its group of rows, ``[H]``."""
    rows: Ids
    """How many training rows are in it, ``[H]``."""


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """What each of ``H`` hospitals minimises in a round, how, and what leaves it.

    Federated averaging is ``LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids])))``.
    """

    start: Ids
    """The bank row that each hospital starts from, ``[H]``, or ``OWN``, ``MIXTURE`` or ``NEAREST`` (then all do); in
    ``then`` also ``LAST``."""
    upload: Upload | None = None
    """What leaves the hospital, or nothing. At most one problem of a chain uploads."""
    objective: Objective = field(default_factory=Objective)
    """What is minimised beside the loss."""
    visit: Visit = field(default_factory=Visit)
    """How: epochs, rates, batches, and whether the result is kept."""
    then: LocalProblem | None = None
    """The problem that the same hospitals minimise next, in the same visit."""
    groups: RowGroups | None = None
    """Where the ``H`` entries are groups of hospitals' rows; of the whole chain, so only in its first problem."""

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """This problem and those that follow it, in order."""
        return (self,) if self.then is None else (self, *self.then.chain)

    @property
    def sent(self) -> Upload | None:
        """What leaves a hospital after the whole chain, or None: nothing."""
        return next((phase.upload for phase in self.chain if phase.upload is not None), None)

    @property
    def chosen(self) -> bool:
        """Whether hospitals choose by themselves where they start."""
        return bool((self.start == NEAREST).any())

    @property
    def keeps(self) -> bool:
        """Whether a hospital remembers anything of the chain."""
        return any(
            phase.visit.keep or phase.visit.carry or phase.objective.variates is not None for phase in self.chain
        )

    def entries(self, ids: Ids) -> Ids:
        """The hospital of each entry, ``[H]``: the cohort ``ids`` one by one, or the hospitals of its groups."""
        return ids if self.groups is None else self.groups.hospital


@dataclass(frozen=True, eq=False)
class Update:
    """What came back from a round."""

    ids: Ids
    """Who took part, an id for each entry of the problem, ``[H]``."""
    sums: Floats
    """The weighted sums of what hospitals sent, ``[G, P]``; one of zeros where nobody sends."""
    deltas: Floats | None = None
    """Each hospital's delta, ``[H, P]``, where the upload asked for ``single`` ones."""
    losses: Floats | None = None
    """Each mean training loss before training, ``[H]``, where the upload or the selection asks for them."""
    variates: Floats | None = None
    """The weighted sum of what control variates changed by, ``[P]``, where there are some."""
    numbers: Floats | None = None
    """The weighted sums of the numbers that went with what hospitals sent, ``[E]``, where there are some."""
    problem: LocalProblem | None = None
    """What they minimised."""
