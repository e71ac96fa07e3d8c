"""Draws ``architecture.svg``: the rooms of raysim by layer, and who imports whom, as the source says.

``python docs/architecture.py`` draws it again. Arrows that others imply are left out: where a room imports a second and
the second a third, no arrow goes from the first to the third.
"""

from __future__ import annotations

import ast
from html import escape
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).with_suffix(".svg")
PACKAGE = "raysim"

WIDTH, HEIGHT = 300, 50
ACROSS, DOWN = 28, 42
MARGIN = 16


def duties() -> dict[str, str]:
    """Each room's name with its duty, the first line of its docstring."""
    rooms = {}
    for path in sorted((ROOT / PACKAGE).glob("*/__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        rooms[path.parent.name] = text.partition("\n")[0].rstrip(".")
    return rooms


def imports(rooms: set[str]) -> dict[str, set[str]]:
    """For each room, those that its modules import."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    arrows: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            above, below = _room(module), _room(imported)
            if above != below and above in rooms and below in rooms:
                arrows[above].add(below)
    return arrows


def _room(module: str) -> str:
    return [*module.split("."), ""][1]


def layers(arrows: dict[str, set[str]]) -> dict[str, int]:
    """How many rooms lie below each on the longest way down. Raises ``ValueError`` where imports run in a circle."""
    depth: dict[str, int] = {}

    def descend(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            raise ValueError(f"a circle: {' -> '.join([*above, room])}")
        if room not in depth:
            depth[room] = 1 + max((descend(below, (*above, room)) for below in sorted(arrows[room])), default=-1)
        return depth[room]

    for room in sorted(arrows):
        descend(room, ())
    return depth


def reduced(arrows: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that no others imply."""

    def reached(room: str) -> set[str]:
        return arrows[room].union(*(reached(below) for below in arrows[room]))

    beyond = {room: set().union(*(reached(below) for below in arrows[room])) for room in arrows}
    return sorted((room, below) for room in arrows for below in arrows[room] - beyond[room])


Slot = str | tuple[str, str, int]
"""A place in a row: a room, or where the arrow from one room to another passes that row."""


def rows_of(depth: dict[str, int], shown: list[tuple[str, str]]) -> tuple[list[list[Slot]], list[list[Slot]]]:
    """The rows of slots from the top, and of each arrow the slots that it visits, first and last its rooms."""
    top = max(depth.values())
    rows: list[list[Slot]] = [sorted(room for room in depth if depth[room] == top - i) for i in range(top + 1)]
    paths: list[list[Slot]] = []
    for above, below in shown:
        path: list[Slot] = [above]
        for row in range(top - depth[above] + 1, top - depth[below]):
            path.append((above, below, row))
            rows[row].append((above, below, row))
        paths.append([*path, below])
    steps = [step for path in paths for step in pairwise(path)]
    for sweep in range(8):  # a slot goes where its neighbours in the row before are: down, up, and again
        down = sweep % 2 == 0
        for i in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            before = rows[i - 1] if down else rows[i + 1]
            at = {slot: (j + 0.5) / len(before) for j, slot in enumerate(before)}

            def place(slot: Slot, at: dict[Slot, float] = at) -> tuple[float, str]:
                ends = [at[o] for pair in steps for s, o in (pair, pair[::-1]) if s == slot and o in at]
                return (sum(ends) / len(ends) if ends else 0.5, str(slot))

            rows[i].sort(key=place)
    return rows, paths


def drawn() -> str:
    """The picture."""
    texts = duties()
    arrows = imports(set(texts))
    rows, paths = rows_of(layers(arrows), reduced(arrows))
    wide = [sum(_width(slot) for slot in row) + ACROSS * (len(row) - 1) for row in rows]
    width, height = 2 * MARGIN + max(wide), 2 * MARGIN + len(rows) * HEIGHT + (len(rows) - 1) * DOWN
    centres: dict[Slot, tuple[float, float]] = {}
    for i, row in enumerate(rows):
        x = (width - wide[i]) / 2
        for slot in row:
            centres[slot] = (x + _width(slot) / 2, MARGIN + i * (HEIGHT + DOWN) + HEIGHT / 2)
            x += _width(slot) + ACROSS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<title>The folders of raysim, and what each imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#678"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    lines += [_arrow([centres[slot] for slot in path]) for path in paths]
    for room, text in texts.items():
        x, y = centres[room]
        lines += [
            f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            'fill="#eef3f8" stroke="#345"/>',
            f'<text x="{x:g}" y="{y - 4:g}" text-anchor="middle" font-size="15" font-weight="bold" fill="#123">'
            f"{escape(room)}</text>",
            f'<text x="{x:g}" y="{y + 14:g}" text-anchor="middle" font-size="12" fill="#345">{escape(text)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _width(slot: Slot) -> int:
    return WIDTH if isinstance(slot, str) else 0


def _arrow(points: list[tuple[float, float]]) -> str:
    """From the lower edge of one box through the rows between to the upper edge of another."""
    (x, y), last = points[0], len(points) - 1
    y += HEIGHT / 2
    drawn = f"M{x:g},{y:g}"
    for i, (u, v) in enumerate(points[1:], start=1):
        top = v - HEIGHT / 2
        drawn += f" C{x:g},{y + DOWN / 2:g} {u:g},{top - DOWN / 2:g} {u:g},{top:g}"
        if i < last:
            drawn += f" V{v + HEIGHT / 2:g}"
        x, y = u, v + HEIGHT / 2
    return f'<path d="{drawn}" fill="none" stroke="#678" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    PICTURE.write_text(drawn())
