"""The form of a text table: encoding, separator, decimal mark, and lines above the column names.

What the configuration does not name is recognised: the encoding from the whole file, the separator from the first
lines. If two separators fit equally well and neither is the usual one, an error is raised.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Literal, cast

from raysim.core.errors import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""The characters that may separate columns, each with its name in error messages."""

WESTERN = "cp1252"
"""The assumed encoding of Western European texts that are not UTF-8: Latin-1 with the additions of Windows."""

LINES = 1000
"""The largest number of first lines by which a file's separator is recognised."""

_BYTES = 1 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NAMED = re.compile(r'\ufeff?"?sep=(.)"?\s*', re.IGNORECASE)  # Excel's first line
_IN_EXCEL = " (in Excel: Save As, CSV UTF-8)"
# Signs that hardly occur in Western European words: three accented letters in a row, an accented capital inside small
# letters, and most signs between two letters.
_FOREIGN = re.compile(
    r"[\x7f-\x9f]|[À-ÖØ-öø-ÿ]{3}|(?<=[^\W\d_])[À-ÖØ-ÞŒŠŽŸ](?=[a-zß-öø-ÿ])|(?<=[^\W\d_])[¡-©«-¯±²³¶¸¹»-¿×÷](?=[^\W\d_])"
)


@dataclass(frozen=True)
class Keys:
    """The configured separator, decimal mark and encoding of a text file; None: recognise it from the file."""

    separator: str | None = None
    decimal: Literal[".", ","] | None = None
    encoding: str | None = None


NO_KEYS = Keys()
"""No configured separator, decimal mark or encoding."""


@dataclass(frozen=True)
class Form:
    """The form of a text file.

    - ``above``: number of lines above the column names.
    - ``names``: the column names, as they are written in the file.
    - ``zipped``: whether the file is compressed by gzip.
    """

    encoding: str
    separator: str
    above: int
    names: tuple[str, ...]
    zipped: bool

    def lines(self, path: Path) -> IO[str]:
        """Open a file of this form as text."""
        return _text(path, self.zipped, self.encoding)


def form_of(path: Path, zipped: bool, keys: Keys, field: str, usual: Keys = NO_KEYS) -> Form:
    """Return the encoding, separator and column names of the text file at ``path``. Properties that ``keys`` leaves
    open are recognised. If two values are possible, the one in ``usual`` is assumed.

    Raises ``DataError`` naming ``field`` or a key if the text cannot be decoded, or if two separators fit equally well.
    """
    if keys.encoding is not None:
        _check_named(path, zipped, keys.encoding)
    encoding = keys.encoding or _encoding(path, zipped, field, usual.encoding)
    with _text(path, zipped, encoding) as file:
        lines = list(islice(file, LINES))
        whole = not file.readline()
    lines = lines if whole or len(lines) < 2 else lines[:-1]
    named = _NAMED.fullmatch(lines[0]) if lines else None
    separator = keys.separator or (named[1] if named else _separator(lines, path, field, usual.separator))
    rows = list(_numbered(lines, separator))
    at = 1 if named else _titles(rows)
    above = rows[at - 1][0] if 0 < at < len(rows) else 0
    return Form(encoding, separator, above, tuple(rows[at][1]) if at < len(rows) else (), zipped)


def _check_named(path: Path, zipped: bool, encoding: str) -> None:
    with _opened(path, zipped) as file:
        try:
            _decode(file, encoding)
        except UnicodeError as error:
            reason = getattr(error, "reason", None) or str(error)
            raise DataError(
                f"data.encoding: '{path}' is not in {encoding} ({reason}); name another, or remove the key"
            ) from None


def _decode(file: IO[bytes], encoding: str) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    while piece := file.read(_BYTES):
        decoder.decode(piece)
    decoder.decode(b"", final=True)


def _text(path: Path, zipped: bool, encoding: str) -> IO[str]:
    mark = "utf-8-sig" if encoding == "utf-8" else encoding
    return io.TextIOWrapper(_opened(path, zipped), encoding=mark, newline="")


