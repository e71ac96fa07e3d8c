"""What each hospital minimises in a round, how it trains, and what it sends back.

A delta is the difference between a hospital's parameters after and before its local training.

Shapes: ``H`` hospitals in the cohort of a round, ``P`` scalars of a model, ``M`` models of the server, ``G`` sums to
which hospitals' deltas are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Floats as Floats
from raysim.core.arrays import Ids as Ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raysim.strategies.programs import Program

Mask = NDArray[np.bool_]


class HospitalSentinel(IntEnum):
    """A special value in place of a hospital's id: ``POOLED``, one pseudo-hospital that has the rows of all
    hospitals."""

    # It is part of the key of batches' random streams: another value would give other batches.
    POOLED = -1


class RowSentinel(IntEnum):
    """A special value in place of the index of a model of the server. Only fields whose description names the value
    accept it."""

    OWN = -2
    MIXTURE = -3
    LAST = -4


POOLED = HospitalSentinel.POOLED
"""A cohort of one pseudo-hospital that has the rows of all hospitals."""

OWN = RowSentinel.OWN
"""The parameters stored at the hospital. Before it has stored parameters, ``OWN`` is its mixture of the server's
models, or row 0 for strategies without a mixture."""

MIXTURE = RowSentinel.MIXTURE
"""The hospital's mixture of the server's models (:meth:`raysim.strategies.base.Strategy.mixture`)."""

LAST = RowSentinel.LAST
"""The final parameters of the problem before this one (:attr:`LocalProblem.then`)."""

DELTA = "delta"
"""The name of the delta that a training program sends: ``[P]``, or ``[G, P]`` if the hospital contributes to every
sum."""


@dataclass(frozen=True, eq=False)
class Proximal:
    """A term ``weight/2 * |theta - towards|^2`` that draws a hospital's parameters ``theta`` towards one of the
    server's models."""

    weight: float | Floats
    """The weight: one number for all hospitals, or ``[H]``; at least 0."""
    towards: Ids
    """The row of ``State.models`` towards which each hospital's parameters are drawn, ``[H]``."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a hospital minimises: the mean loss of its training rows, plus the terms that the fields describe."""

    proximal: tuple[Proximal, ...] = ()
    """The proximal terms."""
    contrast: tuple[float, float] | None = None
    """The weight and the temperature of a contrastive term (MOON): ``weight`` times the mean over a batch of
    ``softplus((cos(z, z_own) - cos(z, z_start)) / temperature)``. ``z`` is the representation of a row (the input of
    the last layer) by the model being trained. ``z_start`` is its representation by the model that the hospital started
    from. ``z_own`` is its representation by the hospital's stored model. Before a model is stored, ``z_own`` equals
    ``z_start``."""
    frozen: Mask | None = None
    """A mask ``[P]`` of the parameters that are not trained."""


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """How a hospital trains. If a field is None, the value of the run's configuration applies."""

    epochs: int | Ids | None = None
    """Passes over the training rows: one number for all hospitals, or ``[H]``."""
    learning_rate: float | None = None
    """The optimiser's learning rate."""
    batch_size: int | None = None
    """Rows in a mini-batch; 0 means all rows."""
    optimizer: Literal["sgd", "momentum", "adam"] | None = None
    """The optimiser's name."""
    keep: bool = False
    """Whether the hospital stores the resulting parameters as its own model."""
    carry: bool = False
    """Whether the optimiser continues from its state after the last local update with ``carry``. Otherwise its state is
    reset."""


