"""The hospitals' processes as the coordinator sees them: in this process, or as Ray actors.

Both run the same :class:`HospitalGroup`; only the way a message travels differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysim.cluster import node_sums
from raysim.cluster.connection import check_same, software
from raysim.cluster.lines import DIAL_SECONDS, Lines, Number, Switchboard, packed
from raysim.cluster.placement import Placement
from raysim.cluster.shipping import Delivery, Receiver, Sender, Shipment, Unreadable
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.engine.hospitals import HospitalGroup
from raysim.engine.messages import HospitalStates, Inquiry, PartialResult, RoundPlan, Work
from raysim.engine.pool import StateReferences
from raysim.strategies.base import POOLED, Floats, Ids
from raysim.strategies.shared.importing import search_only, search_path

T = TypeVar("T")

PIECE = 8192
"""Ids in one argument of an actor. Ray keeps larger arguments in its object store, and where such a one is lost, the
actor cannot be started again."""


DIALS = 5
"""How often an actor is called past Ray that has not answered there, in one run of it or another."""


class LocalPool:
    """All hospitals in this process, for a debugger and for small federations.

    It computes with the threads that the process has; see :func:`raysim.core.host.threads`.
    """

    def __init__(self, placement: Placement, device: str) -> None:
        resolved, seen = resolve_device(device)
        self.warning = check_device(device, resolved, seen)
        self.served = placement.served
        self._groups = [HospitalGroup(ids, pools=i == 0, device=resolved) for i, ids in enumerate(self.served)]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        kept = memory or [None] * len(self._groups)
        results = [
            group.round(plan, memory_of_group) for group, memory_of_group in zip(self._groups, kept, strict=True)
        ]
        return [partial for partial, _ in results], [memory_of_group for _, memory_of_group in results]

    def ask(self, inquiry: Inquiry, memory: StateReferences | None = None) -> list[list[Floats]]:
        kept = memory or [None] * len(self._groups)
        return [group.ask(inquiry, memory_of_group) for group, memory_of_group in zip(self._groups, kept, strict=True)]

    def recall(self, memory: StateReferences) -> HospitalStates:
        return {hospital: theta for remembered in memory for hospital, theta in remembered.items()}


@dataclass(frozen=True)
class ActorReady:
    """What an actor tells once it is up: what it computes on, what torch sees, its node's address and software."""

    resolved: str
    seen: str
    node: str
    software: dict[str, str]


