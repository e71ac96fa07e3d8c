"""Reads YAML of a configuration: bounded, each key once, and no text that a file or name cannot hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from raysim.core import bounded

MERGE = "tag:yaml.org,2002:merge"


class InvalidConfiguration(ValueError):
    """The text is YAML, but cannot be a configuration; the message says where, why, and the remedy."""


def read(path: Path) -> Any:
    """The value of a YAML file. Raises as :func:`load`, and ``OSError``."""
    return load(bounded.read_bytes(path, bounded.YAML_BYTES).decode("utf-8-sig"))


def load(text: str) -> Any:
    """The value of a YAML text. Raises :class:`InvalidConfiguration`, or another ``ValueError`` of one line."""
    value = bounded.yaml_value(text, _Loader)
    for path, leaf in _texts(value):
        if "\0" in leaf:
            raise InvalidConfiguration(
                f"{path or 'the value'}: {leaf!r} holds a null byte, which no name or path can; take it out"
            )
        if any("\ud800" <= letter <= "\udfff" for letter in leaf):
            raise InvalidConfiguration(
                f"{path or 'the value'}: {leaf!r} holds half of a character, which no file can; take it out"
            )
    return value


class _Loader(bounded.Loader):
    """Refuses a key that a mapping has twice: one of the two values would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == MERGE or not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in lines:
                where = "twice in it" if line == lines[key] else f"in line {lines[key]} already"
                raise InvalidConfiguration(f"line {line}: key '{key}' stands {where}; keep one of the two")
            lines[key] = line
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a tree with their dotted keys; a key that is a text is one too."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            if isinstance(key, str):
                yield path, key
            yield from _texts(below, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for i, below in enumerate(value):
            yield from _texts(below, f"{path}.{i}" if path else str(i))
