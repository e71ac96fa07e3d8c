"""Text beside points, placed so that no label covers another, a point or an error bar."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, radians, sin

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

Point = tuple[float, float]

# Right first, as text is read; then round the point, and outwards only when that finds no room.
_ANGLES = (0, 180, 90, 270, 40, 320, 140, 220, 65, 295, 115, 245)
_RADII = (9, 16, 24, 34, 46, 60, 76, 94)
_MARKER = 6.0


def label_points(
    ax: Axes, points: Sequence[Point], texts: Sequence[str], bars: Sequence[Bbox] = (), size: float = 9.0
) -> list[Bbox]:
    """Write ``texts`` beside ``points`` (display pixels), clear of each other, of all points and of ``bars``.

    Greedy: labels with the closest neighbours choose first, each takes the candidate that covers least and lies
    nearest. A label that had to move away is tied to its point by a thin line. Returns the labels' boxes in pixels.
    Call it when limits and layout are final: positions are fixed in points relative to the figure.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, pixel = canvas.get_renderer(), figure.dpi / 72
    frame = figure.bbox.padded(-4)
    reach = _MARKER * pixel
    obstacles = [Bbox.from_extents(x - reach, y - reach, x + reach, y + reach) for x, y in points]
    obstacles += list(bars)
    placed: dict[int, Bbox] = {}
    for i in sorted(range(len(points)), key=lambda i: _crowding(points, i)):
        probe = ax.text(0, 0, texts[i], fontsize=size, parse_math=False)
        extent = probe.get_window_extent(renderer)
        probe.remove()
        box, radius, anchor = _best(points[i], extent.width, extent.height, pixel, [*obstacles, *placed.values()], frame)
        placed[i] = box
        ax.annotate(
            texts[i],
            xy=points[i],
            xycoords="figure pixels",
            xytext=((anchor[0] - points[i][0]) / pixel, (anchor[1] - points[i][1]) / pixel),
            textcoords="offset points",
            fontsize=size,
            ha="center",
            va="center",
            parse_math=False,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": "#767676", "lw": 0.7, "shrinkA": 1, "shrinkB": 5}
            if radius > _RADII[1]
            else None,
        )
    return [placed[i] for i in range(len(points))]


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """``positions`` moved as little as possible so that neighbours are at least ``gap`` apart, order kept."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[list[float]] = []  # each: centre, number of members
    for i in order:
        blocks.append([positions[i], 1])
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            centre, members = blocks.pop()
            before, others = blocks.pop()
            blocks.append([(centre * members + before * others) / (members + others), members + others])
    moved = [centre + gap * (k - (members - 1) / 2) for centre, members in blocks for k in range(int(members))]
    out = [0.0] * len(positions)
    for i, position in zip(order, moved, strict=True):
        out[i] = position
    return out


def _best(
    point: Point, width: float, height: float, pixel: float, obstacles: Sequence[Bbox], frame: Bbox
) -> tuple[Bbox, float, Point]:
    """The box, its distance from the point and its centre that cost least."""
    found: tuple[float, Bbox, float, Point] | None = None
    for radius in _RADII:
        for rank, angle in enumerate(_ANGLES):
            dx, dy = cos(radians(angle)), sin(radians(angle))
            x = point[0] + dx * radius * pixel + (width / 2) * _sign(dx)
            y = point[1] + dy * radius * pixel + (height / 2) * _sign(dy)
            box = Bbox.from_extents(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            outside = width * height - _shared(box, frame)
            covered = sum(_shared(box.padded(1.5 * pixel), other) for other in obstacles)
            cost = 5 * outside + covered + 0.4 * radius * pixel + 0.05 * rank
            if found is None or cost < found[0]:
                found = cost, box, radius, (x, y)
    assert found is not None
    return found[1:]


def _sign(x: float) -> float:
    return 0.0 if abs(x) < 0.2 else (1.0 if x > 0 else -1.0)


def _shared(a: Bbox, b: Bbox) -> float:
    """The area that two boxes share."""
    return max(0.0, min(a.x1, b.x1) - max(a.x0, b.x0)) * max(0.0, min(a.y1, b.y1) - max(a.y0, b.y0))


def _crowding(points: Sequence[Point], i: int) -> float:
    """The distance of point ``i`` to its nearest neighbour."""
    x, y = points[i]
    return min((((x - a) ** 2 + (y - b) ** 2) for j, (a, b) in enumerate(points) if j != i), default=0.0)
