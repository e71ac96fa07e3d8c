"""Client programs: computations at hospitals with declared memory and outputs.

A strategy's round (:meth:`raysim.strategies.base.Strategy.round`) yields calls; its other methods may send calls with
``view.call``. A :class:`Call` sends a :class:`Program` and arrays to hospitals. Each hospital runs the program on its
own rows and memory, and the server receives :class:`Answers`. A program declares by name what leaves a hospital
(:class:`Send`) and what stays there (:class:`Keep`), so that the engine can add, mask and count what leaves.

- Numbers are added as whole multiples of a grid step, so sums do not depend on how hospitals are distributed over
  machines.
- If a hospital's answer to a call is lost, its memory stays as it was before this call.
- Random numbers depend only on the seed, program name, hospital, round, turn (:attr:`Context.turn`), and the purpose
  and key given to :meth:`Context.rng`.

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
    """The largest change that one row, patient or hospital (the ``unit``) can make to a sum; larger contributions are
    scaled down.

    A contribution that is not finite counts as 0. A privacy guarantee relies on the bound: noise is in proportion to
    ``l2``, or to ``l1`` for Laplace noise. A contribution may depend only on the rows of its unit and on received
    values.
    """

    unit: Literal["row", "patient", "hospital"]
    """Whose contribution is bounded. Contributions of rows and patients can be bounded only in arrays with ``by: row``.
    The contributions of a patient's rows are added up before they are bounded. Under a privacy guarantee for patients,
    a bound for rows becomes a bound for patients."""
    l2: float
    """The largest 2-norm of the contribution of one row, patient or hospital."""
    l1: float | None = None
    """The largest 1-norm of the contribution of one row or patient, required for Laplace noise on arrays sent
    ``each``."""


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
    """Who adds up the contributions of a hospital's n rows. With ``hospital`` the program adds them. With ``row`` the
    program returns each row's contribution, ``[n, *shape]``, and the engine adds them, so that the sum over pooled rows
    equals the sum over hospitals to the last bit. An array with ``how: each`` and ``by: row`` is a statistic, to which
    the hospital adds the noise configured in ``privacy.statistics``."""
    groups: int = 1
    """The number of separate sums. A hospital's array is added to only one of them, whose index is
    :attr:`Reply.group`."""
    bits: int = 44
    """Numbers are rounded to multiples of ``2^-bits`` before they are added; counts need 0 bits."""
    largest: float | None = None
    """For an array without ``bound``: a number is an error if its magnitude is this large or larger. If ``by`` is
    ``row``, this limits the numbers in each row's contribution. None: only overflow of a sum, or a number that is not
    finite, is an error."""
    bound: Bound | None = None
    """The largest change of the sum by one row, patient or hospital; None: the change is not bounded."""
    joint: str = ""
    """Arrays with the same ``joint`` name share one bound and are scaled down together, as one vector; empty: the array
    has its own bound."""
    undefined: bool = False
    """Whether an array that is sent ``each`` may contain NaN, for values that are undefined at a hospital."""


@dataclass(frozen=True)
class Keep:
    """One named array that a hospital stores between calls.

    The array with the name ``model`` is the hospital's own model ``[P]``, to which the index ``OWN`` refers. It is
    stored in the run's precision.

    Under a privacy guarantee for hospitals, the program of local training may send an array with the name of a stored
    array (the delta aside). The hospital then stores the sum of all arrays that it has sent with this name.
    """

    shape: tuple[int | Literal["n"], ...] = ()
    """The shape of the array; ``n`` stands for the hospital's number of training rows."""
    dtype: str = "f8"


@dataclass(frozen=True, eq=False)
class Rows:
    """The training or validation rows of one hospital. Programs must not change the arrays."""

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
    """The run's model with the training rows of one hospital.

    In all methods, ``theta [P]`` are the model's parameters, and ``rows`` are indices of rows (None: all rows).
    """

    @property
    def parameters(self) -> Mapping[str, slice]:
        """The slice of each tensor in the parameter vector ``[P]``, by name."""

    @property
    def trained(self) -> int:
        """The number of parameters with a gradient, which come first in ``[P]``.

        The others are statistics measured during training.
        """

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

        It is 0 for statistics measured during training, and for an empty batch.
        """

    def rows_gradient(self, theta: Floats, rows: Ids | None = None) -> Floats:
        """Return the gradient of each row's loss, ``[n, P]``, weighted by class as in training, without weight
        decay."""

    def batches(self, epochs: int | None = None, size: int | None = None) -> Iterator[Ids]:
        """Yield the row indices of mini-batches of ``size`` rows, in ``epochs`` passes (None: the configured values).

        The first call of a program in a round has the batches of federated averaging. Later calls in the round have
        other batches.
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
        """The hospital's training rows.

        Under a privacy guarantee for patients, each patient has a limited number of rows.
        """

    @property
    def validation(self) -> Rows:
        """The hospital's validation rows. Only programs that declare :attr:`Program.validates` can read them."""

    @property
    def model(self) -> LocalModel:
        """The run's model with the hospital's training rows."""

    @property
    def memory(self) -> Mapping[str, Array]:
        """The arrays that this hospital has stored under the names in :attr:`Program.keeps`; empty at first."""

    @property
    def received(self) -> Mapping[str, Array]:
        """The arrays that the call sent, by name.

        In the array ``models [M, P]``, parameters that never leave the hospital (:meth:`Strategy.private`) have the
        hospital's own values.
        """

    @property
    def hospital(self) -> int:
        """The hospital's id."""

    @property
    def round(self) -> int:
        """The number of the current round (1, 2, ...); 0 before the first round."""

    @property
    def turn(self) -> int:
        """How many calls of programs with this program's name were made earlier in this round."""

    def rng(self, purpose: str = "", *key: int) -> np.random.Generator:
        """Return the random stream of this hospital, program, round, :attr:`turn`, ``purpose`` and ``key``."""

    def cache(self, name: str, make: Callable[[], Array], of: bytes = b"") -> Array:
        """Return the result of ``make()``, which is computed only once per process as long as memory suffices.

        Apart from the hospital's rows, the result must depend on nothing but ``name`` and ``of``. Only the last result
        of each ``name`` is stored: a call with a different ``of`` replaces it. Checkpoints do not contain it.
        """


