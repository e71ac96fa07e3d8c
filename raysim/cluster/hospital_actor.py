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
    """An actor's first reply: its device, a text on CUDA, and the address and software versions of its node."""

    resolved: str
    cuda: str
    node: str
    software: dict[str, str]


class HospitalActor:
    """A Ray actor that runs some of the hospitals, on its share of a GPU or on the CPU."""

    def __init__(
        self,
        folders: Sequence[str],
        pools: bool,
        device: str,
        gpus: float,
        threads: int,
        *served: Ids,
    ) -> None:
        """Prepare the process for its hospitals.

        - ``folders``: the folders from which the user's modules are imported.
        - ``pools``: whether this actor also trains on the pooled rows of all hospitals.
        - ``gpus``: the actor's share of GPUs.
        - ``threads``: the largest number of threads for computations.
        - ``served``: the ids of the actor's hospitals, in arrays of at most :data:`raysim.cluster.pool.PIECE` ids.
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
        """Run a round of the actor's hospitals; see :meth:`HospitalGroup.round`.

        ``states`` is the hospitals' memory, or the name (:class:`Made`) of a memory that this actor has cached. Raises
        :class:`Forgotten` if the named memory is no longer cached.
        """
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
        """Run :meth:`round`, but return the sums of hospitals' updates separately, so that they stay on this node."""
        partial, remembered = self.round(plan, states, shipment)
        return replace(partial, units=None), remembered, partial.units

    def added(self, *sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of several actors' sums; see :mod:`raysim.cluster.node_sums`."""
        return node_sums.added(sums)

    def reads(self, folder: str, expected: tuple[Any, ...]) -> tuple[bool, str]:
        """Return whether this process can read the federation in ``folder``, and the address of its node.

        A federation without the properties ``expected`` counts as not readable.
        """
        import ray

        return self._receiver.reads(folder, expected), ray.util.get_node_ip_address()

    def ready(self, asking: str) -> ActorReady:
        """Return the actor's device and node. If the node is not ``asking``, the caller's node, also return its
        software.
        """
        import ray

        node = ray.util.get_node_ip_address()
        return ActorReady(self._resolved, self._cuda, node, software() if node != asking else {})
