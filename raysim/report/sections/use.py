"""The section on calibration and use."""

from __future__ import annotations

from raysim.report.pages.section import Material, Section, Values, included

RUN = "{{ parts.gallery(use) }}\n"


def values(material: Material) -> Values:
    """Return the figures on calibration and decisions; also without parts based on few patients, for pages to share."""
    supplement = material.supplement
    return {"use": list(supplement.use), "use_shared": [figure.tree() for figure in supplement.use_shared]}


SECTION = Section(
    "use",
    "Calibration and use",
    {"run": RUN, "comparison": RUN + included("use_folded")},
    values,
    place=40,
    visible=lambda values: values.get("use"),
)