def _opened(path: Path, zipped: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def _encoding(path: Path, zipped: bool, field: str, usual: str | None) -> str:
    """Recognise the encoding of the whole file; ``usual`` is tried if the file is not UTF-8.

    Raises ``DataError`` if no encoding fits, or if parts of the file have different encodings.
    """
    with _opened(path, zipped) as file:
        head = file.read(1 << 16)
        for mark, name in _BOMS:
            if head.startswith(mark):
                return name
        if zeros := head.count(0):
            odd, even = head[1::2].count(0), head[::2].count(0)
            if zeros < len(head) / 4 or min(odd, even) > 0.1 * max(odd, even):
                raise DataError(f"{field}: '{path}' holds bytes that are not text; convert it to CSV or Parquet")
            return "utf-16-le" if odd > even else "utf-16-be"
        file.seek(0)
        try:
            _decode(file, "utf-8")
            return "utf-8"
        except UnicodeDecodeError:
            file.seek(0)
        if usual is not None:
            with contextlib.suppress(UnicodeError):
                _decode(file, usual)
                return usual
            file.seek(0)
        return _western(file, path, field)


def _western(file: IO[bytes], path: Path, field: str) -> str:
    """Return ``WESTERN`` if the file may be in this encoding. Raises ``DataError`` if it cannot be, or if some lines
    are in UTF-8 and others in another encoding.

    A file in another single-byte encoding may also be taken for ``WESTERN``.
    """
    mixed = wrong = 0
    for number, line in enumerate(file, start=1):
        if line.isascii():
            continue
        try:
            line.decode()
            mixed = mixed or number
        except UnicodeDecodeError:
            wrong = wrong or number
            text = line.decode(WESTERN, errors="replace")
            if "\ufffd" in text or _FOREIGN.search(text):
                raise DataError(
                    f"{field}: '{path}' is not UTF-8 (first in line {number}), and its encoding cannot be recognised; "
                    "save it as UTF-8"
                    + _or(field, "name it (data.encoding: cp1250, cp1251, cp850, mac_roman, gb18030, ...)", _IN_EXCEL)
                ) from None
        if mixed and wrong:
            raise DataError(
                f"{field}: '{path}' is UTF-8 in line {mixed} and another encoding in line {wrong}; save all of it as "
                f"UTF-8{_or(field, f'name one encoding (data.encoding: {WESTERN})', _IN_EXCEL)}"
            )
    return WESTERN


def _or(field: str, key: str, other: str) -> str:
    """Return the end of an error message: the advice ``key`` if ``field`` is a configuration key, else the text
    ``other``.
    """
    return f", or {key}" if field.startswith("data.") else other


def _numbered(lines: Sequence[str], separator: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=separator)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error:  # a field is too long: the rows before it are enough
        return


def _usual(rows: Sequence[tuple[int, list[str]]]) -> tuple[int, float]:
    """Return the most frequent number of fields, and the share of rows with this number."""
    widths = Counter(len(row) for _, row in rows if row)
    if not widths:
        return 0, 0.0
    width, count = widths.most_common(1)[0]
    return width, count / widths.total()


def _separator(lines: Sequence[str], path: Path, field: str, usual: str | None) -> str:
    """Return the separator with which the largest share of lines has the same number of fields. If several separators
    fit equally well, ``usual`` is preferred.

    Raises ``DataError`` if several fit equally well and none is ``usual``, or if spaces separate the columns.
    """
    fits = {each: _usual(list(_numbered(lines, each))) for each in SEPARATORS}
    several = {each: fit for each, fit in fits.items() if fit[0] > 1}
    if not several:
        if _usual([(0, line.split()) for line in lines if line.strip()])[0] > 1 and _aligned(lines):
            raise DataError(
                f"{field}: '{path}' has columns separated by spaces; write it with commas: python -c \"import pandas; "
                f"pandas.read_csv({str(path)!r}, sep=r'\\s+').to_csv({str(path.with_suffix('.commas.csv'))!r}, "
                'index=False)"'
            )
        return ","
    best = max(share for _, share in several.values())
    alike = [each for each, (_, share) in several.items() if share == best]
    if usual in alike:
        return usual
    if len(alike) > 1:
        choices = " or ".join(f"{SEPARATORS[each]} ({several[each][0]} columns)" for each in alike)
        remedy = "write its columns with commas between them, and texts that contain commas in quotation marks"
        raise DataError(
            f"{field}: '{path}' may be separated by {choices}; "
            + ("name one (data.separator)" if field.startswith("data.") else remedy)
        )
    return alike[0]


def _aligned(lines: Sequence[str]) -> bool:
    """Whether fields are separated by spaces: all lines have the same number of words, and some line has two spaces in
    a row.
    """
    widths = {len(line.split()) for line in lines if line.strip()}
    return len(widths) == 1 and len(lines) > 2 and any("  " in line.strip() for line in lines)


def _titles(rows: Sequence[tuple[int, list[str]]]) -> int:
    width = _usual(rows)[0]
    for at, (_, row) in enumerate(rows):
        filled = [cell for cell in row if cell.strip()]
        if (len(filled) > 1 and len(row) >= width - 1) or len(row) == width == 2:
            return at if len(row) == width and not holds_values(row) else 0
    return 0


def holds_values(names: Sequence[str]) -> bool:
    """Whether a line of column names seems to contain values: at least two numbers, but not whole numbers in order,
    such as years or positions.

    >>> holds_values(["63.0", "1.0", "1.0", "145.0"]), holds_values(["hospital", "2019", "2020", "2021"])
    (True, False)
    """
    numbers = [float(name) for name in names if re.fullmatch(r"\s*-?\d+(\.\d*)?\s*", name)]
    steps = [b - a for a, b in pairwise(numbers)]
    listed = all(number.is_integer() for number in numbers) and (min(steps, default=1) > 0 or len(set(steps)) == 1)
    return len(numbers) > 1 and not listed
