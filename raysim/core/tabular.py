"""Small CSV files that a configuration names, read with their line numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

from raysim.core import bounded
from raysim.core.errors import ConfigError, nearest

SEPARATORS = ",;\t"
"""Possible separators of columns; the one most frequent in the header is used."""


def read_rows(
    path: Path, field: str, needed: Sequence[str], further: Sequence[str] = ()
) -> list[tuple[int, dict[str, str]]]:
    """The rows of a CSV file as ``(line number, text by column)``; ``field`` is the key that names the file.

    Commas, semicolons or tabs separate columns. The text is UTF-8, UTF-16 with its mark, or that of Western Windows.
    Raises ``ConfigError`` for a file that cannot be read, lacks a column that is ``needed``, or has a column twice or
    one that is neither ``needed`` nor ``further``.
    """
    try:
        text = _decoded(bounded.read_bytes(path, bounded.JSON_BYTES))
        separator = max(SEPARATORS, key=text.partition("\n")[0].count)
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        columns = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = columns
        for name in needed:
            if name not in columns:
                raise ConfigError(f"{field}: {path} has no column '{name}'; it has {', '.join(columns) or 'none'}")
        for name in columns:
            if columns.count(name) > 1:
                raise ConfigError(f"{field}: {path} has two columns named '{name}'; rename or remove one")
            if name not in (*needed, *further):
                raise ConfigError(f"{field}: {path} has a column '{name}'; {nearest(name, [*needed, *further])}")
        rows = []
        for row in reader:
            if None in row or None in row.values():
                raise ConfigError(
                    f"{field}: {path} line {reader.line_num} does not have {len(columns)} fields; correct it"
                )
            rows.append((reader.line_num, {key: value.strip() for key, value in row.items()}))
        return rows
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{field}: {path} cannot be read ({reason}); name a CSV file") from None


def _decoded(content: bytes) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def number(text: str, where: str) -> float:
    """A field of a file as a number, with a decimal point or comma, or a ``ConfigError`` that begins with ``where``.

    >>> number("1.5", "speeds"), number("0,75", "speeds")
    (1.5, 0.75)
    """
    if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", text):
        raise ConfigError(f"{where}: '{text}' may have its comma before decimals or thousands; write it with a point")
    try:
        return float(re.sub(r"^([+-]?\d*),(\d+)$", r"\1.\2", text))
    except ValueError:
        raise ConfigError(f"{where}: '{text}' is not a number") from None
