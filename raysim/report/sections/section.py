"""What a section of a page is; :mod:`raysim.report.pages.tabs` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from raysim.engine.job import Result
from raysim.report.figures.models import Looks, Names
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key
from raysim.report.pages.beside import Beside

Values = Mapping[str, Any]
"""What markup refers to by name; JSON can hold it."""


@dataclass(frozen=True, eq=False)
class Material:
    """What a section draws its content from."""

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


def _nothing(material: Material) -> Values:
    return {}


@dataclass(frozen=True)
class Section:
    """A section of the page of a run or of a comparison, on a tab of its own."""

    key: str
    """The anchor in the page's address, lower case with hyphens."""
    title: str
    """The heading, which is that of the tab."""
    markup: Mapping[str, str]
    """For each page that has the section (``run``, ``comparison``) its body as a template, in which ``parts`` are the
    macros of ``parts.html.j2``."""
    values: Callable[[Material], Values] = _nothing
    """What the markup shows beyond the page's own values."""
    shown: Callable[[Values], object] = lambda values: True
    """Whether a page with these values has the section. A page to pass on lacks what
    :mod:`raysim.report.pages.sharing` does not name."""
