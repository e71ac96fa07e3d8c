"""Tries a proposed configuration: whether the table can be read with it, and which oddities the data have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from raysim.config import plugins, reading
from raysim.config.paths import anchored
from raysim.config.proposed import Looked
from raysim.core.errors import RaysimError


@dataclass(frozen=True)
class Tried:
    """The result of reading the table with a proposed configuration.

    - ``leaks``: columns that should also be dropped because they reveal the label, each with the reason.
    - ``doubts``: other oddities of the data, each as a sentence.
    - ``refused``: the reason why the table cannot be read; empty if there is none.
    """

    leaks: dict[str, str]
    doubts: tuple[str, ...]
    refused: str = ""


def tried(looked: Looked, text: str, folder: Path) -> Tried:
    """Read the table with the proposed configuration ``text`` (YAML), and search for columns that reveal the label.

    Relative paths in the configuration begin at ``folder``. If a person must still choose a column, nothing is read.
    """
    if looked.unfilled:
        return Tried({}, ())
    try:
        config = reading.checked(anchored(yaml.safe_load(text), folder))
        federation = plugins.build_federation(config, plugins.build_source(config.data), config.seed)
    except RaysimError as error:
        return Tried({}, (), str(error))
    leaks = {s.feature: "it alone gives the label away" for s in federation.leaks.suspects if s.level == "warn"}
    asked = [s.text for s in (*federation.leaks.suspects, *federation.quality) if s.level != "list"]
    known = [remark.partition("' ")[2] for remark in looked.read.remarks]  # behind the path, which is absolute here
    doubts = [text for text in federation.warnings if text.partition("' ")[2] not in known]
    return Tried(leaks, (*doubts, *asked))
