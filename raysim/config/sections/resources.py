"""The settings of resources: how hospitals are assigned to actors, and what each actor has."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import field_validator

from raysim.config.nodes import parse_nodes
from raysim.core.defaults import default
from raysim.core.section import Section, auto_or_from

LONGEST_WAIT = 1e6
"""The longest waiting time in seconds (eleven days), because system calls limit it."""


class OwnActor(Section):
    """The resources of the actor of a hospital in ``resources.per_hospital``.

    If ``cpus`` is None, ``resources.cpus_per_actor`` is used, or 1 CPU if that is None, too. If ``gpus`` is None,
    ``resources.gpus_per_actor`` is used.
    """

    cpus: float | None = default("resources.per_hospital.*.cpus", gt=0, allow_inf_nan=False)
    gpus: float | None = default("resources.per_hospital.*.gpus", ge=0, allow_inf_nan=False)


class ResourcesSection(Section):
    """The section ``resources``: how hospitals are assigned to actors, and what each actor has.

    - ``hospitals_per_actor``: ``auto`` starts as many actors as can run in parallel.
    - ``cpus_per_actor``: None shares the cluster's CPUs evenly, with at most one for each actor.
    - ``device``: ``auto`` computes on the actor's GPU share if torch finds a GPU.
    - ``timeout``: an actor that has not answered after this many seconds is restarted once. If it then fails to answer
      again, the run ends with an error.
    - ``per_hospital``: the names of hospitals that have an actor of their own, each with the CPUs and GPUs of this
      actor.
    - ``data``: how rows reach other nodes: from a ``shared`` folder, ``shipped`` through Ray, or ``auto`` (shipped if
      the folder cannot be read).
    - ``autoscale``: nodes that an autoscaler may start if the running nodes cannot run an actor.
    - ``dashboard``: whether a Ray that raysim starts has its dashboard.
    - ``runs_at_once``: the number of runs of a comparison, or trials of a sweep, that run in parallel, each in one
      actor. 1: one at a time, over all actors. ``auto``: small runs in parallel, as cores and memory allow; else 1.
    - ``head_start``: whether the command's own process executes a run that would end before Ray is ready.
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
