"""The section on the method: the course of training, the files of tables and runs, and how to reproduce the numbers."""

from __future__ import annotations

from raysim.report.sections.section import Material, Section, Values

SETTING = "{{ parts.setting(provenance, links) }}"

MARKUP = f"""\
<div class="gallery">
{{{{ parts.figures_shown(method) }}}}
<div>{{{{ parts.lies(files, runs) }}}}</div>
</div>
{SETTING}"""


def values(material: Material) -> Values:
    """Return the figures and the links."""
    supplement = material.supplement
    return {
        "method": list(supplement.method),
        "links": supplement.links,
        "files": supplement.files,
        "runs": supplement.runs,
    }


SECTION = Section("setting", "Method", {"run": MARKUP, "comparison": MARKUP}, values)
