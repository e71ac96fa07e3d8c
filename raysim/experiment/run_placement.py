"""Decides whether runs execute one after the other, each split over all actors, or concurrently, one per actor. Results
are the same either way, bit for bit. For small runs, waiting for the slowest actor costs more than training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.config.nodes import Node
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ResourceError

SMALL_CELLS = 2**27
"""Largest number of feature values (rows times features) of a federation whose runs count as small."""

SMALL_MODELS = 2**25
"""Largest number of parameters of all hospitals' models in a run that counts as small."""

SMALL_PRODUCTS = 2**32
"""Largest product of rows and parameters, summed over all rounds, that one process trains in a few seconds."""

PROCESS_BYTES = 400_000_000
"""Resident memory in bytes of an actor that has executed a run of a few rows."""

MODEL_COPIES = 8
"""Number of copies of all hospitals' models that a run may hold at a time."""


@dataclass(frozen=True)
class Load:
    """The amount of work in an experiment."""

    runs: int
    cells: int
    """Number of feature values of the federation: rows times features."""
    parameters: int
    """Number of parameters of all hospitals' models together."""

    @property
    def small(self) -> bool:
        """Whether the runs are so small that the messages of a round cost more than its training."""
        return self.cells <= SMALL_CELLS and self.parameters <= SMALL_MODELS

    @property
    def memory(self) -> int:
        """The approximate number of bytes that an actor needs for a run."""
        return PROCESS_BYTES + 8 * (self.cells + MODEL_COPIES * self.parameters)


def at_once(resources: ResourcesSection, nodes: Sequence[Node], load: Load) -> int:
    """Return how many runs execute concurrently. ``nodes`` are the live nodes; the first is this node.

    A result of 1 means that runs are executed one after the other, each split over all actors. Raises ``ResourceError``
    if this node has too few cores for the configured number of concurrent runs, or if concurrent runs would need GPUs
    or actors with different resources.
    """
    asked, here = resources.runs_at_once, nodes[0]
    share = resources.cpus_per_actor or 1.0
    cores = int(here.cpus / share + 1e-6)
    if asked != "auto":
        count = min(int(asked), load.runs)
        if count > 1 and (resources.gpus_per_actor or resources.device == "cuda" or resources.per_hospital):
            raise ResourceError(
                f"resources.runs_at_once: {asked} is not possible with gpus_per_actor, device: cuda or per_hospital; "
                "set runs_at_once to auto or 1"
            )
        if count > cores:
            raise ResourceError(
                f"resources.runs_at_once: {asked} actors of {share:g} CPUs do not fit on this machine, which has "
                f"{here.cpus:g} CPUs; lower runs_at_once, or use auto"
            )
        return count
    if not (resources.hospitals_per_actor == "auto" and _anywhere(resources) and load.small and len(nodes) == 1):
        return 1
    count = int(min(load.runs, cores, here.memory // load.memory))
    # With fewer runs, more than half of the cores would be idle.
    return max(1, count) if 2 * count >= cores else 1


def fits_here(resources: ResourcesSection, load: Load, products: float) -> bool:
    """Return whether a single run would end in this process before a newly started Ray is ready.

    ``products`` measures the cost of training: rows times parameters, summed over all rounds.
    """
    asked = resources.hospitals_per_actor != "auto" or resources.cpus_per_actor or resources.dashboard
    small = load.runs == 1 and load.small and products <= SMALL_PRODUCTS
    return resources.head_start and small and not asked and _anywhere(resources)


def _anywhere(resources: ResourcesSection) -> bool:
    """Return whether runs can execute in any process here: no GPUs, no resources of single hospitals, no autoscaler and
    no shipped data are configured.
    """
    return (
        resources.device != "cuda"
        and not (resources.gpus_per_actor or resources.per_hospital or resources.autoscale)
        and resources.data != "shipped"
    )
