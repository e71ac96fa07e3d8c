"""The elements of a page: a sheet (the layout of one kind of page) with its sections."""

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
"""The values that a template uses by name; they can be written as JSON."""

Links = Sequence[tuple[str, str]]
"""The text and the address of each link to a further page."""

Figures = Sequence[svg.Figure]


@dataclass(frozen=True)
class Supplement:
    """Content of a page besides metrics: figures, tables and links."""

    use: Figures = ()
    use_shared: Figures = ()
    """The figures of ``use`` without parts based on few patients."""
    equity: Figures = ()
    cost: Figures = ()
    method: Figures = ()
    protections: Sequence[Sequence[str]] = ()
    """The table of data protection, from :func:`raysim.report.supplement.protection.protections`."""
    traffic: Sequence[Sequence[str]] = ()
    """The table of bytes sent, from :func:`raysim.report.supplement.protection.traffic`."""
    privacy: Sequence[str] = ()
    links: Links = ()
    files: Links = ()
    """Links to the files in the page's folder."""
    runs: Sequence[tuple[str, Links]] = ()
    """For each strategy, links to the pages of its runs, one for each seed."""


NOTHING = Supplement()


MOST_HOSPITALS = 20_000
"""A page with more hospitals than this does not list them one by one."""


@dataclass(frozen=True, eq=False)
class Material:
    """The results of a run or a comparison, for the sections of its page."""

    per_seed: pd.DataFrame
    """The metrics over hospitals, with one row for each strategy, model and seed."""
    table: pd.DataFrame
    """The table from :func:`raysim.report.tables.comparison`, for the models in ``distinct``."""
    titles: Names
    """The display name of each model, by strategy and model."""
    distinct: Names
    """The display names of models; of several models with equal results, only one is included."""
    looks: Looks
    results: Sequence[Result]
    """The runs; if empty, the page has no cards of hospitals."""
    supplement: Supplement
    noise: Mapping[Key, Noise]
    compared: bool
    """Whether the page is about a comparison, not one run."""
    part: str
    """The evaluated part of the rows, such as ``test``."""
    hospitals: pd.DataFrame | None = None
    """The metrics of hospitals, with one row for each strategy, model, seed and hospital."""
    rounds: pd.DataFrame | None = None
    """The metrics of rounds, with one row for each strategy, model, seed and evaluated round."""
    differences: pd.DataFrame | None = None
    """The table from :func:`raysim.report.tables.differences`; None for a run."""
    evidence: Evidence | None = None
    """What the comparison demonstrates, with display names instead of labels; None for a run, and if no main metric is
    defined."""
    baseline: str = ""
    """The label of the reference strategy; empty for a run."""
    against: Key | None = None
    """The reference strategy's model with which others are compared; None if there is none."""
    reasons: Sequence[str] = ()
    """Sentences on the findings."""
    caution: str = ""
    first: Figures = ()
    """The figures at the top of the page, in place of the forest plot of differences."""

    @property
    def best(self) -> Key | None:
        """The recommended federated model; None without ``evidence``.

        The decision card may recommend training alone instead.
        """
        return None if self.evidence is None else self.evidence.entries[self.evidence.best].key

    @property
    def alone(self) -> Key | None:
        """The model of training alone; if there are several, the one with the best mean. None if there is none."""
        evidence = self.evidence
        return None if evidence is None or evidence.alone is None else evidence.references[evidence.alone].key

    @property
    def one_by_one(self) -> bool:
        """Whether the hospitals are few enough to be listed one by one; True without runs."""
        return not self.results or len(self.results[0].federation.hospitals) <= MOST_HOSPITALS

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each hospital on the page, by name; empty if hospitals are not listed one by one."""
        if not self.results or self.hospitals is None or not self.one_by_one:
            return {}
        return {name: number for number, name in enumerate(self.results[0].federation.hospitals)}


def _nothing(material: Material) -> Values:
    return {}


def included(name: str) -> str:
    """Return template markup that includes the file ``sections/<name>.html.j2``."""
    return f'{{% include "sections/{name}.html.j2" %}}'


@dataclass(frozen=True)
class Section:
    """A section of a page: a heading, a template and a function that returns the template's values."""

    key: str
    """The fragment of the page's address that leads to the section, in lower case with hyphens."""
    title: str
    """The heading of the section, and the title of its tab."""
    markup: str | Mapping[str, str]
    """The template of the section's body, or a template for each sheet, by the sheet's ``name``."""
    values: Callable[[Material], Values] = _nothing
    """Returns the section's own values for the template, which also gets the values of the page."""
    place: int = 0
    """The sections of runs and comparisons are in ascending order of this number."""
    visible: Callable[[Values], object] = lambda values: True
    """Returns whether a page with these values has the section.

    A page for sharing lacks many values; see :mod:`raysim.report.pages.sharing`.
    """

    def on(self, sheet: str) -> str | None:
        """Return the section's template on this ``sheet`` (kind of page); None if the sheet lacks the section."""
        return self.markup if isinstance(self.markup, str) else self.markup.get(sheet)


@dataclass(frozen=True)
class Sheet:
    """The layout of one kind of page, such as that of a run."""

    name: str
    kind: str
    """The line above the title, which says what the page is about."""
    sections: tuple[Section, ...]
    top: str = ""
    """The markup above the sections."""
    dated: str = ""
    """The text after ``kind`` on the same line, such as the date."""
    wide: bool = False
    """Whether the page is as wide as the screen, and lists its sections at the top."""
    scripts: tuple[str, ...] = ()
    """The templates of the page's scripts. With ``page.js``, sections are tabs."""
