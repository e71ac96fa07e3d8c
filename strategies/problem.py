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
    """A special value in place of a hospital's id."""

    # It is part of the key of batches' random streams: another value would give other batches.
    POOLED = -1


class RowSentinel(IntEnum):
    """A special value in place of the index of a model of the server. A field accepts such a value only if the field's
    description names the value."""

    OWN = -2
    MIXTURE = -3
    LAST = -4


POOLED = HospitalSentinel.POOLED
"""The id of a pseudo-hospital that has the rows of all hospitals."""

OWN = RowSentinel.OWN
"""The parameters that the hospital has stored. If the hospital has stored none, its ``MIXTURE``, or the model in row 0
if the strategy defines no mixture."""

MIXTURE = RowSentinel.MIXTURE
"""The hospital's mixture of the server's models (:meth:`raysim.strategies.base.Strategy.mixture`)."""

LAST = RowSentinel.LAST
"""The final parameters of the preceding problem (the one that has this problem in :attr:`LocalProblem.then`)."""

DELTA = "delta"
"""The name under which a training program sends its delta: ``[P]``, or ``[G, P]`` if the hospital contributes to each
of G sums."""


@dataclass(frozen=True, eq=False)
class Proximal:
    """A term ``weight/2 * |theta - towards|^2`` that draws a hospital's parameters ``theta`` towards one of the
    server's models."""

    weight: float | Floats
    """The weight, at least 0: one number for all hospitals, or one for each hospital, ``[H]``."""
    towards: Ids
    """The row of ``State.models`` towards which each hospital's parameters are drawn, ``[H]``."""


@dataclass(frozen=True, eq=False)
class Objective:
    """What a hospital minimises: the mean loss of its training rows, plus the terms that the fields describe."""

    proximal: tuple[Proximal, ...] = ()
    contrast: tuple[float, float] | None = None
    """The weight and the temperature of a contrastive term (MOON): ``weight`` times the mean over a batch of
    ``softplus((cos(z, z_own) - cos(z, z_start)) / temperature)``. A representation of a row is the input of the model's
    last layer: ``z`` by the model being trained, ``z_start`` by the model that the hospital started from, and ``z_own``
    by the hospital's stored model. Before a model is stored, ``z_own`` equals ``z_start``."""
    frozen: Mask | None = None
    """Whether each parameter keeps its value in training, ``[P]``; None: all parameters are trained."""


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """How a hospital trains. None means the configured value."""

    epochs: int | Ids | None = None
    """The number of passes over the training rows: one number for all hospitals, or one for each hospital, ``[H]``."""
    learning_rate: float | None = None
    batch_size: int | None = None
    """The number of rows in a mini-batch; 0 means all rows."""
    optimizer: Literal["sgd", "momentum", "adam"] | None = None
    """The optimiser's name."""
    keep: bool = False
    """Whether the hospital stores the resulting parameters as its own model."""
    carry: bool = False
    """Whether the hospital stores the optimiser's state after training, and starts with the state that it stored
    last."""


@dataclass(frozen=True, eq=False)
class Upload:
    """What a hospital sends after its local update, besides the number of its training rows."""

    weight: Floats | None = None
    """The weight of each hospital's vector (see ``what``) in its sum, ``[H]``, or in each of G sums, ``[H, G]``.
    Required unless ``single``."""
    sum_index: Ids | None = None
    """The index of the sum to which each hospital's vector is added, ``[H]``; None: the first sum."""
    sums: int = 1
    """G, the number of sums to which hospitals' vectors are added."""
    what: Literal["delta", "parameters"] = "delta"
    """What is summed: the changes of the parameters in training, or the parameters after training."""
    single: bool = False
    """Whether the server also receives each hospital's delta individually."""
    losses: bool = False
    """Whether a hospital also sends its mean training loss under the model that it starts from."""
    extra_numbers: int = 0
    """How many numbers each hospital sends besides its vectors and the arrays of a client program; set by the engine
    only."""
    extra_weight: Floats | None = None
    """The weight of all arrays that a hospital's client program sends besides the delta, ``[H]``. None: the weight of
    the delta; if the delta has G weights, the largest of these."""


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The groups of rows on which hospitals train separately, if each group of rows has its own model.

    A :class:`LocalProblem` then has ``H`` pairs of a hospital and a group of its rows, not ``H`` hospitals.
    :meth:`raysim.strategies.base.Strategy.division` defines the groups.
    """

    hospital: Ids
    """The id of the hospital in each pair, ``[H]``, ascending."""
    group: Ids
    """The index of the group in each pair, ``[H]``."""
    rows: Ids
    """The hospital's number of training rows in the group, ``[H]``."""


