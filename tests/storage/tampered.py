"""Runs that were stopped, and changes of their checkpoints that are signed again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save

from raysim.core.errors import ConfigError
from raysim.storage.encoding import read_tensors
from tests.storage.test_resume import go_on, start, stopped

SMALL: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 6, "rows": 240, "features": 3},
    "training": {"rounds": 6, "batch_size": 32},
    "strategy": "fedavg",
    "selection": "all",
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 2},
}

FILES = ("models.safetensors", "hospitals.csv", "egress.csv", "rounds.csv")

Run = Callable[[str], None]
"""Makes the folder of a run, by its name, the working directory."""

Header = dict[str, Any]
Tensors = dict[str, Any]
Change = Callable[[Header, Tensors], None]


class Runs:
    """Folders with ``stopped``, as a run was when it was stopped, and ``whole``, which nobody has stopped.

    ``runs``: by name, what a run has beside ``SMALL``.
    """

    def __init__(self, home: Path, runs: dict[str, dict[str, Any]]) -> None:
        self._home, self._runs, self._ready = home, runs, set[str]()

    def enter(self, patch: pytest.MonkeyPatch, name: str) -> None:
        """Go into the folder of the run called ``name``, which is as it was before it was changed."""
        at = self._home / name
        patch.setenv("RAYSIM_CACHE", str(self._home / "cache"))
        if name not in self._ready:
            at.mkdir()
            with pytest.MonkeyPatch.context() as once:
                once.chdir(at)
                start(SMALL | self._runs[name], "whole")
                stopped(once, SMALL | self._runs[name], "stopped", 5)
                shutil.copytree("stopped", "template")
            self._ready.add(name)
        shutil.rmtree(at / "stopped")
        shutil.copytree(at / "template", at / "stopped")
        patch.chdir(at)


def sign_again(change: Change) -> None:
    """Change all checkpoints of ``stopped``, with digests that fit."""
    paths = sorted(Path("stopped/checkpoints").iterdir())
    assert paths
    for path in paths:
        arrays, header = read_tensors(path.read_bytes())
        change(header, arrays)
        content = save(arrays, {"raysim": json.dumps(header)})
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        path.unlink()
        path.with_name(f"round-{header['round']:06d}.{digest}.safetensors").write_bytes(content)


def timeless(name: str, folder: str) -> bytes:
    content = Path(folder, name).read_bytes()
    if name != "rounds.csv":
        return content
    head, *rows = [line.split(b",") for line in content.splitlines()]
    at = head.index(b"seconds")
    return b"\n".join(b",".join(row[:at] + row[at + 1 :]) for row in rows)


def guaranteed(folder: str) -> Any:
    return json.loads(Path(folder, "summary.json").read_text()).get("privacy")


def unchanged_goes_on(run: Run, name: str) -> None:
    """A checkpoint that is signed again and otherwise as it was is gone on from, with all that the run is to give."""
    run(name)
    sign_again(lambda header, arrays: None)
    said = go_on("stopped")
    assert "resumes from round 4 of 6" in said
    assert "damaged" not in said
    for file in FILES:
        assert timeless(file, "whole") == timeless(file, "stopped"), file
    assert guaranteed("stopped") == guaranteed("whole")


def refused(words: str) -> None:
    """Going on ends in a line with ``words``, or says them and ends as the run that nobody has touched."""
    try:
        said = go_on("stopped")
    except ConfigError as error:
        said = str(error)
        assert "\n" not in said
        assert "remove this checkpoint to resume from an earlier one" in said
    else:
        for file in FILES:
            assert timeless(file, "whole") == timeless(file, "stopped"), file
        assert guaranteed("stopped") == guaranteed("whole")
    assert words in said


def of(part: str, *path: Any) -> Callable[[Any], Change]:
    """Changes what ``attacks`` or ``reception`` holds at a path of keys of dicts and places of lists."""

    def to(value: Any) -> Change:
        def change(header: Header, arrays: Tensors) -> None:
            node: Any = header[part]
            for at, key in enumerate(path):
                ((_, content),) = node.items()
                items = content if isinstance(key, int) else [pair[1] for pair in content]
                place = key if isinstance(key, int) else [pair[0] for pair in content].index(key)
                if at == len(path) - 1:
                    if isinstance(key, int):
                        content[place] = value
                    else:
                        content[place][1] = value
                node = items[place]

        return change

    return to


def removed(part: str) -> Change:
    return lambda header, arrays: header.pop(part, None) and None
