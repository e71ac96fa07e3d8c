"""The decision card: what a comparison, or one run, says to a reader who has to act on it.

A card has lines in a fixed order (:data:`FACTS`), each with a state and one sentence, and a headline that is composed
last. A line that ``forbids`` use stands in the headline, too. Pages, the terminal and ``answer.json`` render the same
card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal

State = Literal["ok", "warn", "open"]
Use = Literal["none", "ranking", "risks", "values"]
Federate = Literal["yes", "no", "equal", "not shown", "not tested"]
Role = Literal["taken", "method", "reference"]

FACTS = (
    "predicts",
    "quality",
    "federate",
    "which",
    "harm",
    "calibration",
    "fairness",
    "training",
    "unseen",
    "limits",
    "leaks",
)
"""The facts that lines are about, in the order of the lines; documented in ``docs/answer.md``."""


@dataclass(frozen=True)
class Line:
    """A line of the card."""

    fact: str
    """What it is about, one of :data:`FACTS`."""
    state: State
    """``ok``: demonstrated; ``warn``: a fault is demonstrated; ``open``: these data leave it open."""
    text: str
    """A sentence or a few, with an interval where one has a number."""
    figure: Mapping[str, Any] | None = None
    """The numbers behind the sentence, ready for JSON; None: there are none."""
    remedy: str = ""
    """What to do about it; may be empty."""
    forbids: bool = False
    """Whether it forbids a use of the model: it then stands in the headline."""
    short: str = ""
    """What is wrong as a clause, as the headline and the terminal have it; empty where the line does not warn."""
    setting: str = ""
    """The setting that is the remedy, as ``--set`` takes it; empty where a person has to choose."""


@dataclass(frozen=True)
class Way:
    """A row of the card: a method, or several that have the same figure at every hospital."""

    name: str
    """Its name as on pages."""
    key: tuple[str, str]
    """The label of its strategy and the model used."""
    role: Role
    """``taken``: the card is about this one; ``reference``: training alone or on pooled rows; else ``method``."""
    mean: float
    """Its mean headline figure over hospitals and seeds."""
    difference: float = float("nan")
    """Its mean less that of the one taken; NaN for that itself."""
    low: float = float("nan")
    """The lower limit of the simultaneous interval of ``difference``; NaN where there is none."""
    high: float = float("nan")
    """The upper limit."""
    verdict: str = ""
    """``better``, ``worse``, ``equal``, ``no difference`` (none was found), ``one seed`` (not compared), or empty."""
    also: tuple[str, ...] = ()
    """The names of others that have the same figure at every hospital."""


@dataclass(frozen=True)
class Card:
    """The card of a comparison or of one run."""

    what: str
    """What is predicted, for how many hospitals, patients and events, and what was run."""
    headline: str
    """What to do, with the facts that forbid use."""
    lines: tuple[Line, ...]
    """In the order of :data:`FACTS`."""
    ways: tuple[Way, ...]
    """The one taken first, then references, then the others by their mean."""
    use: Use
    """What the model taken may be used for."""
    federate: Federate
    """Whether federating is better than training alone."""
    recommended: str | None
    """The label of the strategy to take, as ``answer.json`` names it; None: none is recommended."""
    taken: str
    """The name of the model that the card is about, as on pages; may be empty."""
    predicts: str
    """What is predicted, such as ``death in hospital``."""
    calibration: Mapping[str, Any] | None = None
    """``estimate``, ``low``, ``high``, ``state``, ``at_least``, ``of``, ``named``; None: it was not measured."""
    harmed: Mapping[str, Any] | None = None
    """``against``, ``at_least``, ``of``, ``named``; None: there is nothing to compare with."""

    @property
    def forbids(self) -> tuple[Line, ...]:
        """The lines that forbid a use."""
        return tuple(line for line in self.lines if line.forbids)

    def line(self, fact: str) -> Line | None:
        """The first line about ``fact``; None where there is none."""
        return next((line for line in self.lines if line.fact == fact), None)

    def as_json(self) -> dict[str, Any]:
        """The part of ``answer.json`` that is the card's; what is not finite is None."""
        return {
            "predicts": self.predicts,
            "what": self.what,
            "headline": self.headline,
            "use": self.use,
            "forbids": [{"fact": line.fact, "figure": line.figure, "remedy": line.remedy} for line in self.forbids],
            "federate": self.federate,
            "calibration": None if self.calibration is None else dict(self.calibration),
            "harmed": None if self.harmed is None else dict(self.harmed),
            "taken": self.taken,
            "lines": [_plain(line) for line in self.lines],
            "ways": [_plain(way) for way in self.ways],
        }

    @staticmethod
    def read(tree: Mapping[str, Any]) -> Card:
        """The card in the content of ``answer.json``."""
        return Card(
            tree["what"],
            tree["headline"],
            tuple(Line(**line) for line in tree["lines"]),
            tuple(_way(way) for way in tree["ways"]),
            tree["use"],
            tree["federate"],
            tree["recommended"],
            tree["taken"],
            tree["predicts"],
            tree["calibration"],
            tree["harmed"],
        )


def _plain(part: Line | Way) -> dict[str, Any]:
    """Its fields as JSON has them, with None for a number that is not finite."""
    fields = {field.name: getattr(part, field.name) for field in dataclass_fields(part)}
    return {name: _value(value) for name, value in fields.items()}


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return list(value) if isinstance(value, tuple) else value


def _way(tree: Mapping[str, Any]) -> Way:
    numbers = {name: math.nan if tree[name] is None else tree[name] for name in ("mean", "difference", "low", "high")}
    return Way(**{**tree, **numbers, "key": tuple(tree["key"]), "also": tuple(tree["also"])})
