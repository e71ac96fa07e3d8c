"""Whether runs are split over all actors one after the other, or are played side by side, an actor each.

A round that is split over all actors waits for the slowest of them and for Ray, and while a run's files are written all
of them are idle. Where runs are small that costs more than their training. Placement changes no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.config.nodes import Node
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ResourceError

SMALL_CELLS = 2**27
"""Values of features of a federation up to which its runs are small: one pass over them takes a tenth of a second."""

SMALL_MODELS = 2**25
"""Parameters of all hospitals' models together up to which runs are small."""

SMALL_PRODUCTS = 2**32
"""Rows times parameters up to which a process trains in a few seconds, for a model without convolutions: in all rounds
together."""

PROCESS_BYTES = 400_000_000
"""Resident memory of an actor that has played a run of a few rows."""

MODEL_COPIES = 8
"""Copies of all hospitals' models that a run may hold: as they are served, kept, trained, and in a checkpoint."""


@dataclass(frozen=True)
class Load:
    """How much there is to play."""

    runs: int
    cells: int
    """Rows times features of the federation."""
    parameters: int
    """Of all hospitals' models together."""

    @property
    def small(self) -> bool:
        """Whether a round's messages cost more than its training."""
        return self.cells <= SMALL_CELLS and self.parameters <= SMALL_MODELS

    @property
    def memory(self) -> int:
        """About how many bytes an actor needs that plays such a run, were all rows copied."""
        return PROCESS_BYTES + 8 * (self.cells + MODEL_COPIES * self.parameters)


def at_once(resources: ResourcesSection, nodes: Sequence[Node], load: Load) -> int:
    """How many runs are played side by side on the live ``nodes``, this one first; 1: each is split over all actors.

    Raises ``ResourceError`` where more are asked for than there are cores for.
    """
    asked, here = resources.runs_at_once, nodes[0]
    share = resources.cpus_per_actor or 1.0
    cores = int(here.cpus / share + 1e-6)
    if asked != "auto":
        count = min(int(asked), load.runs)
        if count > 1 and (resources.gpus_per_actor or resources.device == "cuda" or resources.per_hospital):
            raise ResourceError(
                f"resources.runs_at_once: {asked} runs at once compute on one CPU each; take auto or 1 with "
                "gpus_per_actor, device cuda or per_hospital"
            )
        if count > cores:
            raise ResourceError(
                f"resources.runs_at_once: {asked} actors of {share:g} CPUs do not fit on this machine, which has "
                f"{here.cpus:g}; lower it, or take auto"
            )
        return count
    if not (resources.hospitals_per_actor == "auto" and _anywhere(resources) and load.small and len(nodes) == 1):
        return 1
    count = int(min(load.runs, cores, here.memory // load.memory))
    # With fewer most of the cores would be idle.
    return max(1, count) if 2 * count >= cores else 1


def fits_here(resources: ResourcesSection, load: Load, products: float) -> bool:
    """Whether a single run is over in this process before a Ray that it would start is up.

    ``products``: rows times parameters of what hospitals train on in all rounds.
    """
    asked = resources.hospitals_per_actor != "auto" or resources.cpus_per_actor or resources.dashboard
    small = load.runs == 1 and load.small and products <= SMALL_PRODUCTS
    return resources.head_start and small and not asked and _anywhere(resources)


def _anywhere(resources: ResourcesSection) -> bool:
    """Whether any process that has a CPU and this machine's files can take the place of an actor."""
    return (
        resources.device != "cuda"
        and not (resources.gpus_per_actor or resources.per_hospital or resources.autoscale)
        and resources.data != "shipped"
    )
