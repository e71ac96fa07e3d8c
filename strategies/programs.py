"""Client programs: what a strategy lets hospitals compute, as named state in and named sums out.

A round of a strategy is a generator (:meth:`raysim.strategies.base.Strategy.round`) that yields calls. A
:class:`Call` sends a :class:`Program` and some arrays to some hospitals; each runs the program on its own rows and its
own memory; what comes back is :class:`Answers`. A program declares by name what leaves a hospital (:class:`Send`) and
what stays there (:class:`Keep`) before it has seen a row, so that the engine can add, mask and count it.

- Named sums are added as whole numbers of a grid: any placement of hospitals gives the same bits.
- Within a round a hospital's memory changes from call to call. A hospital whose answer is lost changes nothing.
- Random numbers depend on the seed, the program's name, a purpose, the round, the turn and the hospital alone.

Shapes: ``N`` hospitals in the federation, ``H`` that are called, ``n`` rows of one of them, ``F`` features, ``P``
scalars of a model, ``G`` groups of hospitals.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.problem import Floats, Ids, Mask, Update

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Bound:
    """How far one unit moves a sum at most: what it adds is shortened to this length; what is no number counts as 0.

    A guarantee of privacy rests on it: hospitals then add noise in proportion to ``l2``. What a row adds may depend on
    that row and on what was received alone, and what a hospital adds on its own rows.
    """

    unit: Literal["row", "patient", "hospital"]
    """What is bounded. Rows and patients are where arrays are given ``by`` row; a patient's rows are added first. Under
    a guarantee for patients, what is bounded by row is bounded by patient."""
    l2: float
    """The greatest 2-norm of what one unit adds."""


@dataclass(frozen=True)
class Send:
    """One named array that leaves a hospital."""

    shape: tuple[int, ...] = ()
    """Of what one hospital sends, or of what one row adds where ``by`` is ``row``; ``()`` is a number."""
    kind: str = "update"
    """What the egress ledger calls it."""
    how: Literal["summed", "each"] = "summed"
    """Whether the server receives the sum over hospitals, or what each of them sends."""
    by: Literal["hospital", "row"] = "hospital"
    """``row``: the program gives ``[n, *shape]`` and the hospital adds its rows on the grid, so that pooled rows and
    hospitals have the same sum to the last bit."""
    groups: int = 1
    """Into how many sums hospitals are divided; a hospital's array goes into the sum :attr:`Reply.group`."""
    bits: int = 44
    """The grid of sums is ``2^-bits``; 0 for counts."""
    largest: float | None = None
    """Every entry (of a row, where ``by`` is ``row``) is below it in magnitude; None: as large as the sum can hold."""
    bound: Bound | None = None
    """How far one unit moves the sum at most; None: it is not bounded."""
    joint: str = ""
    """Arrays with the same word here are shortened together, as one vector, and have one bound."""


@dataclass(frozen=True)
class Keep:
    """One named array that a hospital remembers. The name ``model`` is the hospital's own model ``[P]``, which
    ``OWN`` serves; it is kept in the run's precision. Of a name that local training also sends, a hospital keeps under
    a guarantee of privacy the sum of all that it has sent."""

    shape: tuple[int | Literal["n"], ...] = ()
    """``n`` stands for the hospital's number of training rows."""
    dtype: str = "f8"


@dataclass(frozen=True, eq=False)
class Rows:
    """The training rows of one hospital; arrays are not to be written to."""

    X: Array
    """Preprocessed features, ``[n, F]``; the first ``D`` columns are values and the rest flags."""
    y: Array
    """Class indices or real labels, ``[n]``."""
    observed: Mask
    """Whether a value was recorded, ``[n, D]``."""
    weights: Floats | None = None
    """The factor of each row's loss by its class, ``[n]``; None: all are 1."""
    patients: Callable[[], Mapping[str, Array]] = dict
    """``patients()``: the attributes that the data knows, each ``[n]``."""


class Trained(NamedTuple):
    """What local training has come to."""

    theta: Floats
    """The parameters, ``[P]``."""
    steps: int
    """How many batches were used."""


class LocalModel(Protocol):
    """The run's model on one hospital's rows; ``theta [P]``, and ``rows`` are indices of rows (None: all)."""

    @property
    def parameters(self) -> Mapping[str, slice]:
        """The slice of each tensor in ``theta``."""
        ...

    @property
    def trained(self) -> int:
        """How many of ``theta``'s first entries have a gradient; behind them are statistics that a model measures."""
        ...

    @property
    def batch_size(self) -> int:
        """As configured; 0 is all rows."""
        ...

    @property
    def epochs(self) -> int:
        """As configured."""
        ...

    @property
    def learning_rate(self) -> float:
        """As configured."""
        ...

    def outputs(self, theta: Floats, rows: Ids | None = None) -> Array:
        """Log-odds of class 1 or predictions ``[n]``; of more than two classes logits ``[n, C]``."""
        ...

    def loss(self, theta: Floats, rows: Ids | None = None) -> float:
        """The mean loss of the rows, weighted by class as in training, without weight decay."""
        ...

    def gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """The gradient ``[P]`` of what training minimises on a batch of these rows, weight decay included.

        It is 0 for statistics that a model measures as it trains, and without rows.
        """
        ...

    def rows_gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """The gradient of each row's loss, ``[n, P]``, without weight decay."""
        ...

    def batches(self, epochs: int | None = None, size: int | None = None) -> Iterator[Ids]:
        """The rows of each batch of ``epochs`` epochs; None: as configured. In the first call of a round these are the
        batches of federated averaging in that round, so that methods differ by what they do and not by their draws."""
        ...

    def train(
        self,
        theta: Floats,
        *,
        epochs: int | None = None,
        learning_rate: float | None = None,
        proximal: Sequence[tuple[float, Floats]] = (),
        linear: Floats | None = None,
        frozen: Mask | None = None,
    ) -> Trained:
        """The configured local training from ``theta``, on these batches.

        It adds ``sum_j weight_j/2 * |theta - towards_j|^2`` for the ``proximal`` ``(weight_j, towards_j [P])`` and
        ``linear . theta`` to the loss; parameters ``frozen [P]`` stay.
        """
        ...


