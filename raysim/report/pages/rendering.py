"""Pages as HTML, or as JSON from which the same page can be written again.

Texts from data or configuration, such as hospital names, are escaped.
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
from raysim.report.pages.section import Sheet
from raysim.report.terms import explained

SCRIPTS = ("page.js", "trials.js", "figures.js")
"""The templates that are scripts of pages, not HTML."""


@dataclass(frozen=True)
class Provenance:
    """Where the numbers on a page come from: data, configuration and versions."""

    data: str
    """The name of the data source."""
    fingerprint: str
    """A digest of the data."""
    hospitals: int
    rows: Mapping[str, int]
    """The number of rows of each part of the data, such as ``{"train": 31000}``."""
    seeds: Sequence[int]
    versions: Mapping[str, str]
    config: str
    command: str
    """The command line that reproduces the results on the page."""
    notes: Sequence[str] = field(default_factory=tuple)
    """Notes of the data source on the data."""
    of_seed: int | None = None
    """The seed whose data are described; None if all seeds have the same data."""
    date: str = ""
    """The date of the page; may be empty."""
    origin: str = ""
    """A phrase on whether the data are synthetic; may be empty."""


@dataclass(frozen=True)
class Page:
    """A page: its layout (``sheet``) and ``values``, which can be written as JSON."""

    sheet: Sheet
    values: Mapping[str, Any]

    def html(self) -> str:
        """Return the page as HTML. Values are escaped unless they are marked as HTML."""
        sheet, template = self.sheet, _environment().get_template("page.html.j2")
        marked = ((each, each.on(sheet.name)) for each in sheet.sections)
        sections = [
            (each.key, each.title, self._filled(text))
            for each, text in marked
            if text is not None and each.visible(self.values)
        ]
        texts = {name: self._filled(getattr(sheet, name)) for name in ("kind", "dated", "top")}
        return template.render(**self.values, **texts, sheet=sheet, sections=sections)

    def _filled(self, text: str) -> Markup:
        return Markup(_markup(text).render(**self.values))

    def figures(self) -> list[svg.Figure]:
        """Return the figures of the page that consist of charts."""
        candidates = [each for value in self.values.values() if isinstance(value, list) for each in value]
        return [each for each in candidates if isinstance(each, svg.Figure) and each.charts]

    def json(self) -> str:
        """Return the content of ``report.json``."""
        tree = {"raysim": __version__, "template": self.sheet.name, "values": self.values}
        return json.dumps(tree, default=_plain) + "\n"


@functools.cache
def _markup(text: str) -> Template:
    return _sections().from_string('{% import "parts.html.j2" as parts %}\n' + text)


@functools.cache
def _sections() -> Environment:
    """Return the template environment of all sections, which compiles shared macros once."""
    return _environment().overlay(keep_trailing_newline=True)


@functools.cache
def _environment() -> Environment:
    """Return the template environment of all pages."""
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
    r"""Escape all but letters, digits and blanks for a quoted string in a style sheet.

    >>> _in_css('a "b"</style>')
    'a \\22 b\\22 \\3c \\2f style\\3e '
    """
    return "".join(each if each.isalnum() or each == " " else f"\\{ord(each):x} " for each in text)


def _policy(environment: Environment) -> str:
    """Return the content security policy: pages run only raysim's own scripts and load nothing."""
    scripts = (environment.get_template(name).render() for name in SCRIPTS)
    digests = (hashlib.sha256(f"\n{script}".encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"


def _plain(value: Any) -> Any:
    """Convert a value that JSON does not support."""
    if isinstance(value, svg.Figure):
        return value.tree()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a page cannot show a value of type {type(value).__name__}; give a text, a number or a mapping")
