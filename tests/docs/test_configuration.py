"""docs/configuration.md is what the schema and the packaged defaults say, key by key."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import yaml

from raysim.config.reading import resolve
from raysim.core.defaults import table
from raysim.core.errors import ConfigError
from raysim.study.settings import read_study
from raysim.tune.settings import read_sweep

DOCS = Path(__file__).parents[2] / "docs"


def rows() -> dict[str, list[str]]:
    """The cells behind each key of the page's table."""
    lines = re.findall(r"^\| \**`(.+?)`\** \| (.*) \|$", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    return {key.replace("NAME", "*"): cells.split(" | ") for key, cells in lines}


def test_the_page_is_what_the_schema_and_the_defaults_say():
    assert runpy.run_path(str(DOCS / "reference.py"))["page"]() == (DOCS / "configuration.md").read_text(), (
        "write it again with python docs/reference.py"
    )


def test_every_key_stands_there_once_with_its_default_and_a_meaning():
    cells = rows()
    assert set(table()) <= set(cells)
    for key, value in table().items():
        kind, default, _, meaning = cells[key]
        assert kind
        assert meaning
        assert yaml.safe_load(default.strip("`")) == value, key


def read(key: str, value: object) -> None:
    """A configuration with ``value`` at a ``key``, by the command that reads it."""
    section, _, name = key.partition(".")
    if section == "study":
        read_study({section: {name: value}})
    elif section == "sweep":
        scheduler = {"grace": "asha", "reduction": "asha", "minimum": "median", "every": "pbt"}
        *_, last = name.split(".")
        further = {"scheduler": {"name": scheduler[last], last: value}} if "." in name else {name: value}
        read_sweep({section: {"space": {}, "trials": 1, **further}})
    else:
        resolve(None, [f"{key}={value}"])


def test_a_value_beyond_an_end_of_the_range_that_stands_there_is_refused():
    wrong: list[tuple[str, float, str]] = []
    for key, (kind, _, said, _) in rows().items():
        if "*" in key or not re.search(r"\d", said):
            continue
        limits = re.findall(r"(at least|above|below|at most|greater than) (2\^63|[\d.]+(?:e\+\d+)?)", said)
        limits += [("at least", "0")] * said.startswith("0 to") + [("above", "0")] * said.startswith("in (0")
        limits += [("below", "1")] * said.endswith("1)")
        assert limits, (key, said)
        for words, end in limits:
            limit = 2**63 if end == "2^63" else float(end)
            step = 1 if "whole" in kind else 0.001
            outside = {"at least": limit - step, "at most": limit + step}.get(words, limit)
            value = int(outside) if step == 1 else outside
            error = ""
            try:
                read(key, [value] if kind.startswith("list") else value)
            except ConfigError as refused:
                error = str(refused)
            if (key.rpartition(".")[0] or key) not in error:
                wrong.append((key, value, error))
    assert wrong == []
