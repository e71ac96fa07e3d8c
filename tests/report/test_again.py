"""Pages that are written again from a folder that somebody else may have made: one line, and no script but ours."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from raysim.core.errors import ConfigError
from raysim.report.pages import page
from raysim.report.pages.again import rewritten
from raysim.storage.manifest import Manifest
from tests.report.pages import PROVENANCE, frames

NAMES = (
    "a b",
    "a/b",
    "../../etc",
    "</script><script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "x" * 5000,
    "é☃",
    "plain-1",
)


@pytest.fixture(scope="module")
def tree() -> dict[str, Any]:
    per_seed, hospitals, rounds = frames(seeds=1)
    made = page.comparison_page("Six ways", per_seed, PROVENANCE, hospitals=hospitals, rounds=rounds, baseline="fedavg")
    content: dict[str, Any] = json.loads(made.json())
    facts = {"lead": ["no difference"], "facts": [["Train rows", "7"]], "counts": {"Train rows": [7, 7]}}
    cards = [{"name": name, **facts, "tables": [[["FedAvg", ".8"]], []]} for name in NAMES]
    captions = [{"caption": "Models", "columns": ["Model", "AUROC"]}, {"caption": "Sent", "columns": ["Kind"]}]
    content["values"]["cards"] = {"hospitals": cards, "tables": captions}
    return content


def put(folder: Path, tree: Any) -> Path:
    (folder / "report.json").write_text(json.dumps(tree))
    return folder


def scripts(html: str) -> list[str]:
    return re.findall(r"<script>(.*?)</script>", html, re.S)


def test_a_browser_runs_the_scripts_of_pages_and_no_other(tree, tmp_path):
    drawing = tree["values"]["accuracy_figures"][0]
    hostile = {**drawing, "markup": "<script>alert(1)</script><svg onload=alert(2)></svg>" + drawing["markup"]}
    changed = {**tree, "values": {**tree["values"], "accuracy_figures": [hostile]}}
    html = rewritten(put(tmp_path, changed), None, None).read_text()
    written = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert written is not None
    policy = written[1].replace("&#39;", "'")
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    theirs, *ours = scripts(html)
    digest = {
        text: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (theirs, *ours)
    }
    assert {digest[each] for each in ours} <= set(directives["script-src"].split())
    assert len(ours) == 2
    assert digest[theirs] not in directives["script-src"]
    assert "unsafe" not in directives["script-src"]
    assert html.index("Content-Security-Policy") < html.index("<script")


def test_the_page_takes_its_own_place_and_no_other_file_is_replaced(tree, tmp_path):
    manifest = Manifest.begin(tmp_path, "compare")
    manifest.text("report.html", "the page")
    manifest.text("comparison.csv", "the figures")
    put(tmp_path, tree)
    assert rewritten(tmp_path, None, tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    page = (tmp_path / "report.html").read_text()
    for name, hospital in (("report.html", "a b"), ("comparison.csv", None)):
        with pytest.raises(
            ConfigError, match=rf"^--out: .*{name} is one of the files that raysim wrote in .*; name another"
        ):
            rewritten(tmp_path, hospital, tmp_path / name)
    assert (tmp_path / "report.html").read_text() == page
    assert (tmp_path / "comparison.csv").read_text() == "the figures"


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_a_hospital_has_a_file_of_its_own_in_the_folder(tree, name, tmp_path):
    target = rewritten(put(tmp_path, tree), name, None)
    assert target.parent == tmp_path
    assert len(target.name) < 150
    assert scripts(target.read_text()) == []


def test_no_two_hospitals_have_one_file(tree, tmp_path):
    put(tmp_path, tree)
    assert len({rewritten(tmp_path, name, None) for name in NAMES}) == len(NAMES)
    assert rewritten(tmp_path, "plain-1", None).name == "hospital_plain-1.html"


@pytest.mark.parametrize(
    "change",
    [
        {"template": "../../secret"},
        {"template": ["run.html.j2"]},
        {"values": []},
        {"values": {"title": "\ud800"}},
        {"values": {"provenance": {"hospitals": "many"}}},
        {"values": {"cards": {"hospitals": [1]}}},
        {"values": {"sheet": "x"}},
        {"values": {"accuracy_figures": {"markup": 1}}},
    ],
)
def test_a_changed_file_is_one_line(tree, change, tmp_path):
    values = change.get("values")
    other = tree | change
    if isinstance(values, dict):
        other["values"] = tree["values"] | values
    with pytest.raises(ConfigError, match=r"^RUN: ") as said:
        rewritten(put(tmp_path, other), None, None)
    assert "\n" not in str(said.value)


def test_a_page_of_another_format_is_named_with_what_can_be_done(tree, tmp_path):
    values = {key: value for key, value in tree["values"].items() if key != "evidence"}
    put(tmp_path, {"raysim": tree["raysim"], "template": tree["template"], "values": values})
    config = tmp_path / "config.yaml"
    with pytest.raises(ConfigError) as raised:
        rewritten(tmp_path, None, None)
    assert str(raised.value) == (
        f"RUN: {tmp_path / 'report.json'} does not have the format that this version of raysim reads ('evidence' is "
        f"undefined); draw a new page by raysim compare {config}"
    )
    (tmp_path / "report.html").write_text("<p>")
    with pytest.raises(ConfigError, match=re.escape(f"; open {tmp_path / 'report.html'}, or draw a new page by")):
        rewritten(tmp_path, None, None)
