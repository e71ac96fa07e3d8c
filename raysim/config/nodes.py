"""The machines that a run may use: the nodes of a running Ray cluster, this machine, or nodes that a user describes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

MOST = 10_000
"""The largest number of nodes, and of CPUs and GPUs of each node. Larger numbers are refused, because they are probably
typing errors.
"""

_SPEC = re.compile(r"(?:(\d+)x)?(\d+(?:\.\d+)?)cpu(?:\+(\d+)gpu)?")


@dataclass(frozen=True)
class Node:
    """One machine, with its CPUs, GPUs and memory."""

    name: str
    """The machine's address, or a name for messages."""
    cpus: float
    gpus: int = 0
    started: bool = True
    """Whether the machine is running; False for a node that an autoscaler would start."""
    memory: float = math.inf
    """The bytes of memory that actors may use on the machine; infinite if Ray reports none."""


def parse_nodes(text: str, *, started: bool = True) -> tuple[Node, ...]:
    """Return the described nodes. Raises ``ValueError`` for a description that cannot be read.

    >>> [(node.name, node.cpus, node.gpus) for node in parse_nodes("2x16cpu+1gpu, 8cpu")]
    [('node 1', 16.0, 1), ('node 2', 16.0, 1), ('node 3', 8.0, 0)]
    """
    nodes: list[Node] = []
    word = "node" if started else "new node"
    for part in text.split(","):
        match = _SPEC.fullmatch(part.strip().lower().replace(" ", ""))
        if match is None:
            raise ValueError(f"'{text}' does not describe nodes; write for example 2x16cpu+1gpu,1x8cpu")
        if len(max(match.groups(""), key=len)) > 12:  # too long for any number up to MOST, and slow to convert
            raise ValueError(f"'{text}' describes more than {MOST:,} nodes, CPUs or GPUs; name fewer")
        count, cpus, gpus = int(match[1] or 1), float(match[2]), int(match[3] or 0)
        if max(len(nodes) + count, cpus, gpus) > MOST:
            raise ValueError(f"'{text}' describes more than {MOST:,} nodes, CPUs or GPUs; name fewer")
        nodes += [Node(f"{word} {len(nodes) + i + 1}", cpus, gpus, started) for i in range(count)]
    if not nodes:
        raise ValueError(f"'{text}' describes no node; write for example 2x16cpu+1gpu,1x8cpu")
    return tuple(nodes)


def standing_nodes(described: Sequence[dict[str, Any]], first: str) -> tuple[Node, ...]:
    """Return the live nodes of a Ray cluster: the node with the id ``first``, then the others, sorted by address.

    ``described`` is the result of ``ray.nodes()``.
    """
    live = [entry for entry in described if entry["Alive"]]
    live.sort(key=lambda entry: (entry["NodeID"] != first, entry["NodeManagerAddress"], entry["NodeID"]))
    return tuple(
        Node(
            entry["NodeManagerAddress"],
            float(entry["Resources"].get("CPU", 0.0)),
            int(entry["Resources"].get("GPU", 0.0)),
            memory=float(entry["Resources"].get("memory", math.inf)),
        )
        for entry in live
    )


def inventory(nodes: Sequence[Node]) -> str:
    """Describe nodes in a short text for messages, such as ``2 x 16 CPUs + 1 GPU, 1 x 8 CPUs``."""
    kinds = sorted(((node.cpus, node.gpus) for node in nodes), reverse=True)
    return ", ".join(f"{len(list(group))} x {amount(*kind)}" for kind, group in groupby(kinds))


def amount(cpus: float, gpus: float) -> str:
    """Describe numbers of CPUs and GPUs in a text such as ``4 CPUs + 0.5 GPU``."""
    text = f"{cpus:g} CPU{'s' if cpus != 1 else ''}"
    return f"{text} + {gpus:g} GPU{'s' if gpus > 1 else ''}" if gpus else text
