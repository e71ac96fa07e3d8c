"""Sections that several pages have: the answer in words, plots, and the settings of the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raysim.report.pages.section import Section, Sheet, Values, included

ANSWER = Section("answer", "The answer", included("answer"))

PICTURES = Section("pictures", "Pictures", "{{ parts.figures_shown(pictures) }}\n")


def setting(title: str, *, facts: bool = True) -> Section:
    """Return the section on how to reproduce the numbers of a page.

    With ``facts``, the section lists the page's own facts instead of facts about the data.
    """
    return Section("setting", title, "{{ parts.setting(provenance, links%s) }}" % (", facts" if facts else ""))


def plain(
    name: str, kind: str, sections: Sequence[Section], pictures: str = "Pictures", last: str = "What was run"
) -> Sheet:
    """Build the layout of a page: conclusions, ``sections``, plots, and settings of the command.

    ``pictures`` and ``last`` are the headings of plots and settings.
    """
    whole = (ANSWER, *sections, replace(PICTURES, title=pictures), setting(last))
    return Sheet(name, kind, whole, scripts=("figures.js",))


def set_by(command: str, config: str, **facts: object) -> Values:
    """Return the values of the section on how to reproduce a page: the command, its configuration and further
    ``facts``.
    """
    named = [(name.replace("_", " "), str(value)) for name, value in facts.items()]
    return {"provenance": {"command": command, "config": config, "notes": []}, "facts": named, "links": []}
