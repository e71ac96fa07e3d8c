"""Pages as templates with their values: written as HTML, or as JSON from which the same page is written again.

Texts that come from data or configuration (hospital names, strategy names, notes) are escaped by the template engine.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from raysim.core.package import __version__
from raysim.report import svg

SCRIPTS = ("page.js", "trials.js")
"""The templates that pages have between the tags of a script."""


@dataclass(frozen=True)
class Provenance:
    """What was run on what: printed at the head of the page.

    ``rows`` by part (``{"train": 31000, ...}``), ``seeds`` as run, ``versions`` by package, ``config`` the frozen
    configuration as text, ``command`` the line that reproduces the page, ``notes`` what the data source said. Where
    data differ between seeds, fingerprint, rows and notes are those ``of_seed``. ``date``: of the page; ``origin``:
    whether the data are invented.
    """

    data: str
    fingerprint: str
    hospitals: int
    rows: Mapping[str, int]
    seeds: Sequence[int]
    versions: Mapping[str, str]
    config: str
    command: str
    notes: Sequence[str] = field(default_factory=tuple)
    of_seed: int | None = None
    date: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Page:
    """What a page says, as texts: ``template`` with its ``values``, which JSON can hold."""

    template: str
    values: Mapping[str, Any]

    def html(self) -> str:
        """The page."""
        return render(self.template, **self.values)

    def figures(self) -> list[svg.Figure]:
        """Those that are drawn on it; a table among them is no drawing."""
        shown = [each for value in self.values.values() if isinstance(value, list) for each in value]
        return [each for each in shown if isinstance(each, svg.Figure) and each.charts]

    def json(self) -> str:
        """What ``report.json`` holds: enough to write this page, or that of one of its hospitals, again."""
        tree = {"raysim": __version__, "template": self.template, "values": self.values}
        return json.dumps(tree, default=_plain) + "\n"


def write(page: Page, path: Path | str) -> None:
    """Write a page as UTF-8."""
    Path(path).write_text(page.html(), encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """A template of the folder ``templates``, filled in; texts are escaped."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> Environment:
    """One for all pages, as it keeps the templates that it has compiled."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["block"] = lambda data, identifier: svg.json_block(identifier, data)
    environment.globals["policy"] = _policy(environment)
    return environment


def _policy(environment: Environment) -> str:
    """What a browser may do on a page: run the scripts of pages, and no other that came in with a text or a drawing;
    load nothing.
    """
    scripts = (environment.get_template(name).render() for name in SCRIPTS)
    digests = (hashlib.sha256(f"\n{script}".encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"


def _plain(value: Any) -> Any:
    """What JSON does not know, in its words; it goes on with what is inside by itself."""
    if isinstance(value, svg.Figure):
        return value.tree()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__}: no page holds such a value")