class Context(Protocol):
    """What a program sees at one hospital."""

    @property
    def rows(self) -> Rows:
        """Its training rows."""
        ...

    @property
    def model(self) -> LocalModel:
        """The run's model on these rows."""
        ...

    @property
    def memory(self) -> Mapping[str, Array]:
        """What the program has kept here, by name; empty at first."""
        ...

    @property
    def received(self) -> Mapping[str, Array]:
        """What the call brought."""
        ...

    @property
    def hospital(self) -> int:
        """The hospital's id."""
        ...

    @property
    def round(self) -> int:
        """The round, 1, 2, ..."""
        ...

    @property
    def turn(self) -> int:
        """How many calls of a program of this name came before in the round."""
        ...

    def rng(self, purpose: str, *key: int) -> np.random.Generator:
        """The hospital's own random stream for a purpose of this program, in this round and turn."""
        ...

    def cache(self, name: str, make: Callable[[], Array], of: bytes = b"") -> Array:
        """What ``make`` makes of the rows, made once by this process as long as there is room; no checkpoint has it.

        ``name`` and ``of`` say all that it depends on beside the hospital's rows. Of one name only the last is kept:
        what is wanted ``of`` something else takes its place.
        """
        ...


@dataclass(eq=False)
class Reply:
    """What a program makes at one hospital."""

    sent: Mapping[str, Any]
    """What leaves it: all that the program declares, by name."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """What it remembers from now on, by name; what is left out stays as it was."""
    group: int = 0
    """The sum that the hospital's arrays go into, where there are several."""


@dataclass(frozen=True, eq=False)
class Added:
    """The sums of some hospitals together."""

    sums: Mapping[str, Any]
    """All that the program declares, by name."""
    hospitals: int
    """How many hospitals they are of."""
    group: int = 0
    """The sum that they go into, where there are several."""


class Program:
    """Something that hospitals compute. Derive from it, make it a frozen dataclass of plain values and arrays, and
    define ``sends`` and ``run``. It travels to the hospitals, so its class must be one that they can import."""

    name: str = ""
    """Its name, which keys its random streams; calls of programs of one name are turns of one another."""

    @property
    def sends(self) -> Mapping[str, Send]:
        """What leaves a hospital, by name."""
        raise NotImplementedError

    @property
    def keeps(self) -> Mapping[str, Keep]:
        """What a hospital remembers, by name."""
        return {}

    @property
    def remembers(self) -> bool:
        """Whether a hospital remembers anything new; if not, it only reads what it ``keeps``."""
        return bool(self.keeps)

    def run(self, at: Context) -> Reply:
        """What one hospital makes of its rows. It depends on ``at`` alone."""
        raise NotImplementedError

    def run_many(self, contexts: Sequence[Context]) -> Sequence[Reply]:
        """As :meth:`run` for some hospitals at once, for programs that are faster together. How hospitals are put
        together must not change a bit."""
        return [self.run(at) for at in contexts]

    def run_added(self, contexts: Sequence[Context]) -> tuple[Sequence[Added], Sequence[Mapping[str, Any]]]:
        """The sums of some hospitals at once and what each remembers, for programs that add rows faster together.

        It is used where nothing hides or bounds what a hospital sends by itself, and must come to the same bits.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Call:
    """A program that the server sends to hospitals."""

    program: Program
    """What they compute."""
    received: Mapping[str, Any]
    """The arrays that each of them receives."""
    ids: Ids
    """Who is called: ascending ids, or ``[POOLED]``."""
    each_of: Mapping[str, Any] = field(default_factory=dict)
    """Arrays ``[H, ...]`` of which each hospital receives its own row."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What came back from a call. Where nobody answered, sums and counts are 0."""

    sums: Mapping[str, Array]
    """By name, the sum over hospitals ``[*shape]``, or over those of each group ``[G, *shape]``. The secure sum of too
    few hospitals is 0, and so is its count."""
    each: Mapping[str, Array]
    """By name, what each hospital sent, ``[H, *shape]`` in the order of ``ids``."""
    ids: Ids
    """Who answered, ascending."""
    counts: Ids
    """How many answered in each group, ``[G]``."""


class TrainLocally:
    """The built-in call: the configured local training of the hospitals that :meth:`Strategy.select` names, on what
    :meth:`Strategy.problem` says. Its answer is an :class:`Update`, or None where nobody could take part."""


Calls: TypeAlias = "Generator[Call | TrainLocally, Any, Any]"
"""A strategy's round: yields calls, receives :class:`Answers` (of :class:`TrainLocally` an ``Update | None``), and
returns the next state."""

Answer: TypeAlias = "Answers | Update | None"
