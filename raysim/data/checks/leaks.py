"""Find columns of a table that may reveal its label (leaks), and numbers that may be codes.

Examples of leaks are a date of death, a code that is entered at discharge, and a laboratory value that is ordered only
for dying patients. The check reads the source's columns in all rows or, in a large table, in a sample of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.arrays import Ints
from raysim.core.words import counted
from raysim.data.checks.separation import FEWEST, Cells, Separation, separation
from raysim.data.checks.suspects import LEVELS, Leaks, Suspect, columns_at, in_order
from raysim.data.raw_columns import RawColumns

WARN, ASK, LIST = 0.95, 0.90, 0.80
"""Thresholds of a column's AUROC. The column is reported as a warning if the lower confidence limit is above ``WARN``;
else as a question if the AUROC is above ``ASK`` and the limit above ``ASK - _LOOSE``; else in a list if they are above
``LIST`` and ``LIST - _LOOSE``.
"""

FLAG = 0.80
"""A warning names a column if its missing values predict the label with an AUROC above this threshold."""

HIGH = 0.97
"""The AUROC above which a model's AUROC counts as unusually high."""

_LOOSE = 0.05  # how far the lower confidence limit may lie below the limit that the AUROC exceeds
_ROWS = 10  # fewest rows without a value, rows with a value, and rows with a code
_CODES = 3, 12  # fewest and most different whole numbers that may be codes
_RISES = 3.0  # fewest standard errors between the event shares of two codes
_CLASSES = 20  # largest number of classes that are each compared with the rest


def unusually_high(auroc: float) -> str:
    """Return a warning if a model's ``auroc`` is above :data:`HIGH`, else (also for NaN) an empty text."""
    if not auroc > HIGH:
        return ""
    return f"An AUROC of {auroc:.3f} is unusually high: look for a column that gives the label away."


def check(
    table: RawColumns, rows: Ints, home: Ints, hospitals: Sequence[str], y: NDArray[Any], classes: Sequence[str]
) -> Leaks:
    """Find columns that may reveal the label, and numbers that may be codes, in the rows ``rows [n]`` of ``table``.

    ``home [n]`` is the hospital of each row and ``y [n]`` its label: the index of a class, or a real number if
    ``classes`` is empty. With a real-valued label, no column is suspected of revealing it.
    """
    order = in_order(home)
    checks = _Checks(tuple(hospitals), home[order], y[order], tuple(classes), len(table.order))
    found, best = [], Separation(np.nan, np.nan, 0)
    strongest = ""
    for name, values in columns_at(table, rows[order]):
        suspect, strength = checks.numbers(name, values) if values.dtype.kind == "f" else checks.codes(name, values)
        if suspect is not None:
            found.append(suspect)
        if strength.hospitals and not strength.auroc <= best.auroc:
            best, strongest = strength, name
    found.sort(key=lambda suspect: LEVELS.index(suspect.level))
    return Leaks(tuple(found), checks.note(len(rows), best, strongest))


