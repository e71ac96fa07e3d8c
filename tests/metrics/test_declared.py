"""A figure is declared once: another package's is in every file, table and listing that ours are in."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.commands import said
from tests.config.test_commands import SMALL, raysim, settings

MODULE = """
from raysim.metrics.declared import ScoreFigure

SPECIFICITY = ScoreFigure(
    name="specificity",
    unit="specificity, share of rows without the event",
    meaning="Share of rows without the event that are predicted negative.",
    mean="Mean specificity, weighted by evaluated rows.",
    larger=True,
    undefined="with one class",
    weighted_by="other rows",
    gap=True,
    of_rows=lambda rows: rows.segments.counts(~rows.predicted_positive & ~rows.positive) / (rows.n - rows.events),
    of_counts=lambda of: of.predicted_negative(of.negatives) / of.others,
)
WRONG = "specificity"
"""


def install(folder: Path, *names: str) -> None:
    metadata = folder / "site" / "otherfigures-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: otherfigures\nVersion: 1.0\n")
    lines = "\n".join(f"{name.lower()} = otherfigures:{name}" for name in names)
    (metadata / "entry_points.txt").write_text(f"[raysim.figures]\n{lines}\n")
    (folder / "site" / "otherfigures.py").write_text(MODULE)


def test_a_registered_figure_is_in_files_page_and_answer(tmp_path: Path):
    install(tmp_path, "SPECIFICITY")
    compare = {"strategies": "[fedavg, local]", "seeds": "[0, 1]", "training.rounds": 2}
    done = raysim(tmp_path, "compare", "--in-process", "--out", "out", *settings(SMALL | compare))
    assert done.returncode == 0, done.stderr
    runs = [
        pd.read_csv(path) for path in sorted((tmp_path / "out").rglob("hospitals.csv")) if path.parent.name != "out"
    ]
    assert runs
    for hospitals in runs:
        defined = (hospitals["events_test"] > 0) & (hospitals["events_test"] < hospitals["n_test"])
        assert (hospitals["specificity"].notna() == defined).all()
        # Right calls are those with the event and those without it.
        right = hospitals["accuracy"] * hospitals["n_test"]
        others = hospitals["n_test"] - hospitals["events_test"]
        expected = (right - hospitals["recall"] * hospitals["events_test"]) / others
        np.testing.assert_allclose(hospitals["specificity"][defined], expected[defined], atol=1e-9)
    comparison = pd.read_csv(tmp_path / "out" / "comparison.csv")
    assert any("specificity" in column for column in comparison)
    assert "Specificity" in (tmp_path / "out" / "report.html").read_text()
    figures = json.loads((tmp_path / "out" / "answer.json").read_text())["figures"]
    assert {each["strategy"] for each in figures} == {"fedavg", "local"}
    assert all(0 <= each["specificity"] <= 1 for each in figures)


def test_a_registered_figure_is_listed_and_a_wrong_one_is_refused(tmp_path: Path):
    install(tmp_path / "right", "SPECIFICITY")
    listed = raysim(tmp_path / "right", "list", "metrics", "--json")
    metrics = json.loads(listed.stdout)["classification"]
    assert metrics["per_hospital"]["specificity"] == "Share of rows without the event that are predicted negative."
    assert metrics["over_hospitals"]["specificity"] == "Mean specificity, weighted by evaluated rows."
    install(tmp_path / "wrong", "WRONG")
    refused = raysim(tmp_path / "wrong", "list", "metrics")
    assert refused.returncode == 2
    said = "raysim: raysim.figures: 'wrong' is neither a ScoreFigure nor an ErrorFigure; register one"
    assert refused.stderr.strip() == said


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("None", "'specificity' has shape []; return one number for each of 6 hospitals, [6]"),
        ("rows.n[1:]", "'specificity' has shape [5]; return one number for each of 6 hospitals, [6]"),
        ("rows.typo", "'specificity' cannot be computed (AttributeError: 'BinaryRows' object has no attribute 'typo')"),
    ],
)
def test_a_registered_figure_that_cannot_be_used_is_one_line(tmp_path: Path, value: str, line: str):
    install(tmp_path, "SPECIFICITY")
    module = tmp_path / "site" / "otherfigures.py"
    right = "rows.segments.counts(~rows.predicted_positive & ~rows.positive) / (rows.n - rows.events)"
    assert right in MODULE
    module.write_text(MODULE.replace(right, value))
    done = raysim(tmp_path, "run", "--in-process", *settings(SMALL | {"data.split": "{train: 0.6, test: 0.4}"}))
    assert done.returncode == 2
    assert said(done.stderr)[-1].startswith(f"raysim: raysim.figures: {line}")
