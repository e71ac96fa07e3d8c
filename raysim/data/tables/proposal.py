"""Propose the roles of a table's columns: hospital, label, patient, sex, age, ethnicity, and columns to drop.

Proposals are based on names and values. A proposal for the hospital, label or patient column includes a reason and the
other possible columns. Without evidence for a role, no column is proposed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raysim.core.words import counted
from raysim.data.columns import UNNAMED
from raysim.data.records import natural
from raysim.data.tables.columns import plain_text, whole_names
from raysim.data.tables.kinds import Finding, dates_of, find
from raysim.data.tables.labels import event_of

_OF = r"(id|name|no|nr|num|number|code|key|hash)?"  # "of it", as in hospital_id
_HOSPITAL = re.compile(
    r"(hosp|hospital|site|silo|cent(er|re)|clinic|institut(e|ion)|facility|trust|klinik|krankenhaus|spital|zentrum|"
    rf"hopital|centro|ziekenhuis|study|trial){_OF}"
)
_PLACE = re.compile(rf"(name|ward|unit|station|region|department|state|country|cohort|source|provider|practice){_OF}")
_OUTCOME = re.compile(
    r"outcome|label|target|died|death|dead|deceased|mort|expired?|surviv|dischargestatus|readmi|relapse|recurrence|"
    r"(ver|ge)storben|deces|exitus"
)
_RESULT = re.compile(r"y|e|event|class|status|num|result|diagnosis|disease|income|response")
_STAYED = "lengthofstay|(verweil|liege|aufenthalts)(dauer|tage)|duree(de)?sejour"
_AMOUNT = re.compile(rf"los|{_STAYED}|losdays|icudays|cost|costs|charges|expenditure")
_PATIENT = re.compile(rf"(unique)?(patient|pat|subject|person|case|mrn|p|participant|individual){_OF}")
_ATTRIBUTES = {
    "sex": re.compile(r"sex|gender|geschlecht|sexe"),
    "age": re.compile(r"age|alter|ageyears|ageatindex|ageatadmission|anchorage"),
    "ethnicity": re.compile(r"ethnicity|ethnicgroup|race"),
}
_STAY = re.compile(
    rf"(icu|patientunit|unit|hospital|hosp)?(stay|encounter|admission|visit|episode|fall|sejour|hadm){_OF}"
)
_LATER = re.compile(rf"discharge|entlass|sortie|{_STAYED}|actual.*days$|los(days?|hours?)?$")
_FOLLOWED = re.compile(
    r"t|time|d\.?time|fu_?time|follow_?up\w*|(time|days)_?to_?\w+|(os|pfs|dfs)(_?(time|days|months))?", re.I
)
_READMITTED, _EVENT = re.compile("readm|relapse|recurr"), re.compile(r"e|event|status|death|dead|died", re.IGNORECASE)
_BLANK = re.compile(r"[?.*#_-]+")
"""The pattern of texts such as ``?`` or ``--``, which mean a missing category."""

_MOST_CLASSES, _MOST_CATEGORIES, _FEW = 20, 100, 20


@dataclass(frozen=True)
class Choice:
    """The column proposed for a role (None without evidence), the reason, and the other possible columns."""

    column: str | None
    why: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """The proposed roles of a table's columns; ``rows`` is the table's number of rows.

    - ``attributes``: the columns of the patient's sex, age and ethnicity, by the attribute's configuration key.
    - ``drop``: the columns that should not be features, each with the reason.
    - ``numbers``, ``categories``: the numbers of columns of each kind that remain as features.
    - ``event``: the class to propose for the key ``positive``; None if the key is not needed.
    - ``classes``: the classes of the label with their numbers of rows; empty for a real-valued label.
    - ``censored``: the proposed rule for reading values beyond a limit, such as ``<0.3``, by sign (``<``, ``>``).
    - ``na_values``: for each column, the texts that mean a missing value. ``units``: the units that follow its numbers.
    - ``marks``: for each column of numbers with other texts, the most frequent of these, joined in one text. Only
      columns whose other texts are all limits, numbers with the same unit or missing values are included.
    """

    rows: int
    hospital: Choice
    label: Choice
    patient: Choice
    attributes: dict[str, str]
    drop: dict[str, str]
    numbers: int
    categories: int
    task: Literal["classification", "regression"]
    event: str | None
    classes: dict[str, int]
    censored: dict[str, str]
    na_values: dict[str, list[str]]
    units: dict[str, list[str]]
    marks: dict[str, str]


@dataclass(frozen=True)
class _Column:
    """A column, what was found in its texts, its number of different values and, if these are few, the number of rows
    with each.

    - ``whole``: whether the values are whole numbers.
    - ``dense``: whether the values are whole numbers that fill at least half of their range.
    - ``dates``: the first and last day of numbers that are probably dates; None for other values.
    """

    name: str
    found: Finding
    counts: dict[str, int]
    distinct: int
    whole: bool = False
    dense: bool = False
    dates: str | None = None

    @property
    def squashed(self) -> str:
        """The name in small letters, without accents, blanks and signs."""
        return re.sub(r"[\W_]", "", unicodedata.normalize("NFKD", self.name)).casefold()

    @property
    def complete(self) -> bool:
        return self.found.recorded == self.found.rows

    @property
    def every_row(self) -> bool:
        return self.distinct == self.found.rows >= _FEW


def propose(table: pa.Table, named_after: bool = False) -> Proposal:
    """Propose the roles of the columns of ``table``. ``named_after`` says whether the table's files are named after
    hospitals.
    """
    columns = _columns(table)
    attributes = _attributes(columns)
    patient = _patient(columns)
    left = [column for column in columns if column.name not in (*attributes.values(), patient.column)]
    hospital = Choice(None, "the names of the files") if named_after else _hospital(left)
    label, outcomes = _label([column for column in left if column.name != hospital.column])
    left = [column for column in columns if column.name not in (hospital.column, patient.column, label.column)]
    chosen = next((column for column in columns if column.name == label.column), None)
    drop = {column.name: reason for column in left if (reason := _no_feature(column, outcomes, label.column or ""))}
    features = [column for column in left if column.name not in drop]
    mixed = [column for column in features if _settled(column.found)]
    categories = sum(column.found.kind == "category" for column in features)
    task: Literal["classification", "regression"] = "classification"
    classes: dict[str, int] = {}
    if chosen is not None:
        classes = {name: chosen.counts[name] for name in natural(chosen.counts)} if chosen.counts else {}
        task = "classification" if classes else "regression"
    return Proposal(
        rows=table.num_rows,
        hospital=hospital,
        label=label,
        patient=patient,
        attributes={key: name for key, name in attributes.items() if name not in drop},
        drop=drop,
        numbers=len(features) - categories,
        categories=categories,
        task=task,
        event=event_of(list(classes)),
        classes=classes,
        censored={sign: rule for each in mixed for sign, rule in each.found.censored.items()},
        na_values={each.name: absent for each in features if (absent := _absent(each.found))},
        units={each.name: each.found.units for each in mixed if each.found.units},
        marks={each.name: each.found.examples for each in mixed},
    )


def _settled(found: Finding) -> bool:
    return (
        found.kind == "mixed"
        and found.forms.keys() <= {"limit", "absent", "unit"}
        and (not found.units or found.one_unit)
    )


def _absent(found: Finding) -> list[str]:
    if found.kind == "category":
        return [mark for mark in found.marks if _BLANK.fullmatch(mark.strip())]
    return found.of("absent") if _settled(found) else []


def _columns(table: pa.Table) -> list[_Column]:
    columns = []
    for field in table.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            columns.append(_Column(field.name, Finding("date", table.num_rows), {}, 0))
            continue
        texts = whole_names(plain_text(table, field.name, "data"))
        counts = pc.value_counts(texts.drop_null())
        few = {}
        if len(counts) <= 10 * _MOST_CATEGORIES:
            few = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
        found = find(texts)
        whole = found.kind == "number" and pc.all(pc.match_substring_regex(texts, r"^\s*-?[0-9]+\s*$")).as_py()
        dense = False
        dates = None
        if found.kind == "number":
            numbers = pc.cast(pc.utf8_trim_whitespace(texts), pa.float64()).to_numpy()
            dates = dates_of(field.name, numbers)
            dense = whole and 2 * len(counts) >= np.nanmax(numbers) - np.nanmin(numbers) + 1
        columns.append(_Column(field.name, found, few, len(counts), whole, dense, dates))
    return columns


def _hospital(columns: Sequence[_Column]) -> Choice:
    """Propose a hospital column: one whose name suggests hospitals, else the only one whose name suggests a place."""
    able = [column for column in columns if _may_be_hospitals(column)]
    by_name = [column for column in able if _names_hospitals(column)]
    if by_name:
        return _first(by_name, "its name says so")
    places = [column for column in able if _PLACE.fullmatch(column.squashed)]
    if len(places) == 1:
        single = [
            f"'{column.name}' has one value" for column in columns if column.distinct == 1 and _names_hospitals(column)
        ]
        why = single[0] if single else "no column is called hospital, site, centre or the like"
        return _first(places, f"{why}, and this one may name hospitals")
    texts = [column.name for column in able if column.found.kind == "category" and not _OUTCOME.search(column.squashed)]
    return Choice(None, "", tuple(column.name for column in places) or tuple(texts))


def _names_hospitals(column: _Column) -> bool:
    return _HOSPITAL.fullmatch(column.squashed) is not None


def _may_be_hospitals(column: _Column) -> bool:
    return 2 <= column.distinct <= column.found.rows / 2 and bool(column.counts)


def _patient(columns: Sequence[_Column]) -> Choice:
    many = [column for column in columns if column.distinct > column.found.rows / 20 and column.found.kind != "date"]
    by_name = [column for column in many if _PATIENT.fullmatch(column.squashed)]
    if not by_name:  # rows of one stay also belong together
        by_name = [column for column in many if _STAY.fullmatch(column.squashed) and not column.every_row]
    if not by_name:
        return Choice(None, "no column has such a name")
    first = min(
        by_name, key=lambda column: column.distinct
    )  # the coarser column is the person: a person has several stays
    rest = tuple(column.name for column in by_name if column is not first)
    several = first.found.rows - first.distinct
    why = "its name says so" + ("; each has one row" if not several else "; some have several rows")
    return Choice(first.name, why, rest)


def _attributes(columns: Sequence[_Column]) -> dict[str, str]:
    found = {}
    for key, pattern in _ATTRIBUTES.items():
        named = [column for column in columns if pattern.fullmatch(column.squashed) and column.distinct > 1]
        named = [column for column in named if key != "age" or column.found.kind == "number" or _settled(column.found)]
        if named:
            found[key] = named[0].name
    return found


def _label(columns: Sequence[_Column]) -> tuple[Choice, tuple[str, ...]]:
    """Propose the column to predict; also return all columns whose names suggest an outcome."""
    few = [column for column in columns if 2 <= column.distinct <= _MOST_CLASSES and column.found.kind != "date"]
    named = [column for column in few if _OUTCOME.search(column.squashed)]
    others = tuple(column.name for column in columns if _OUTCOME.search(column.squashed) and column.distinct > 1)
    ranked = sorted(named, key=lambda column: (not column.complete, column.distinct != 2))
    if not ranked:
        ranked = [column for column in few if _RESULT.fullmatch(column.squashed)]
        ranked.sort(key=lambda column: (not column.complete, column.distinct != 2))
    if ranked:
        return _first(ranked, "its name suggests an outcome"), others
    amounts = [column for column in columns if _AMOUNT.fullmatch(column.squashed) and column.found.kind == "number"]
    if amounts:
        return _first(amounts, "its name suggests an amount to predict"), others
    two = tuple(column.name for column in few if column.distinct == 2)
    return Choice(None, "", two), others


def _first(columns: Sequence[_Column], why: str) -> Choice:
    first, *others = columns
    gaps = f"; {counted(first.found.rows - first.found.recorded, 'row')} have no value" if not first.complete else ""
    return Choice(first.name, why + gaps, tuple(column.name for column in others))


def _no_feature(column: _Column, outcomes: Sequence[str], label: str) -> str:
    """Return why a column should not be a feature; an empty text if it may be one."""
    if column.name in outcomes:
        return "its name suggests an outcome, too"
    if column.found.kind == "date":
        return "dates or times"
    if column.dates:
        return f"numbers that are probably dates, {column.dates}"
    if not column.distinct:
        return "no value"
    if column.distinct == 1:
        return "one value everywhere"
    if _LATER.search(column.squashed) and not _READMITTED.search(label.casefold()):
        return "its name suggests what is known at discharge"
    if _FOLLOWED.fullmatch(column.name) and _EVENT.fullmatch(label):
        return "its name suggests the time of the outcome"
    if UNNAMED.fullmatch(column.name.strip()):
        return "no name"
    if column.every_row and (
        column.found.kind == "category" or (column.whole and (column.dense or _is_key(column.name)))
    ):
        return "a different value in every row"
    if column.whole and _is_key(column.name) and column.distinct > _MOST_CATEGORIES:
        return f"{column.distinct:,} different numbers, named like a key"
    if column.found.kind == "category" and column.distinct > _MOST_CATEGORIES:
        return f"{column.distinct:,} different texts"
    return ""


def _is_key(name: str) -> bool:
    return re.search(r"(^|[\W_])(id|no|nr|key|index|row|number)$|id$", name, re.IGNORECASE) is not None
