"""The page of one hospital of a run or a comparison."""

from __future__ import annotations

from raysim.report.sections.common import setting
from raysim.report.sections.section import Section, Sheet, included

AMONG = '<div class="gallery">{{ parts.figures_shown(figures[1:]) }}</div>\n'

SHEET = Sheet(
    "hospital",
    "One hospital of {{ of }}",
    (
        Section("facts", "This hospital", included("hospital")),
        Section("among", "Among the others", AMONG, visible=lambda values: values["figures"][1:]),
        setting("What was run", facts=False),
    ),
    included("hospital_card"),
    wide=True,
)
