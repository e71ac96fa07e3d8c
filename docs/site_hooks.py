"""What mkdocs changes in pages that are also read as files: links outwards, titles, formulas, marks of Sphinx."""

from __future__ import annotations

import os
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.plugins import event_priority

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)#\s]+)[^)]*\)")
"""A link to a file of the repository that is no page of the site."""

TITLE = re.compile(r"^(```\w+) title=(\S+)$", re.MULTILINE)
"""The title of a block, as the tests of the pages read it."""

CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
"""Code, in which a dollar is a dollar."""

FORMULA = re.compile(r"\$\$\s*([^$]+?)\s*\$\$|\$([^$\n]+)\$")
"""A formula: between double dollars one that stands by itself, perhaps on lines of its own."""

ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc):<code>~?([^<]*)</code>")
"""A reference of a docstring, as it stands in HTML."""


@event_priority(-100)  # once the plug-in has made its own of the notebook
def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Give the notebook an address of its own: a page has its name already."""
    for file in files:
        if file.src_uri == "python.ipynb":
            file.url, file.dest_path = "notebook/", "notebook/index.html"
            file.abs_dest_path = os.path.join(config["site_dir"], file.dest_path)
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the repository in place of links to them, quote titles, and make MathML of formulas."""
    parts = CODE.split(OUTSIDE.sub(_named, markdown))
    parts[::2] = [FORMULA.sub(_drawn, part) for part in parts[::2]]
    return TITLE.sub(r'\1 title="\2"', "".join(parts))


def on_page_content(html: str, **_: Any) -> str:
    """Take Sphinx's marks off docstrings."""
    return ROLE.sub(r"<code>\1</code>", html)


def _drawn(formula: re.Match[str]) -> str:
    """A formula as MathML, which browsers draw by themselves. In a table no bar may stand.

    In a span it may begin a line: Markdown would take MathML alone for a block, and end the paragraph before it.
    """
    alone, within = formula.groups()
    drawn = convert(alone, display="block") if alone else convert(within)
    return f"<span>{drawn}</span>".replace("|", "&#124;")


def _named(link: re.Match[str]) -> str:
    text, path = link.groups()
    return text if path in text.strip("`") else f"{text} (`{path}`)"
