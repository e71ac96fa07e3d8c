"""Reads a configuration's YAML. Its size is limited, and each key may occur once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from raysim.core import bounded
from raysim.core.words import as_yaml

MERGE = "tag:yaml.org,2002:merge"

AS_WRITTEN = "na_values"
"""The key whose values are compared with texts in the data, so that YAML must not convert them."""


class InvalidConfiguration(ValueError):
    """Raised for YAML that is not a valid configuration."""


def read(path: Path) -> Any:
    """Return the value of a YAML file. Raises ``OSError`` if it cannot be read, and the errors of :func:`load`."""
    return load(bounded.read_bytes(path, bounded.YAML_BYTES).decode("utf-8-sig"))


def load(text: str) -> Any:
    """Return the value of a YAML text. Raises ``InvalidConfiguration``, or another ``ValueError``."""
    value = bounded.yaml_value(text, _Loader)
    for path, leaf in _texts(value):
        if "\0" in leaf:
            raise InvalidConfiguration(
                f"{path or 'the value'}: {leaf!r} holds a null byte, which no name or path may contain; remove it"
            )
        if any("\ud800" <= letter <= "\udfff" for letter in leaf):
            raise InvalidConfiguration(
                f"{path or 'the value'}: {leaf!r} holds an invalid Unicode character (a surrogate); remove it"
            )
    return value


class _Loader(bounded.Loader):
    """A YAML loader that raises an error if a mapping has the same key twice. PyYAML itself would drop one of the
    values.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE or not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in lines:
                where = "twice" if line == lines[key] else f"in line {lines[key]} already"
                raise InvalidConfiguration(f"line {line}: key '{key}' occurs {where}; keep one of the two")
            lines[key] = line
            if key == AS_WRITTEN:
                self._refuse_changed(value_node)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping

    def _refuse_changed(self, node: yaml.Node) -> None:
        """Raise an error if YAML converts a value at or below ``node`` to something other than the written text."""
        where = f"line {node.start_mark.line + 1}: data.{AS_WRITTEN}: "
        if isinstance(node, yaml.ScalarNode):
            read = self.construct_object(node)
            same = isinstance(read, str | int | float) and not isinstance(read, bool) and str(read) == node.value
            if node.style is None and not same:
                raise InvalidConfiguration(
                    f"{where}YAML reads {node.value or 'nothing'} as {as_yaml(read)}, but marks of missing "
                    f"values are compared as texts; quote it: '{node.value}'"
                )
        elif isinstance(node, yaml.MappingNode):
            for pair in node.value:
                for below in pair:
                    self._refuse_changed(below)
        else:
            for below in node.value:
                if isinstance(below, yaml.MappingNode):
                    raise InvalidConfiguration(
                        f"{where}YAML reads an unquoted mark as the start of a key; quote the mark, such as '?'"
                    )
                self._refuse_changed(below)


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
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
