"""The settings of resources: how hospitals are assigned to actors, and what each actor has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import field_validator

from raysim.config.nodes import parse_nodes
from raysim.core.defaults import default
from raysim.core.section import Section, auto_or_from

LONGEST_WAIT = 1e6
"""The longest waiting time in seconds (eleven days), because system calls limit waiting times."""


class OwnActor(Section):
    """The resources of the actor of a hospital in ``resources.per_hospital``; None means those of the other actors.

    It computes with as many threads as it has whole CPUs.
    """

    cpus: float | None = default("resources.per_hospital.*.cpus", gt=0, allow_inf_nan=False)
    gpus: float | None = default("resources.per_hospital.*.gpus", ge=0, allow_inf_nan=False)


class ResourcesSection(Section):
    """``resources``: how hospitals are packed into actors, and what each actor holds.

    ``hospitals_per_actor`` ``auto`` starts as many actors as can run at once. ``cpus_per_actor`` None shares the
    cluster's CPUs evenly. ``device`` ``auto`` computes on the GPU share of the actor where torch sees it. An actor that
    has not answered after ``timeout`` seconds is started again, once; the second time it is an error.
    ``per_hospital`` gives hospitals, by name, an actor of their own that holds other CPUs and GPUs. ``data`` says how
    rows reach other nodes: from a ``shared`` folder, ``shipped``, or ``auto``, which ships where it cannot be read.
    ``autoscale`` describes nodes that an autoscaler may start where those that stand cannot run an actor.
    ``dashboard`` starts raysim's own Ray with its dashboard. ``runs_at_once`` says how many runs of a comparison, or
    trials of a sweep, are played side by side, an actor each; ``auto``: as many as there are cores, where
    runs are small. ``head_start``: the command's own process executes a small run, unless the section requests
    resources that only Ray has.
    """

    hospitals_per_actor: Annotated[Literal["auto"] | int, auto_or_from(1)] = default("resources.hospitals_per_actor")
    cpus_per_actor: float | None = default("resources.cpus_per_actor", gt=0, allow_inf_nan=False)
    gpus_per_actor: float = default("resources.gpus_per_actor", ge=0, allow_inf_nan=False)
    device: Literal["auto", "cpu", "cuda"] = default("resources.device")
    timeout: float = default("resources.timeout", gt=0, le=LONGEST_WAIT, allow_inf_nan=False)
    per_hospital: dict[str, OwnActor] = default("resources.per_hospital")
    data: Literal["auto", "shared", "shipped"] = default("resources.data")
    autoscale: str | None = default("resources.autoscale")
    dashboard: bool = default("resources.dashboard")
    runs_at_once: Annotated[Literal["auto"] | int, auto_or_from(1)] = default("resources.runs_at_once")
    head_start: bool = default("resources.head_start")

    @field_validator("autoscale")
    @classmethod
    def _describes_nodes(cls, value: str | None) -> str | None:
        if value is not None:
            parse_nodes(value)
        return value
