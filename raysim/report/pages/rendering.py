"""Pages as sheets with their values: written as HTML, or as JSON from which the same page is written again.

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
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from raysim.core.package import __version__
from raysim.report import svg
from raysim.report.sections.section import Sheet
from raysim.report.terms import explained

SCRIPTS = ("page.js", "trials.js", "figures.js")
"""The templates that pages have between the tags of a script."""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers of a page come from, printed at its head."""

    data: str
    """The name of the source."""
    fingerprint: str
    """Digest of the data."""
    hospitals: int
    rows: Mapping[str, int]
    """Rows by part: ``{"train": 31000, ...}``."""
    seeds: Sequence[int]
    versions: Mapping[str, str]
    """By package."""
    config: str
    """The complete configuration as text."""
    command: str
    """The line that reproduces the page."""
    notes: Sequence[str] = field(default_factory=tuple)
    """Notes of the source on what it has read."""
    of_seed: int | None = None
    """Where data differ between seeds, the seed whose fingerprint, rows and notes these are."""
    date: str = ""
    """The date of the page."""
    origin: str = ""
    """Whether the data are invented, in words."""


@dataclass(frozen=True)
class Page:
    """A page of a ``sheet`` with its ``values``, which JSON can hold."""

    sheet: Sheet
    values: Mapping[str, Any]

    def html(self) -> str:
        """The page as HTML text; all texts that are no markup are escaped."""
        sheet, template = self.sheet, _environment().get_template("page.html.j2")
        marked = ((each, each.on(sheet.name)) for each in sheet.sections)
        sections = [
            (each.key, each.title, self._filled(text))
            for each, text in marked
            if text is not None and each.shown(self.values)
        ]
        texts = {name: self._filled(getattr(sheet, name)) for name in ("kind", "dated", "top")}
        return template.render(**self.values, **texts, sheet=sheet, sections=sections)

    def _filled(self, text: str) -> Markup:
        return Markup(_markup(text).render(**self.values))

    def figures(self) -> list[svg.Figure]:
        """The drawn figures of the page, without tables."""
        shown = [each for value in self.values.values() if isinstance(value, list) for each in value]
        return [each for each in shown if isinstance(each, svg.Figure) and each.charts]

    def json(self) -> str:
        """The content of ``report.json``, from which this page, or that of one of its hospitals, is written again."""
        tree = {"raysim": __version__, "template": self.sheet.name, "values": self.values}
        return json.dumps(tree, default=_plain) + "\n"


@functools.cache
def _markup(text: str) -> Template:
    """The markup of a section or a sheet as a template."""
    return _sections().from_string('{% import "parts.html.j2" as parts %}\n' + text)


@functools.cache
def _sections() -> Environment:
    """The environment of sections and sheets; it is one, so that the parts that they import are compiled once."""
    return _environment().overlay(keep_trailing_newline=True)


@functools.cache
def _environment() -> Environment:
    """The environment of all pages; it keeps compiled templates."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["block"] = lambda data, identifier: svg.json_block(identifier, data)
    environment.filters["css"] = _in_css
    environment.filters["explained"] = explained
    environment.globals["policy"] = _policy(environment)
    return environment


def _in_css(text: str) -> str:
    r"""A text between the quotes of a style sheet: all but letters, digits and blanks as escapes.

    >>> _in_css('a "b"</style>')
    'a \\22 b\\22 \\3c \\2f style\\3e '
    """
    return "".join(each if each.isalnum() or each == " " else f"\\{ord(each):x} " for each in text)


def _policy(environment: Environment) -> str:
    """The content security policy of pages: only their own scripts may run, none that a text or drawing brings along,
    and nothing is loaded.
    """
    scripts = (environment.get_template(name).render() for name in SCRIPTS)
    digests = (hashlib.sha256(f"\n{script}".encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"


def _plain(value: Any) -> Any:
    """A value that JSON does not know as one that it does; JSON converts what is inside in turn."""
    if isinstance(value, svg.Figure):
        return value.tree()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__}: no page holds such a value")
