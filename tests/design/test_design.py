"""``raysim design`` from its file to its folder, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from raysim.cli import main as cli
from raysim.core.errors import ConfigError
from raysim.design.run import block, notes, planned
from raysim.design.settings import read_design
from raysim.report.terminal.block import MOST, lines
from tests.commands import refusal

SITES = """
name: consortium
sites:
- {name: north, rows: 210, events: 25}
- {name: south, rows: 90, events: 9}
- {name: east, rows: 20, events: 0}
- {name: west, rows: 400, events: 60}
"""


def raysim(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["raysim", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code


def test_a_table_is_answered_with_a_list_of_hospitals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("icu.csv").write_text("hospital,age,died\nnorth,61,0\nsouth,70,1\n")
    for given in ("icu.csv", "."):
        monkeypatch.setattr(sys, "argv", ["raysim", "design", given])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert ended.value.code == 2
        assert refusal(printed.err) == (
            f"{given}: is not a list of hospitals; write each hospital's numbers of test rows and events into a YAML "
            "file, as in the next lines"
        )
    Path("sites.yaml").write_text(printed.out)
    raysim(monkeypatch, "design", "sites.yaml")
    assert "2 hospitals" in capsys.readouterr().out


def test_it_leaves_tables_a_page_and_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sites.yaml").write_text(SITES)
    raysim(monkeypatch, "design", "sites.yaml", "--out", "out", "--json")
    printed = json.loads(capsys.readouterr().out)
    table = pd.read_csv("out/design.csv")
    assert printed["rows"][0]["visible"] == pytest.approx(table["visible"][0])
    assert table["variant"].tolist() == ["as planned", "twice the hospitals", "twice the test rows", "twice the seeds"]
    assert table["hospitals"].tolist() == [3, 6, 3, 3]
    assert table["power_slope"].isna().all()
    page = Path("out/report.html").read_text()
    assert printed["headline"] in page
    assert "1 hospital will have test rows of only one class" in page
    assert {path.name for path in Path("out").iterdir()} == {
        "config.yaml",
        "design.csv",
        "manifest.json",
        "power.csv",
        "report.html",
    }
    raysim(monkeypatch, "design", "out/config.yaml", "--out", "again")
    assert Path("again/design.csv").read_bytes() == Path("out/design.csv").read_bytes()
    assert "this comparison is too small" in capsys.readouterr().out.replace("\n", " ")


def test_more_of_something_helps_and_the_block_fits_a_screen() -> None:
    found = planned(
        read_design({"sites": {"hospitals": 12, "median_rows": 150, "prevalence": 0.2}, "difference": 0.03})
    )
    visible = [each.draws.visible(0.8) for each in found.variants]
    assert max(visible[1:]) < visible[0] * 1.02
    assert visible[1] < visible[0] * 0.85
    assert len(lines(block(found, "3 s", "report.html"), 80)) <= MOST
    assert found.headline.startswith("With 12 hospitals and 5 seeds a difference of ")


def test_a_difference_beyond_any_auroc_is_not_said_to_be_demonstrated() -> None:
    """With two hospitals .585 would be needed, but an AUROC of .8 cannot be .585 higher."""
    sites = [{"name": "north", "rows": 30, "events": 3}, {"name": "south", "rows": 90, "events": 9}]
    found = planned(read_design({"sites": sites}))
    assert found.variants[0].draws.visible(0.8) > 0.2
    assert found.headline.startswith(
        "With 2 hospitals and 5 seeds no possible difference is demonstrated in 8 of 10 studies. The relevant"
    )
    printed = block(found, "3 s", "report.html")
    assert [row[1] for row in printed.rows[1:]] == ["none", "0.140", "none", "none"]
    few = planned(read_design({"sites": sites, "auroc": 0.95}))
    assert notes(few)[-1] == (
        "Of twice the hospitals, rows or seeds, twice the hospitals would help most, but no possible difference is "
        "then demonstrated in 8 of 10 studies."
    )


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        ({"hospitals": 3}, "sites.median_rows: missing"),
        ({"hospitals": 1, "median_rows": 9, "prevalence": 0.1}, "sites.hospitals: 1 is not at least 2"),
        ([{"name": "a", "rows": 3, "events": 5}], "a has 5 events in 3 rows"),
        ([{"name": "a", "rows": 3, "events": 1}] * 2, "two hospitals are called 'a'"),
        ([{"name": "a", "rows": 3}], "sites.0.events: missing"),
        (5, "sites: 5 is not a list"),
    ],
)
def test_what_is_no_list_of_hospitals_is_refused(sites: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_design({"sites": sites})


@pytest.mark.parametrize(
    ("key", "value"), [("seeds", 1), ("auroc", 0.5), ("difference", 0), ("correlation", 1), ("x", 1)]
)
def test_other_keys_are_checked(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=key):
        read_design({"sites": {"hospitals": 4, "median_rows": 100, "prevalence": 0.2}, key: value})


def test_hospitals_without_events_leave_too_few() -> None:
    one = [{"name": "a", "rows": 9, "events": 3}, {"name": "b", "rows": 9, "events": 0}]
    with pytest.raises(ConfigError, match="1 hospital will have test rows with and without"):
        planned(read_design({"sites": one}))
