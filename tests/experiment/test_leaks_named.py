"""A table whose column gives the label away, from the first lines of a comparison to its answer."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.cli import commands
from raysim.config import reading


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """``leak.csv``: where a patient was discharged to says who died, and one hospital writes 0 for no cholesterol."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    home = np.repeat(np.arange(5), 80)
    died = rng.random(400) < 0.3
    columns = {
        "site": [f"s{h}" for h in home],
        "age": rng.normal(60, 10, 400).round(1),
        "chol": np.where(home == 2, 0, rng.normal(230, 40, 400).round()),
        "discharge": np.where(died, "morgue", "home"),
        "died": died.astype(int),
    }
    pd.DataFrame(columns).to_csv("leak.csv", index=False)
    return {
        "data": {"source": "table", "path": "leak.csv", "silo": "site", "label": "died"},
        "training": {"rounds": 5},
        "tracking": {"uri": "none"},
    }


def said(tree: dict[str, Any], command: Any, out: str) -> str:
    Path("c.yaml").write_text(yaml.safe_dump(tree))
    console = Console(width=300, record=True, file=io.StringIO())
    command(reading.resolve(Path("c.yaml")), console, Path(out), in_process=True, verbose=False)
    return console.export_text()


def test_the_first_lines_and_the_answer_name_the_column(tree: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    text = said(tree | {"strategies": ["fedavg", "local"], "seeds": [0]}, commands.compare_all, "out")
    text += "".join(capsys.readouterr())
    assert "warning: feature 'discharge' alone ranks 1.000 of pairs within hospitals right" in text
    assert "look at 'chol': raysim describe says what is odd" in text
    assert text.index("feature 'discharge'") < text.index("drawing pictures")
    answer = json.loads(Path("out/answer.json").read_text())
    assert [each["figure"] for each in answer["forbids"] if each["fact"] == "leaks"] == [{"features": ["discharge"]}]
    assert "Feature 'discharge' may give the label away" in answer["headline"]
    # At every hospital the AUROC is 1: nothing varies, which is no sign that it is chance.
    assert "chance" not in answer["headline"]


def test_under_privacy_they_do_not(tree: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    private = {"privacy": {"unit": "hospital", "clip": 1.0, "noise_multiplier": 1.0}, "selection": {"name": "all"}}
    text = said(tree | {"strategy": "fedavg"} | private, commands.run_one, "out")
    text += "".join(capsys.readouterr())
    assert "odd data and columns that may give the label away are not reported under privacy" in text
    assert "discharge" not in text
    assert "discharge" not in Path("out/answer.json").read_text()
