"""Displays a plan: as two tables, or as plain values for JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysim.config.nodes import inventory
from raysim.core.words import counted
from raysim.experiment.planning.plan import Plan, PlannedActor
from raysim.report.terminal.progress import say
from raysim.report.terminal.tables import titled

LISTED = 32
"""If a plan has more actors than this, its table has one row per node in place of one per actor."""

NARROW = 110
"""With fewer characters per line, headings are shorter and hospitals' names are omitted."""


def render(plan: Plan, console: Console) -> None:
    """Print a plan."""
    console.print(f"nodes: {inventory(plan.machines)}", highlight=False, markup=False)
    console.print(_actors(plan, narrow=console.width < NARROW))
    console.print(_rounds(plan, narrow=console.width < NARROW))
    say(console, fits(plan))
    if plan.left_out:
        say(console, plan.left_out)


def fits(plan: Plan) -> str:
    """Return a summary line: whether memory suffices on every node, and the largest number of bytes in a round."""
    needed: dict[int, int] = {}
    for actor in plan.actors():
        needed[actor.node] = needed.get(actor.node, 0) + actor.memory
    there = {node: plan.machines[node].memory for node in needed}
    short = [
        f"{plan.machines[node].name} needs {_bytes(needed[node])} of {_bytes(there[node])}"
        for node in sorted(needed)
        if needed[node] > there[node]
    ]
    total = _bytes(sum(needed.values()))
    if short:
        verdict = f"does not fit: {'; '.join(short)}"
    elif math.isfinite(sum(there.values())):
        verdict = f"fits: {total} of {_bytes(sum(there.values()))} of memory"
    else:  # the memory of nodes given by --nodes is unknown
        verdict = f"needs about {total} of memory"
    largest = max((t.down + t.up for t in plan.traffic.values()), default=0)
    return f"{verdict}; at most {_bytes(largest)} a round between hospitals and server"


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as values for JSON."""
    names = [node.name for node in plan.machines]
    return {
        "nodes": [{"name": node.name, "cpus": node.cpus, "gpus": node.gpus} for node in plan.machines],
        "actors": [actor._asdict() | {"node": names[actor.node]} for actor in plan.actors()],
        "rounds": {label: dataclasses.asdict(traffic) for label, traffic in plan.traffic.items()},
        **({"left_out": plan.left_out} if plan.left_out else {}),
    }


def _actors(plan: Plan, *, narrow: bool) -> Table:
    actors = plan.actors()
    title = f"{counted(len(actors), 'actor')}; memory is about what each needs"
    title += f"; from {NARROW} characters on: its largest hospitals" if narrow else ""
    if len(actors) > LISTED:
        actors = [_summed([actor for actor in actors if actor.node == node]) for node in set(plan.placement.nodes)]
    table = titled(title)
    _add_columns(table, ["node", "actors", "hospitals"], ["rows", "CPUs", "GPUs", "memory"])
    if not narrow:
        table.add_column("largest hospitals")
    for actor in sorted(actors):
        counts = (str(actor.actors), str(actor.hospitals), f"{actor.rows:,}", f"{actor.cpus:g}", f"{actor.gpus:g}")
        largest = [] if narrow else [Text(", ".join(actor.largest))]
        table.add_row(Text(plan.machines[actor.node].name), *counts, _bytes(actor.memory), *largest)
    return table


def _summed(actors: Sequence[PlannedActor]) -> PlannedActor:
    return PlannedActor(
        node=actors[0].node,
        actors=len(actors),
        hospitals=sum(actor.hospitals for actor in actors),
        largest=(),
        rows=sum(actor.rows for actor in actors),
        cpus=sum(actor.cpus for actor in actors),
        gpus=sum(actor.gpus for actor in actors),
        memory=sum(actor.memory for actor in actors),
    )


def _rounds(plan: Plan, *, narrow: bool) -> Table:
    wide = ["cohort", "parameters", "hospitals receive", "hospitals send", "Ray: to each node", "Ray: to coordinator"]
    short = ["cohort", "scalars", "received", "sent", "to a node", "to coordinator"]
    added = (
        ["between nodes" if narrow else "Ray: between nodes"] if any(t.between for t in plan.traffic.values()) else []
    )
    timed = any(t.virtual_seconds is not None for t in plan.traffic.values())
    seconds = ["virtual s" if narrow else "virtual seconds, the first"] if timed else []
    table = titled("one round: bytes that hospitals receive and send, and that Ray transfers" if narrow else "a round")
    _add_columns(table, ["strategy"], [*(short if narrow else wide), *added, *seconds])
    for label, t in plan.traffic.items():
        sizes = [_bytes(value) for value in (t.down, t.up, t.plan, t.partials)]
        sizes += [_bytes(t.between)] if added else []
        virtual = [f"{t.virtual_seconds:,.1f}"] if t.virtual_seconds is not None else []
        table.add_row(Text(label), str(t.cohort), f"{t.parameters:,}", *sizes, *virtual)
    return table


def _add_columns(table: Table, left: Sequence[str], right: Sequence[str]) -> None:
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
