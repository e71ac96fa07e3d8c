"""The view that a client program has of a hospital, and each process's cache of what programs compute from rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import StrategyError
from raysim.core.streams import stream
from raysim.data.contribution import Contribution
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.client.initial_model import with_private
from raysim.engine.client.program_model import HospitalModel
from raysim.engine.messages.memory import MODEL, STORED, HospitalStates
from raysim.engine.messages.plan import ProgramCall, RoundPlan
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.noisy_answers import StatisticRelease
from raysim.engine.privacy.program_release import ProgramRelease
from raysim.strategies.base import POOLED, Invalid, Rows
from raysim.strategies.checks.calls import check_memory
from raysim.training.base import Model
from raysim.training.class_weights import row_weights

MODELS = "models"
"""The name under which a client program receives models of the server."""

MADE_BYTES = 2**30
"""The largest size in bytes of a process's cache of arrays that client programs computed from rows. A single array is
kept even if it is larger."""


class ProgramRun:
    """What all hospitals of a process share while they run one client program."""

    def __init__(
        self,
        plan: RoundPlan,
        call: ProgramCall,
        open: Callable[[bool], Federation],
        model: Callable[[], Model],
        made: MadeOfRows,
    ) -> None:
        self.plan, self.call, self.model, self.made = plan, call, model, made
        # Read-only, because all hospitals of the process receive the same arrays.
        self.received = MappingProxyType({name: _read_only(value) for name, value in call.received.items()})
        self.open = lru_cache(maxsize=2)(open)
        releases = (step for step in plan.steps if isinstance(step, ProgramRelease | StatisticRelease))
        self.release = next(releases, None)

    @cached_property
    def memory_keys(self) -> list[tuple[str, str]]:
        """Return the names, in the program and in the engine, of each array that the program stores at hospitals."""
        return [(name, memory_key(name)) for name in self.call.program.keeps]

    @cached_property
    def sizes(self) -> list[int]:
        """Return the number of training rows of each hospital that runs the program; 0 for pooled rows."""
        bounds = self.open(False).bounds[np.maximum(self.plan.ids, 0)]
        sizes: list[int] = np.where(self.plan.ids == POOLED, 0, bounds[:, 1] - bounds[:, 0]).tolist()
        return sizes


class HospitalContext:
    """What a client program can access at one hospital; see :class:`raysim.strategies.programs.Context`."""

    def __init__(self, run: ProgramRun, j: int, hospital: int, states: HospitalStates) -> None:
        """``j`` is the position of ``hospital`` among all hospitals that run the program."""
        self._run, self._j, self.hospital, self._states = run, j, hospital, states
        self.received: Mapping[str, NDArray[Any]] = run.received
        if run.call.each_of:
            own = {name: _read_only(each[j]) for name, each in run.call.each_of.items()}
            self.received = MappingProxyType(run.received | own)

    @cached_property
    def memory(self) -> Mapping[str, NDArray[Any]]:
        """See :class:`raysim.strategies.programs.Context`. Raises :class:`StrategyError` if an array does not have the
        shape that the program declares.
        """
        states, program = self._states.get(self.hospital, {}), self._run.call.program
        own = {name: states[what] for name, what in self._run.memory_keys if what in states}
        if own:
            checked_at(self._run, self.hospital, partial(check_memory, own, program, self.count))
        return MappingProxyType(own)

    @property
    def round(self) -> int:
        """See :class:`raysim.strategies.programs.Context`."""
        return self._run.plan.round

    @property
    def turn(self) -> int:
        """See :class:`raysim.strategies.programs.Context`."""
        return self._run.call.turn

    @property
    def count(self) -> int:
        """Return the number of training rows that the program uses at the hospital."""
        if self._run.release is not None and (some := self._contribution) is not None:
            return len(some.rows)
        if self.hospital == POOLED:
            return int(self._federation.sizes("train").sum())
        return self._run.sizes[self._j]

    @property
    def _federation(self) -> Federation:
        return self._run.open(self.hospital == POOLED)

    @cached_property
    def _contribution(self) -> Contribution | None:
        """Return the rows that the hospital may use if a privacy guarantee protects patients or rows; None means all
        rows.
        """
        release = self._run.release
        if release is None or release.unit == "hospital":
            return None
        taken, seed = self._run.made.contributions, self._run.plan.work.seed
        return taken.of(self._federation, self.hospital, release.unit, release.most_rows, seed)

    @property
    def _taken(self) -> Any:
        rows, some = _rows(self._federation, self.hospital), self._contribution
        return rows if some is None else rows.start + some.rows

    def people(self) -> NDArray[Any]:
        """Return the patient of each training row, ``[n]``. If a privacy guarantee protects rows, each row counts as
        its own patient.
        """
        if self._contribution is not None:
            return self._contribution.patient
        return np.asarray(self._federation.people[self._taken])

    @cached_property
    def rows(self) -> Rows:
        """Return the hospital's training rows. If a privacy guarantee protects patients, each patient has a limited
        number of rows.
        """
        federation, rows = self._federation, self._taken
        X, y = federation.X[rows], federation.y[rows]
        for step in self._run.plan.steps:
            X, y = step.rows(self.hospital, X, y)
        return self._made(X, y, rows)

    @cached_property
    def validation(self) -> Rows:
        """See :class:`raysim.strategies.programs.Context`. Raises ``ValueError`` for pooled rows, and if the program
        does not declare that it uses validation rows.
        """
        if not self._run.call.program.validates or self.hospital == POOLED:
            raise ValueError(
                "validation: only a program with validates = True can read validation rows, and not pooled ones; set "
                "validates = True in its class"
            )
        rows = self._federation.rows(self.hospital, "validation")
        return self._made(self._federation.X[rows], self._federation.y[rows], rows)

    def _made(self, X: NDArray[Any], y: NDArray[Any], rows: Any) -> Rows:
        return Rows(
            X=_read_only(X),
            y=_read_only(y),
            observed=_read_only(self._federation.observed[rows]),
            weights=row_weights(self._run.plan.work.class_weights, y),
            patients=partial(_patients, self._federation, rows),
        )

    @cached_property
    def model(self) -> HospitalModel:
        """Return the run's model, bound to the hospital's training rows :attr:`rows`."""
        return HospitalModel(self._run.model(), self._run.plan.work, self.rows, self.hospital, self.round, self.turn)

    def rng(self, purpose: str = "", *key: int) -> np.random.Generator:
        """See :class:`raysim.strategies.programs.Context`."""
        if not isinstance(purpose, str):
            raise TypeError(f"rng: the purpose is of type {type(purpose).__name__}; give a text")
        seed, program = self._run.plan.work.seed, self._run.call.program.name
        if not purpose:
            turn = [self.turn] if self.turn else []
            return stream(seed, program, self.round, self.hospital, *turn, *key)
        return stream(seed, f"{program}: {purpose}", self.round, self.turn, self.hospital, *key)

    def cache(self, name: str, make: Callable[[], NDArray[Any]], of: bytes = b"") -> NDArray[Any]:
        """See :class:`raysim.strategies.programs.Context`."""
        run, release = self._run, self._run.release
        # Rows changed by a step may differ between runs, so results from them are not cached.
        if any(step.changes_rows for step in run.plan.steps):
            return _read_only(np.asarray(make()))
        sampling = None if release is None else (release.unit, release.most_rows, run.plan.work.seed)
        key = (run.plan.work.federation, run.call.program.name, self.hospital, name, sampling)
        return _read_only(run.made.of(key, make, of))


class MadeOfRows:
    """A cache of what client programs have computed from hospitals' rows. The least recently used arrays are dropped
    first.
    """

    def __init__(self) -> None:
        self._arrays: OrderedDict[tuple[Any, ...], tuple[bytes, NDArray[Any]]] = OrderedDict()
        self._bytes = 0
        self.contributions = Contributions()

    def of(self, key: tuple[Any, ...], make: Callable[[], NDArray[Any]], of: bytes = b"") -> NDArray[Any]:
        """Return the array cached under ``key``, or compute it by ``make`` and cache it.

        ``of`` are bytes on which the result depends: an array that was cached with other bytes is not used.
        """
        known = self._arrays.get(key)
        if known is None or known[0] != of:
            made = np.asarray(make())
            self._bytes += made.nbytes - (self._arrays[key][1].nbytes if key in self._arrays else 0)
            self._arrays[key] = of, made
            while self._bytes > MADE_BYTES and len(self._arrays) > 1:
                self._bytes -= self._arrays.popitem(last=False)[1][1].nbytes
        self._arrays.move_to_end(key)
        return self._arrays[key][1]


def contexts_of(here: ProgramRun, mine: Sequence[int], states: HospitalStates) -> list[HospitalContext]:
    """Return the contexts in which a client program runs at some hospitals. ``mine`` has the positions of these
    hospitals among all hospitals that run the program.
    """
    # This runs at every hospital in every call, so everything that hospitals share is made once.
    private = here.plan.private if MODELS in here.received else None
    hospitals = here.plan.ids.tolist()
    contexts = [HospitalContext(here, j, hospitals[j], states) for j in mine]
    for context in contexts if private is not None else ():
        model = states.get(context.hospital, {}).get(MODEL)
        models = [with_private(theta, private, model) for theta in here.received[MODELS]]
        context.received = {**context.received, MODELS: _read_only(np.array(models))}
    return contexts


def checked_at(here: ProgramRun, hospital: int, check: Callable[[], None]) -> None:
    """Call ``check``. If it raises :class:`Invalid`, raise a :class:`StrategyError` that also names the client program
    and the hospital.
    """
    try:
        check()
    except Invalid as error:
        names = here.open(hospital == POOLED).hospitals
        where = "pooled rows" if hospital == POOLED else f"hospital '{names[hospital]}'"
        raise StrategyError(f"{here.call.name}, {where}: {error}") from None


def _rows(federation: Federation, hospital: int) -> Any:
    return pooled_rows(federation) if hospital == POOLED else federation.rows(hospital, "train")


def memory_key(name: str) -> str:
    return name if name == MODEL else STORED + name


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _patients(federation: Federation, rows: Any) -> dict[str, NDArray[Any]]:
    return {name: values[rows] for name, values in federation.patients.items()}
