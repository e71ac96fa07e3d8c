"""Commands with recalibration: a comparison serves each way with and without it from one run, tuning and audits judge
what is there before it.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from raysim.api import running
from raysim.config import reading
from raysim.experiment.audits.audit import audit

TREE: dict[str, Any] = {
    "data": {
        "source": "synthetic",
        "hospitals": 8,
        "rows": 600,
        "features": 4,
        "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
    },
    "training": {"rounds": 2, "batch_size": 32, "local_epochs": 1, "learning_rate": 0.3},
    "selection": "all",
    "tracking": {"uri": "none"},
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path.parent / "cache"))


def compare(out: str, **keys: Any) -> Path:
    config = reading.resolve(TREE | {"strategies": ["fedavg", "chip"], "seeds": [1, 2]} | keys, reads=())
    running.execute_comparison(
        config, Path(out).absolute(), Console(file=io.StringIO()), in_process=True, verbose=False
    )
    return Path(out)


def test_both_are_models_of_one_run_and_one_way_of_federating() -> None:
    plain, both = compare("plain"), compare("both", recalibrate="both")
    before, after = (pd.read_csv(folder / "hospitals.csv") for folder in (plain, both))
    keys = ["strategy", "model", "seed", "hospital"]
    assert set(after["model"]) == {*before["model"], "recalibrated"}
    # Without it nothing changes, to the last bit.
    without = after[after["model"] != "recalibrated"].set_index(keys).sort_index()
    pd.testing.assert_frame_equal(without, before.set_index(keys).sort_index())
    served = {"fedavg": "global", "chip": "personal"}
    for strategy, model in served.items():
        of = after[after["strategy"] == strategy].set_index("model")
        assert list(dict.fromkeys(of.index))[-1] == "recalibrated"
        np.testing.assert_array_equal(of.loc["recalibrated", "auroc"], of.loc[model, "auroc"])
        assert not of.loc["recalibrated", "log_loss"].equals(of.loc[model, "log_loss"])
    answers = [json.loads((folder / "answer.json").read_text()) for folder in (plain, both)]
    assert answers[0]["difference_shown"] == answers[1]["difference_shown"]
    assert not any("count as one" in reason for reason in answers[1]["reasons"])
    assert len(list(both.glob("runs/*/seed-*/recalibration.csv"))) == 4


def test_tuning_judges_what_is_there_before_it() -> None:
    tune = {"tune": {"training.learning_rate": [0.01, 0.3]}, "strategies": ["fedavg"], "seeds": [1]}
    plain, both = compare("plain", **tune), compare("both", recalibrate="both", **tune)
    assert (plain / "tuning.csv").read_text() == (both / "tuning.csv").read_text()


def test_an_audit_attacks_what_is_there_before_it() -> None:
    tables = []
    for strategy in ("fedavg", {"name": "fedavg", "personalization": "recalibrate"}):
        config = reading.resolve(TREE | {"strategy": strategy})
        folder = audit(config, Path(f"audit-{len(tables)}"), shadows=4, canaries=0, in_process=True)
        tables.append(pd.read_csv(folder / "membership.csv"))
    pd.testing.assert_frame_equal(*tables)
