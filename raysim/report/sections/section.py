"""What a page is made of: a sheet with its sections; :mod:`raysim.report.pages.tabs` has those of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from raysim.engine.job import Result
from raysim.report import svg
from raysim.report.figures.models import Looks, Names
from raysim.report.judgement.evidence import Evidence
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key

Values = Mapping[str, Any]
"""What markup refers to by name; JSON can hold it."""

Links = Sequence[tuple[str, str]]
"""Texts and addresses of further pages."""

Figures = Sequence[svg.Figure]


@dataclass(frozen=True)
class Beside:
    """What a page has beside the results: figures by the tab that they stand in, rows of tables, and addresses."""

    use: Figures = ()
    """Calibration and decisions."""
    use_shared: Figures = ()
    """The same without what few patients decide, for a page to pass on."""
    equity: Figures = ()
    cost: Figures = ()
    method: Figures = ()
    protections: Sequence[Sequence[str]] = ()
    """As :func:`raysim.report.sections.protection.protections` gives them."""
    traffic: Sequence[Sequence[str]] = ()
    """As :func:`raysim.report.sections.protection.traffic` gives them."""
    privacy: Sequence[str] = ()
    """Sentences on guarantees and attacks."""
    links: Links = ()
    files: Links = ()
    """Tables and figures in the page's folder."""
    runs: Sequence[tuple[str, Links]] = ()
    """The pages of single runs: for each strategy, its seeds with their addresses."""


NOTHING = Beside()


MOST_HOSPITALS = 20_000
"""The most hospitals that a page shows one by one: a page of a million would have gigabytes."""


@dataclass(frozen=True, eq=False)
class Material:
    """What sections of a run or a comparison draw their content from."""

    per_seed: pd.DataFrame
    """A row a strategy, model and seed."""
    table: pd.DataFrame
    """As :func:`raysim.report.tables.comparison` gives it, of the models ``distinct``."""
    called: Names
    """The name of each model."""
    distinct: Names
    """The same without models that ended equal to one that is in it."""
    looks: Looks
    results: Sequence[Result]
    """The runs; empty where nothing is shown of single hospitals."""
    beside: Beside
    noise: Mapping[Key, Noise]
    compared: bool
    """Whether it is of a comparison, and not of one run."""
    part: str
    """The part of the rows that was evaluated."""
    hospitals: pd.DataFrame | None = None
    """A row a strategy, model, seed and hospital."""
    rounds: pd.DataFrame | None = None
    """A row a strategy, seed and evaluated round."""
    differences: pd.DataFrame | None = None
    """As :func:`raysim.report.tables.differences` gives them, of a comparison."""
    shown: Evidence | None = None
    """The evidence of a comparison, with names in the place of labels."""
    baseline: str = ""
    """The label of the reference strategy."""
    against: Key | None = None
    """Its model that others are compared with."""
    reasons: Sequence[str] = ()
    """Sentences on what the data show, and below them a ``caution`` on intervals."""
    caution: str = ""
    first: Figures = ()
    """The figures that the page begins with in the place of the forest."""

    @property
    def best(self) -> Key | None:
        """The model that a comparison recommends."""
        return None if self.shown is None else self.shown.entries[self.shown.best].key

    @property
    def one_by_one(self) -> bool:
        """Whether there are so few hospitals that a page shows each."""
        return not self.results or len(self.results[0].federation.hospitals) <= MOST_HOSPITALS

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each hospital on the page, by which it is marked in figures; none where none is shown."""
        if not self.results or self.hospitals is None or not self.one_by_one:
            return {}
        return {name: number for number, name in enumerate(self.results[0].federation.hospitals)}


def _nothing(material: Material) -> Values:
    return {}


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    key: str
    """The anchor in the page's address, lower case with hyphens."""
    title: str
    """The heading, which is that of its tab."""
    markup: str | Mapping[str, str]
    """Its body as a template, in which ``parts`` are the macros of ``parts.html.j2``; or by name one for each sheet
    that has the section."""
    values: Callable[[Material], Values] = _nothing
    """What the markup of a run or a comparison shows beyond the page's own values."""
    shown: Callable[[Values], object] = lambda values: True
    """Whether a page with these values has the section. A page to pass on lacks what
    :mod:`raysim.report.pages.sharing` does not name."""

    def on(self, sheet: str) -> str | None:
        """The markup on this ``sheet``; None where that lacks the section."""
        return self.markup if isinstance(self.markup, str) else self.markup.get(sheet)


@dataclass(frozen=True)
class Sheet:
    """A kind of page; texts are templates, as those of a section are."""

    name: str
    kind: str
    """The line above the title."""
    sections: tuple[Section, ...]
    """In their order."""
    top: str = ""
    """What stands before the sections."""
    dated: str = ""
    """What stands behind ``kind``."""
    wide: bool = False
    """Whether it is as wide as the screen, and lists its sections at the top."""
    scripts: tuple[str, ...] = ()
    """The names of its scripts, which are templates; with ``page.js`` sections are tabs."""