@dataclass(frozen=True, eq=False)
class _Checks:
    hospitals: tuple[str, ...]
    home: Ints
    y: NDArray[Any]
    classes: tuple[str, ...]
    columns: int

    @property
    def compared(self) -> range:
        """The classes that are each compared with the rest: only the positive class (index 1) if there are two classes,
        and none if there are more than ``_CLASSES``.
        """
        C = len(self.classes)
        return range(1, 2) if C == 2 else range(C if C <= _CLASSES else 0)

    def note(self, rows: int, best: Separation, strongest: str) -> str:
        if not self.classes:
            return "the label is a number: no column is compared with it"
        if not self.compared:
            return f"{len(self.classes)} classes are more than {_CLASSES}: no column is compared with them"
        H, C = len(self.hospitals), len(self.classes)
        of_class = np.bincount(self.home * C + self.y, minlength=H * C).reshape(H, C)
        rarer = np.minimum(of_class, of_class.sum(axis=1, keepdims=True) - of_class)
        judged = int((rarer >= FEWEST).any(axis=1).sum())
        if not strongest:
            return f"no hospital has {FEWEST} rows of a class and {FEWEST} others: no column is compared with the label"
        sampled = "" if rows == len(self.y) else f" on {len(self.y):,} of {rows:,} rows"
        against = "" if C == 2 else ", one class against the rest"
        return (
            f"{counted(self.columns, 'column')} compared with the label within {judged:,} of "
            f"{counted(H, 'hospital')}{sampled}{against}: '{strongest}' ranks best, "
            f"AUROC {best.auroc:.3f} ({max(best.low, 0.0):.3f} to {min(2 * best.auroc - best.low, 1.0):.3f})"
        )

    def numbers(self, name: str, values: NDArray[Any]) -> tuple[Suspect | None, Separation]:
        """Return a finding if a column of numbers may be a leak or contain codes, else None; and the column's AUROC."""
        missing = np.isnan(values)
        value, home, y = values, self.home, self.y
        if missing.any():
            value, home, y = (each[~missing] for each in (value, home, y))
        strength, event = Separation(np.nan, np.nan, 0), 0
        if self.compared and len(value):
            cells = Cells.of(home, value, y, len(self.classes))
            strength, event = _best((separation(cells, c), c) for c in self.compared)
        suspect = (
            self._absent(name, missing)
            or self._strong(name, strength, event, ASK)
            or self._coded(name, value, y)
            or self._strong(name, strength, event, LIST)
        )
        return suspect, strength

    def codes(self, name: str, codes: Ints) -> tuple[Suspect | None, Separation]:
        """Return a finding if a categorical column may be a leak, else None; and the column's AUROC."""
        strength, event = Separation(np.nan, np.nan, 0), 0
        if self.compared:
            cells = Cells.of(self.home, codes + 1, self.y, len(self.classes))
            rated = ((separation(cells.by_rate_elsewhere(c), 1, directed=True), c) for c in self.compared)
            strength, event = _best(rated)
        return self._absent(name, codes < 0) or self._strong(name, strength, event, LIST), strength

    def _strong(self, name: str, strength: Separation, event: int, limit: float) -> Suspect | None:
        if not _passes(strength, limit):
            return None
        ranks = f"feature '{name}' alone ranks {strength.auroc:.3f} of pairs within hospitals right{self._of(event)}"
        if strength.low > WARN:
            remedy = f"it is almost the label; drop it (data.drop: ['{name}']) unless it is known beforehand"
            return Suspect(name, "warn", f"{ranks}: {remedy}")
        if _passes(strength, ASK):
            return Suspect(name, "ask", f"{ranks}: is it recorded only after the outcome?")
        return Suspect(name, "list", ranks)

    def _of(self, event: int) -> str:
        return "" if len(self.classes) == 2 else f" ('{self.classes[event]}' against the rest)"

    def _absent(self, name: str, missing: NDArray[np.bool_]) -> Suspect | None:
        lacking = int(missing.sum())
        if not self.compared or min(lacking, len(missing) - lacking) < _ROWS:
            return None
        flagged = Cells.of(self.home, missing.astype(np.int64), self.y, len(self.classes))
        drop = f"drop it (data.drop: ['{name}']) unless that is known beforehand"
        of_class = np.bincount(self.y[missing], minlength=len(self.classes))
        of_all = np.bincount(self.y, minlength=len(self.classes))
        for lacks, count in (("missing", of_class), ("recorded", of_all - of_class)):
            for c in range(len(self.classes)):
                if count[c] == of_all[c] == count.sum():
                    text = (
                        f"feature '{name}' is {lacks} in all {count[c]:,} rows of '{self.classes[c]}' and in no other"
                    )
                    return Suspect(name, "warn", f"{text}; {drop}")
        strength, event = _best((separation(flagged, c), c) for c in self.compared)
        if not _passes(strength, FLAG):
            return None
        text = (
            f"a flag for missing values of feature '{name}' ranks {strength.auroc:.3f} of pairs within hospitals right"
        )
        return Suspect(name, "warn", f"{text}{self._of(event)}; {drop}")

    def _coded(self, name: str, value: NDArray[Any], y: NDArray[Any]) -> Suspect | None:
        """Report a column with few distinct whole numbers if the share of events rises and falls along them: they may
        be codes.
        """
        if len(self.classes) != 2 or not _few(value):
            return None
        values, code = np.unique(value, return_inverse=True)
        rows, events = np.bincount(code), np.bincount(code, y == 1)
        frequent = rows >= _ROWS
        rows, events = rows[frequent], events[frequent]
        if not _CODES[0] <= len(rows) or len(values) > _CODES[1] or (values != np.round(values)).any():
            return None
        share = (events + 0.5) / (rows + 1.0)
        spread = share * (1.0 - share) / rows
        apart = (share[:, None] - share) / np.sqrt(spread[:, None] + spread)
        before, after = np.tril(apart, -1), np.triu(apart, 1)
        top = (before.max(axis=1) > _RISES) & (after.max(axis=1) > _RISES)
        bottom = (before.min(axis=1) < -_RISES) & (after.min(axis=1) < -_RISES)
        if not (top | bottom).any():
            return None
        text = (
            f"feature '{name}' has {len(values)} different whole numbers, along which the share of events rises and "
            "falls"
        )
        return Suspect(name, "ask", f"{text}: are they codes? list it in data.categorical")


def _passes(strength: Separation, limit: float) -> bool:
    return strength.auroc > limit and strength.low > limit - _LOOSE


def _few(value: NDArray[Any]) -> bool:
    return len(np.unique(value[: 50 * _CODES[1]])) <= _CODES[1]


def _best(strengths: Iterator[tuple[Separation, int]]) -> tuple[Separation, int]:
    """Return the separation with the highest lower confidence limit, and its class."""
    listed = list(strengths)
    return max(listed, key=lambda each: -1.0 if np.isnan(each[0].auroc) else each[0].low)
