"""The coordinator's access to the hospitals' processes: this process, or Ray actors."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysim.cluster import node_sums
from raysim.cluster.actor_memory import Forgotten, Made, keeps_memory, made_by
from raysim.cluster.answers import fetch, first_answers, first_line, has_died
from raysim.cluster.devices import check_device, device_for, resolve_device, settle_device
from raysim.cluster.hospital_actor import HospitalActor
from raysim.cluster.messages import shared_by_all
from raysim.cluster.placement import Placement
from raysim.cluster.shipping import Delivery, Sender, Shipment, Unreadable
from raysim.cluster.software import check_same
from raysim.core.errors import ResourceError
from raysim.core.importing import search_path
from raysim.core.words import some
from raysim.data.federation import Federation
from raysim.engine.client.hospital_group import HospitalGroup, mapped
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan, Work
from raysim.engine.server.pool import StateReferences
from raysim.strategies.base import POOLED

T = TypeVar("T")

PIECE = 8192
"""The largest number of ids in one argument of an actor. Ray puts larger arguments into its object store, and an actor
whose arguments are lost there cannot be restarted.
"""


class LocalPool:
    """All hospitals in this process, for a debugger and for small federations."""

    def __init__(self, placement: Placement, device: str) -> None:
        resolved, cuda = resolve_device(device)
        self.warning = check_device(device, resolved, cuda)
        settle_device(resolved, 1.0)  # groups of one process share its memory
        self.served = placement.served
        opened = lru_cache(maxsize=16)(mapped)  # once for all groups
        self._groups = [
            HospitalGroup(ids, pools=i == 0, device=resolved, open=opened) for i, ids in enumerate(self.served)
        ]

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        states = memory or [None] * len(self._groups)
        partials, later = [], []
        for group, memory_of_group in zip(self._groups, states, strict=True):
            partial, remembered = group.round(plan, memory_of_group)
            partials.append(partial)
            later.append(remembered)
        return partials, later

    def recall(self, memory: StateReferences) -> HospitalStates:
        return {hospital: theta for remembered in memory for hospital, theta in remembered.items()}


class RayPool:
    """Hospital actors on a running Ray; several coordinator actors can share these hospital actors."""

    restart_seconds = 60.0
    """The seconds that a restarted actor may take in addition to ``resources.timeout``."""

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
        self._devices = [device_for(device, placement.share(i)[1]) for i in range(len(placement.served))]
        self._timeout = timeout
        self._made: deque[Made] = deque(maxlen=len(placement.served))
        self._nodes = placement.nodes or (0,) * len(placement.served)
        # Actors are pure, so a crashed one may restart and repeat the call that it was running. A long run may lose
        # many, but a call that fails again and again is given up.
        actor = ray.remote(max_restarts=-1, max_task_retries=3)(HospitalActor)
        self.actors, folders = [], search_path()
        for i, ids in enumerate(self.served):
            cpus, gpus = placement.share(i)
            options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus}
            if group is not None:
                options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement.bundle(i))
            threads = max(1, int(cpus)) if i in placement.overrides else 1
            pieces = np.array_split(ids, -(-len(ids) // PIECE) or 1)
            given = (folders, i == 0, self._devices[i], gpus, threads)
            self.actors.append(actor.options(**options).remote(*given, *pieces))

    def wait(self, seconds: float) -> str | None:
        """Wait until every actor is running. Return the first warning, or None.

        Raises ``ResourceError`` if an actor does not start within ``seconds`` or does not find its device, or if a node
        has other versions of software than this process.
        """
        import ray

        here = ray.util.get_node_ip_address()
        asked = [actor.ready.remote(here) for actor in self.actors]
        answers = first_answers(asked, seconds, "hospital actor", "put more hospitals in one actor")
        self.places = [answer.node for answer in answers]
        check_same([(answer.node, answer.software) for answer in answers])
        warnings = [
            check_device(device, answer.resolved, answer.cuda)
            for device, answer in zip(self._devices, answers, strict=True)
        ]
        return next((warning for warning in warnings if warning), None)

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        import ray

        # A call names the memory that its actors have just made.
        named = [made_by(each) for each in memory or [] if isinstance(each, ray.ObjectRef)]
        if named and all(each in self._made for each in named):
            with contextlib.suppress(Forgotten):
                return self._noted(plan, named)
        return self._noted(plan, memory)

    def _noted(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        partials, later = self._shipped(plan.work.federation, lambda: self._round(plan, memory))
        if keeps_memory(plan):
            self._made.extend(made_by(each) for each in later)
        return partials, later

    def _shipped(self, folder: str, call: Callable[[], T]) -> T:
        """Return the result of ``call``. If an actor was restarted on a node that cannot read ``folder``, repeat the
        call."""
        try:
            return call()
        except Unreadable:
            self._sender.forget(folder)
            return call()

    def _round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        shipments = self._sender.shipments(plan.work.federation, self.actors, pooled=POOLED in plan.ids)
        when = f"in round {plan.round}" if plan.round else "before round 1"
        apart = node_sums.with_sums(plan, self.served) if len(set(self._nodes)) > 1 else frozenset()
        calls = self._calls(plan, memory, shipments, apart)
        answers: dict[int, PartialResult] = self._gather({i: call[0] for i, call in enumerate(calls)}, plan.work, when)
        if held := {i: calls[i][2] for i in apart}:
            for i, units in self._added(held, plan.work, when).items():
                answers[i].units = units
        return list(answers.values()), [call[1] for call in calls]

    def _added(self, held: dict[int, Any], work: Work, when: str) -> dict[int, NDArray[np.int64]]:
        """Add actors' sums in the groups of :func:`node_sums.additions`. Return the remaining sums by index of actor.

        ``held`` has a reference to the sum of each actor.
        """
        for level in node_sums.additions(sorted(held), self._nodes):
            summed = {
                group[0]: self.actors[group[0]].added.remote(*(held.pop(actor) for actor in group)) for group in level
            }
            self._settle(summed, work, when, fetched=False)
            held |= summed
        return self._gather(held, work, when)

    def _calls(
        self,
        plan: RoundPlan,
        memory: StateReferences | None,
        shipments: Sequence[Shipment | None],
        apart: frozenset[int],
    ) -> list[Any]:
        """Start a round at all actors.

        Return for each actor references to its partial result, to its hospitals' memory and, for actors in ``apart``,
        to the sum of their hospitals' updates.
        """
        shared = shared_by_all(plan)
        states = memory or [None] * len(self.actors)
        calls = []
        for i, actor in enumerate(self.actors):
            call = actor.round_apart.options(num_returns=3) if i in apart else actor.round.options(num_returns=2)
            calls.append(call.remote(shared, states[i], *([] if shipments[i] is None else [shipments[i]])))
        return calls

    def recall(self, memory: StateReferences) -> HospitalStates:
        remembered = self._gather(dict(enumerate(memory)))
        return {hospital: theta for of_actor in remembered.values() for hospital, theta in of_actor.items()}

    def _gather(self, refs: Mapping[int, Any], work: Work | None = None, when: str = "") -> dict[int, Any]:
        """Wait for the replies of actors, and return them by actor.

        Raises ``ResourceError``, which names the hospitals, if an actor dies again and again.
        """
        import ray

        self._settle(refs, work, when)
        try:
            answers: list[Any] = fetch(list(refs.values()))
        except ray.exceptions.RayActorError as error:
            dead = next((i for i, ref in refs.items() if has_died(ref)), 0)
            raise ResourceError(
                f"resources: {self._who(dead, work)} was lost {when} ({first_line(error)}); check that its node is "
                "up and has enough memory"
            ) from None
        return dict(zip(refs, answers, strict=True))

    def _settle(self, refs: Mapping[int, Any], work: Work | None, when: str, *, fetched: bool = True) -> None:
        """Wait until each actor of ``refs`` has replied or died. With ``fetched``, also wait until replies are on this
        node.

        An actor that does not reply in time is restarted once, and repeats its call. If the actor is late again, raises
        ``ResourceError``, which names the actor's hospitals.
        """
        import ray

        late = self._late(refs, self._timeout, fetched)
        for i in late:
            ray.kill(self.actors[i], no_restart=False)
        if late and (late := self._late(refs, self._timeout + self.restart_seconds, fetched)):
            raise ResourceError(
                f"resources.timeout: {self._who(late[0], work)} did not answer within {self._timeout:g} s {when}, even "
                "after a restart; raise resources.timeout, or find out why this process is stuck"
            )

    def _late(self, refs: Mapping[int, Any], seconds: float, fetched: bool) -> list[int]:
        """Return the actors that have not replied within ``seconds``. With ``fetched``, a reply counts once it has
        arrived on this node."""
        import ray

        if not refs:
            return []
        _, late = ray.wait(list(refs.values()), num_returns=len(refs), timeout=seconds, fetch_local=fetched)
        return [i for i, ref in refs.items() if ref in late]

    def _who(self, actor: int, work: Work | None) -> str:
        ids = self.served[actor].tolist()
        names = [str(i) for i in ids] if work is None else [Federation.open(work.federation).hospitals[i] for i in ids]
        return f"the actor of hospital{'s' if len(names) > 1 else ''} {some(names, 3)}"