@dataclass(eq=False)
class Reply:
    """The result of a program at one hospital: what it sends and what it stores."""

    sent: Mapping[str, Any]
    """All arrays that :attr:`Program.sends` declares, by name."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """The arrays that the hospital stores, by name; other stored arrays do not change."""
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
    """The index of the sum to which these hospitals contribute (:attr:`Reply.group`); 0 if there is only one sum."""


class Program:
    """A computation at hospitals: a frozen dataclass of plain values and arrays that defines ``sends`` and ``run``.

    The class must be importable on every machine that simulates hospitals.
    """

    name: str = ""
    """The program's name, by which random streams and :attr:`Context.turn` distinguish programs."""

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
        """The number of scalars that each hospital receives in the program's fields: one number, or an array ``[N]``.

        Only values that the server has computed count. Arrays in :attr:`Call.received` are counted separately.
        """
        return 0

    @property
    def validates(self) -> bool:
        """Whether the program also reads validation rows (:attr:`Context.validation`).

        Such a program sends nothing, because a privacy guarantee covers training rows only.
        """
        return False

    @property
    def remembers(self) -> bool:
        """Whether a hospital stores new values. If not, the program only reads the stored arrays in ``keeps``."""
        return bool(self.keeps)

    def run(self, at: Context) -> Reply:
        """Return one hospital's reply, which must depend on nothing but ``at`` and the program's fields."""
        raise NotImplementedError

    def run_many(self, contexts: Sequence[Context]) -> Sequence[Reply]:
        """Run the program for several hospitals at once.

        Override it if one joint computation is faster. Replies must equal those of :meth:`run`, bit for bit.
        """
        return [self.run(at) for at in contexts]

    def run_added(self, contexts: Sequence[Context]) -> tuple[Sequence[Added], Sequence[Mapping[str, Any]]]:
        """Return the sums of what several hospitals send, and the arrays that each hospital stores.

        Override this method if the sums are faster to compute than each reply. They must equal the sums of the replies
        of :meth:`run`, bit for bit. It is not called if single contributions are masked or clipped.
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
    """The ids of the hospitals that are called, ascending; or ``[POOLED]``."""
    each_of: Mapping[str, Any] = field(default_factory=dict)
    """Arrays ``[H, ...]`` by name, of which each hospital receives only its own row."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to a call. Sums and counts are 0 if no hospital answered."""

    sums: Mapping[str, Array]
    """The sums over hospitals of the arrays sent ``summed``, by name: ``[*shape]``, or one sum for each of G groups of
    hospitals, ``[G, *shape]``. If too few hospitals take part in secure aggregation, the sum and its count are 0."""
    each: Mapping[str, Array]
    """The arrays sent ``each``, by name, with one row for each hospital in ``ids``: ``[len(ids), *shape]``."""
    ids: Ids
    """The ids of the hospitals that answered, ascending."""
    counts: Ids
    """The number of hospitals in the sums of each of G groups, ``[G]``."""


Caller: TypeAlias = Callable[[Call], Answers]
"""A function with which methods other than ``round`` send a call. The call's program must send all arrays ``each``
and store nothing. Hospitals without training rows can be called, too."""


class TrainLocally:
    """The built-in call: the configured local training.

    The hospitals that :meth:`Strategy.select` returns train on the problem that :meth:`Strategy.problem` returns. The
    answer is an :class:`Update`, or None if no hospital took part or the update was discarded.
    """


Calls: TypeAlias = "Generator[Call | TrainLocally, Any, Any]"
"""A strategy's round: a generator that yields calls, receives :class:`Answers` (``Update | None`` for
:class:`TrainLocally`), and returns the next state."""

Answer: TypeAlias = "Answers | Update | None"
