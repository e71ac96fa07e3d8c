"""The reading of YAML and JSON that others may have written, with limits on size and depth.

Input beyond a limit raises ``ValueError`` with a message of one line.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

YAML_BYTES = 2 * 2**20
"""The largest number of characters of a YAML text; a configuration that names 10,000 hospitals has about one
million."""

JSON_BYTES = 256 * 2**20
"""The largest size in bytes of a raysim file that is read into memory; larger files are an error."""

DEPTH = 40
"""The largest depth of nested values in a YAML file; a configuration has a depth of about six."""

JSON_DEPTH = 100
"""The largest depth of nested values in raysim's own JSON files, which may contain the nested state of a strategy."""

NODES = 100_000
"""The largest number of values and keys of a YAML file. An alias counts as a copy of all the values that it repeats."""

DIGITS = 400
"""The largest number of digits of a whole number in YAML. The time to read a number grows with the square of the
number of its digits."""


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file of at most ``limit`` bytes.

    Raises ``ValueError`` if the file is larger or is not a regular file, and ``OSError`` if it cannot be read.
    """
    # O_NONBLOCK: without it, opening a pipe that has no writer would block forever.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is a pipe or a device, not a file; save its content as a file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"it has more than {limit:,} bytes")
    return content


def yaml_value(text: str, loader: type[Loader] | None = None) -> Any:
    """Return the value of a YAML text.

    Raises ``ValueError`` if the text is invalid, too long, nested too deep, or has too many nodes.
    """
    if len(text) > YAML_BYTES:
        raise ValueError(f"it has more than {YAML_BYTES:,} characters")
    try:
        return yaml.load(text, loader or Loader)  # safe: both loaders are SafeLoaders
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).replace('in "<unicode string>", ', "at ").split())) from None
    except (OverflowError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None  # errors that PyYAML does not convert


def read_json(path: Path) -> Any:
    """Return the value in a JSON file. Raises ``OSError`` if it cannot be read.

    Raises ``ValueError`` if the JSON is invalid or nested too deep, or if the file is larger than :data:`JSON_BYTES`.
    """
    return json_value(read_bytes(path, JSON_BYTES))


def json_value(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ``ValueError`` if it is invalid JSON or nested too deep."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested deeper than {JSON_DEPTH} levels") from None
    level = [value]
    for _ in range(JSON_DEPTH):
        level = [below for each in level for below in _below(each)]
        if not level:
            return value
    raise ValueError(f"it is nested deeper than {JSON_DEPTH} levels")


def _below(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which rejects YAML that is nested too deep or has too many nodes.

    An alias counts as a copy: it takes no memory, but code that walks over the whole value visits the shared part once
    for each alias.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0
        self._below = 0
        self._sizes: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self._mark()
            node = super().compose_node(parent, index)
            if id(node) not in self._sizes:
                raise yaml.MarkedYAMLError(None, None, "an alias refers to a value that contains the alias", mark)
            count, height = self._sizes[id(node)]
            self._count(count, self._depth + height, mark)
            return node
        before, below, self._below = self._nodes, self._below, 0
        self._depth += 1
        self._count(1, self._depth, self._mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        height = 1 + self._below
        self._sizes[id(node)] = (self._nodes - before, height)
        self._below = max(below, height)
        return node

    def _mark(self) -> Any:
        return self.peek_event().start_mark  # type: ignore[no-untyped-call]

    def _count(self, nodes: int, depth: int, mark: Any) -> None:
        self._nodes += nodes
        if depth > DEPTH:
            raise yaml.MarkedYAMLError(None, None, f"it is nested deeper than {DEPTH} levels", mark)
        if self._nodes > NODES:
            raise yaml.MarkedYAMLError(
                None,
                None,
                f"it holds more than {NODES:,} values, with each alias counted as the values that it repeats",
                mark,
            )

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > DIGITS:
            raise yaml.MarkedYAMLError(None, None, f"a number has more than {DIGITS} digits", node.start_mark)
        number: int = super().construct_yaml_int(node)
        return number


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
