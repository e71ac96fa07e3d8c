"""Client programs: computations at hospitals with declared inputs, memory and outputs.

A round of a strategy is a generator (:meth:`raysim.strategies.base.Strategy.round`) that yields calls. The strategy's
other methods may send calls with ``view.call``. A :class:`Call` sends a :class:`Program` and some arrays to some
hospitals. Each hospital runs the program on its own rows and its own memory. The server receives :class:`Answers`. A
program declares in advance, by name, what leaves a hospital (:class:`Send`) and what stays there (:class:`Keep`). The
engine can therefore add, mask and count what leaves.

- Numbers are added as whole multiples of a grid step. Sums are therefore the same, bit for bit, however hospitals are
  distributed over machines.
- Within a round a hospital's memory changes from call to call. If a hospital's answer to a call is lost, the hospital's
  memory stays as it was before this call.
- Random numbers depend only on the seed, the program's name, a purpose, the round, the turn (:attr:`Context.turn`) and
  the hospital.

Shapes: ``N`` hospitals in the federation, ``H`` called hospitals, ``n`` rows of one hospital, ``F`` features, ``P``
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
    """The largest change that one row, one patient or one hospital (the ``unit``) can make to a sum. A contribution
    with a larger norm than the bound is scaled down to the bound.

    A contribution that is not finite counts as 0. A privacy guarantee relies on the bound: hospitals add noise in
    proportion to the 2-norm ``l2``. A row's contribution may depend only on this row and on received values. A
    hospital's contribution may depend only on its own rows and on received values.
    """

    unit: Literal["row", "patient", "hospital"]
    """Whose contribution is bounded: each row's, each patient's or each hospital's. Rows and patients can be bounded
    only for arrays that are sent ``by`` row; a patient's rows are added up first. Under a privacy guarantee for
    patients, a bound for rows becomes a bound for patients."""
    l2: float
    """The largest 2-norm of the contribution of one row, patient or hospital."""
    l1: float | None = None
    """The largest 1-norm of the contribution of one row or patient, for Laplace noise on arrays sent ``each``. None:
    Laplace noise on such an array is refused."""


@dataclass(frozen=True)
class Send:
    """One named array that leaves a hospital."""

    shape: tuple[int, ...] = ()
    """The shape of one hospital's array, or of one row's contribution if ``by`` is ``row``; ``()`` means a single
    number."""
    kind: str = "update"
    """The name under which the egress ledger, the record of all that leaves hospitals, lists the array."""
    how: Literal["summed", "each"] = "summed"
    """What the server receives: the sum over hospitals (``summed``), or each hospital's array (``each``)."""
    by: Literal["hospital", "row"] = "hospital"
    """Who adds up the n rows. With ``hospital`` the program does it. With ``row`` the program returns each row's
    contribution, ``[n, *shape]``. The hospital rounds these contributions to multiples of ``2^-bits`` and adds them, so
    that pooled rows and hospitals have the same sum to the last bit. An array sent ``each`` by row is a statistic of
    the hospital: with ``privacy.statistics`` the hospital adds noise to it."""
    groups: int = 1
    """The number of separate sums. A hospital's array is added to only one of them, whose index is
    :attr:`Reply.group`."""
    bits: int = 44
    """Numbers are rounded to multiples of ``2^-bits`` before they are added; counts need 0 bits."""
    largest: float | None = None
    """A strict upper limit of the magnitude of every number in an array without ``bound``, or in each row's
    contribution if ``by`` is ``row``. An array with a larger number is an error. None: numbers in a sum must be so
    small that it cannot overflow, and arrays sent ``each`` have no limit."""
    bound: Bound | None = None
    """The largest change of the sum by one row, patient or hospital; None: the change is not bounded."""
    joint: str = ""
    """Arrays with the same ``joint`` name share one bound and are scaled down to it together, as one vector. An empty
    name means that the array is scaled down alone."""
    undefined: bool = False
    """Whether an array that is sent ``each`` may contain NaN, for values that are undefined at a hospital."""


@dataclass(frozen=True)
class Keep:
    """One named array that a hospital stores between calls.

    The array with the name ``model`` is the hospital's own model ``[P]``, to which the index ``OWN`` refers. It is
    stored in the run's precision. If local training under a privacy guarantee also sends an array of the same name, the
    hospital stores the sum of everything that it has sent under this name.
    """

    shape: tuple[int | Literal["n"], ...] = ()
    """The shape of the array; ``n`` stands for the hospital's number of training rows."""
    dtype: str = "f8"


