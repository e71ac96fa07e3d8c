"""The assignment of hospitals to actors, of resources to actors, and of actors to machines.

Calculations count CPUs and GPUs in ten-thousandths, as Ray does. :class:`Placement` has them as plain numbers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from raysim.config.nodes import Node, amount, inventory
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ResourceError, nearest
from raysim.core.words import counted
from raysim.strategies.base import Ids

UNIT = 10_000


@dataclass(frozen=True)
class Placement:
    """The hospitals, resources and machine of each actor."""

    served: tuple[Ids, ...]
    """The ids of each actor's hospitals, in ascending order."""
    cpus: float
    """CPUs of each actor that is not in ``overrides``."""
    gpus: float
    """GPUs of each actor that is not in ``overrides``."""
    overrides: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Maps the index of each actor with other resources to its ``(cpus, gpus)``."""
    nodes: tuple[int, ...] = ()
    """The machine of each actor, as an index into the nodes of :func:`place`; empty if the machines do not matter."""

    def share(self, actor: int) -> tuple[float, float]:
        """Return how many CPUs and GPUs one actor has."""
        return self.overrides.get(actor, (self.cpus, self.gpus))

    def bundles(self) -> list[dict[str, float]]:
        """Return the resources that the actors on each machine need together."""
        totals: dict[int, tuple[float, float]] = {}
        for actor, node in enumerate(self.nodes):
            cpus, gpus = totals.get(node, (0.0, 0.0))
            more = self.share(actor)
            # Fractions of one device add up to the device, not to what floats make of them.
            totals[node] = (round(cpus + more[0], 4), round(gpus + more[1], 4))
        return [_bundle(*totals[node]) for node in sorted(totals)]

    def bundle(self, actor: int) -> int:
        """Return the index of an actor's machine in :meth:`bundles`."""
        return sorted(set(self.nodes)).index(self.nodes[actor])


def place(
    rows: Ids, resources: ResourcesSection, nodes: Sequence[Node], names: Sequence[str] | None = None
) -> Placement:
    """Distribute hospitals over actors, and actors over ``nodes``. ``rows [N]`` has each hospital's number of rows.

    Each hospital that ``resources.per_hospital`` names has its own actor; ``names [N]`` are the names of all hospitals.
    Raises ``ResourceError`` if the actors cannot run at the same time.
    """
    _check_shares(resources)
    _check_device(resources, len(rows))
    machines = [_FreeMachine(node) for node in nodes]
    single = _place_single(rows, resources, nodes, machines, names)
    rest = np.setdiff1d(np.arange(len(rows)), [hospital for hospital, _, _ in single])
    count = actor_count(len(rest), resources, machines)
    gpus = _units(resources.gpus_per_actor)
    cpus = _units(resources.cpus_per_actor or 0.0) or _even_share(machines, count, gpus)
    homes = _spread(machines, count, cpus, gpus)
    if len(homes) < count:
        raise _too_much(resources, count, cpus, gpus, nodes, fits=len(homes))
    groups = [rest[ids] for ids in balance(rows[rest], count)] if count else []
    actors = [(np.array([hospital]), share, node) for hospital, share, node in single]
    actors += [(ids, (cpus, gpus), node) for ids, node in zip(groups, homes, strict=True)]
    # Ray hands out GPUs in this order: whole ones first, then the largest fractions, so that no remainder is stranded.
    actors.sort(key=lambda actor: (-actor[1][1], -actor[1][0]))
    return Placement(
        served=tuple(ids for ids, _, _ in actors),
        cpus=cpus / UNIT,
        gpus=gpus / UNIT,
        overrides={i: (c / UNIT, g / UNIT) for i, (_, (c, g), _) in enumerate(actors) if (c, g) != (cpus, gpus)},
        nodes=tuple(node for _, _, node in actors),
    )


def check_named(resources: ResourcesSection, names: Sequence[str]) -> None:
    """Raise ``ResourceError`` if ``resources.per_hospital`` names a hospital that is not among ``names``."""
    hospitals = set(names)
    for name in resources.per_hospital:
        if name not in hospitals:
            raise ResourceError(f"resources.per_hospital.{name}: no such hospital; {nearest(name, names)}")


def actor_count(hospitals: int, resources: ResourcesSection, machines: Sequence[_FreeMachine]) -> int:
    """Return the number of actors: as ``hospitals_per_actor`` requires, or as many as can run in parallel."""
    if resources.hospitals_per_actor != "auto":
        return math.ceil(hospitals / int(resources.hospitals_per_actor))
    cpus, gpus = _units(resources.cpus_per_actor or 1.0), _units(resources.gpus_per_actor)
    # One actor that cannot run makes the check that follows name what is missing.
    return min(hospitals, max(1, sum(machine.slots(cpus, gpus) for machine in machines)))


