"""A page to pass on: no name, no small count, nothing from which one follows."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raysim
from raysim.core.errors import ConfigError
from raysim.report.hospital.clinical import LEAST
from raysim.report.pages import sharing
from raysim.report.pages.again import SHARED, rewritten
from tests.report.pages import Page, assert_sound

SIZES = {"St. Mary": 400, "73": 300, "Ä <Ö> & Co": 200, "North": 60, "Tiny": 16, "7": 12}
"""Hospitals, two of them with numbers for names, and their rows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of real runs."""
    out = tmp_path_factory.mktemp("shared")
    rng = np.random.default_rng(0)
    table = pd.concat(
        [pd.DataFrame({"site": name, "x": rng.normal(size=n), "z": rng.normal(size=n)}) for name, n in SIZES.items()]
    )
    table["died"] = (table["x"] + rng.normal(size=len(table)) > 1).astype(int)
    table["sex"] = rng.choice(["f", "m"], len(table))
    table.to_parquet(out / "t.parquet")
    settings = {
        "data": {"source": "table", "path": str(out / "t.parquet"), "silo": "site", "label": "died", "sex": "sex"},
        "training": {"rounds": 2},
        "seeds": [0, 1],
        "evaluation": {"clinical": {"thresholds": [0.1, 0.3]}},
        "tracking": {"uri": "none"},
    }
    raysim.compare(settings, strategies=["fedavg", "local"], out=out / "out", in_process=True)
    return out / "out"


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return rewritten(folder, None, None, for_sharing=True).read_text(encoding="utf-8")


def data_in(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    content: dict[str, Any] = json.loads(found[1])
    return content


def test_no_name_is_anywhere_in_it(folder: Path, page: str) -> None:
    assert_sound(page)
    whole = (folder / "report.html").read_text(encoding="utf-8")
    for name in ("St. Mary", "Ä", "\\u00c4", "Tiny", "North"):
        assert (name in whole) or "\\u" in name or name == "Ä", "what is looked for is on the whole page"
        assert name not in page
    assert "t.parquet" in whole
    assert "t.parquet" not in page, "nor where the data lie"
    names = {each["name"] for each in data_in(page)["hospitals"]}
    assert names == {f"Site {k}" for k in range(1, 7)}
    assert not names & set(SIZES)
    marked = set(re.findall(r'data-h="(-?\d+)"', page))
    shown = {str(k) for k, each in enumerate(data_in(page)["hospitals"]) if each["tables"][0]}
    assert marked == shown, "a mark for each hospital with figures, and for no other"
    assert 0 < len(shown) < len(SIZES)


def test_counts_are_ranges_or_withheld(folder: Path, page: str) -> None:
    tree = json.loads((folder / "report.json").read_text())
    exact = [each["counts"] for each in tree["values"]["cards"]["hospitals"]]
    assert any(low < LEAST for each in exact for low, _ in each.values())
    for each in data_in(page)["hospitals"]:
        assert "counts" not in each
        for _, text in each["facts"]:
            assert re.fullmatch(r"withheld|fewer than [\d,]+|[\d,]+ to [\d,]+", text), text
        if not each["tables"][0]:
            assert each["tables"] == [[], [], []]
            assert "withheld" in each["lead"][0]
    text = Page(page).text
    assert not re.search(r"(?<![\d.,])[1-4] (?:test |training )?(?:rows|events|patients)", text)
    assert "Events at each hospital" not in text
    assert "The evidence" not in text, "no heading without content"
    assert "The evidence" in Page((folder / "report.html").read_text(encoding="utf-8")).text


def test_ranges_hold_what_they_stand_for() -> None:
    for low, high in itertools.combinations_with_replacement(range(300), 2):
        first, last = sharing.band(low, high)
        assert first <= low <= high <= last
        assert first == 0 or first >= LEAST
        assert last >= LEAST - 1


@given(st.lists(st.integers(0, 11), min_size=1, max_size=4))
def test_a_total_gives_no_small_count_back(counts: list[int]) -> None:
    """Against all federations that have these ranges and this total."""
    ranges = [sharing.band(count, count) for count in counts]
    total = sum(counts)
    possible = [
        each for each in itertools.product(*(range(low, high + 1) for low, high in ranges)) if sum(each) == total
    ]
    open_ = all({each[h] for each in possible} == set(range(LEAST)) for h in range(len(counts)) if ranges[h][0] == 0)
    assert sharing.gives_back([(count, count) for count in counts]) == (not open_)


def line(fact: str, text: str, remedy: str = "") -> dict[str, str]:
    return {"fact": fact, "state": "warn", "text": text, "remedy": remedy}


def test_sentences_lose_names_and_small_numbers(folder: Path) -> None:
    tree = json.loads((folder / "report.json").read_text())
    tree["values"]["card"] = {
        "what": "death, 6 hospitals, 3 events",
        "headline": "Take FedAvg; not at Tiny.",
        "lines": [
            line("harm", "At least 2 of 6 lose (7 and 73), by .1 (.05 to .2)"),
            line("limits", "2.5 test events at the median", "see St. Mary"),
        ],
    }
    tree["values"]["secret"] = "St. Mary"
    shared = sharing.shared(tree)
    card = shared["card"]
    assert card["what"] == "death, 6 hospitals, fewer than 5 events"
    assert re.fullmatch(r"Take FedAvg; not at Site \d\.", card["headline"])
    first, second = card["lines"]
    assert first["text"] == "At least 2 of 6 lose, by .1 (.05 to .2)"
    assert second["text"] == "fewer than 5 test events at the median"
    assert re.fullmatch(r"see Site \d", second["remedy"])
    assert "secret" not in shared
    assert "St. Mary" not in json.dumps(shared)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("3 gain, 1 lose, and 2 do not change", "3 gain, 1 lose, and 2 do not change"),
        ("among 3 stays", "among fewer than 5 stays"),
        (
            "It has 2 validation rows of the rarer class; 3 would take about 12 labelled rows.",
            "It has fewer than 5 validation rows of the rarer class; 3 would take about 12 labelled rows.",
        ),
    ],
)
def test_counts_of_hospitals_stay_and_those_of_patients_go(text: str, shown: str) -> None:
    assert sharing._sentence(text, {}) == shown


def test_pseudonyms_hold_no_name() -> None:
    assert sharing.pseudonyms(["a", "b"]) == ["Site 1", "Site 2"]
    assert sharing.pseudonyms(["e", "c"]) == ["Unit 1", "Unit 2"]
    assert sharing.pseudonyms(["Site", "x"])[0].startswith("Clinic")
    many = sharing.pseudonyms([f"h{k}" for k in range(100)])
    assert len(set(many)) == 100
    assert many[0] == "Site 001"


def test_it_takes_no_other_file_s_place(folder: Path, page: str) -> None:
    before = (folder / SHARED).read_bytes()
    with pytest.raises(ConfigError, match="exists, and a page for sharing never replaces a file; name another"):
        rewritten(folder, None, None, for_sharing=True)
    with pytest.raises(ConfigError, match=r"^--for-sharing: .*cannot be combined with --hospital"):
        rewritten(folder, "Tiny", None, for_sharing=True)
    assert (folder / SHARED).read_bytes() == before
    other = rewritten(folder, None, folder / "other.html", for_sharing=True)
    assert other.exists()
    run = rewritten(folder / "runs" / "fedavg" / "seed-0", None, None, for_sharing=True)
    text = run.read_text(encoding="utf-8")
    assert_sound(text)
    assert "Tiny" not in text
