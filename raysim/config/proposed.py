"""Proposes a configuration for a table, as YAML with reasons in comments."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from raysim.core.errors import DataError
from raysim.core.plain_yaml import scalar
from raysim.core.words import some
from raysim.data.tables.proposal import Choice, Proposal, propose
from raysim.data.tables.table_files import Files, hospital_of, is_pattern, read_files, table_files
from raysim.data.tables.text_form import Keys

FIELD = "table"
"""The name of the table in error messages."""

OPEN = "?"
"""The placeholder for a column that a person has to name."""

_NAMED = 6  # other columns that a comment names


@dataclass(frozen=True)
class Looked:
    """The table at ``path``, and a proposed role for each of its columns (such as hospital, label or patient)."""

    path: Path
    read: Files
    proposal: Proposal
    named_after: bool
    """Whether ``path`` is a pattern such as ``data/*.csv``. Each file then has the rows of one hospital, and is named
    after the hospital.
    """

    @property
    def name(self) -> str:
        named = self.path.absolute().parent.name if self.named_after else hospital_of(self.path)
        return re.sub(r"[^\w-]+", "_", named).strip("_.") or "table"

    @property
    def unfilled(self) -> tuple[tuple[str, Choice], ...]:
        """Return the configuration keys whose column a person must choose, each with the possible columns."""
        keys = (("silo", self.proposal.hospital), ("label", self.proposal.label))
        return tuple(each for each in keys if each[1].column is None and not (each[0] == "silo" and self.named_after))


def look(path: Path) -> Looked:
    """Read the table at ``path`` (all matching tables if it is a pattern), and propose roles for the columns.

    Raises ``DataError`` if there is no table, or if it has no rows.
    """
    files = table_files(path, FIELD)
    pattern = is_pattern(path.expanduser())
    try:
        read = read_files(files, [], field=FIELD)
    except DataError:  # the reader of the proposal decides whether an ambiguous comma is a decimal comma
        read = read_files(files, [], field=FIELD, keys=Keys(decimal="."))
    if not read.table.num_rows:
        raise DataError(f"{FIELD}: '{path}' has no rows; a table needs at least one below its column names")
    proposal = propose(read.table, pattern)
    return Looked(path, read, proposal, pattern)


def four_lines(looked: Looked) -> str:
    """Return the smallest configuration for a table as YAML."""
    proposal = looked.proposal
    lines = [
        "data:",
        "  source: table",
        f"  path: {scalar(str(looked.path))}",
        f"  silo: {_chosen(proposal.hospital)}",
        f"  label: {_chosen(proposal.label)}",
    ]
    return "\n".join(line for line in lines if not (looked.named_after and line.startswith("  silo")))


def configuration(looked: Looked, folder: Path, more: dict[str, str]) -> str:
    """Return a configuration for a table as YAML, with :data:`OPEN` for each column that a person has to name.

    Comments give the reasons for the hospital, label and patient columns, and for dropped columns. The table's path
    is written relative to ``folder``, unless it is absolute. ``more`` has further columns to drop, each with a reason.
    """
    proposal, form = looked.proposal, looked.read.form
    path = looked.path.expanduser()
    written_path = path if path.is_absolute() else Path(os.path.relpath(path, folder))
    lines = [f"name: {scalar(looked.name)}", "data:", "  source: table", f"  path: {scalar(str(written_path))}"]
    if form is not None and not looked.named_after:
        lines += [f"  separator: {json.dumps(form.separator)}"] if form.separator != "," else []
        lines += [f"  decimal: {json.dumps(looked.read.decimal)}"] if looked.read.decimal != "." else []
        lines += [f"  encoding: {form.encoding}"] if form.encoding != "utf-8" else []
    if not looked.named_after:
        lines.append(f"  silo: {_chosen(proposal.hospital)}  # {reason(proposal.hospital)}")
    lines.append(f"  label: {_chosen(proposal.label)}  # {reason(proposal.label)}")
    if proposal.task == "regression":
        lines.append("  task: regression")
    if proposal.event is not None:
        lines.append(f"  positive: {scalar(proposal.event)}")
    if proposal.patient.column is not None:
        lines.append(f"  group: {scalar(proposal.patient.column)}  # the patient: {reason(proposal.patient)}")
    lines += [f"  {key}: {scalar(name)}" for key, name in proposal.attributes.items()]
    if proposal.censored:
        lines.append(f"  censored: {json.dumps(proposal.censored)}  # the rule for values beyond a limit of detection")
    if proposal.na_values:
        lines.append("  na_values:")
        lines += [
            f"    {scalar(name)}: {json.dumps(marks, ensure_ascii=False)}" for name, marks in proposal.na_values.items()
        ]
    if proposal.units:
        lines.append("  units:  # check that numbers without a unit are in this unit, too")
        lines += [
            f"    {scalar(name)}: {json.dumps(units, ensure_ascii=False)}" for name, units in proposal.units.items()
        ]
    if drop := proposal.drop | more:
        lines.append("  drop:")
        lines += [f"    - {scalar(name)}  # {why}" for name, why in drop.items()]
    lines.append("  split: {train: 0.7, validation: 0.1, test: 0.2}  # validation rows are used for recalibration")
    solvable, other = (files("raysim.config") / "proposed.yaml").read_text().split("---\n")
    trained = other if len(proposal.classes) > 2 else solvable
    return "\n".join(lines) + "\n" + "".join(line for line in trained.splitlines(keepends=True) if line[:1] != "#")


def reason(choice: Choice) -> str:
    """Return a comment on the choice of a column: the reason and the alternatives."""
    others = some(choice.others, _NAMED)
    if choice.column is None:
        return f"fill in a column{f'; it may be {others}' if others else ', or add one to the table'}"
    return choice.why + (f"; it could also be {others}" if others else "")


def _chosen(choice: Choice) -> str:
    return scalar(OPEN if choice.column is None else choice.column)
