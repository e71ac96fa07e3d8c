"""Curves, sweeps and descriptions from Python."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import raysim
from raysim.api.comparison_result import CurveResult
from raysim.api.sweep_result import SweepResult
from raysim.cli.commands import describe_data
from raysim.cli.sweep import DONE, FAILED, INTERRUPTED, _code
from raysim.config import reading
from raysim.strategies.one_model.fedprox import FedProx

DATA = {"source": "synthetic", "hospitals": 5, "rows": 600, "features": 5}
SMALL: dict[str, Any] = {"name": "small", "data": DATA, "training": {"rounds": 2}, "tracking": {"uri": "none"}}
SPLIT = {"split": {"train": 0.6, "validation": 0.2, "test": 0.2}}


@dataclass(frozen=True)
class OwnProx(FedProx):
    """One more strategy."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSIM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_a_curve_is_drawn_for_a_class_whose_field_takes_the_values(tmp_path: Path):
    config = SMALL | {"curve": {"field": "mu", "values": [0, 1]}, "reference": "fedavg"}
    result = raysim.curve(config, strategies=["fedavg", OwnProx], seed=0, out=tmp_path / "a", in_process=True)
    pd.testing.assert_frame_equal(result.curve, pd.read_csv(tmp_path / "a/curve.csv"))
    assert result.curve[["line", "mu"]].fillna(-1).values.tolist() == [
        ["fedavg", -1],
        ["OwnProx", 0],
        ["OwnProx", 1],
    ]
    assert result.run("OwnProx, mu 1").config.strategy.options()["mu"] == 1
    assert result.figures["curve"].svg == (tmp_path / "a/plots/curve.svg").read_text(encoding="utf-8")
    loaded = raysim.load(tmp_path / "a")
    assert isinstance(loaded, CurveResult)
    pd.testing.assert_frame_equal(loaded.metrics, result.metrics)
    again = raysim.curve(config, strategies=["fedavg", OwnProx], overrides=["curve.figure=accuracy"], of=tmp_path / "a")
    assert not np.allclose(again.curve["mean"], result.curve["mean"])
    with pytest.raises(raysim.RaysimError, match="curve: the configuration has no such section"):
        raysim.curve(SMALL, in_process=True)


@pytest.mark.xdist_group("sweeps")
@pytest.mark.usefixtures("ray_here")
def test_a_sweep_gives_its_trials_and_scores_with_the_recommended_one(tmp_path: Path):
    space = {"strategy.mu": {"grid": [0.0, 0.5]}}
    sweep = {"searcher": "grid", "objectives": {"auroc": "max", "gini": "min"}, "space": space, "concurrent": 1}
    one = {"hospitals_per_actor": 5}
    config = SMALL | {"data": DATA | SPLIT, "sweep": sweep, "seeds": [0, 1], "resources": one}
    result = raysim.sweep(config, strategy=OwnProx, out=tmp_path / "s")
    assert (result.ended, result.failed, _code(result)) == (True, 0, DONE)
    assert result.trials["strategy.mu"].tolist() == [0.0, 0.5]
    assert set(result.pareto["trial"]) <= {1, 2}
    assert set(result.recommended) == {"strategy.mu"}
    assert list(result.runs) == [0, 1]
    recommended = json.loads((tmp_path / "s/summary.json").read_text())["recommended"]
    assert result.metrics["auroc"] == pytest.approx(recommended["test"]["auroc"]["mean"], abs=1e-12)
    assert result.hospitals["seed"].unique().tolist() == [0, 1]
    assert len(result.rounds) == 2 * 2
    assert recommended["reason"][0] in result._repr_html_()
    assert result.answer.splitlines() == result.reasons == recommended["reason"]
    assert f"trial {recommended['trial']}:" in result.answer
    assert {"pareto", "slices_auroc", "slices_gini"} <= set(result.figures)
    alone = raysim.run(
        {key: value for key, value in config.items() if key not in ("sweep", "seeds")},
        overrides={"strategy.class": "tests.api.test_sweeps.OwnProx", **result.recommended},
        seed=1,
        out=tmp_path / "alone",
        in_process=True,
    )
    assert alone.metrics["auroc"] == result.runs[1].metrics["auroc"]
    loaded = raysim.load(tmp_path / "s")
    assert isinstance(loaded, SweepResult)
    pd.testing.assert_series_equal(loaded.metrics, result.metrics)
    assert raysim.resume(tmp_path / "s").folder == tmp_path / "s"


def test_a_sweep_says_how_it_ended(tmp_path: Path):
    def result(**counts: int) -> SweepResult:
        tree = {"trials": 4, "completed": 0, "stopped": 0, "failed": 0, "recommended": None} | counts
        (tmp_path / "summary.json").write_text(json.dumps(tree))
        return SweepResult(tmp_path)

    assert _code(result(completed=3)) == INTERRUPTED
    assert _code(result(completed=2, stopped=1, failed=1)) == FAILED
    assert _code(result(completed=2, stopped=2)) == DONE
    with pytest.raises(raysim.RaysimError, match="no trial is recommended, because no completed trial"):
        result(completed=4).recommended  # noqa: B018  # it raises
    assert result(completed=4).answer == "no trial is recommended"


def test_a_sweep_takes_no_class_that_trials_cannot_import(tmp_path: Path):
    @dataclass(frozen=True)
    class Inner(FedProx):
        pass

    config = SMALL | {"data": DATA | SPLIT, "sweep": {"trials": 1, "space": {"strategy.mu": {"uniform": [0, 1]}}}}
    with pytest.raises(raysim.RaysimError, match="strategy: 'Inner' is defined in a notebook or a function"):
        raysim.sweep(config, strategy=Inner, out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_description_is_what_the_command_prints(tmp_path: Path):
    config = SMALL | {"seeds": [3, 4]}
    described, printed = io.StringIO(), io.StringIO()
    description = raysim.describe(config)
    description.show(Console(file=described, width=160))
    describe_data(reading.resolve(config, reads=()), Console(file=printed, width=160), tmp_path / "t.csv")
    assert printed.getvalue() == described.getvalue() + f"\nfiles: {tmp_path / 't.csv'}\n"
    assert "the split is for seed 3; other seeds split the rows differently: 4" in described.getvalue()
    pd.testing.assert_frame_equal(description.hospitals, pd.read_csv(tmp_path / "t.csv"))
    assert description.summary.rows == 600
    assert "5 hospitals, 600 rows" in description._repr_html_()
    counts = raysim.describe(config, epsilon="counts")
    assert not np.allclose(counts.hospitals["psi"], description.hospitals["psi"])
    frame = pd.DataFrame({"x": np.arange(40.0), "site": ["a", "b"] * 20, "died": [0, 1, 1, 0] * 10})
    keys = {"data": {"silo": "site", "label": "died"}}
    assert raysim.describe(keys, data=frame, seed=1).hospitals["hospital"].tolist() == ["a", "b"]
