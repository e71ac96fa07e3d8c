"""The pages of raysim in a real browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from raysim.config import reading
from raysim.core.errors import ConfigError
from raysim.engine.job import Result
from raysim.experiment import comparison
from raysim.experiment.runs import Experiment
from raysim.report import svg
from raysim.report.pages.again import rewritten
from raysim.storage.manifest import Manifest
from tests.browser import CHROMIUM, Page, browser

pytestmark = pytest.mark.surroundings


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of real runs, with several models for each method."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    out = tmp_path_factory.mktemp("page") / "out"
    changes = {
        "data": {
            "source": "synthetic",
            "hospitals": 12,
            "rows": 1500,
            "split": {"train": 0.7, "validation": 0.1, "test": 0.2},
        },
        "training": {"rounds": 3},
        "strategies": [{"name": "fedavg"}, {"name": "chip"}, {"name": "local"}],
        "recalibrate": "both",
        "seeds": [0, 1],
        "tracking": {"uri": "none"},
    }
    config = reading.resolve(changes)

    def conclude(results: Sequence[Result], manifest: Manifest) -> None:
        comparison.write_comparison(manifest, config, results)

    Experiment.comparing(config, out).run(Console(quiet=True), in_process=True, verbose=False, conclude=conclude)
    return out


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A browser as wide as a phone."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with browser(tmp_path_factory.mktemp("narrow"), 400, 900) as page:
        yield page


def opened(page: Page, file: Path) -> Page:
    """The page once it shows a file and has run its scripts."""
    page.open(file.as_uri())
    page.until(f"location.href === {json.dumps(file.as_uri())} && document.readyState === 'complete'")
    return page


def test_a_hospital_that_is_typed_fills_its_card_and_is_marked_in_every_figure(page_file: Path, narrow: Page) -> None:
    shown = opened(narrow, page_file / "report.html").run(
        """(() => {
          const input = document.getElementById("hospital");
          const card = document.getElementById("card");
          const before = card.textContent;
          const names = JSON.parse(document.getElementById("data").textContent).hospitals.map((each) => each.name);
          const offered = [...document.querySelectorAll("#hospitals option")].map((each) => each.value);
          const marked = [...document.querySelectorAll("#caterpillar [data-h]")].map((drawn) => drawn.dataset.h);
          const [one, two] = [...new Set(marked)];
          const type = (text) => {
            input.value = text;
            input.dispatchEvent(new Event("input"));
            input.dispatchEvent(new Event("change"));
          };
          type(names[one]);
          const fill = (drawn) => getComputedStyle(drawn).fill;
          const dots = (own) => [...document.querySelectorAll(own)].filter((d) => !d.classList.contains("whisker"));
          const chosen = dots(`.chart [data-h="${one}"]`);
          const other = dots(`.chart [data-h="${two}"]`)[0];
          return {
            before,
            one,
            alike: JSON.stringify(names) === JSON.stringify(offered),
            hidden: document.getElementById("chooser").hidden,
            card: card.closest("section").textContent,
            fills: [...new Set(chosen.map(fill))],
            figures: [...new Set(chosen.map((d) => d.closest("figure").id))],
            other: fill(other),
            address: decodeURIComponent(location.hash),
            clicked: (other.dispatchEvent(new MouseEvent("click", { bubbles: true })), input.value === names[two]),
            unknown: (type("nobody"), [card.textContent, document.getElementById("chosen").textContent]),
          };
        })()"""
    )
    cards = json.loads((page_file / "report.json").read_text())["values"]["cards"]
    assert (shown["before"], shown["hidden"], shown["alike"], shown["clicked"]) == ("", False, True, True)
    card = cards["hospitals"][int(shown["one"])]
    for text in (card["name"], *card["lead"], *(cell for rows in card["tables"] for row in rows for cell in row)):
        assert text in shown["card"], text
    assert cards["tables"][2]["caption"] in shown["card"]
    assert shown["figures"] == ["caterpillar", "by-size", "by-size-all"]
    assert len(shown["fills"]) == 1
    assert shown["fills"] != [shown["other"]]
    assert shown["address"] == f"#hospital={card['name']}"
    assert shown["unknown"] == ["", "There is no hospital nobody on this page."]


def test_an_address_leads_to_a_hospital(page_file: Path, narrow: Page) -> None:
    file = page_file / "report.html"
    narrow.open("about:blank")
    narrow.open(f"{file.as_uri()}#hospital=hospital_7")
    narrow.until("document.readyState === 'complete' && !!document.getElementById('card')?.textContent")
    assert narrow.run("document.querySelector('#card h3').textContent") == "hospital_7"
    assert narrow.run(OPEN_TABS) == ["your-hospital"]
    narrow.open("about:blank")


OPEN_TABS = """[...document.querySelectorAll("section.tab")].filter((tab) => tab.getClientRects().length)
  .map((tab) => tab.getAttribute("aria-labelledby"))"""

FIRST = """[...document.querySelectorAll(".first > *")].map((part) => part.getBoundingClientRect().bottom + scrollY)"""


def test_tabs_show_one_section_each_and_all_are_printed(page_file: Path, narrow: Page) -> None:
    opened(narrow, page_file / "report.html")
    tabs = narrow.run('[...document.querySelectorAll(".contents a")].map((link) => link.hash.slice(1))')
    assert tabs[0] == "answer-details"
    assert {"your-hospital", "figures", "use", "equity", "privacy", "cost", "setting"} <= set(tabs)
    assert narrow.run(OPEN_TABS) == [tabs[0]]
    for tab in tabs:
        narrow.run(f'location.hash = "#{tab}"')
        narrow.until(f"JSON.stringify({OPEN_TABS}) === JSON.stringify(['{tab}'])")
        current = 'document.querySelector(".contents [aria-current]").hash'
        assert narrow.run(current) == f"#{tab}"
    narrow.run('location.hash = "#by-size-all"')
    narrow.until(f"JSON.stringify({OPEN_TABS}) === JSON.stringify(['figures'])")
    assert narrow.run('document.getElementById("by-size-all").closest("details").open')
    narrow.media("print")
    assert narrow.run(OPEN_TABS) == tabs
    narrow.media("")


@pytest.mark.parametrize(("wide", "high"), [(1400, 900), (390, 844)])
def test_the_first_screen_holds_the_card_and_the_forest(page_file: Path, narrow: Page, wide: int, high: int) -> None:
    narrow.resize(wide, high)
    opened(narrow, page_file / "report.html")
    bottoms = narrow.run(FIRST)
    assert len(bottoms) == 2
    assert max(bottoms) <= high
    first = narrow.run('document.querySelector(".first").innerText')
    for name in ("CHiP-FL, global", "CHiP-FL, clusters", "CHiP-FL, recalibrated", "Training alone, recalibrated"):
        assert name in first, "several models of one method"
    assert 0 < narrow.run('document.querySelector(".recommended").getBoundingClientRect().bottom') < high
    two, across = {}, {}
    for tab in narrow.run('[...document.querySelectorAll(".contents a")].map((link) => link.hash.slice(1))'):
        two[tab], across[tab] = narrow.run(
            f"""(location.hash = "#{tab}", new Promise((done) => setTimeout(() => done(
          [document.getElementById("{tab}").closest("section").getBoundingClientRect().height,
           document.documentElement.scrollWidth]), 200)))"""
        )
    assert max(across.values()) <= wide, f"nothing is scrolled sideways: {across}"
    if wide > 1000:
        narrow.run('location.hash = "#hospital=hospital_7"')
        narrow.until('document.getElementById("card").textContent !== ""')
        two["one"] = narrow.run('document.getElementById("card").closest("section").getBoundingClientRect().height')
        assert max(two.values()) <= 2 * high, two
    narrow.resize(400, 900)


def test_a_tab_with_several_headings_begins_with_links_to_them(page_file: Path, narrow: Page) -> None:
    opened(narrow, page_file / "report.html")
    narrow.run('location.hash = "#setting"')
    narrow.until(f"JSON.stringify({OPEN_TABS}) === JSON.stringify(['setting'])")
    links = """[...document.querySelectorAll("section.tab:not([hidden]) > .within a")]"""
    assert narrow.run(f"{links}.map((link) => link.textContent)") == [
        "Training loss by round",
        "Runs, tables and figures",
        "Data, seeds and versions",
        "To reproduce",
    ]
    narrow.run(f"{links}[2].click()")
    narrow.until(f"location.hash === {links}[2].hash")
    top = "document.getElementById(location.hash.slice(1)).getBoundingClientRect().top"
    narrow.until(
        f"{top} >= 0 && {top} < innerHeight / 2 && JSON.stringify({OPEN_TABS}) === JSON.stringify(['setting'])"
    )


def test_a_comparison_is_printed_on_eight_pages_at_most(page_file: Path, narrow: Page) -> None:
    opened(narrow, page_file / "report.html")
    printed = narrow.pdf()
    assert 2 <= printed.count(b"/Type /Page\n") <= 8


def test_an_entry_of_a_legend_hides_its_marks_and_shows_them_again(page_file: Path, narrow: Page) -> None:
    page = opened(narrow, page_file / "report.html")
    assert page.run("""(() => {
      const figure = document.getElementById("by-round"), button = figure.querySelector(".legend button");
      const own = `.chart [data-s="${button.closest("li").dataset.s}"]`, off = () => [
        figure.querySelectorAll(".off").length, button.getAttribute("aria-pressed")];
      const name = button.textContent, label = figure.querySelector(`text${own.slice(7)}`).textContent;
      const marks = figure.querySelectorAll(own).length;
      button.click();
      const hidden = off();
      button.click();
      return [name, label, hidden[0] === marks && marks > 2, hidden[1], ...off()];
    })()""") == ["FedAvg, recalibrated"] * 2 + [True, "false", 0, "true"]


def test_a_heading_sorts_the_trials(narrow: Page, tmp_path: Path) -> None:
    script = (Path(svg.__file__).parents[1] / "templates" / "figures.js").read_text(encoding="utf-8")
    cells = ["0.90", "\u22120.10", "undefined", "1,200", "+0.05 (0.01 to 0.09)"]
    rows = "".join(f"<tr><th>{k}</th><td>{cell}</td></tr>" for k, cell in enumerate(cells))
    table = f"<table class=sortable><thead><tr><th>Trial</th><th>Mean</th></tr></thead><tbody>{rows}</tbody></table>"
    (tmp_path / "table.html").write_text(f"<meta charset=utf-8>{table}<script>{script}</script>", encoding="utf-8")
    page = opened(narrow, tmp_path / "table.html")
    found = """(() => { document.querySelectorAll("thead button")[1].click();
      return [...document.querySelectorAll("tbody th")].map((each) => each.textContent).join(""); })()"""
    assert page.run(found) == "14032"
    assert page.run(found) == "30412"


def test_without_script_all_sections_are_there(page_file: Path, narrow: Page, tmp_path: Path) -> None:
    page = (page_file / "report.html").read_text(encoding="utf-8")
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<script>.*?</script>", "", page, flags=re.S), encoding="utf-8")
    opened(narrow, bare)
    sections = narrow.run('document.querySelectorAll("section.tab").length')
    assert sections >= 7
    assert len(narrow.run(OPEN_TABS)) == sections


def test_a_script_that_came_in_with_a_drawing_does_not_run_and_that_of_the_page_does(
    page_file: Path, narrow: Page, tmp_path: Path
):
    tree = json.loads((page_file / "report.json").read_text())
    tree["values"]["accuracy_figures"][0]["markup"] += """<script>document.body.dataset.taken = "script"</script>
      <svg onload="document.body.dataset.taken = 'handler'"></svg>"""
    (tmp_path / "report.json").write_text(json.dumps(tree))
    page = rewritten(tmp_path, None, None)
    opened(narrow, page)
    assert narrow.run("document.body.dataset.taken") is None
    assert not narrow.run("document.getElementById('chooser').hidden"), "our own script has shown it"
    open_to_all = tmp_path / "open.html"
    open_to_all.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text()))
    assert opened(narrow, open_to_all).run("document.body.dataset.taken"), "without the policy it runs"


def test_axe_finds_nothing_serious(page_file: Path, narrow: Page) -> None:
    axe = find_spec("axe_core_python")
    if axe is None or axe.origin is None:
        pytest.skip("axe-core-python is not installed")
    code = (Path(axe.origin).parent / "axe.min.js").read_text(encoding="utf-8")
    cards = json.loads((page_file / "report.json").read_text())["values"]["cards"]
    one = rewritten(page_file, cards["hospitals"][0]["name"], None)
    for page in (page_file / "report.html", page_file / "runs" / "chip" / "seed-0" / "report.html", one):
        opened(narrow, page).run(f"{code}; undefined")
        violations = narrow.run(
            "axe.run().then((r) => r.violations.map((v) => [v.impact, v.id, v.nodes.map((n) => n.html.slice(0, 99))]))"
        )
        assert [each for each in violations if each[0] in ("serious", "critical")] == []


def test_pages_link_to_each_other(page_file: Path) -> None:
    whole = (page_file / "report.html").read_text(encoding="utf-8")
    for page in re.findall(r'href="(runs/[^"]+)"', whole):
        (back,) = re.findall(r'href="([^"#]+)">all runs together', (page_file / page).read_text(encoding="utf-8"))
        assert (page_file / page).parent.joinpath(back).resolve() == (page_file / "report.html").resolve()
    assert whole.count('href="runs/') == 3  # those of the first seed


def test_the_page_of_one_hospital(page_file: Path, tmp_path: Path) -> None:
    name = json.loads((page_file / "report.json").read_text())["values"]["cards"]["hospitals"][5]["name"]
    target = rewritten(page_file, name, tmp_path / "one.html")
    text = target.read_text(encoding="utf-8")
    assert f"<h1>{name}</h1>" in text
    assert '.chart [data-h="5"]' in text
    assert rewritten(page_file, None, tmp_path / "all.html").read_bytes() == (page_file / "report.html").read_bytes()
    assert 'href="report.html">all hospitals' not in text
    assert 'href="report.html">all hospitals' in rewritten(page_file, name, None).read_text(encoding="utf-8")
    run = json.loads((page_file / "runs" / "chip" / "seed-0" / "report.json").read_text())
    assert run["values"]["cards"]["hospitals"] == [], "the comparison's page shows each hospital under all models"
    card = json.loads((page_file / "report.json").read_text())["values"]["cards"]["hospitals"][5]
    assert [line[0] for line in card["tables"][2]] == ["FedAvg", "CHiP-FL", "Training alone"], "one line a strategy"
    with pytest.raises(ConfigError, match=re.escape(f"did you mean '{name}'")):
        rewritten(page_file, name + "x", None)
    with pytest.raises(ConfigError, match=r"has no report\.json"):
        rewritten(tmp_path, None, None)
