"""Hospitals left out in turn where the label is a number, or has more than two classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raysim


def compared(out: Path, label: str, **changes: Any) -> str:
    """Leave six hospitals out in turn, and return the card's line on them."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((360, 2))
    value = x[:, 0] + rng.standard_normal(360)
    data = pd.DataFrame({"hospital": np.repeat([f"h{h}" for h in range(6)], 60), "x": x[:, 0], "z": x[:, 1]})
    data["amount"], data["kind"] = 0.001 * value, np.where(value < -0.5, "a", np.where(value < 0.5, "b", "c"))
    section = {"source": "table", "silo": "hospital", "label": label, "drop": list({"amount", "kind"} - {label})}
    split = {"train": 0.5, "validation": 0.0, "test": 0.5}
    asked: dict[str, Any] = {"data": section | changes.pop("data", {}) | {"split": split}, "seeds": [0, 1], **changes}
    asked |= {"strategies": ["fedavg", "local"], "training": {"rounds": 2}, "tracking": {"uri": "none"}}
    raysim.compare(asked | {"evaluation": {"unseen": True}}, data=data, out=out, in_process=True)
    lines = json.loads((out / "answer.json").read_text())["lines"]
    return str(next(line["text"] for line in lines if line["fact"] == "unseen"))


def test_errors_are_pooled_in_the_unit_of_the_label(tmp_path: Path) -> None:
    line = compared(tmp_path / "out", "amount", data={"task": "regression"}, model={"name": "linear_regression"})
    of = pd.read_csv(tmp_path / "out" / "unseen_summary.csv").set_index(["strategy", "figure"]).loc[("fedavg", "mae")]
    each = pd.read_csv(tmp_path / "out" / "unseen.csv").groupby(["strategy", "hospital"])["mae"].mean()["fedavg"]
    assert of["estimate"] == pytest.approx(each.mean())  # of hospitals with as many rows
    assert 0 < of["next_low"] < of["low"] < of["estimate"] < of["high"] < of["next_high"] < 0.003
    assert line.startswith(f"At 6 hospitals left out in turn MAE is {of['estimate']:.5f} (")


def test_more_classes_have_no_mean(tmp_path: Path) -> None:
    line = compared(tmp_path / "out", "kind")
    assert line == "Hospitals were left out in turn (unseen.csv), without a mean: the label has more than two classes."
    assert pd.read_csv(tmp_path / "out" / "unseen.csv")["auroc"].notna().any()
    assert pd.read_csv(tmp_path / "out" / "unseen_summary.csv").empty