@dataclass(frozen=True, eq=False)
class Upload:
    """What a hospital sends after its local update. It also sends the number of its training rows."""

    weight: Floats | None = None
    """The weight of a hospital's vector in its sum, ``[H]``, or in each sum, ``[H, G]``. It is required unless the
    server receives each hospital's delta individually (``single``)."""
    sum_index: Ids | None = None
    """The sum to which each hospital's vector is added, ``[H]``; None means the first sum."""
    sums: int = 1
    """G, the number of sums to which hospitals' vectors are added."""
    what: Literal["delta", "parameters"] = "delta"
    """What is summed: the changes of the parameters in training, or the parameters after training."""
    single: bool = False
    """Whether the server also receives each delta individually, so that actors cannot add up deltas first."""
    losses: bool = False
    """Whether a hospital also sends its mean training loss under the model that it starts from."""
    extra_numbers: int = 0
    """How many numbers each hospital sends in addition to its vectors; the engine sets it."""
    extra_weight: Floats | None = None
    """The weight of everything that a program sends besides its delta, ``[H]``; None: the weight of the delta."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The groups of rows on which hospitals train separately, if each group of rows has its own model.

    A :class:`LocalProblem` has ``H`` entries, usually one for each hospital of the cohort. With row groups, each entry
    is a group of one hospital's rows, and a hospital has one entry for each group that it trains on. The method
    :meth:`raysim.strategies.base.Strategy.division` defines the groups.
    """

    hospital: Ids
    """The hospital of each entry, ``[H]``, ascending."""
    group: Ids
    """The group of rows of each entry, ``[H]``."""
    rows: Ids
    """The number of training rows of each entry, ``[H]``."""


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """What each of ``H`` hospitals minimises in a round, how it trains, and what it sends.

    Federated averaging is ``LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids])))``.
    """

    start: Ids
    """The model row from which each hospital starts, ``[H]``, or ``OWN`` or ``MIXTURE``; in ``then`` also ``LAST``."""
    upload: Upload | None = None
    """What each hospital sends, or None for nothing. At most one problem of a chain uploads."""
    objective: Objective = field(default_factory=Objective)
    """The terms that are added to the loss."""
    training: LocalTraining = field(default_factory=LocalTraining)
    """How hospitals train: epochs, rates, batches, and whether they store the result."""
    then: LocalProblem | None = None
    """The problem that the same hospitals minimise next, in the same local update."""
    groups: RowGroups | None = None
    """The groups of rows that form the ``H`` entries, or None if hospitals are the entries. Only the first problem of a
    chain sets it, for the whole chain."""
    program: Program | None = None
    """The program that each hospital runs in place of the configured training. It receives ``theta [P]``, the
    parameters that the hospital starts from, and sends its ``delta`` and the other arrays that it declares. All of them
    are weighted and summed."""
    received: Mapping[str, Any] = field(default_factory=dict)
    """The arrays that each hospital receives for its program in addition to ``theta``, by name."""

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """Return this problem and the problems that the same hospitals minimise after it (``then``), in order."""
        return (self,) if self.then is None else (self, *self.then.chain)

    @property
    def sent(self) -> Upload | None:
        """Return what hospitals send in this problem or in one that follows it; None if they send nothing."""
        return next((phase.upload for phase in self.chain if phase.upload is not None), None)

    @property
    def spread(self) -> bool:
        """Whether each hospital contributes to every sum of deltas, so that the server does not learn to which sum a
        hospital's delta belongs."""
        return self.program is not None and len(self.program.sends[DELTA].shape) > 1

    @property
    def extras(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the arrays that the client program sends in addition to the delta. Each array's name maps to its kind
        (its name in the record of traffic) and its shape."""
        sends = {} if self.program is None else self.program.sends
        return {name: (send.kind, send.shape) for name, send in sends.items() if name != DELTA}

    @property
    def extra_numbers(self) -> int:
        """Return how many numbers a hospital sends in addition to its vectors of model parameters."""
        sent = self.sent
        return 0 if sent is None else sent.extra_numbers + sum(math.prod(shape) for _, shape in self.extras.values())

    @property
    def keeps(self) -> bool:
        """Whether a hospital stores parameters, optimiser state or a program's arrays, in this problem or in one that
        follows it."""
        keeps = self.program is not None and bool(self.program.keeps)
        return keeps or any(phase.training.keep or phase.training.carry for phase in self.chain)

    def entries(self, ids: Ids) -> Ids:
        """Return the hospital of each of the problem's H entries, ``[H]``. These are the cohort ``ids`` or, if
        hospitals train on groups of their rows, the hospital of each group."""
        return ids if self.groups is None else self.groups.hospital


@dataclass(frozen=True, eq=False)
class Update:
    """What the server receives after local training."""

    ids: Ids
    """The hospital of each entry of the problem, ``[H]``."""
    sums: Floats
    """The weighted sums of hospitals' vectors, ``[G, P]``; zeros if nothing was sent."""
    deltas: Floats | None = None
    """Each hospital's delta, ``[H, P]``, if the upload requires ``single`` deltas."""
    losses: Floats | None = None
    """The mean training loss of each entry before training, ``[H]``, if the upload or the selection requires it."""
    numbers: Floats | None = None
    """The weighted sums of the numbers that hospitals sent in addition to their deltas, concatenated, ``[E]``."""
    problem: LocalProblem | None = None
    """The problem that hospitals minimised."""

    def extra(self, name: str) -> Floats:
        """Return the weighted sum over hospitals of the array ``name`` that the client program sent in addition to the
        delta."""
        if self.numbers is None or self.problem is None:
            raise TypeError(f"the update has no '{name}'")
        first = 0
        for each, (_, shape) in self.problem.extras.items():
            if each == name:
                return self.numbers[first : first + math.prod(shape)].reshape(shape)
            first += math.prod(shape)
        raise KeyError(name)
