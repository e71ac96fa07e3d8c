"""Writes docs/configuration.md: every key of a configuration, from the schema and the comments of its defaults.

``python docs/reference.py`` writes the page again; a test says where it is not what this makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.listing import bounds_in_words, type_in_words
from raysim.config.schema import Config
from raysim.config.sections.system import LIMITS
from raysim.core.defaults import FILES, table
from raysim.experiment.curves.curve import Curve
from raysim.study.settings import Study
from raysim.tune.settings import Sweep

SEPARATE: dict[str, type[BaseModel]] = {"sweep": Sweep, "study": Study, "curve": Curve}
"""Sections that are read by the commands of their names."""

PAGE = Path(__file__).with_name("configuration.md")

BEFORE = """# Configuration

This page lists every key of a configuration with its default. The table is generated from the schema and from the
comments of [`defaults.yaml`](../raysim/config/defaults.yaml) and [`optional.yaml`](../raysim/config/optional.yaml),
which hold all defaults.

Your configuration overrides the defaults. Mappings are merged key by key; lists and single values replace the default.
`--set a.b=value` overrides configuration and defaults. The order of several `--set` does not matter: sections are set
before their keys. If one key is set twice, the last value counts. If a section only names its plug-in, the name can
replace the section: `strategy: fedavg` means `strategy: {name: fedavg}`, and `data: digits` means
`data: {source: digits}`. `--set` can then add keys to the section:

```console
$ raysim plan --nodes 1x2cpu --set model=mlp --set model.hidden=[8] --set strategy=fedprox --set strategy.mu=0.1
```

Each of the sections `data`, `model`, `selection` and `strategy` names a plug-in. Keys that the table does not list are
settings of the plug-in. For example, `raysim list sources synthetic` prints the keys of the source `synthetic`. The
`config.yaml` in a run's folder is the complete configuration with these settings, and repeats the same run. `null`
means "not set"; `NAME` is a hospital's name.

raysim refuses a key that has no effect but differs from its default. Examples are `training.batch_size` with `strategy:
newton`, `training.rounds` with boosted trees, and `model` together with `models` in a comparison. In a comparison, a
key is accepted if at least one strategy uses it. If a strategy always calls all hospitals, raysim ignores `selection`
and prints a note. In the `config.yaml` of a run, keys that the run does not use have their defaults.

Paths that raysim **reads** are `data.path` and other paths of a source, `strategy.from`, `system.trace` and
`system.table`. In a YAML file these paths are relative to the file's folder. With `--set`, or in a configuration made
in Python, they are relative to the working directory. raysim stores all these paths as absolute paths, so `config.yaml`
names the same files from any working directory. Paths that raysim **writes** (`--out`, `tracking.uri`,
`checkpoint.path`) are relative to the working directory.

`raysim sweep` reads the section `sweep`, `raysim study` the section `study`, and `raysim curve` the section `curve`.
[Sweeps](sweeps.md), [the metric study](study.md) and [coalitions](coalitions.md) list the keys of these sections that
have no default.

| key | type | default | range | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return BEFORE + "".join(f"| {' | '.join(row)} |\n" for row in rows())


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """A row a section and key, in the order of the defaults: its key, type, default, range and meaning."""
    fields, said = dict(_all_fields()), _meanings()
    for key in sorted(said, key=lambda key: _place(key, [*said])):
        meaning, _, stated = said[key].partition(" Range: ")
        shown = f"`{key.replace('*', 'NAME')}`"
        if key not in table():
            yield f"**{shown}**", "section", "", "", meaning
            continue
        field = fields[key]
        bounds = ", ".join(filter(None, (stated.rstrip("."), _range(key, field))))
        yield shown, _type(key, field.annotation), _default(table()[key]), bounds, meaning


def _place(key: str, listed: list[str]) -> list[int]:
    """Sorts keys of optional sections to the key that these stand for in the defaults."""
    parts = key.split(".")
    heads = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
    return [listed.index(head) for head in heads if head in listed]


def _meanings() -> dict[str, str]:
    """The comments above the keys of the YAML files, by dotted key."""
    said: dict[str, list[str]] = {}
    for name in FILES:
        comment: list[str] = []
        parents: list[str] = []
        for line in (files("raysim.config") / name).read_text().splitlines():
            if line.lstrip().startswith("#"):
                comment.append(line.strip(" #"))
            elif match := re.match(r'( *)"?([\w*]+)"?:', line):
                parents = [*parents[: len(match[1]) // 2], match[2]]
                said.setdefault(".".join(parents), []).extend(comment)
                comment = []
            else:
                comment = []
    return {key: " ".join(lines) for key, lines in said.items()}


def _all_fields() -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a configuration and of separate sections, by dotted key."""
    yield from _fields(Config)
    for name, section in SEPARATE.items():
        yield from _fields(section, f"{name}.")


def _fields(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        key = f"{place}{field.alias or name}"
        yield key, field
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                below = f"{key}.*." if get_origin(field.annotation) is dict else f"{key}."
                yield from _fields(kind, below)


def _type(key: str, kind: Any) -> str:
    return "number or distribution" if _is_drawn(key) else type_in_words(kind)


def _is_drawn(key: str) -> bool:
    """Whether the key's value may be a distribution."""
    return key.startswith("system.") and key.removeprefix("system.") in LIMITS


def _default(value: Any) -> str:
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`" if value else "`[]`"
    if isinstance(value, float) and "e" in str(value):  # YAML's numbers have a point
        return f"`{yaml.safe_dump(value).splitlines()[0]}`"
    return f"`{'null' if value is None else value}`"


def _range(key: str, field: FieldInfo) -> str:
    if _is_drawn(key):
        return str(LIMITS[key.removeprefix("system.")][0])
    return bounds_in_words(field.metadata, field.annotation)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
