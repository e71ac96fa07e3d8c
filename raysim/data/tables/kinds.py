"""Recognise the kind of a column of texts: numbers, truth values, dates, categories, or numbers among other texts.

The kind follows from the values, in the same way for a CSV file, a Parquet file and a data frame. A column of numbers
with a few other texts is not categorical, because one stray ``<0.3`` would make each number a category.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from raysim.core.plain_yaml import scalar
from raysim.core.words import counted, some
from raysim.data.tables.rules import FALSE, MISSING, NUMBER, TRUE

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["empty", "number", "truth", "category", "date", "mixed"]
Form = Literal["limit", "comma", "grouped", "date", "unit", "code", "pair", "absent", "other"]

SPACES = " \u00a0\u2009\u202f"
"""The blanks that may separate the thousands of a number, for use in a regular expression."""

_NUMBER, _ZEROS = re.compile(NUMBER), re.compile(r"[+-]?0[0-9]")
_LETTERS = r"[^\W\d_]"
_DAY = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|"
    rf"\d{{1,2}}\.?[- ]?{_LETTERS}{{3,9}}\.?[- ]?\d{{2,4}}|{_LETTERS}{{3,9}}\.? \d{{1,2}},? \d{{4}}"
)
_MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_TIME = r"\d{1,2}:[0-5]\d(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp][Mm])?(?:Z|[+-]\d{2}:?\d{2})?"
_DAYS = rf"-?\d+ days?(?:,? [+-]?{_TIME})?"
_FORMS: tuple[tuple[Form, re.Pattern[str]], ...] = (
    ("limit", re.compile(rf"(?:<=?|>=?|≤|≥)\s*(?:{NUMBER})")),
    ("comma", re.compile(r"[+-]?\d+,\d+")),
    (
        "grouped",
        re.compile(
            rf"[+-]?\d{{1,3}}(?:(?:,\d{{3}})+|(?:\.\d{{3}})+|(?:[{SPACES}]\d{{3}})+|(?:['’]\d{{3}})+)(?:[.,]\d+)?"
        ),
    ),
    ("date", re.compile(rf"(?:{_DAY})(?:[T ]\s?{_TIME})?|{_TIME}|{_DAYS}|{_MONTH}-\d{{2}}|\d{{1,2}}-{_MONTH}")),
    ("unit", re.compile(r"(?:(?:<=?|>=?|≤|≥)\s*)?[+-]?\d+(?:[.,]\d+)?\s*[A-Za-zµμ°%][A-Za-zµμ°%/²³^*·.]*")),
    ("code", re.compile(r"[A-Za-z]{1,3}[-.]?\d[\w.]*")),
    ("pair", re.compile(r"\d+/\d+")),
    (
        "absent",
        re.compile(
            r"(?i:[?.*#_-]+|n\.?/?[adk]\.?|k\.?a\.?|unk(?:nown)?|missing|none|pending|error|"
            r"not (?:done|known|recorded|available|reported)|#(?:REF|DIV/0|VALUE|NAME|NUM)[!?])"
        ),
    ),
)
_AMOUNT = re.compile(r"(?:(?:<=?|>=?|≤|≥)\s*)?[+-]?\d+(?:[.,]\d+)?\s*")
_FEW = 12
"""A column of texts such as ``5 mg`` may be categories if it has at most this many different values."""

_FEW_MARKS = 3
"""A column of numbers may have texts such as ``hemolysed`` in most rows, but at most this many different ones."""

_SHOWN, _LONGEST = 5, 20
"""The largest number of a column's texts in a message, and of characters of each text."""


