"""The style sheet of a figure in a separate file: light colours only, and only CSS that converters support.

Programs that convert SVG to PDF or PNG support classes, but no variables, mixed colours or media rules. So each rule
with the colour of a series is repeated for each colour of the figure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

LIGHT = {
    "ink": "#1a1c1f",
    "muted": "#55595f",
    "line": "#d5d8dc",
    "paper": "#ffffff",
    "accent": "#005a91",
    "chosen": "#e0218a",
}
"""The colours of a page in light mode."""

_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_MIX = re.compile(r"color-mix\(in srgb, (#\w{6}) (\d+)%, (#\w{6})\)")
_SERIES = re.compile(r'class="c(-?\d+)\b')


def styles(markup: str) -> str:
    """Return the style sheet of a figure with this ``markup``."""
    rules, colours = _read()
    used = sorted({int(number) for number in _SERIES.findall(markup)})
    return "\n".join(each for selector, body in rules for each in _written(selector, body, used, colours))


@functools.cache
def _read() -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return selectors with their declarations, and the colours of series by number and name."""
    text = (Path(__file__).parents[1] / "templates" / "charts.css").read_text(encoding="utf-8")
    light = text.partition("\n@media (max-width")[0]
    light = "\n".join(line for line in light.splitlines() if not line.startswith("@media"))
    found = [(selector.strip(), body.strip()) for selector, body in _RULE.findall(light)]
    (series,) = (body for selector, body in found if selector == ":root")
    colours = LIGHT | dict(re.findall(r"--(c\d+): (#\w{6})", series)) | {"c-1": LIGHT["ink"]}
    html = (":root", ".chosen", ".legend", ".panels", "figure ")
    kept = [(selector, body) for selector, body in found if not (selector.startswith(html) or body.startswith("--own"))]
    return kept, colours


def _written(selector: str, body: str, used: Iterable[int], colours: dict[str, str]) -> list[str]:
    declared = [each.strip() for each in body.split(";") if "--units" not in each]
    body = "; ".join(filter(None, declared))
    if not body:
        return []
    if "var(--own)" not in body:
        return [f"{selector} {{ {_plain(body, colours)} }}"]
    return [
        f"{', '.join(f'{part.strip()}.c{number}' for part in selector.split(','))} {{ "
        f"{_plain(body.replace('var(--own)', colours[f'c{number}']), colours)} }}"
        for number in used
    ]


def _plain(body: str, colours: dict[str, str]) -> str:
    """Replace variables and mixed colours in declarations by plain colours."""
    return _MIX.sub(_mixed, re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], body))


def _mixed(found: re.Match[str]) -> str:
    share = int(found[2]) / 100
    first, second = ([int(each[i : i + 2], 16) for i in (1, 3, 5)] for each in (found[1], found[3]))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in zip(first, second, strict=True))
