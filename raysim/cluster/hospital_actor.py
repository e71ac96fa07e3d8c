"""The Ray actor that runs some of the hospitals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.cluster import node_sums
from raysim.cluster.actor_memory import Made, RecentMemory, keeps_memory
from raysim.cluster.devices import resolve_device, settle_device
from raysim.cluster.messages import Joined, received
from raysim.cluster.shipping import Receiver, Shipment
from raysim.cluster.software import software
from raysim.core import host
from raysim.core.importing import search_only
from raysim.engine.client.hospital_group import HospitalGroup
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.strategies.base import Ids


@dataclass(frozen=True)
class ActorReady:
    """An actor's first reply: its device, the devices that torch finds, and the address and software of its node."""

    resolved: str
    cuda: str
    node: str
    software: dict[str, str]


class HospitalActor:
    """A Ray actor with a :class:`HospitalGroup`, on the device of its GPU share.

    A call contains the rows that are shipped to the actor, if rows are shipped (:mod:`raysim.cluster.shipping`).
    """

    def __init__(
        self,
        folders: Sequence[str],
        pools: bool,
        device: str,
        gpus: float,
        threads: int,
        *served: Ids,
    ) -> None:
        """``folders`` are searched for the user's modules.

        The actor computes with at most ``threads`` threads. ``gpus`` is its share of GPUs. ``served`` are the ids of
        its hospitals, see :data:`PIECE`.
        """
        search_only(folders)
        host.limit_threads(threads)
        self._resolved, self._cuda = resolve_device(device)
        settle_device(self._resolved, gpus)
        self._receiver, self._memory = Receiver(), RecentMemory()
        self._group = HospitalGroup(
            np.concatenate(served), pools=pools, device=self._resolved, open=self._receiver.open
        )

    def round(
        self, plan: bytes | RoundPlan, states: HospitalStates | Made | None, shipment: Shipment | None = None
    ) -> tuple[PartialResult, Joined]:
        """See :meth:`HospitalGroup.round`. Raises :class:`Forgotten` if ``states`` names memory that this actor does
        not have."""
        import ray

        plan = received(plan)
        self._receiver.accept(plan.work.federation, shipment)
        partial, later = self._group.round(plan, self._memory.of(Made(states)) if isinstance(states, str) else states)
        if keeps_memory(plan):
            self._memory.add(Made(ray.get_runtime_context().get_task_id()), later)
        return partial, Joined(later)

    def round_apart(
        self, plan: bytes | RoundPlan, states: HospitalStates | Made | None, shipment: Shipment | None = None
    ) -> tuple[PartialResult, Joined, NDArray[np.int64] | None]:
        """Run :meth:`round`, but return the sums as a third, separate result, which stays on the node until it is
        fetched.
        """
        partial, remembered = self.round(plan, states, shipment)
        return replace(partial, units=None), remembered, partial.units

    def added(self, *sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add sums of several actors; see :mod:`raysim.cluster.node_sums`."""
        return node_sums.added(sums)

    def reads(self, folder: str, expected: tuple[Any, ...]) -> tuple[bool, str]:
        """Return whether this process can map the federation in ``folder``, which must agree with ``expected``. Also
        return the address of its node.
        """
        import ray

        return self._receiver.reads(folder, expected), ray.util.get_node_ip_address()

    def ready(self, asking: str) -> ActorReady:
        """Reply once the process is running. The software is reported only if the actor is not on node ``asking``."""
        import ray

        node = ray.util.get_node_ip_address()
        return ActorReady(self._resolved, self._cuda, node, software() if node != asking else {})
