"""Findings of the checks of a table before training: plain values that are stored with a federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["warn", "ask", "list"]
LEVELS: tuple[Level, ...] = ("warn", "ask", "list")


@dataclass(frozen=True)
class Suspect:
    """Something in a table that may be other than it seems.

    Levels: ``warn``: it is almost certainly wrong. ``ask``: a person should decide. ``list``: it may be right.
    """

    feature: str
    """The name of the column in the source; empty for findings about hospitals, patients or the label."""
    level: Level
    text: str
    """A sentence that names the column, what is suspect about it, and what to do."""


@dataclass(frozen=True)
class Leaks:
    """The columns that may give the label away."""

    suspects: tuple[Suspect, ...] = ()
    """At most one finding for each column, the gravest first."""
    note: str = ""
    """What was checked and what could not be checked; empty where nothing was checked."""

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Leaks:
        """Read findings from JSON values; the inverse of ``dataclasses.asdict``."""
        return Leaks(suspects_of(tree.get("suspects", ())), tree.get("note", ""))


def suspects_of(trees: Any) -> tuple[Suspect, ...]:
    """Read suspects from JSON values."""
    return tuple(Suspect(**each) for each in trees)
