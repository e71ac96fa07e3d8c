"""Figures as SVG: places worked by hand, marks that can be read back, and nothing of the data that is not escaped."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.core.registry import entries
from raysim.report import svg
from raysim.report.hospital.gains import GAIN, LOSS
from raysim.report.svg import chart as charts
from raysim.report.svg.styles import COLOURS

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

HOSTILE = "St. <b>Bold</b> & \"Sons\" </script><script>alert('x')</script>"


def marks(drawn: svg.Chart, tag: str, kind: str) -> list[dict[str, str]]:
    """The attributes of the marks of a chart with a word in their class."""
    root = ElementTree.fromstring(str(drawn.markup()))
    return [dict(e.attrib) for e in root.iter(tag) if kind in e.get("class", "").split()]


def test_places_on_axes() -> None:
    axis = svg.linear("", [0.0, 10.0], margin=0.0)
    assert axis.places([0, 2.5, 10]).tolist() == [0, 0.25, 1]
    axis = svg.log("", [1.0, 1000.0])
    assert np.allclose(axis.places([1, 10, 1000]), (np.array([0, 1 / 3, 1]) + 0.04) / 1.08)
    assert np.isnan(axis.places([0.0, -1.0, math.nan])).all()
    axis = svg.names("", ["a", "b"])
    assert axis.places([0, 1]).tolist() == [0.25, 0.75]
    assert svg.share("", [0.0, 0.5]).texts == ("0 %", "10 %", "20 %", "30 %", "40 %", "50 %")


def test_ticks_say_no_more_than_they_are() -> None:
    assert svg.linear("", [0, 3], whole=True, margin=0).texts == ("0", "1", "2", "3")
    assert svg.linear("", [-0.02, 0.01], signed=True, margin=0).texts == ("−0.02", "−0.01", "0", "+0.01")
    assert svg.log("", [15, 3000]).texts == ("20", "50", "100", "200", "500", "1,000", "2,000")
    assert svg.log("", [15, 3000], count=4).texts == ("100", "1,000")
    assert svg.log("", [56, 64], count=4).texts == ("57.5", "60.0", "62.5")
    assert svg.spaced("", [0.01, 0.1, 1, 10]).kind == "log"
    assert svg.spaced("", [1, 20, 40, 60]).kind == "linear"
    assert svg.spaced("", [0, 0.1, 1, 10]).kind == "linear", "0 has no place on a logarithmic axis"


@given(
    st.lists(st.integers(-(10**9), 10**9).map(lambda x: x / 1000), min_size=1, max_size=20),
    st.integers(1, 12),
)
def test_an_axis_holds_its_values_and_its_ticks(values: list[float], count: int) -> None:
    axis = svg.linear("", values, count=count)
    assert ((axis.places(values) >= -1e-9) & (axis.places(values) <= 1 + 1e-9)).all()
    assert ((axis.places(axis.ticks) >= -1e-6) & (axis.places(axis.ticks) <= 1 + 1e-6)).all()
    assert len(axis.ticks) == len(axis.texts) == len(set(axis.texts))


def test_marks_stand_where_their_values_do() -> None:
    chart = svg.Chart(
        svg.linear("x", [0, 10], margin=0),
        svg.linear("y", [0, 1], margin=0),
        name="a",
        description="A chart of two points.",
    )
    style = svg.Style(3, "circle")
    chart.dots([0, 10, math.nan], [1, 0, 0.5], style, of=[7, 8, 9])
    chart.whiskers([2], [99], [0.5], style)
    chart.bars([0], [0.5], [5], style, upright=True)
    first, second = marks(chart, "circle", "c3")
    assert (first["data-h"], second["data-h"]) == ("7", "8")
    left, right = float(first["cx"]), float(second["cx"])
    top, bottom = float(first["cy"]), float(second["cy"])
    assert left < right <= chart.width
    assert top < bottom <= chart.height
    (whisker,) = marks(chart, "path", "whisker")
    x, y, end = map(float, re.fullmatch(r"M([\d.]+) ([\d.]+)H([\d.]+)", whisker["d"]).groups())
    assert np.allclose([x, y, end], [left + 0.2 * (right - left), (top + bottom) / 2, right], atol=0.06), (
        "cut at the axis"
    )
    (bar,) = marks(chart, "rect", "bar")
    assert float(bar["height"]) == pytest.approx((bottom - top) / 2, abs=0.02)
    assert float(bar["y"]) + float(bar["height"]) == pytest.approx(bottom, abs=0.02)


def test_lines_in_steps_stand_until_the_next_value() -> None:
    chart = svg.Chart(svg.linear("", [0, 1], margin=0), svg.linear("", [0, 1], margin=0), name="a")
    chart.line([0, 1], [0, 1], svg.Style(0, "circle"), steps=True)
    (line,) = marks(chart, "path", "line")
    points = [tuple(map(float, p.split())) for p in line["d"][1:].split("L")]
    assert len(points) == 3
    assert points[1] == (points[2][0], points[0][1])


def test_what_comes_from_data_is_escaped() -> None:
    chart = svg.Chart(svg.linear(HOSTILE, [0]), svg.names("", [HOSTILE]), name="a", title=HOSTILE, description=HOSTILE)
    chart.text(0, 0, HOSTILE)
    drawn = svg.figure("a", HOSTILE, [chart], HOSTILE, svg.legend([(HOSTILE, svg.PLAIN)]))
    assert "<b>" not in drawn.markup
    assert "<script" not in drawn.markup
    root = ElementTree.fromstring(f"<div>{drawn.markup}</div>")
    assert [e.text for e in root.iter("desc")] == [HOSTILE]
    block = svg.json_block("data", {"hospital": HOSTILE, "auroc": math.nan})
    assert str(block).count("<") == 2
    assert json.loads(str(block).split(">", 1)[1].rsplit("<", 1)[0]) == {"hospital": HOSTILE, "auroc": None}


def test_a_chart_has_a_text_for_screen_readers() -> None:
    chart = svg.Chart(svg.linear("", [0]), svg.linear("", [0]), name="a", title="Title", description="What it shows.")
    root = ElementTree.fromstring(str(chart.markup()))
    assert root.attrib["role"] == "img"
    texts = {e.get("id"): e.text for e in root.iter() if e.get("id")}
    assert [texts[i] for i in root.attrib["aria-labelledby"].split()] == ["Title", "What it shows."]


def test_a_strategy_looks_the_same_on_every_page() -> None:
    keys = [(name, "global") for name in entries("strategies")]
    looks = svg.styles(keys)
    assert len({(style.colour, style.shape) for style in looks.values()}) == len(keys)
    for key in keys:
        assert svg.styles([key])[key] == looks[key] == svg.style(*key)
    forms = {svg.style("mine", model).form for model in ("global", "cluster", "personal")}
    assert forms == {"filled", "ringed", "open"}


OFTEN = (
    "fedavg fedavgm fedprox scaffold moon fedadam fedyogi fedadagrad fedasync fedbuff",
    "fedavg chip ifca cfl clust_psi fedsoft hierarchical clustered local",
    "fedavg fedprox afl qfedavg fairfed local chip",
    "fedavg fine_tuning ditto fedper fedrep scaffold moon local",
)
"""What papers set against each other."""

FEW = 10
"""Up to so many differ in colour alone; more would take nearly all colours there are, and differ in marker too."""


@pytest.mark.parametrize(
    "labels",
    [*(text.split() for text in OFTEN), *(path.name for path in sorted(EXPERIMENTS.glob("*.yaml")))],
    ids=lambda labels: labels if isinstance(labels, str) else labels[1],
)
def test_strategies_that_are_often_compared_differ_in_colour(labels: list[str] | str) -> None:
    if isinstance(labels, str):
        tree = yaml.safe_load((EXPERIMENTS / labels).read_text())
        sections = [{"name": each} if isinstance(each, str) else each for each in tree.get("strategies", [])]
        labels = [each.get("label", each["name"]) for each in sections]
        learners = [each if isinstance(each, str) else each["name"] for each in tree.get("models", [])]
        labels = [f"{label}, {learner}" for learner in learners for label in labels] or labels
    if len(labels) <= FEW:
        assert len({svg.style(label).colour for label in labels}) == len(labels)
    elif len(labels) <= COLOURS:
        assert len({(svg.style(label).colour, svg.style(label).shape) for label in labels}) == len(labels)


def test_no_strategy_has_the_marker_of_hospitals_that_gain_or_lose() -> None:
    looks = {(style.colour, style.shape) for style in (svg.style(name) for name in entries("strategies"))}
    assert looks.isdisjoint({(each.colour, each.shape) for each in (GAIN, LOSS)})


def test_sections_of_a_page_agree_on_looks_where_two_labels_would_be_the_same() -> None:
    labels = [f"strategy {i}" for i in range(60)]
    whole = svg.styles([(label, "global") for label in labels])
    assert whole != {(label, "global"): svg.style(label) for label in labels}, "some would look the same"
    for label in labels:
        assert svg.styles([(label, "personal")], among=labels)[label, "personal"] == replace(
            whole[label, "global"], form="open"
        )


def test_a_long_line_has_markers_and_its_last_point_is_one() -> None:
    chart = svg.Chart(svg.linear("", [0, 99], margin=0), svg.linear("", [0, 99], margin=0), name="a")
    chart.marked_line(np.arange(100), [*range(99), math.nan], svg.Style(2, "circle"))
    at = sorted(float(mark["cx"]) for mark in marks(chart, "circle", "c2"))
    assert len(at) == charts.MARKED
    assert np.allclose(at, chart.across(np.linspace(0, 98, charts.MARKED).round()), atol=0.51)
    assert len(marks(chart, "path", "line")) == 1
    few = svg.Chart(svg.linear("", [0, 2]), svg.linear("", [0, 2]), name="a")
    few.marked_line([0, 1, 2], [0, 1, 2], svg.Style(2, "circle"))
    assert len(marks(few, "circle", "c2")) == 3


def test_two_labels_never_look_alike_on_a_page() -> None:
    keys = [(f"strategy {i}", "global") for i in range(60)]
    looks = svg.styles(keys)
    assert len({(style.colour, style.shape) for style in looks.values()}) == 60


def test_a_heat_map_says_its_values_and_leaves_out_what_is_undefined() -> None:
    chart = svg.heat_map(["a", "b"], ["x", "y"], [[0.0, 1.0], [math.nan, 0.5]], name="h", description="Shares.")
    cells = marks(chart, "rect", "cell")
    shades = [float(cell["fill-opacity"]) for cell in cells]
    assert shades[0] < shades[3] < shades[1]
    assert shades[2] == 0
    root = ElementTree.fromstring(str(chart.markup()))
    assert [e.text for e in root.iter("text") if e.get("class") == "value"] == ["0.00", "1.00", "–", "0.50"]


@pytest.mark.parametrize("axis", [svg.linear, svg.log, svg.spaced])
@pytest.mark.parametrize(
    "values",
    [[], [math.nan], [math.inf, -math.inf], [1e308, -1e308], [5e-324, 1e308], [1e16, 1e16 + 2], [1e-320], [0.5, 1e200]],
)
def test_what_has_no_place_on_an_axis_is_left_out(axis, values) -> None:
    drawn = svg.Chart(axis("x", values), axis("y", values), name="n")
    drawn.dots(values, values, svg.style("a"))
    drawn.line(values, values, svg.style("a"))
    drawn.rule(x=math.nan, y=math.inf)
    text = str(drawn.markup())
    assert "nan" not in text
    assert "inf" not in text


def test_a_value_of_a_training_that_diverges_does_not_take_the_axis_from_the_others() -> None:
    axis = svg.linear("", [0.0, 1.0, 1e200], margin=0.0)
    assert (axis.low, axis.high) == (0.0, 1.0)
    assert axis.places([0.5, 1e200]).tolist()[0] == 0.5
    assert np.isnan(axis.place(1e200))


def test_names_below_a_chart_are_turned_where_they_would_touch() -> None:
    def ticks(entries: list[str]) -> list[dict[str, str]]:
        chart = svg.Chart(svg.names("", entries), svg.linear("y", [0, 1]), name="n", width=svg.PANEL)
        return [tick for tick in marks(chart, "{http://www.w3.org/2000/svg}text", "tick") if "x" not in tick] or [
            tick for tick in marks(chart, "text", "tick") if "transform" in tick
        ]

    assert ticks(["a", "b"]) == []
    long = ["size, prevalence, missingness", "mean, std", "prevalence, missingness"]
    assert len(ticks(long)) == 3
    text = str(svg.Chart(svg.names("", long), svg.linear("y", [0, 1]), name="n", width=svg.PANEL).markup())
    assert "size, prevalence,…" in text, "and cut, so that there is room for the chart"


def test_figures_in_one_row_can_be_scrolled_by_keyboard() -> None:
    chart = svg.Chart(svg.linear("x", [0, 1]), svg.linear("y", [0, 1]), name="n", width=svg.PANEL)
    text = str(svg.figure("slices", "By key", [chart, chart], "", row=True).markup)
    assert re.match(r'<div class="panels row" tabindex="0" role="region" aria-label="By key">', text)


def test_a_strategy_keeps_its_colour_along_a_curve() -> None:
    labels = [f"ditto, lam {value:g}" for value in (0.1, 1, 10)]
    looks = svg.styles([(label, "global") for label in labels])
    assert {look.colour for look in looks.values()} == {svg.style("ditto").colour}
    assert len({look.shape for look in looks.values()}) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(1, 20))
def test_spread_keeps_order_room_and_gap(positions: list[float], gap: float) -> None:
    moved = charts.spread(positions, gap, 0, 100)
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6
    room = min(gap, 100 / max(len(positions) - 1, 1))
    ordered = sorted(moved)
    assert all(b - a >= room - 1e-6 for a, b in itertools.pairwise(ordered))
    by_position = [moved[i] for i in sorted(range(len(moved)), key=lambda i: positions[i])]
    assert by_position == pytest.approx(ordered)


def test_a_figure_by_itself_has_no_variables() -> None:
    """Converters know classes alone: each colour stands in the rule of its series, and mixed ones are worked out."""
    looks = [svg.style("fedavg"), svg.style("chip", "cluster")]
    chart = svg.Chart(svg.linear("x", [0, 1]), svg.linear("y", [0, 1]), name="one", right=svg.ENDS)
    for look in looks:
        chart.marked_line([0, 1], [0.2, 0.8], look)
    chart.ends([("one", 0.8, looks[0]), ("two", 0.8, looks[1])])
    drawn = svg.figure("one", "One", [chart], "", svg.legend([("one", looks[0])], lines=True)).standalone()
    assert not re.search(r"var\(|color-mix|--own|@media", drawn)
    colours = dict(re.findall(r"\.line\.c(\d+) \{[^}]*stroke: (#\w{6})", drawn))
    assert set(colours) == {str(look.colour) for look in looks}
    ringed = re.search(rf"\.ringed\.c{looks[1].colour} \{{ fill: #(\w{{6}})", drawn)
    assert ringed is not None
    own = int(colours[str(looks[1].colour)][1:3], 16)
    assert int(ringed[1][:2], 16) == round(0.35 * own + 0.65 * 255)
    places = [float(y) for y in re.findall(r'y="([\d.]+)" class="c\d+ end"', drawn)]
    assert abs(places[0] - places[1]) >= 13, "names do not touch"
