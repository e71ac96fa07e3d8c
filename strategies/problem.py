"""What each hospital minimises in a round, and what comes back of it.

Shapes: ``H`` hospitals in the cohort, ``P`` scalars of a model, ``G`` sums that hospitals' deltas go into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

OWN = -1
"""Stands for the hospital's own kept parameters, where a row of the bank is expected. Until it has kept some: its
mixture of the bank, for strategies that have one, else row 0."""

MIXTURE = -2
"""Stands for the hospital's mixture of the bank (:meth:`raysim.strategies.base.Strategy.mixture`), where a row of the
bank is
expected."""

LAST = -3
"""Stands for the parameters that the problem before this one ended with (:attr:`LocalProblem.then`)."""

POOLED = -1
"""Stands for the rows of all hospitals together, where a hospital is expected."""


@dataclass(frozen=True, eq=False)
class Pull:
    """A proximal term ``weight/2 * |theta - towards|^2``: ``weight`` one for all or ``[H]``, ``towards [H]`` rows."""

    weight: float | Floats
    towards: Ids


@dataclass(frozen=True, eq=False)
class Variates:
    """Control variates (SCAFFOLD): ``server - own`` is added to the gradient of every step, then ``own`` is renewed.

    ``server`` is the bank row of the server's variate; each hospital remembers its own (0 at first) and sends its
    change with factor ``weight [H]`` into the sum ``into``. ``renew``: from the ``steps`` that it made
    (``own - server + (start - end) / (steps * learning rate)``), or as the full-batch ``gradient`` at its start.
    """

    server: int
    weight: Floats
    into: int
    renew: Literal["steps", "gradient"] = "steps"


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
class LocalProblem:
    """What each of ``H`` hospitals minimises in a round, and where its delta goes.

    - ``start [H]``: the bank row it starts from, or ``OWN``, or ``MIXTURE``.
    - ``weight [H]``: the factor of its delta in the sum it goes into; needed where it is sent. ``[H, sums]``: its
      factor in each of the sums.
    - ``into [H]``: which of the ``sums`` sums that is (0 where None).
    - ``pulls``: proximal terms added to its loss.
    - ``epochs [H]`` or one for all, ``learning_rate``: None means as configured.
    - ``keep``: it remembers its parameters afterwards (its own model).
    - ``send``: what leaves the hospital, its ``delta`` or its ``parameters``, or nothing.
    - ``single``: the server must see each hospital's delta by itself; actors cannot add them up before they travel.
    - ``losses``: it also sends its mean training loss under the model that it starts from.
    - ``batch_size``, ``optimizer``: None means as configured.
    - ``frozen [P]``: the parameters that stay what they are.
    - ``variates``, ``contrast``: further terms.
    - ``then``: the problem that it minimises next, in the same visit; there a start may be ``LAST``. At most one
      problem of such a chain sends.
    - ``hospitals [H]``, ascending, and ``part [H]``: where entries are not the cohort's hospitals one by one. Each is a
      hospital with one group of its rows out of :meth:`raysim.strategies.base.Strategy.division` (all its rows where
      ``part`` is None). ``rows [H]``: how many training rows each has then.
    """

    start: Ids
    weight: Floats | None = None
    into: Ids | None = None
    sums: int = 1
    pulls: tuple[Pull, ...] = ()
    epochs: int | Ids | None = None
    learning_rate: float | None = None
    keep: bool = False
    send: Literal["delta", "parameters", "nothing"] = "delta"
    single: bool = False
    losses: bool = False
    batch_size: int | None = None
    optimizer: Literal["sgd", "momentum", "adam"] | None = None
    frozen: NDArray[np.bool_] | None = None
    variates: Variates | None = None
    contrast: Contrast | None = None
    then: LocalProblem | None = None
    hospitals: Ids | None = None
    part: Ids | None = None
    rows: Ids | None = None

    @property
    def chain(self) -> tuple[LocalProblem, ...]:
        """This problem and those that follow it, in order."""
        return (self,) if self.then is None else (self, *self.then.chain)


@dataclass(frozen=True, eq=False)
class Update:
    """What came back from a round.

    ``ids [H]``: who took part, an id for each entry of the problem. ``sums [G, P]``: the weighted sums of deltas.
    ``deltas [H, P]`` where the problem asked for ``single`` ones, ``losses [H]`` where the problem or the selection
    asks for them: each mean training loss before training. ``problem``: what they minimised.
    """

    ids: Ids
    sums: Floats
    deltas: Floats | None = None
    losses: Floats | None = None
    problem: LocalProblem | None = None
