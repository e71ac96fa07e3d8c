"""The comparison of this process's software with the software of other nodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from raysim.core.errors import ResourceError
from raysim.core.package import FOLDER


def source_files(package: Path) -> list[Path]:
    """Return the Python files of ``package``, also in folders that are links, as in a source checkout."""
    folders = os.walk(package, followlinks=True)
    return [Path(folder, name) for folder, _, names in folders for name in names if name.endswith(".py")]


def software() -> dict[str, str]:
    """Return the versions of packages that affect results, and a digest of raysim's code."""
    versions = {}
    for name in ("numpy", "scipy", "scikit-learn", "torch"):
        try:
            # Builds for CUDA and for the CPU alone may stand side by side.
            versions[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    summed = hashlib.blake2b(digest_size=6)
    for path in sorted(source_files(FOLDER)):
        summed.update(path.relative_to(FOLDER).as_posix().encode() + path.read_bytes())
    versions["raysim's code"] = summed.hexdigest()
    return versions


def check_same(others: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Raise ``ResourceError`` if the software of another node differs from that of this process.

    ``others`` has each node's address and software.
    """
    import ray

    here = ray.util.get_node_ip_address()
    # Actors on this node use the same files, which someone may be editing.
    elsewhere = [(node, theirs) for node, theirs in others if node != here]
    if not elsewhere:
        return
    expected = software()
    for node, theirs in elsewhere:
        for name, version in expected.items():
            if theirs.get(name) != version:
                raise ResourceError(
                    f"resources: {name} is {theirs.get(name)} on node {node} and {version} here; install the same "
                    "versions on every node (constraints.txt), for example with 'ray up'"
                )