class HospitalActor:
    """A Ray actor around a :class:`HospitalGroup`, with the device that its GPU share lets it see.

    With each call comes what has been shipped to it; see :mod:`raysim.cluster.shipping`. Plain rounds may come past
    Ray; see :mod:`raysim.cluster.lines`.
    """

    def __init__(self, folders: Sequence[str], pools: bool, device: str, threads: int, *served: Ids) -> None:
        """``folders`` may hold modules of the user's. ``served`` are the ids of its hospitals, see :data:`PIECE`."""
        search_only(folders)
        host.limit_threads(threads)
        self._resolved, self._seen = resolve_device(device)
        self._receiver = Receiver()
        self._group = HospitalGroup(
            np.concatenate(served), pools=pools, device=self._resolved, open=self._receiver.open
        )
        self._one_at_a_time = Lock()
        self._switchboard = Switchboard(lambda plan: self.round(plan, None, None)[0])

    def round(
        self, plan: RoundPlan, kept: HospitalStates | None, shipment: Shipment | None
    ) -> tuple[PartialResult, HospitalStates]:
        with self._one_at_a_time:
            self._receiver.accept(plan.work.federation, shipment)
            return self._group.round(plan, kept)

    def ask(self, inquiry: Inquiry, kept: HospitalStates | None, shipment: Shipment | None) -> list[Floats]:
        with self._one_at_a_time:
            self._receiver.accept(inquiry.work.federation, shipment)
            return self._group.ask(inquiry, kept)

    def round_apart(
        self, plan: RoundPlan, kept: HospitalStates | None, shipment: Shipment | None
    ) -> tuple[PartialResult, HospitalStates, NDArray[np.int64] | None]:
        """A round whose sums are a result of their own, which stays on the node until somebody asks for it."""
        partial, remembered = self.round(plan, kept, shipment)
        return replace(partial, units=None), remembered, partial.units

    def added(self, *sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sums of several actors, added up; see :mod:`raysim.cluster.node_sums`."""
        return node_sums.added(sums)

    def number(self) -> Number | None:
        """Where plain rounds may be called past Ray."""
        return self._switchboard.number()

    def reads(self, folder: str, expected: tuple[Any, ...]) -> tuple[bool, str]:
        """Whether this process can map a federation's folder, and the address of its node."""
        import ray

        return self._receiver.reads(folder, expected), ray.util.get_node_ip_address()

    def ready(self, asking: str) -> ActorReady:
        """Answers once the process is up; with its software where it is on another node than the one ``asking``."""
        import ray

        node = ray.util.get_node_ip_address()
        return ActorReady(self._resolved, self._seen, node, software() if node != asking else {})


class RayPool:
    """Hospital actors on a running Ray. The object itself travels to coordinator actors, which share the actors.

    ``group`` is the placement group that has room for them, if they need one.
    """

    restart_seconds = 60.0
    """How much longer an actor may take that is started anew."""

    def __init__(
        self,
        placement: Placement,
        device: str,
        timeout: float = 1800.0,
        delivery: Delivery = "auto",
        group: Any = None,
    ) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.served = placement.served
        self._sender = Sender(placement.served, delivery)
        self._device = device
        self._timeout = timeout
        self._nodes = placement.nodes or (0,) * len(placement.served)
        self._no_lines()
        # Actors are pure, so a crashed one may restart and repeat the call that it was running. A long run may lose
        # many, but a call that fails again and again is given up.
        actor = ray.remote(max_restarts=-1, max_task_retries=3)(HospitalActor)
        self.actors, folders = [], search_path()
        for i, ids in enumerate(self.served):
            cpus, gpus = placement.share(i)
            options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
            if group is not None:
                options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement.bundle(i))
            threads = max(1, int(cpus)) if i in placement.own else 1
            pieces = np.array_split(ids, -(-len(ids) // PIECE) or 1)
            self.actors.append(actor.options(**options).remote(folders, i == 0, device, threads, *pieces))

    def __getstate__(self) -> dict[str, Any]:
        # A coordinator that this object travels to makes its own calls.
        return {name: value for name, value in vars(self).items() if name not in ("_lines", "_dials")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._no_lines()

    def _no_lines(self) -> None:
        self._lines, self._dials = Lines(), [0] * len(self.served)

    def wait(self, seconds: float) -> str | None:
        """Return once every actor is up, with a warning of one of them if there is any; sets ``places``.

        Raises ``ResourceError`` where they are not up in time, where one cannot have its device, or where a node has
        other software than this process.
        """
        import ray

        here = ray.util.get_node_ip_address()
        try:
            answers = ray.get([actor.ready.remote(here) for actor in self.actors], timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            raise ResourceError(
                f"resources: {len(self.actors)} hospital actors were not up after {seconds:g} s, and Ray has "
                f"{ray.available_resources()} free; stop other work on it or serve more hospitals per actor"
            ) from None
        except ray.exceptions.RayActorError as error:
            raise ResourceError(
                f"resources: a hospital actor could not start ({_last_line(error)}); see that every node has raysim "
                "and what constraints.txt names"
            ) from None
        self.places = [answer.node for answer in answers]
        check_same([(answer.node, answer.software) for answer in answers])
        warnings = [check_device(self._device, answer.resolved, answer.seen) for answer in answers]
        return next((warning for warning in warnings if warning), None)

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        return self._shipped(plan.work.federation, lambda: self._round(plan, memory))

    def _shipped(self, folder: str, call: Callable[[], T]) -> T:
        """``call`` again where an actor has moved to a node that cannot read the folder; calls may be repeated."""
        try:
            return call()
        except Unreadable:
            self._sender.forget(folder)
            return call()

    def _round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        shipments = self._sender.shipments(plan.work.federation, self.actors, pooled=POOLED in plan.ids)
        text = None if plan.remembers or memory is not None else packed(plan)
        lined = [] if text is None else self._lined(shipments)
        everybody, when = range(len(self.actors)), f"in round {plan.round}"
        apart = node_sums.with_sums(plan, self.served) if len(set(self._nodes)) > 1 else frozenset()
        calls = self._calls(plan, memory, shipments, [i for i in everybody if i not in lined], apart)
        answers: dict[int, PartialResult] = {}
        late: list[int] = []
        if text is not None:
            answers, late = self._lines.call(lined, text, self._timeout)
            self._start_anew(late)
            calls |= self._calls(plan, memory, shipments, [i for i in lined if i not in answers], apart)
        answers |= self._gather({i: call[0] for i, call in calls.items()}, plan.work, when, anew=bool(late))
        if held := {i: call[2] for i, call in calls.items() if i in apart}:
            for i, units in self._added(held, plan.work, when).items():
                answers[i].units = units
        return [answers[i] for i in everybody], [calls[i][1] if i in calls else {} for i in everybody]

    def _added(self, held: dict[int, Any], work: Work, when: str) -> dict[int, NDArray[np.int64]]:
        """The sums that actors have ``held`` back, added up on their way: those that arrive, by who has added them."""
        for level in node_sums.additions(sorted(held), self._nodes):
            summed = {
                group[0]: self.actors[group[0]].added.remote(*(held.pop(actor) for actor in group)) for group in level
            }
            self._settle(summed, work, when, fetched=False)
            held |= summed
        return self._gather(held, work, when)

    def _lined(self, shipments: Sequence[Shipment | None]) -> list[int]:
        """The actors that can be called past Ray: those of this host that map their rows."""
        import ray

        mapping = [i for i, shipment in enumerate(shipments) if shipment is None]
        asked = {
            self.actors[i].number.remote(): i for i in mapping if i not in self._lines.up and self._dials[i] < DIALS
        }
        answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=DIAL_SECONDS) if asked else ([], [])
        for ref in answered:
            actor = asked[ref]
            try:
                self._dials[actor] += 1 if self._lines.dial(actor, ray.get(ref)) else DIALS
            except ray.exceptions.RayError:  # its process has died: what is called now says what comes of that
                continue
        return [i for i in mapping if i in self._lines.up]

    def _calls(
        self,
        plan: RoundPlan,
        memory: StateReferences | None,
        shipments: Sequence[Shipment | None],
        who: Sequence[int],
        apart: frozenset[int],
    ) -> dict[int, Any]:
        """A round through Ray, for the actors ``who``: references to what each answers, to what is remembered, and to
        the sums of those of whom they come ``apart``.
        """
        import ray

        if not who:
            return {}
        shared = ray.put(plan)
        kept = memory or [None] * len(self.actors)
        calls = {}
        for i in who:
            actor = self.actors[i]
            call = actor.round_apart.options(num_returns=3) if i in apart else actor.round.options(num_returns=2)
            calls[i] = call.remote(shared, kept[i], shipments[i])
        return calls

    def ask(self, inquiry: Inquiry, memory: StateReferences | None = None) -> list[list[Floats]]:
        return self._shipped(inquiry.work.federation, lambda: self._ask(inquiry, memory))

    def _ask(self, inquiry: Inquiry, memory: StateReferences | None) -> list[list[Floats]]:
        import ray

        shared = ray.put(inquiry)
        kept = memory or [None] * len(self.actors)
        shipments = self._sender.shipments(inquiry.work.federation, self.actors, pooled=False)
        asked = {
            i: actor.ask.remote(shared, reference, shipment)
            for i, (actor, reference, shipment) in enumerate(zip(self.actors, kept, shipments, strict=True))
        }
        return list(self._gather(asked, inquiry.work, f"when asked for '{inquiry.question.kind}'").values())

    def recall(self, memory: StateReferences) -> HospitalStates:
        remembered = self._gather(dict(enumerate(memory)))
        return {hospital: theta for of_actor in remembered.values() for hospital, theta in of_actor.items()}

    def _gather(
        self, refs: Mapping[int, Any], work: Work | None = None, when: str = "", *, anew: bool = False
    ) -> dict[int, Any]:
        """What actors answer, by their number; see :meth:`_settle`.

        Raises ``ResourceError`` naming the hospitals of an actor that keeps dying.
        """
        import ray

        self._settle(refs, work, when, anew=anew)
        try:
            answers: list[Any] = fetch(list(refs.values()))
        except ray.exceptions.RayActorError as error:
            dead = next((i for i, ref in refs.items() if _actor_died(ref)), 0)
            raise ResourceError(
                f"resources: {self._who(dead, work)} was lost {when} ({_first_line(error)}); see whether its node is "
                "up, and has memory enough for it"
            ) from None
        return dict(zip(refs, answers, strict=True))

    def _settle(
        self, refs: Mapping[int, Any], work: Work | None, when: str, *, anew: bool = False, fetched: bool = True
    ) -> None:
        """Return when actors have answered, by their number, or cannot, and where ``fetched`` what they say is here.

        One that is late is started anew and repeats its call, once; ``anew`` where that has been done. Raises
        ``ResourceError`` naming the hospitals of an actor that is late again.
        """
        if not anew:
            late = self._late(refs, self._timeout, fetched)
            self._start_anew(late)
            anew = bool(late)
        if anew and (late := self._late(refs, self._timeout + self.restart_seconds, fetched)):
            raise ResourceError(
                f"resources.timeout: {self._who(late[0], work)} did not answer within {self._timeout:g} s {when}, "
                "twice; raise it, or see why that process stands still"
            )

    def _start_anew(self, actors: Sequence[int]) -> None:
        import ray

        for i in actors:
            ray.kill(self.actors[i], no_restart=False)

    def _late(self, refs: Mapping[int, Any], seconds: float, fetched: bool) -> list[int]:
        """Which actors have not answered when the time is over, or where ``fetched`` have not been heard."""
        import ray

        if not refs:
            return []
        _, late = ray.wait(list(refs.values()), num_returns=len(refs), timeout=seconds, fetch_local=fetched)
        return [i for i, ref in refs.items() if ref in late]

    def _who(self, actor: int, work: Work | None) -> str:
        ids = self.served[actor].tolist()
        names = [str(i) for i in ids] if work is None else [Federation.open(work.federation).hospitals[i] for i in ids]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"the actor of hospital{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def _actor_died(ref: Any) -> bool:
    import ray

    try:
        ray.get(ref, timeout=0)
    except ray.exceptions.RayActorError:
        return True
    except ray.exceptions.RayError:
        return False
    return False


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def fetch(refs: Any) -> Any:
    """``ray.get`` that raises a remote error as what it was there, not wrapped in Ray's trace."""
    import ray

    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        raise cause_of(error) from None


def cause_of(error: Any) -> Exception:
    """The exception that a remote call raised, without Ray's wrapping."""
    import ray

    cause = error
    while getattr(cause, "cause", None) is not None and cause.cause is not cause:
        cause = cause.cause
    last = _last_line(cause)
    if isinstance(cause, ray.exceptions.RaySystemError) and last.startswith(("ModuleNotFoundError", "ImportError")):
        # Ray could not unpickle an argument there.
        return ResourceError(
            f"resources: what the run refers to cannot be imported on every node ({last}); install the same modules on "
            "all, or put them where PYTHONPATH says"
        )
    return cause if isinstance(cause, Exception) else error


def resolve_device(device: str) -> tuple[str, str]:
    """``auto``, ``cpu`` or ``cuda`` to what this process computes on, and what torch sees."""
    if device == "cpu":
        return "cpu", ""
    import torch

    seen = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", seen


def check_device(wanted: str, resolved: str, seen: str) -> str | None:
    """A warning where a GPU was meant and there is none; ``ResourceError`` where ``cuda`` is required."""
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(f"resources.device: cuda, but torch sees no CUDA device ({seen}); install a CUDA build")
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({seen}): it computes on the CPU"
    return None
