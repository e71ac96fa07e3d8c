"""Elements of HTML and SVG as text; everything that comes from data is escaped."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup, escape

from raysim.core.atomic import plain


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Write an HTML or SVG element with ``children``, which are escaped unless they are ``Markup``.

    In names of ``attributes``, ``_`` becomes ``-``, and a trailing ``_`` is dropped. Attributes that are None are left
    out.

    >>> element("text", "a < b", x=1.5, text_anchor="end", class_="tick")
    Markup('<text x="1.5" text-anchor="end" class="tick">a &lt; b</text>')
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(str(escape(child)) for child in children)
    return Markup(f"<{name}{pairs}>{inside}</{name}>")


def joined(parts: Any) -> Markup:
    """Concatenate parts of markup; parts that are not ``Markup`` are escaped."""
    return Markup("").join(parts)


def short(value: object) -> str:
    """Format an attribute's value; floats have at most two decimals.

    >>> short(12.3456), short(3.0), short(-0.001), short("auto")
    ('12.35', '3', '0', 'auto')
    """
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def json_block(identifier: str, data: object) -> Markup:
    r"""Write ``data`` as JSON in a script element. Texts in the data cannot close the element.

    NaN and infinite numbers become null.

    >>> json_block("data", ["</script>", float("nan")])
    Markup('<script type="application/json" id="data">["\\u003c/script\\u003e",null]</script>')
    """
    text = json.dumps(plain(data), separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')
