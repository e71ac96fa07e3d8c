"""The section on the method: how training went, where tables and runs lie, and what gives the same numbers again."""

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
    """The figures, and addresses."""
    beside = material.beside
    return {"method": list(beside.method), "links": beside.links, "files": beside.files, "runs": beside.runs}


SECTION = Section("setting", "Method", {"run": MARKUP, "comparison": MARKUP}, values)
