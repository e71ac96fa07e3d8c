"""The section on the method: training, files, and how to reproduce the numbers."""

from __future__ import annotations

from raysim.report.pages.section import Material, Section, Values, included


def values(material: Material) -> Values:
    """Return the section's figures and links."""
    supplement = material.supplement
    return {
        "method": list(supplement.method),
        "links": supplement.links,
        "files": supplement.files,
        "runs": supplement.runs,
    }


SECTION = Section("setting", "Method", included("method"), values, place=80)