@dataclass(frozen=True)
class Finding:
    """What was found in a column of texts.

    - ``kind``: the kind of the column; ``mixed`` means numbers with a few other texts among them.
    - ``rows``, ``recorded``: number of rows, and of rows with a value.
    - ``numbers``, ``different``: number of rows with a number, and number of different numbers.
    - ``categories``: number of different texts, numbers included.
    - ``marks``: number of rows with each mark (a text that is not a number), the most frequent first.
    - ``forms``: number of rows with a mark of each form; ``<0.3``, for example, has the form ``limit``.
    - ``first``: the first row with a mark, counted from 1 in the column.
    - ``zeros``: whether some numbers have leading zeros, which suggests codes.
    """

    kind: Kind
    rows: int
    recorded: int = 0
    numbers: int = 0
    different: int = 0
    categories: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    forms: Mapping[Form, int] = field(default_factory=dict)
    first: int | None = None
    zeros: bool = False

    @property
    def examples(self) -> str:
        """The most frequent texts that are not numbers, with their numbers of rows:
        ``'<0.3' (45), '?' (16) and 2 more``.
        """
        return some([f"'{_short(mark)}' ({n:,})" for mark, n in self.marks.items()], _SHOWN)

    def of(self, *forms: Form) -> list[str]:
        """Return the texts that are not numbers and have one of the ``forms``, the most frequent first."""
        return [mark for mark in self.marks if _form(mark.strip()) in forms]

    @property
    def censored(self) -> dict[str, str]:
        """A proposal of how to read values beyond a limit, such as ``<0.3``: one of
        :data:`raysim.data.tables.rules.RULES` for each sign (``<``, ``>``) that occurs.
        """
        signs = {mark.strip()[0] for mark in self.of("limit", "unit")}
        return {sign: rule for sign, alike, rule in _LIMITS if signs & set(alike)}

    @property
    def units(self) -> list[str]:
        """The units after numbers, as spelled in the column, the most frequent first."""
        return list(dict.fromkeys(_AMOUNT.sub("", mark.strip()) for mark in self.of("unit")))

    def keys(self, name: str) -> tuple[str, ...]:
        """Return alternative lines of YAML for the section ``data``. The lines define how to read the texts among the
        column's numbers.
        """
        lines = []
        if units := self.units if self.one_unit else ():
            spelled = ", ".join(json.dumps(unit, ensure_ascii=False) for unit in units)
            lines.append(f"units: {{{scalar(name)}: [{spelled}]}}")
        if self.censored:
            rules = [f'"{sign}": {rule}' for sign, rule in self.censored.items()]
            lines.append(f"censored: {{{', '.join(rules)}}}")
        if self.forms.get("comma"):
            lines.append('decimal: ","')
        if absent := self.of("absent", "other", "code", "pair"):
            written = [json.dumps(_short(mark), ensure_ascii=False) for mark in absent[:_SHOWN]]
            lines.append(f"na_values: {{{scalar(name)}: [{', '.join(written)}{', ...' * (len(absent) > _SHOWN)}]}}")
        return (*lines, f"categorical: [{scalar(name)}, ...]")

    @property
    def one_unit(self) -> bool:
        """Whether the column has exactly one unit, apart from capitals."""
        return len({unit.casefold() for unit in self.units}) == 1


_LIMITS = (("<", "<≤", "half"), (">", ">≥", "limit"))
_DATED = re.compile(r"date|datum|fecha|time|zeit|dob|birth|geburt|naissance", re.IGNORECASE)
_DAY_ONE, _DAYS_OF = date(1899, 12, 30), (14_610, 73_050)  # 1940 to 2099 in spreadsheets' days


def find(values: pd.Series[Any] | pa.Array | pa.ChunkedArray) -> Finding:
    """Recognise the kind of a column of texts ``[N]`` and count its texts. A missing value is null or one of
    :data:`MISSING`.
    """
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=True)
    column = (
        column if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else pc.cast(column, "str")
    )
    counts = pc.value_counts(column)
    texts, rows = counts.field("values"), counts.field("counts")
    # Arrow recognises most numbers, far more quickly than the loop below.
    trimmed = pc.utf8_trim_whitespace(texts)
    plain = pc.fill_null(pc.match_substring_regex(trimmed, f"^(?:{NUMBER})$"), False)
    written_numbers, others = trimmed.filter(plain), pc.invert(plain)
    numbers, different = pc.sum(rows.filter(plain)).as_py() or 0, len(written_numbers)
    zeros = bool(pc.any(pc.match_substring_regex(written_numbers, f"^{_ZEROS.pattern}")).as_py())
    binary = pc.all(pc.is_in(written_numbers, pa.array(TRUE + FALSE, column.type)), min_count=0).as_py()
    marks = Counter[str]()
    for text, n in zip(texts.filter(others).to_pylist(), rows.filter(others).to_pylist(), strict=True):
        if text is None or (written := text.strip()) in MISSING:
            continue
        if _NUMBER.fullmatch(written):
            numbers, different = numbers + n, different + 1
            zeros, binary = zeros or _ZEROS.match(written) is not None, binary and written in TRUE + FALSE
        else:
            marks[text] = n
    recorded, forms = numbers + marks.total(), Counter[Form]()
    for mark, n in marks.items():
        forms[_form(mark.strip())] += n
    first = pc.index(pc.is_in(column, value_set=pa.array(list(marks), column.type)), True).as_py() if marks else -1
    return Finding(
        kind="truth"
        if marks and binary and not set(marks) - {*TRUE, *FALSE}
        else _kind(numbers, different, marks, forms),
        rows=len(column),
        recorded=recorded,
        numbers=numbers,
        different=different,
        categories=different + len(marks),
        marks=dict(marks.most_common()),
        forms=dict(forms),
        first=first + 1 if marks else None,
        zeros=zeros,
    )