def balance(rows: Ids, actors: int) -> tuple[Ids, ...]:
    """Assign hospitals to actors with similar numbers of rows; return each actor's hospital ids, ascending.

    ``rows [N]`` has each hospital's number of rows. The hospitals are assigned from the largest to the smallest, each
    to the actor with the smallest load, which is an actor's number of rows plus its number of hospitals. Ties go to the
    first actor.
    """
    loads = [(0, actor) for actor in range(actors)]
    homes: list[int] = []
    largest_first = np.argsort(-rows, kind="stable")
    # The addend keeps hospitals without rows from piling up on one actor.
    for work in (rows[largest_first] + 1).tolist():
        load, actor = loads[0]
        homes.append(actor)
        heapq.heapreplace(loads, (load + work, actor))
    home = np.empty(len(rows), dtype=np.int64)
    home[largest_first] = homes
    by_actor = np.argsort(home, kind="stable").astype(np.int64)
    return tuple(np.split(by_actor, np.searchsorted(home[by_actor], np.arange(1, actors))))


def describe(sizes: Sequence[int], nodes: int = 1) -> str:
    """Return a short text on actors for progress lines, such as ``2 actors, 104 hospitals each``."""
    low, high = min(sizes), max(sizes)
    where = f" on {nodes} nodes" if nodes > 1 else ""
    served = counted(high, "hospital") if low == high else f"{low:,} to {counted(high, 'hospital')}"
    return f"{counted(len(sizes), 'actor')}{where}, {served}{' each' if len(sizes) > 1 else ''}"