@dataclass(frozen=True, eq=False)
class LocalProblem:
    """What each of ``H`` hospitals minimises in a round, how it trains, and what it sends.

    Federated averaging is ``LocalProblem(start=np.zeros_like(ids), upload=Upload(shares(view.sizes[ids])))``.
    """

    start: Ids
    """The index of the server's model from which each hospital starts, ``[H]``, or ``OWN`` or ``MIXTURE``. In a problem
    that follows another one (``then``), it may also be ``LAST``."""
    upload: Upload | None = None
    """What each hospital sends; None: nothing. Of problems linked by ``then``, at most one has an upload."""
    objective: Objective = field(default_factory=Objective)
    training: LocalTraining = field(default_factory=LocalTraining)
    then: LocalProblem | None = None
    """The problem that the same hospitals minimise next, in the same local update."""
    groups: RowGroups | None = None
    """The groups of rows, if hospitals train on each group separately. Of problems linked by ``then``, only the first
    sets ``groups``, for all of them."""
    program: Program | None = None
    """The program that each hospital runs in place of the configured training. It receives ``theta [P]``, the
    parameters that the hospital starts from, and sends its ``delta`` and the other arrays that it declares. The server
    receives weighted sums of all arrays."""
    received: Mapping[str, Any] = field(default_factory=dict)
    """The arrays that each hospital receives for its program besides ``theta``, by name."""

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """Return this problem and the problems that follow it (``then``), in order."""
        return (self,) if self.then is None else (self, *self.then.chain)

    @property
    def sent(self) -> Upload | None:
        """Return what hospitals send in this problem or in one that follows; None: nothing."""
        return next((phase.upload for phase in self.chain if phase.upload is not None), None)

    @property
    def spread(self) -> bool:
        """Whether each hospital contributes to every sum of deltas, so that the server does not learn to which sum a
        hospital's delta belongs."""
        return self.program is not None and len(self.program.sends[DELTA].shape) > 1

    @property
    def extras(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Return the kind (:attr:`Send.kind`) and the shape of each array that the client program sends besides the
        delta."""
        sends = {} if self.program is None else self.program.sends
        return {name: (send.kind, send.shape) for name, send in sends.items() if name != DELTA}

    @property
    def extra_numbers(self) -> int:
        """Return how many numbers a hospital sends besides its vectors of model parameters."""
        sent = self.sent
        return 0 if sent is None else sent.extra_numbers + sum(math.prod(shape) for _, shape in self.extras.values())

    @property
    def keeps(self) -> bool:
        """Whether a hospital stores anything, in this problem or in one that follows."""
        keeps = self.program is not None and bool(self.program.keeps)
        return keeps or any(phase.training.keep or phase.training.carry for phase in self.chain)

    def entries(self, ids: Ids) -> Ids:
        """Return the cohort ``ids`` or, if hospitals train on groups of their rows, the hospital of each pair
        (:class:`RowGroups`), ``[H]``."""
        return ids if self.groups is None else self.groups.hospital


@dataclass(frozen=True, eq=False)
class Update:
    """What the server receives after local training."""

    ids: Ids
    """The ids of the hospitals that trained, ``[H]``, ascending; with groups of rows, an id occurs once for each of the
    hospital's groups."""
    sums: Floats
    """The weighted sums of hospitals' deltas or parameters, ``[G, P]``; zeros if nothing was sent."""
    deltas: Floats | None = None
    """Each hospital's delta, ``[H, P]``; None unless the upload requires ``single`` deltas."""
    losses: Floats | None = None
    """The mean training loss of each hospital, or group of rows, before training, ``[H]``. None unless the upload or
    the selection requires it."""
    numbers: Floats | None = None
    """The weighted sums of the E numbers that each hospital sent besides its vectors, ``[E]``; None if E is 0."""
    problem: LocalProblem | None = None
    """The problem that hospitals minimised."""

    def extra(self, name: str) -> Floats:
        """Return the weighted sum over hospitals of the array ``name`` that the client program sent."""
        if self.numbers is None or self.problem is None:
            raise TypeError(f"update: has no array '{name}'; send it with the problem's program")
        first = 0
        for each, (_, shape) in self.problem.extras.items():
            if each == name:
                return self.numbers[first : first + math.prod(shape)].reshape(shape)
            first += math.prod(shape)
        raise KeyError(name)
