"""The decision card: the findings of a comparison or of one run for a reader who has to act on them.

A card has one line for each finding. The headline repeats the findings that forbid a use of the model. If one finding
forbids every use, the headline may omit the others. The card is shown on pages and in the terminal, and stored in
``answer.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any, Literal

from raysim.core.atomic import plain

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
"""The findings that a card reports, in order; documented in ``docs/answer.md``."""


@dataclass(frozen=True)
class Line:
    """A line of the decision card: one finding."""

    fact: str
    """The finding, one of :data:`FACTS`."""
    state: State
    """``ok`` (demonstrated), ``warn`` (a fault, or too little evidence to use the model), or ``open`` (the data leave
    it open)."""
    text: str
    """One or a few sentences, with intervals where they are defined."""
    figure: Mapping[str, Any] | None = None
    """The numbers of the text, ready for JSON; None without numbers."""
    remedy: str = ""
    """The recommended action on the finding; may be empty."""
    forbids: bool = False
    """Whether the finding forbids a use of the model."""
    short: str = ""
    """The finding as a clause for the headline and the terminal; may be empty."""
    setting: str = ""
    """The remedy as an argument of ``--set``, such as ``training.rounds=20``; may be empty."""


@dataclass(frozen=True)
class MethodRow:
    """A row of the decision card's table: a method, or several methods with equal results at every hospital."""

    name: str
    key: tuple[str, str]
    """The label of the strategy, and the name of one of its models."""
    role: Role
    """``taken`` (the card is about it), ``reference`` (not federated, such as training alone), or ``method``."""
    mean: float
    """The mean main metric (AUROC or MAE) over hospitals and seeds."""
    difference: float = float("nan")
    """The mean main metric minus that of the recommended method, over hospitals where both are defined; NaN if not
    compared.
    """
    low: float = float("nan")
    """The lower limit of the interval of ``difference``; NaN if there is none or it is uninformative."""
    high: float = float("nan")
    """The upper limit of the interval of ``difference``; NaN if ``low`` is NaN."""
    verdict: str = ""
    """How the method compares with the recommended one; empty if it is not compared.

    - ``better`` or ``worse``: a difference is demonstrated.
    - ``equal``: both limits of the interval are printed as 0; or, for AUROC, they are within the margin of equivalence
      and no difference is demonstrated.
    - ``no difference``: neither a difference nor equality is demonstrated.
    - ``one seed``: one training seed cannot compare methods.
    - ``says nothing``: the interval is too wide to be informative.
    """
    also: tuple[str, ...] = ()
    """The names of other methods with the same main metric at every hospital."""
    same_rows: bool = True
    """Whether ``difference`` and both means are computed on the same rows. False for an existing score, such as APACHE,
    that has no value in some rows."""


@dataclass(frozen=True)
class Card:
    """The decision card of a comparison or of one run."""

    what: str
    """A phrase on the predicted outcome, the numbers of hospitals, rows and events, and what was run."""
    headline: str
    """The recommendation, with the findings that forbid a use of the model."""
    lines: tuple[Line, ...]
    """The lines in the order of :data:`FACTS`."""
    rows: tuple[MethodRow, ...]
    """The rows of the table: the recommended method, references, then other methods by their means."""
    use: Use
    """The permitted use of the model: ``risks`` (if demonstrably right), only ``ranking`` patients, ``values`` (of a
    numeric label), or ``none``."""
    federate: Federate
    """Whether federating is better than training alone: ``yes``, ``no``, ``equal`` (equivalent), ``not shown``
    (undecided) or ``not tested`` (training alone was not run)."""
    recommended: str | None
    """The label of the recommended strategy, with the model's name if the strategy has several models; None if methods
    were not compared, or if no use of the model is permitted."""
    taken: str
    """The display name of the model that the card is about; may be empty."""
    predicts: str
    """The predicted outcome, such as ``death in hospital``."""
    calibration: Mapping[str, Any] | None = None
    """The calibration of the model; None if it was not measured.

    - ``estimate``, ``low``, ``high``: the ratio of observed to expected events over all rows, with its interval.
    - ``state``: the state of the line on calibration.
    - ``at_least``: a lower bound on the number of hospitals with wrong risks. ``of``: the number of tested hospitals.
    - ``named``: the hospitals whose risks are demonstrably wrong.
    """
    harmed: Mapping[str, Any] | None = None
    """The hospitals that lose by using the model; None if losses were not tested.

    - ``against``: the name of the model to compare with, such as training alone.
    - ``at_least``: a lower bound on the number of hospitals that lose. ``of``: the number of tested hospitals.
    - ``named``: the hospitals that demonstrably lose.
    """

    @property
    def forbids(self) -> tuple[Line, ...]:
        """The findings that forbid a use of the model."""
        return tuple(line for line in self.lines if line.forbids)

    def line(self, fact: str) -> Line | None:
        """Return the first finding on ``fact``, such as ``calibration``; None if there is none."""
        return next((line for line in self.lines if line.fact == fact), None)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``answer.json`` that describes the card. Numbers that are not finite become None."""
        tree = {
            "predicts": self.predicts,
            "what": self.what,
            "headline": self.headline,
            "use": self.use,
            "forbids": [{"fact": line.fact, "figure": line.figure, "remedy": line.remedy} for line in self.forbids],
            "federate": self.federate,
            "calibration": self.calibration,
            "harmed": self.harmed,
            "taken": self.taken,
            "lines": list(map(vars, self.lines)),
            "ways": list(map(vars, self.rows)),
        }
        return dict(plain(tree))

    @staticmethod
    def read(tree: Mapping[str, Any]) -> Card:
        """Read the card from the content of ``answer.json``."""
        plain_fields = {field.name: tree[field.name] for field in dataclass_fields(Card) if field.name != "rows"}
        lines, rows = (Line(**line) for line in tree["lines"]), map(_method_row, tree["ways"])
        return Card(**{**plain_fields, "lines": tuple(lines), "rows": tuple(rows)})


def _method_row(tree: Mapping[str, Any]) -> MethodRow:
    numbers = {name: math.nan if tree[name] is None else tree[name] for name in ("mean", "difference", "low", "high")}
    return MethodRow(**{**tree, **numbers, "key": tuple(tree["key"]), "also": tuple(tree["also"])})
