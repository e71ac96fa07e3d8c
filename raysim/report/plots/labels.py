"""Text beside points, placed so that no label covers another label, a point or an error bar."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, hypot, radians, sin
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

Point = tuple[float, float]
Boxes = NDArray[np.float64]  # [..., 4]: x0, y0, x1, y1


class Extents(NamedTuple):
    """A box in display pixels."""

    x0: float
    y0: float
    x1: float
    y1: float


# Right first, as text is read; then round the point, and outwards only when that finds no room.
_ANGLES = (0, 180, 90, 270, 40, 320, 140, 220, 65, 295, 115, 245)
_RADII = (9, 16, 24, 34, 46, 60, 76, 94)
_MARKER = 6.0


def label_points(
    ax: Axes,
    points: Sequence[Point],
    texts: Sequence[str],
    bars: Sequence[tuple[Point, Point]] = (),
    size: float = 9.0,
) -> list[Extents]:
    """Write ``texts`` beside ``points`` (display pixels), clear of each other, of all points and of ``bars`` (lines).

    Greedy: labels with the closest neighbours choose first, each takes the candidate that covers least and lies
    nearest. A label that had to move away is tied to its point by a thin line. Returns the labels' boxes in pixels.
    Call it when limits and layout are final: positions are fixed in points relative to the figure.
    """
    figure = ax.get_figure(root=True)
    assert figure is not None
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, pixel = canvas.get_renderer(), figure.dpi / 72
    obstacles = [_around(p, _MARKER * pixel) for p in points] + [box for bar in bars for box in _along(*bar, pixel)]
    frame = Extents(*ax.bbox.extents)
    placed: dict[int, Extents] = {}
    for i in sorted(range(len(points)), key=lambda i: _distance(points, i)):
        probe = figure.text(0, 0, texts[i], fontsize=size, parse_math=False)
        extent = probe.get_window_extent(renderer)
        probe.remove()
        others = obstacles[:i] + obstacles[i + 1 :] + list(placed.values())
        box, centre, tied = _best(points[i], extent.width, extent.height, pixel, np.array(others).reshape(-1, 4), frame)
        placed[i] = box
        if tied:
            obstacles += _along(points[i], _nearest(box, points[i]), pixel)
        ax.annotate(
            texts[i],
            xy=tuple(figure.transFigure.inverted().transform(points[i])),
            xycoords="figure fraction",
            xytext=((centre[0] - points[i][0]) / pixel, (centre[1] - points[i][1]) / pixel),
            textcoords="offset points",
            fontsize=size,
            ha="center",
            va="center",
            parse_math=False,
            annotation_clip=False,
            zorder=6,
            path_effects=[withStroke(linewidth=2.2, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": "#767676", "lw": 0.7, "shrinkA": 0, "shrinkB": 4} if tied else None,
        )
    return [placed[i] for i in range(len(points))]


def _best(
    point: Point, width: float, height: float, pixel: float, obstacles: Boxes, frame: Extents
) -> tuple[Extents, Point, bool]:
    """The cheapest box for a text, its centre, and whether it needs a line to its point."""
    cheapest: tuple[float, Extents, Point, bool] | None = None
    for radius in _RADII:
        for rank, angle in enumerate(_ANGLES):
            dx, dy = cos(radians(angle)), sin(radians(angle))
            x = point[0] + dx * radius * pixel + (width / 2) * _sign(dx)
            y = point[1] + dy * radius * pixel + (height / 2) * _sign(dy)
            box = Extents(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            tied = radius > _RADII[1]
            gap = 1.5 * pixel
            areas = _shared(np.add(box, (-gap, -gap, gap, gap)), obstacles)
            outside = width * height - float(_shared(np.array(box), np.array([frame]))[0])
            covered = float(areas.sum()) + 20 * np.count_nonzero(areas)
            if tied:
                line = np.array(_along(point, _nearest(box, point), pixel)[1:])
                covered += 15 * np.count_nonzero(_shared(line[:, None, :], obstacles))
            cost = 5 * outside + covered + 0.6 * radius * pixel + 0.05 * rank
            if cheapest is None or cost < cheapest[0]:
                cheapest = cost, box, (x, y), tied
    assert cheapest is not None
    return cheapest[1:]


def _around(point: Point, reach: float) -> Extents:
    return Extents(point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach)


def _along(a: Point, b: Point, pixel: float) -> list[Extents]:
    """Small boxes every few points along the line from ``a`` to ``b``."""
    count = max(2, int(hypot(b[0] - a[0], b[1] - a[1]) / (6 * pixel)))
    share = [k / (count - 1) for k in range(count)]
    return [_around((a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])), 0.8 * pixel) for t in share]


def _nearest(box: Extents, point: Point) -> Point:
    """The point of ``box`` nearest to ``point``."""
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def _sign(x: float) -> float:
    return 0.0 if abs(x) < 0.2 else (1.0 if x > 0 else -1.0)


def _shared(a: Boxes, b: Boxes) -> Boxes:
    """The area that boxes ``a [..., 4]`` and ``b [..., 4]`` share, ``[...]``."""
    width = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    height = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    area: Boxes = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    return area


def _distance(points: Sequence[Point], i: int) -> float:
    """From point ``i`` to its nearest neighbour, in pixels."""
    x, y = points[i]
    return min((hypot(x - a, y - b) for j, (a, b) in enumerate(points) if j != i), default=0.0)
