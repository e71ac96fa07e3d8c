"""What checks of a table found before training: plain values that a federation keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["warn", "ask", "list"]
LEVELS: tuple[Level, ...] = ("warn", "ask", "list")


@dataclass(frozen=True)
class Suspect:
    """Something in a table that may be other than it seems.

    ``warn``: it is almost certainly wrong. ``ask``: a person should say what it is. ``list``: it may be right.
    """

    feature: str
    """The name of the column in the source; empty where it is about hospitals, patients or the label."""
    level: Level
    text: str
    """What is suspect, in a sentence that names the column, and what to do."""


@dataclass(frozen=True)
class Leaks:
    """Which columns may give the label away."""

    suspects: tuple[Suspect, ...] = ()
    """At most one for each column, the gravest first."""
    note: str = ""
    """What was checked, and what could not be; empty: nothing was."""

    @staticmethod
    def of(tree: Mapping[str, Any]) -> Leaks:
        """The inverse of ``dataclasses.asdict``, from JSON values."""
        return Leaks(suspects_of(tree.get("suspects", ())), tree.get("note", ""))


def suspects_of(trees: Any) -> tuple[Suspect, ...]:
    """Suspects from JSON values."""
    return tuple(Suspect(**each) for each in trees)
