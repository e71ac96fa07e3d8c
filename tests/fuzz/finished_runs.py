"""Cases: the folder of a finished run from a stranger: rows are scored, pages written, a model is exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hypothesis import strategies as st
from safetensors.numpy import load, save

from tests.fuzz.cases import LINES, Case, revalued, spoilt
from tests.fuzz.command import answer

TREE: dict[str, Any] = {
    "name": "fuzz",
    "data": {"source": "table", "path": "t.csv", "silo": "site", "label": "died"},
    "training": {"rounds": 1, "batch_size": 32},
    "strategy": {"name": "chip", "clusters": 2},
    "tracking": {"uri": "none"},
}

COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("predict", "out", "t.csv", "--out", "p.csv"): ("serving.json", "models.safetensors", "preprocessing.json"),
    ("report", "out"): ("report.json",),
    ("report", "out", "--hospital", "h1", "--out", "h.html"): ("report.json",),
    ("export", "out", "--hospital", "h1", "--out", "e"): ("serving.json", "models.safetensors", "preprocessing.json"),
}
"""Commands, and the files that each reads beside ``config.yaml``."""

OFTEN = [*COMMANDS][:3] * 5 + [*COMMANDS][3:]
"""An export takes as long as five others."""


def ended(folder: Path) -> None:
    """A finished run in ``folder / "out"``, and its rows."""
    rows = [LINES[0], *(LINES[1 + i % 30] for i in range(150))]
    (folder / "t.csv").write_text("\n".join(",".join(row) for row in rows))
    (folder / "c.yaml").write_text(yaml.safe_dump(TREE))
    said = answer(["run", "c.yaml", "--in-process", "--out", "out"], folder)
    assert said.code == 0, said


def uses(template: Path) -> st.SearchStrategy[Case]:
    """Changes of what commands read of the run in ``template / "out"``."""

    @st.composite
    def changed(draw: st.DrawFn) -> Case:
        arguments = draw(st.sampled_from(OFTEN))
        name = draw(st.sampled_from([*COMMANDS[arguments], *COMMANDS[arguments], "config.yaml"]))
        content = (template / "out" / name).read_bytes()
        how = draw(st.sampled_from(["bytes", "values", "values", "values", "removed", "other"]))
        if how == "removed":
            return Case(arguments, removed=(f"out/{name}",), template=template)
        if how == "other":
            content = (template / "out" / draw(st.sampled_from(sorted(COMMANDS[arguments])))).read_bytes()
        elif how == "bytes":
            content = spoilt(draw, content)
        elif name.endswith(".json"):
            content = json.dumps(revalued(draw, json.loads(content))).encode()
        elif name.endswith(".yaml"):
            content = yaml.safe_dump(revalued(draw, yaml.safe_load(content))).encode()
        else:
            content = save(resized(draw, load(content)))
        return Case(arguments, {f"out/{name}": content}, template=template)

    return changed()


def resized(draw: st.DrawFn, tensors: dict[str, Any]) -> dict[str, Any]:
    """The tensors with one of another shape, type or content."""
    name = draw(st.sampled_from(sorted(tensors)))
    tensor = tensors[name]
    others = [
        tensor.astype(np.float64),
        tensor.astype(np.int64),
        tensor > 0,
        tensor * np.nan,
        np.full_like(tensor, 3e38),
        tensor.ravel()[:-1].copy(),
        np.concatenate([tensor, tensor]),
        np.empty((0, *tensor.shape), tensor.dtype),
        np.empty((10**9, 0), tensor.dtype),
    ]
    return tensors | {name: others[draw(st.integers(0, len(others) - 1))]}
