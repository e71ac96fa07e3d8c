"""What pages have beside results: figures by tab, what was on and what left hospitals, and where other things lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raysim.report import svg

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


def common(beside: Beside) -> dict[str, Any]:
    """What pages of a comparison and of a run have alike: method, and where other things lie."""
    return {
        "method": list(beside.method),
        "links": beside.links,
        "files": beside.files,
        "runs": beside.runs,
    }