class _FreeMachine:
    """The free CPUs of a machine and the free part of each of its GPUs, in ten-thousandths.

    An actor's fraction of a GPU must be on a single GPU.
    """

    def __init__(self, node: Node) -> None:
        self.cpus = math.floor(node.cpus * UNIT + 1e-6)
        self.devices = [UNIT] * node.gpus

    def slots(self, cpus: int, gpus: int) -> int:
        """Return how many actors with these numbers of CPUs and GPUs fit on the free part of the machine."""
        fits = self.cpus // cpus if cpus else 10**9
        if gpus >= UNIT:
            fits = min(fits, self.devices.count(UNIT) // (gpus // UNIT))
        elif gpus:
            fits = min(fits, sum(free // gpus for free in self.devices))
        return fits

    def take(self, cpus: int, gpus: int) -> None:
        """Reserve an actor's CPUs and GPUs. A fraction of a GPU is taken from the fullest GPU on which it fits."""
        self.cpus -= cpus
        if gpus >= UNIT:
            for _ in range(gpus // UNIT):
                self.devices[self.devices.index(UNIT)] = 0
        elif gpus:
            best = min((free, i) for i, free in enumerate(self.devices) if free >= gpus)[1]
            self.devices[best] -= gpus


def _place_single(
    rows: Ids,
    resources: ResourcesSection,
    nodes: Sequence[Node],
    machines: Sequence[_FreeMachine],
    names: Sequence[str] | None,
) -> list[tuple[int, tuple[int, int], int]]:
    """Place the hospitals in ``resources.per_hospital``, each in its own actor, the largest requests first.

    Returns for each hospital its id, its CPUs and GPUs, and the index of its machine.
    """
    if not resources.per_hospital:
        return []
    check_named(resources, names or ())
    numbers = {name: hospital for hospital, name in enumerate(names or ())}
    asked = []
    for name, request in resources.per_hospital.items():
        cpus = request.cpus if request.cpus is not None else resources.cpus_per_actor or 1.0
        gpus = request.gpus if request.gpus is not None else resources.gpus_per_actor
        asked.append((_units(gpus), _units(cpus), int(rows[numbers[name]]), -numbers[name], name))
    placed = []
    for gpus, cpus, _, hospital, name in sorted(asked, reverse=True):
        fitting = [i for i, machine in enumerate(machines) if machine.slots(cpus, gpus)]
        if not fitting:
            raise ResourceError(
                f"resources.per_hospital.{name}: no node has {amount(cpus / UNIT, gpus / UNIT)} free (nodes: "
                f"{inventory(nodes)}); request less"
            )
        # Where the fewest GPUs are free: CPU work leaves them alone, and GPU work leaves whole machines whole.
        node = min(fitting, key=lambda i: (sum(machines[i].devices), -machines[i].cpus, i))
        machines[node].take(cpus, gpus)
        placed.append((-hospital, (cpus, gpus), node))
    return placed


def _spread(machines: Sequence[_FreeMachine], count: int, cpus: int, gpus: int) -> list[int]:
    """Choose a machine for each of ``count`` equal actors, in proportion to how many a machine can hold.

    The list is shorter if not all actors fit.
    """
    heap = []
    for i, machine in enumerate(machines):
        if slots := min(count, machine.slots(cpus, gpus)):
            heap.append((0.0, -slots, i, 0, slots))
    heapq.heapify(heap)
    homes: list[int] = []
    while heap and len(homes) < count:
        _, order, i, used, slots = heapq.heappop(heap)
        machines[i].take(cpus, gpus)
        homes.append(i)
        if used + 1 < slots:
            heapq.heappush(heap, ((used + 1) / slots, order, i, used + 1, slots))
    return homes


def _even_share(machines: Sequence[_FreeMachine], count: int, gpus: int) -> int:
    """Return the largest number of CPUs, up to one, that each of ``count`` actors can have, in units of
    ``1 / UNIT`` CPU.
    """
    low, high = 0, UNIT
    while low < high:
        middle = (low + high + 1) // 2
        if sum(machine.slots(middle, gpus) for machine in machines) >= count:
            low = middle
        else:
            high = middle - 1
    return low or min(UNIT, max(1, sum(machine.cpus for machine in machines) // max(1, count)))


def _check_shares(resources: ResourcesSection) -> None:
    shares = {"resources.gpus_per_actor": resources.gpus_per_actor}
    for name, request in resources.per_hospital.items():
        shares[f"resources.per_hospital.{name}.gpus"] = request.gpus or 0.0
    for where, gpus in shares.items():
        if gpus > 1 and gpus != int(gpus):
            raise ResourceError(f"{where}: {gpus} is more than one GPU, but not a whole number; use {math.ceil(gpus)}")


def _check_device(resources: ResourcesSection, hospitals: int) -> None:
    """Raise ``ResourceError`` if an actor must compute on a GPU but reserves no share of one."""
    if resources.device != "cuda":
        return
    for name, request in resources.per_hospital.items():
        if not (resources.gpus_per_actor if request.gpus is None else request.gpus):
            raise ResourceError(
                f"resources.per_hospital.{name}: its actor gets no GPU, although resources.device is cuda; set gpus "
                "to a share, such as 0.25, or set resources.device: auto"
            )
    if not resources.gpus_per_actor and hospitals > len(resources.per_hospital):
        raise ResourceError(
            "resources.gpus_per_actor: 0 with resources.device: cuda leaves actors no GPU; set a share, such as 0.25, "
            "or set resources.device: auto"
        )


def _too_much(
    resources: ResourcesSection, count: int, cpus: int, gpus: int, nodes: Sequence[Node], fits: int
) -> ResourceError:
    """Return the error for actors that do not fit on the nodes. It names the configuration field to lower."""
    each = {"cpus_per_actor": (cpus / UNIT, "CPUs"), "gpus_per_actor": (gpus / UNIT, "GPUs")}
    total = {"cpus_per_actor": sum(node.cpus for node in nodes), "gpus_per_actor": float(sum(n.gpus for n in nodes))}
    for name, (share, what) in each.items():
        if count * share > total[name] + 1e-9:
            return ResourceError(
                f"resources.{name}: {counted(count, 'actor')} x {share:g} need {count * share:g} {what}, but there are "
                f"{total[name]:g}; request less, or put more hospitals in one actor"
            )
    # Alone, which of the two can the machines not hold? Together they may be too much for each machine as well.
    machines = [_FreeMachine(node) for node in nodes]
    few_gpus = sum(machine.slots(0, gpus) for machine in machines) < count
    name = "gpus_per_actor" if gpus and few_gpus else "cpus_per_actor"
    return ResourceError(
        f"resources.{name}: {fits} of {counted(count, 'actor')} fit with {amount(cpus / UNIT, gpus / UNIT)} each, "
        f"because an actor runs on one node and its GPU fraction on one device (nodes: {inventory(nodes)}); request "
        "less, or put more hospitals in one actor"
    )


def _units(value: float) -> int:
    """Convert a CPU or GPU share to ten-thousandths, the smallest shares that Ray distinguishes.

    The result is rounded down, so that six sixths of a device are at most one device. The result is at least 1 for a
    share above 0. A share that was rounded upwards to three or four digits, such as .1667 for one sixth, counts as the
    exact fraction.
    """
    sharing = round(1 / value) if 0 < value < 1 else 1
    if value in (round(1 / sharing, 3), round(1 / sharing, 4)):
        value = min(value, 1 / sharing)
    return max(math.floor(value * UNIT + 1e-6), 1 if value > 0 else 0)


def _bundle(cpus: float, gpus: float) -> dict[str, float]:
    # Ray refuses an empty bundle; a hair of a CPU stands for none.
    bundle = {"CPU": cpus or 1 / UNIT}
    return bundle | {"GPU": gpus} if gpus else bundle
