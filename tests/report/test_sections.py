"""A section is declared once, and pages, their tabs, report.json and pages to pass on follow."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest

from raysim.config import reading
from raysim.report import sections
from raysim.report.pages import page, tabs
from raysim.report.pages.rendering import Page
from raysim.report.pages.sharing import shared
from raysim.report.sections import equity
from raysim.report.supplement.protection import protections
from tests.report.pages import CARD, PROVENANCE, assert_sound, frames
from tests.source import ROOT

SIZES = """
from raysim.report.pages.section import Section

SECTION = Section(
    "sizes",
    "Sizes",
    {"run": "<p>{{ most }}</p>\\n", "comparison": "<p>{{ most }}: {{ parts.reasons(largest) }}</p>\\n"},
    lambda material: {"most": len(material.per_seed), "largest": ["<b>"] if len(material.per_seed) > 1 else []},
    place=15,
    visible=lambda values: values.get("largest"),
)
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Adds a file to the sections of pages."""
    monkeypatch.setattr(sections, "__path__", [*sections.__path__, str(tmp_path)])

    def add(code):
        (tmp_path / "added.py").write_text(code)

    yield add
    sys.modules.pop("raysim.report.sections.added", None)


@pytest.fixture
def frame():
    return frames(seeds=1, hospitals=3)[0]


def tabs_of(html):
    parsed = assert_sound(html)
    return [attrs["aria-labelledby"] for attrs in parsed.all("section") if attrs.get("class") == "tab"]


def compared(frame):
    return page.comparison_page("Six ways", frame, PROVENANCE, baseline="fedavg")


def test_a_section_shows_on_its_pages_where_its_values_say_so(frame, added):
    before, run = compared(frame).html(), page.run_page("One", frame[:1], PROVENANCE, card=CARD).html()
    added(SIZES)
    made = compared(frame)
    html = made.html()
    assert tabs_of(html) == [tabs_of(before)[0], "sizes", *tabs_of(before)[1:]]
    assert '<li><a href="#sizes">Sizes</a></li>' in html
    assert '<h2 id="sizes">Sizes</h2>\n<p>6: <ul class="reasons">\n<li>&lt;b&gt;</li>' in html
    assert page.run_page("One", frame[:1], PROVENANCE, card=CARD).html() == run  # its values do not ask for it
    tree = json.loads(made.json())
    assert Page(tabs.sheet(tree["template"]), tree["values"]).html() == html
    to_pass_on = Page(tabs.sheet(tree["template"]), shared(tree)).html()
    assert "sizes" not in tabs_of(to_pass_on)  # what sharing does not name stays


def test_the_section_of_the_guide_needs_no_more_than_its_file(frame, added):
    before = tabs_of(compared(frame).html())
    added(re.search(r"```python title=runs.py\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1])
    html = compared(frame).html()
    assert tabs_of(html) == [before[0], "runs", *before[1:]]
    assert f"<p>{len(frame)} runs.</p>" in html


def test_each_section_of_a_run_is_one_of_a_comparison(frame):
    places, keys = zip(*((each.place, each.key) for each in tabs.tabs()), strict=True)
    assert len(set(places)) == len(set(keys)) == len(keys)
    of_run = tabs_of(page.run_page("One", frame[:1], PROVENANCE, card=CARD).html())
    of_all = tabs_of(compared(frame).html())
    assert of_run == ["answer-details", "figures", "setting"]
    assert of_all == [key for key in keys if key in of_all]


def test_of_many_models_the_band_of_chance_shows_those_that_the_answer_is_about():
    names = {(f"m{k}", "global"): f"M{k}" for k in range(equity.MOST)} | {("local", "personal"): "Alone"}
    of = {"results": [SimpleNamespace(label="local", is_reference=True)], "best": ("m3", "global"), "against": None}
    assert list(equity._few(SimpleNamespace(distinct=names, **of)).values()) == ["M3", "Alone"]
    few = dict(list(names.items())[1:])
    assert equity._few(SimpleNamespace(distinct=few, **of)) == few


def test_sums_that_a_regression_hides_unasked_are_said():
    config = reading.resolve({"strategies": ["fedavg", "newton"]})
    facts = {"FedAvg": {}, "Newton": {"secure_sums": 12.0}}
    runs = [SimpleNamespace(title=title, label="", outcome=SimpleNamespace(facts=of)) for title, of in facts.items()]

    def secure(results):
        return next(text for name, text in protections(config, results) if name == "Secure aggregation")

    assert secure(runs).startswith("none: whoever")
    assert "except Newton: only sums can be read" in secure(runs)
    assert secure(runs[1:]).startswith("on: only sums can be read")
    assert "but" not in secure(runs[:1])
