"""Figures of pages: inline SVG in the colours of the page, drawn without any library.

- ``scales``: axes.
- ``styles``: the colour and marker of a strategy.
- ``frame``: axes with their ticks and titles.
- ``chart``: shapes in a frame.
- ``figure``: charts with their legend and caption.
- ``markup``: elements with escaped text, and the JSON block with a page's data.
"""

from raysim.report.svg.chart import ENDS, Chart
from raysim.report.svg.figure import PANEL, Figure, figure, heat_map, legend
from raysim.report.svg.frame import WIDTH
from raysim.report.svg.markup import element, joined, json_block
from raysim.report.svg.scales import Axis, linear, log, names, share, spaced
from raysim.report.svg.styles import PLAIN, Style, style, styles

__all__ = [
    "ENDS",
    "PANEL",
    "PLAIN",
    "WIDTH",
    "Axis",
    "Chart",
    "Figure",
    "Style",
    "element",
    "figure",
    "heat_map",
    "joined",
    "json_block",
    "legend",
    "linear",
    "log",
    "names",
    "share",
    "spaced",
    "style",
    "styles",
]