@dataclass(frozen=True, eq=False)
class Rows:
    """The training rows of one hospital. Programs must not change the arrays."""

    X: Array
    """The rows' features after preprocessing, ``[n, F]``. The first D columns are values, and the others flag missing
    values."""
    y: Array
    """The rows' labels, ``[n]``: class indices, or numbers if the label is a number."""
    observed: Mask
    """Whether each of a row's D values was recorded, ``[n, D]``."""
    weights: Floats | None = None
    """The factor of each row's loss, ``[n]``, which depends on the row's class; None: all factors are 1."""
    patients: Callable[[], Mapping[str, Array]] = dict
    """A function without arguments that returns the attributes of these rows' patients by name, each with one value per
    row, ``[n]``."""


class Trained(NamedTuple):
    """The result of local training."""

    theta: Floats
    """The parameters after training, ``[P]``."""
    steps: int
    """The number of mini-batches on which the model was trained."""


class LocalModel(Protocol):
    """The run's model with the training rows of one hospital. In all methods, ``theta [P]`` are the model's parameters,
    and ``rows`` are indices of rows (None: all rows)."""

    @property
    def parameters(self) -> Mapping[str, slice]:
        """Where each tensor of the model is in the parameter vector ``[P]``: a slice, by the tensor's name."""

    @property
    def trained(self) -> int:
        """The number of parameters with a gradient; they come first in the parameter vector ``[P]``. The others are
        statistics that the model measures during training."""

    @property
    def batch_size(self) -> int:
        """The configured batch size; 0 means all rows."""

    @property
    def epochs(self) -> int:
        """The configured number of local epochs."""

    @property
    def learning_rate(self) -> float:
        """The configured learning rate."""

    def outputs(self, theta: Floats, rows: Ids | None = None) -> Array:
        """Return the model's output for each of ``n`` rows. For two classes it is the log-odds of class 1, ``[n]``; for
        C > 2 classes it is logits, ``[n, C]``; for a regression it is the predicted label, ``[n]``."""

    def losses(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """Return the loss of each row, ``[n]``, weighted by class as in training, without weight decay."""

    def loss(self, theta: Floats, rows: Ids | None = None) -> float:
        """Return the mean loss of the rows, weighted by class as in training, without weight decay."""

    def gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """Return the gradient ``[P]`` of the training objective on these rows as one batch, weight decay included.

        The entries for statistics that the model measures during training are 0. For an empty batch all entries are 0.
        """

    def rows_gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """Return the gradient of each row's loss, ``[n, P]``, without weight decay."""

    def batches(self, epochs: int | None = None, size: int | None = None) -> Iterator[Ids]:
        """Yield the row indices of each mini-batch, ``size`` rows at a time, in ``epochs`` passes over the training
        rows. None means the configured value.

        In a round's first call these are the batches that federated averaging would use in that round.
        """

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
        """Run the configured local training from the parameters ``theta [P]``, on the batches of :meth:`batches`.

        Each pair ``(weight_j, towards_j [P])`` in ``proximal`` adds ``weight_j/2 * |theta - towards_j|^2`` to the loss,
        and ``linear [P]`` adds ``linear . theta``. Parameters in the mask ``frozen [P]`` do not change.
        """


class Context(Protocol):
    """The data and functions that a program can use at one hospital."""

    @property
    def rows(self) -> Rows:
        """The hospital's training rows. Under a privacy guarantee for patients, only a limited number of each patient's
        rows is included."""

    @property
    def validation(self) -> Rows:
        """The hospital's validation rows. Only programs that declare :attr:`Program.validates` can read them."""

    @property
    def model(self) -> LocalModel:
        """The run's model, which trains on and is evaluated on the hospital's training rows."""

    @property
    def memory(self) -> Mapping[str, Array]:
        """The arrays that the program has stored at this hospital, by name; empty at first."""

    @property
    def received(self) -> Mapping[str, Array]:
        """The arrays that the call sent, by name. The name ``models`` means models ``[M, P]`` of the server. In these
        models, parameters that never leave the hospital (:meth:`Strategy.private`) have the hospital's own values."""

    @property
    def hospital(self) -> int:
        """The hospital's id."""

    @property
    def round(self) -> int:
        """The number of the current round, from 1 on."""

    @property
    def turn(self) -> int:
        """How many calls of programs with this program's name were made earlier in this round."""

    def rng(self, purpose: str = "", *key: int) -> np.random.Generator:
        """Return a random stream. It depends on the hospital, program, round, turn (:attr:`turn`), ``purpose`` and
        ``key``.

        An empty ``purpose`` means the program's main stream.
        """

    def cache(self, name: str, make: Callable[[], Array], of: bytes = b"") -> Array:
        """Return the result of ``make()``. As long as memory suffices, it is computed only once per process.
        Checkpoints do not contain it.

        ``name`` and ``of`` identify the result. Apart from the hospital's rows, the result must depend on nothing else.
        Only the last result of each ``name`` is stored: a call with a different ``of`` replaces it.
        """


@dataclass(eq=False)
class Reply:
    """The result of a program at one hospital: what it sends and what it stores."""

    sent: Mapping[str, Any]
    """What leaves the hospital: all arrays that :attr:`Program.sends` declares, by name."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """The arrays that the hospital stores, by name. Stored arrays with other names do not change."""
    group: int = 0
    """The index of the sum to which the hospital's arrays are added; 0 if there is only one sum."""


@dataclass(frozen=True, eq=False)
class Added:
    """The sums of what several hospitals send when they run a program."""

    sums: Mapping[str, Any]
    """The sums of all arrays that the program declares, by name."""
    hospitals: int
    """The number of hospitals whose arrays are in the sums."""
    group: int = 0
    """The index that :attr:`Reply.group` has for these hospitals; 0 if there is only one sum."""


class Program:
    """A computation at hospitals. Derive from this class, make it a frozen dataclass of plain values and arrays, and
    define ``sends`` and ``run``. The class must be importable on every machine that simulates hospitals."""

    name: str = ""
    """The program's name. It is part of the key of the program's random streams, and :attr:`Context.turn` counts the
    calls of programs with the same name."""

    @property
    def sends(self) -> Mapping[str, Send]:
        """The arrays that leave a hospital, by name."""
        raise NotImplementedError

    @property
    def keeps(self) -> Mapping[str, Keep]:
        """The arrays that a hospital stores, by name."""
        return {}

    @property
    def carries(self) -> int | Ids:
        """The number of scalars that each hospital receives in the program's fields. It is one number for all
        hospitals, or an array ``[N]``.

        Only values that the server has computed count. Configured values do not count, and arrays in
        :attr:`Call.received` are counted separately.
        """
        return 0

    @property
    def validates(self) -> bool:
        """Whether the program also reads the hospital's validation rows (:attr:`Context.validation`). Such a program
        sends nothing, because a privacy guarantee for training rows does not cover validation rows."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether a hospital stores new values. If not, the program only reads what the hospital has stored under the
        names in ``keeps``."""
        return bool(self.keeps)

    def run(self, at: Context) -> Reply:
        """Return one hospital's reply. ``at`` has the data and functions that are available at the hospital. The reply
        must depend on nothing else."""
        raise NotImplementedError

    def run_many(self, contexts: Sequence[Context]) -> Sequence[Reply]:
        """Run the program for several hospitals at once. Override this method if one joint computation is faster. The
        replies must equal those of :meth:`run`, bit for bit, however hospitals are grouped."""
        return [self.run(at) for at in contexts]

    def run_added(self, contexts: Sequence[Context]) -> tuple[Sequence[Added], Sequence[Mapping[str, Any]]]:
        """Return the sums of what several hospitals send, and the arrays that each hospital stores.

        Override this method if the sums are faster to compute than each reply. The engine calls it only if no step of
        the round masks or clips the contributions of single hospitals. The result must equal the sum of the replies of
        :meth:`run`, bit for bit.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Call:
    """A program that the server sends to hospitals, with the arrays that they receive."""

    program: Program
    """The program that the hospitals run."""
    received: Mapping[str, Any]
    """The arrays that every hospital receives, by name."""
    ids: Ids
    """The ids of the hospitals that are called, ascending; or ``[POOLED]``, a pseudo-hospital that has the rows of all
    hospitals."""
    each_of: Mapping[str, Any] = field(default_factory=dict)
    """Arrays ``[H, ...]`` by name, with one row for each hospital. A hospital receives only its own row of each
    array."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to a call. Sums and counts are 0 if no hospital answered."""

    sums: Mapping[str, Array]
    """The sums over hospitals of the arrays sent ``summed``, by name: ``[*shape]``, or one sum for each of G groups of
    hospitals, ``[G, *shape]``. If too few hospitals take part in a secure sum, the sum and its count are 0."""
    each: Mapping[str, Array]
    """Each hospital's array, for arrays sent ``each``, by name: ``[H, *shape]`` in the order of ``ids``."""
    ids: Ids
    """The ids of the hospitals that answered, ascending."""
    counts: Ids
    """The number of hospitals in the sums of each of G groups, ``[G]``."""


Caller: TypeAlias = Callable[[Call], Answers]
"""A function that sends a call to hospitals apart from the calls that a round yields: before training, to select
hospitals, or to find out which model each uses. The program of such a call must send all arrays ``each`` and store
nothing. Hospitals without training rows can be called, too."""


class TrainLocally:
    """The built-in call: the configured local training.

    :meth:`Strategy.select` returns the hospitals, and :meth:`Strategy.problem` returns what they minimise. The answer
    is an :class:`Update`, or None if no hospital could take part.
    """


Calls: TypeAlias = "Generator[Call | TrainLocally, Any, Any]"
"""The type of a strategy's round: a generator that yields calls, receives :class:`Answers` (an ``Update | None`` for
:class:`TrainLocally`), and returns the next state."""

Answer: TypeAlias = "Answers | Update | None"