def _kind(numbers: int, different: int, marks: Mapping[str, int], forms: Mapping[Form, int]) -> Kind:
    recorded = numbers + sum(marks.values())
    if not recorded:
        return "empty"
    if not marks:
        return "number"
    dates = forms.get("date", 0)
    if 2 * dates > recorded or (dates >= numbers and dates == recorded - numbers):
        return "date"  # a spreadsheet may have turned some dates into numbers
    # Marks of "no value" are no evidence for the kind of the other values, however many there are.
    telling = recorded - forms.get("absent", 0)
    like = numbers + sum(forms.get(form, 0) for form in ("limit", "unit", "comma", "grouped"))
    if not like or 2 * like <= telling:
        # A few marks in most rows, such as "hemolysed", do not make categories of a measurement.
        marked = different > _FEW and len(marks) <= _FEW_MARKS and not forms.get("code")
        return "mixed" if marked else "category"
    few = different + len(marks) <= _FEW
    codes = forms.get("code", 0) + (forms.get("pair", 0) if few else 0)
    if numbers and codes == recorded - numbers:
        return "category"  # for example ICD-9: 250.00, V45.81
    # Without a plain number, limits and units may be levels: <18, >65; 5 mg, 10 mg.
    separated = forms.get("comma") or forms.get("grouped")
    if not numbers and not separated and (few or not forms.get("unit")):
        return "category"
    return "mixed"


def dates_of(name: str, values: NDArray[np.float64]) -> str | None:
    """Return the first and last day of a column of numbers ``[N]`` that are probably dates; None for another column.

    Dates are numbers such as ``20200131`` or, if the column's name suggests dates, spreadsheets' numbers of days
    (``43861``).
    """
    recorded = values[~np.isnan(values)]
    if not len(recorded):
        return None
    low, high = recorded.min(), recorded.max()
    if low >= 19_000_101 and high <= 20_991_231 and (recorded == np.floor(recorded)).all():
        months, days = recorded // 100 % 100, recorded % 100
        if min(months.min(), days.min()) < 1 or months.max() > 12 or days.max() > 31:
            return None
        return " to ".join(f"{int(day):08d}" for day in (low, high))
    if _DATED.search(name) and _DAYS_OF[0] <= low and high <= _DAYS_OF[1]:
        return " to ".join(str(_DAY_ONE + timedelta(int(day))) for day in (low, high))
    return None


def described(name: str, found: Finding, row: int | None, categories: bool = True) -> str:
    """Describe what is wrong with a column of dates, or of numbers mixed with other texts, and how to correct it.

    ``row`` is the first row with a date or other text, as numbered in the file. ``categories`` says whether the column
    may be read as categories.
    """
    if found.kind == "date":
        return (
            f"column '{name}' holds dates or times in {counted(found.forms['date'], 'row')} (first: row {row}), "
            "neither numbers nor text; drop it (data.drop) or convert it into a number, such as days since admission"
        )
    keys = found.keys(name)[: None if categories else -1]
    several = found.units and not found.one_unit
    correct = f"convert its units ({', '.join(found.units[:_SHOWN])}) in the file" if several else "correct the file"
    alternatives = ", ".join(keys[:-1]) + f" or {keys[-1]}" if categories and keys[1:] else ", ".join(keys)
    say = f"set how to read them in data ({alternatives}), or " if keys else ""
    return (
        f"column '{name}' holds numbers in {counted(found.numbers, 'row')} and other marks in "
        f"{counted(found.recorded - found.numbers, 'row')} (first: row {row}): {found.examples}; {say}{correct}"
    )


def _form(text: str) -> Form:
    return next((form for form, pattern in _FORMS if pattern.fullmatch(text)), "other")


def _short(mark: str) -> str:
    return mark if len(mark) <= _LONGEST else f"{mark[: _LONGEST - 1]}…"
