"""The tables of docs/studies are what their scripts make of the authors' own results."""

from __future__ import annotations

import runpy
from pathlib import Path

STUDY = Path(__file__).parents[2] / "docs" / "studies" / "could_it_have_been_shown.py"


def test_the_tables_are_those_of_the_script(data_folder: Path) -> None:
    script, page = runpy.run_path(str(STUDY)), STUDY.with_suffix(".md").read_text()
    rows = [row for task in script["TASKS"] for row in script["flamby"](data_folder / "flamby" / "results", task)]
    assert len(rows) == 28
    assert all(f"{row}\n" in page for row in rows)
    assert sum(row.endswith("| yes |") for row in rows) == 0
    assert "**None of the 27 comparisons" in page
    assert f"{script['published'](script['PUBLISHED'][2])}\n" in page
