"""The learning rate that a configuration leaves open: by the loss of the label, and written as what was used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysim
from raysim.core.errors import RaysimError
from raysim.core.plain_yaml import loaded
from raysim.training.losses import default_rate

WIDE = {"source": "synthetic", "task": "regression", "hospitals": 12, "rows_per_hospital": 12, "features": 100}


def run_once(tmp_path: Path, **training: Any) -> Any:
    config = {
        "data": WIDE,
        "model": {"name": "linear_regression"},
        "strategy": "local",
        "training": {"rounds": 12, **training},
        "tracking": {"uri": "none"},
    }
    return raysim.run(config, out=tmp_path / "run", in_process=True)


def test_it_follows_the_loss_of_the_label() -> None:
    assert [default_rate(loss, real_label=True) for loss in (None, "squared", "absolute")] == [0.005, 0.005, 0.1]
    assert default_rate(None, real_label=False) == 0.1


def test_more_features_than_rows_do_not_make_a_real_label_diverge(tmp_path: Path) -> None:
    losses = run_once(tmp_path).rounds["training_loss"].dropna()
    assert np.all(np.diff(losses) < 0)
    assert loaded((tmp_path / "run" / "config.yaml").read_text())["training"]["learning_rate"] == 0.005


def test_what_is_set_is_taken(tmp_path: Path) -> None:
    with pytest.raises(RaysimError, match=r"training.learning_rate: 1.0 made hospital '.*' diverge"):
        run_once(tmp_path, learning_rate=1.0)


def test_classes_train_as_before(tmp_path: Path) -> None:
    data = {"source": "synthetic", "hospitals": 4, "rows": 200}
    open_rate, set_rate = (
        raysim.run(
            {"data": data, "strategy": "fedavg", "training": {"rounds": 2, **training}, "tracking": {"uri": "none"}},
            out=tmp_path / name,
            in_process=True,
        )
        for name, training in (("open", {}), ("set", {"learning_rate": 0.1}))
    )
    assert open_rate.rounds["training_loss"].tolist() == set_rate.rounds["training_loss"].tolist()
    written = [(tmp_path / name / "config.yaml").read_text() for name in ("open", "set")]
    assert written[0] == written[1]
