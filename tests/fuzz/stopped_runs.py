"""Cases: folders of runs and comparisons that were stopped, with changes in what ``resume`` reads."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from safetensors.numpy import save

from raysim.storage.encoding import read_tensors
from tests.fuzz.cases import TREE, Case, revalued, spoilt
from tests.fuzz.command import answer


def stopped(folder: Path, *, compare: bool) -> None:
    """A run (or comparison) in ``folder / "out"`` that was stopped before it wrote its last results, and ``whole``."""
    from raysim.experiment import run_page

    tree = copy.deepcopy(TREE) | {"checkpoint": {"every": 1}, "strategy": {"name": "chip", "clusters": 2}}
    tree["training"]["rounds"] = 3
    tree |= {"strategies": ["fedavg", {"name": "chip", "clusters": 2}], "seeds": [1]}
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    command = "compare" if compare else "run"
    ended = answer([command, "c.yaml", "--in-process", "--out", "whole"], folder)
    assert ended.code == 0, ended
    write, pages = run_page.write_run_page, []

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        pages.append(None)
        if len(pages) == (2 if compare else 1):
            raise KeyboardInterrupt
        return write(*arguments, **keywords)

    run_page.write_run_page = interrupted
    try:
        ended = answer([command, "c.yaml", "--in-process", "--out", "out"], folder)
    finally:
        run_page.write_run_page = write
    assert ended.code == 130, ended


def resumptions(template: Path) -> st.SearchStrategy[Case]:
    """Changes of the files of a stopped run or comparison in ``template / "out"`` that ``resume`` reads."""
    names = [path.relative_to(template).as_posix() for path in sorted((template / "out").rglob("*")) if path.is_file()]
    read = [name for name in names if name.endswith((".json", ".yaml", ".safetensors"))]
    results = tuple(
        path.relative_to(template / "whole").as_posix()
        for path in sorted((template / "whole").rglob("models.safetensors"))
    )

    @st.composite
    def changed(draw: st.DrawFn) -> Case:
        name = draw(st.sampled_from(read))
        content = (template / name).read_bytes()
        files: dict[str, bytes] = {}
        removed: tuple[str, ...] = ()
        same: tuple[str, ...] = results
        how = draw(st.sampled_from(["bytes", "values", "values", "removed", "other"]))
        if how == "removed":
            removed = (name,)
        elif how == "other":
            files[name] = (template / draw(st.sampled_from(names))).read_bytes()
        elif how == "bytes" or name.endswith("models.safetensors"):
            files[name] = spoilt(draw, content)
        elif name.endswith(".json"):
            files[name] = json.dumps(revalued(draw, json.loads(content))).encode()
        elif name.endswith(".yaml"):
            files[name] = yaml.safe_dump(revalued(draw, yaml.safe_load(content))).encode()
        else:
            arrays, header = read_tensors(content)
            other = save(arrays, {"raysim": json.dumps(revalued(draw, header))})
            same = ()  # whoever signs other numbers again gets them
            if "/checkpoints/" in name:
                removed = (name,)
                digest = hashlib.blake2b(other, digest_size=16).hexdigest()
                name = re.sub(r"\.[0-9a-f]{32}\.", f".{digest}.", name)
            files[name] = other
        return Case(("resume", "out", "--in-process"), files, removed, template, same=same)

    return changed()
