"""What ``raysim describe`` counts and prints."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from raysim.data.build import build
from raysim.data.describe import render, summarise
from raysim.data.federation import Federation
from raysim.data.sources.synthetic import Synthetic
from raysim.data.split import Split
from tests.data.in_memory_sources import fixed, records


def by_hand(classes: tuple[str, ...] = ("no", "yes")) -> Federation:
    """Hospital a tests on both classes, b on one, c has one row, which trains."""
    silo = ["a"] * 10 + ["b"] * 10 + ["c"]
    y = [0, 1] * 5 + [0] * 10 + [len(classes) - 1]
    x = [np.nan] * 7 + list(range(14))
    source = fixed(
        records(
            {"x [ml]": x, "z": range(21)},
            y,
            silo,
            classes,
            attributes={"a": {"beds": "few"}, "b": {"beds": "few"}, "c": {"beds": "many"}},
            warnings=("table lab is missing",),
            notes=("21 rows",),
        ),
        f"describe {classes}",
    )
    for seed in range(20):
        federation = build(source, Split(train=0.6, test=0.4), "standard", seed)
        if len(set(federation.y[federation.rows(0, "test")].tolist())) == 2:
            return federation
    raise AssertionError("no seed tests hospital a on both classes")


def printed(federation: Federation, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    render(federation, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_counts() -> None:
    summary = summarise(by_hand())
    assert (summary.rows, summary.hospitals) == (21, ("a", "b", "c"))
    assert summary.sizes.tolist() == [[6, 0, 4], [6, 0, 4], [1, 0, 0]]
    assert summary.counts.tolist() == [[5, 5], [10, 0], [0, 1]]
    np.testing.assert_allclose(summary.shares, [15 / 21, 6 / 21])
    np.testing.assert_allclose(summary.prevalence[:, 1], [0.5, 0, 1])
    assert [(column.name, column.missing, column.low, column.high) for column in summary.columns] == [
        ("x [ml]", pytest.approx(7 / 21), 0.0, 13.0),
        ("z", 0.0, 0.0, 20.0),
    ]
    assert (summary.one_class, summary.untested, summary.untrained) == (("b",), ("c",), ())
    assert summary.attributes == {"beds": {"few": 2, "many": 1}}


def test_text() -> None:
    text = printed(by_hand())
    for words in (
        "3 hospitals, 21 rows, 2 value columns and 1 flag",
        "test rows of one class only: 1 (b)",
        "no test row: 1 (c)",
        "2 of 3 hospitals are left out",
        "2 features, 16.7% missing",
        "0 to 13",
        "feature 'z' looks like a row number (0 to 20)",
        "events ('yes')",
        "x [ml]",
        "33.3%",
        "beds: few 2, many 1",
        "21 rows",
        "table lab is missing",
        "seed ",
    ):
        assert words in text
    assert "\x1b" not in text


def test_the_hospitals_without_a_test_event_come_first() -> None:
    """Of a, b and c, b tests on no event, and c on nothing."""
    first, second, *_ = printed(by_hand()).splitlines()
    assert first == "2 of 3 hospitals have no test event ('yes'): AUROC is undefined there"
    assert second.startswith("3 hospitals, 21 rows")
    assert printed(by_hand(("low", "mid", "high"))).startswith("3 hospitals")


def test_several_classes() -> None:
    text = printed(by_hand(("low", "mid", "high")))
    assert all(name in text for name in ("low", "mid", "high", "classes present"))


def test_a_large_federation_fits_its_width() -> None:
    text = printed(build(Synthetic(hospitals=60, rows=3000), Split(), "standard", 0))
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) < 100
    assert "practice: " in text
