"""Fifteen studies of head injury (IMPACT, package metamisc) left out one by one, against figures computed elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import raysim
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, WIDEST_UNBOUNDED, pooled

STUDIES = {
    "SKB": (126, 34, 0.7128, 0.7110, 0.8750, -0.239, 0.226, 0.711, 0.196, 0.5348, 0.0258),
    "HIT I": (350, 99, 0.8018, 0.8013, 1.0987, 0.167, 0.135, 1.022, 0.130, 0.4773, 0.0586),
    "NABIS": (385, 101, 0.7629, 0.7654, 0.8709, -0.236, 0.128, 0.993, 0.136, 0.4903, 0.0442),
    "SLIN": (409, 94, 0.7744, 0.7711, 1.0713, 0.105, 0.128, 1.090, 0.146, 0.4523, 0.0630),
    "CSTAT": (517, 115, 0.7817, 0.7800, 0.9756, -0.040, 0.118, 0.944, 0.112, 0.4433, 0.0648),
    "TCDB": (603, 264, 0.8479, 0.8469, 1.3270, 0.669, 0.100, 1.110, 0.089, 0.5179, 0.0336),
    "APOE": (756, 117, 0.8552, 0.8563, 0.7531, -0.452, 0.115, 1.245, 0.112, 0.3158, 0.0658),
    "UK4": (791, 359, 0.8547, 0.8530, 1.3610, 0.701, 0.084, 1.279, 0.091, 0.5248, 0.0363),
    "HIT II": (819, 188, 0.7738, 0.7743, 0.9359, -0.113, 0.095, 0.859, 0.080, 0.4538, 0.0702),
    "EBIC": (822, 281, 0.8693, 0.8693, 1.0552, 0.118, 0.089, 1.226, 0.086, 0.4285, 0.0657),
    "PHARMOS": (856, 145, 0.6895, 0.6876, 0.7923, -0.340, 0.099, 0.711, 0.094, 0.4301, 0.0304),
    "SAP": (919, 212, 0.7458, 0.7445, 0.9560, -0.075, 0.088, 0.787, 0.075, 0.4723, 0.0585),
    "TIUS": (1041, 225, 0.7782, 0.7790, 0.9249, -0.136, 0.087, 0.826, 0.067, 0.4361, 0.0752),
    "TINT": (1118, 278, 0.7866, 0.7867, 1.1806, 0.271, 0.078, 1.018, 0.077, 0.4595, 0.0606),
    "PEG": (1510, 362, 0.7930, 0.7929, 0.7806, -0.455, 0.069, 0.914, 0.060, 0.4611, 0.0714),
}
"""Rows, deaths, AUROC seen and unseen, and, unseen, deaths over those expected, calibration in the large and slope with
their standard errors, log loss, and net benefit at .2 above that of treating all or none."""


@pytest.fixture(scope="module")
def table(data_folder: Path) -> pd.DataFrame:
    """The rows, with age scaled over all and an indicator of every level but the first: the golden figures' ridge."""
    table = pd.read_csv(data_folder / "impact" / "impact.csv.gz", keep_default_na=False)
    of = table[["name", "mort", "hypox", "hypots", "tsah", "edh"]].copy()
    of["age"] = (table["age"].astype(float) - 34.930411903) / 15.886294164
    for name in ("motor_score", "pupil", "ct"):
        for level in sorted(table[name].unique())[1:]:
            of[f"{name} {level}"] = (table[name] == level).astype(int)
    rng, fold = np.random.default_rng(0), np.empty(len(of), int)
    for study in sorted(of["name"].unique()):
        for label in (0, 1):
            rows = np.flatnonzero((of["name"] == study) & (of["mort"] == label))
            rng.shuffle(rows)
            fold[rows] = np.arange(len(rows)) % 5
    return of.assign(**{f"fold {k}": np.where(fold == k, "test", "train") for k in range(5)})


def config(table: pd.DataFrame, **data: Any) -> dict[str, Any]:
    folds = [name for name in table.columns if name.startswith("fold ")]
    drop = [name for name in folds if name != data.get("split", {}).get("column")]
    return {
        "data": {"source": "table", "silo": "name", "label": "mort", "preprocessing": "none", "drop": drop} | data,
        "training": {"rounds": 20, "precision": "float64"},
        "tracking": {"uri": "none"},
    }


@pytest.fixture(scope="module")
def folder(table: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each study predicted by an exact regression on all rows of the other fourteen."""
    out = tmp_path_factory.mktemp("impact") / "out"
    asked = config(table) | {"strategies": [{"name": "newton", "ridge": 1.0, "firth": "never"}], "reference": "newton"}
    asked |= {"seeds": [0], "evaluation": {"unseen": {"folds": "leave_one_out", "trained_on": "all"}}}
    raysim.compare(asked, data=table, out=out, in_process=True)
    return out


def test_every_study(folder: Path) -> None:
    found = pd.read_csv(folder / "unseen.csv").set_index("hospital")
    assert sorted(found.index) == sorted(STUDIES)
    for name, (rows, deaths, _, auroc, ratio, large, large_se, slope, slope_se, loss, benefit) in STUDIES.items():
        of = found.loc[name]
        assert (of["rows"], of["events"]) == (rows, deaths)
        assert of["auroc"] == pytest.approx(auroc, abs=1e-4)
        assert of["log_loss"] == pytest.approx(loss, abs=1e-4)
        assert of["observed_over_expected"] == pytest.approx(ratio, abs=1e-4)
        assert of["calibration_in_the_large"] == pytest.approx(large, abs=6e-4)
        assert of["calibration_slope"] == pytest.approx(slope, abs=6e-4)
        for figure, se in (("calibration_in_the_large", large_se), ("calibration_slope", slope_se)):
            assert (of[f"{figure}_high"] - of[f"{figure}_low"]) / 2 / 1.959964 == pytest.approx(se, abs=6e-4)
        gained = of["net_benefit_0.2"] - max(0.0, of["net_benefit_of_all_0.2"])
        assert gained == pytest.approx(benefit, abs=1e-4)


def of_rows_alike(values: Any) -> NDArray[np.float64]:
    """The variance of each study's mean, if rows vary as much at all studies."""
    rows = values.size().to_numpy()
    return np.asarray(np.average(values.var(), weights=rows - 1) / rows)


def test_over_studies_and_the_next_one(folder: Path, table: pd.DataFrame) -> None:
    found = pd.read_csv(folder / "unseen_summary.csv").set_index("figure")
    auroc = found.loc["auroc"]
    assert auroc["estimate"] == pytest.approx(0.7904864786, abs=1e-8)
    assert auroc["tau"] ** 2 == pytest.approx(0.0022142137, abs=1e-8)
    assert (auroc["low"], auroc["high"]) == pytest.approx((0.7619, 0.8190), abs=1e-4)
    assert (auroc["next_low"], auroc["next_high"]) == pytest.approx((0.6710, 0.9085), abs=0.005)
    studies = pd.read_csv(folder / "unseen.csv")
    risks = [pd.read_csv(each / "predictions.csv") for each in (folder / "unseen" / "newton" / "seed-0").iterdir()]
    rows = pd.concat(each[each["part"] == "test"] for each in risks)
    y, p = table["mort"].to_numpy()[rows["row"]], rows["probability"].to_numpy()
    losses = pd.Series(-np.log(np.where(y == 1, p, 1 - p))).groupby(rows["hospital"].to_numpy())
    by_study = pooled(losses.mean().to_numpy(), of_rows_alike(losses), WIDEST_UNBOUNDED)
    assert studies.set_index("hospital")["log_loss"].to_dict() == pytest.approx(losses.mean().to_dict(), abs=1e-9)
    loss = found.loc["log_loss"]
    assert (loss["estimate"], loss["low"], loss["high"]) == pytest.approx(by_study[:3], abs=1e-8)
    benefit = np.where(y == 1, 1.0, -0.25)
    gains = pd.DataFrame({"all": benefit, "gain": benefit * (p >= 0.2), "name": rows["hospital"].to_numpy()})
    gains["gain"] -= gains["all"] * (gains["all"].mean() > 0)
    gain = gains.groupby("name")["gain"]
    by_study = pooled(gain.mean().to_numpy(), of_rows_alike(gain), WIDEST)
    assert found.loc["net_benefit_gained_0.2", ["estimate", "low", "high", "tau"]].tolist() == pytest.approx(
        by_study[:4], abs=1e-9
    )
    assert by_study.estimate == pytest.approx(np.mean([each[-1] for each in STUDIES.values()]), abs=0.01)
    of, deaths, _, _, each = np.array([study[:5] for study in STUDIES.values()]).T
    expected = deaths / each
    share = deaths.sum() / expected.sum() * expected / of
    logs = pooled(np.log((deaths + (1 - share) / 2) / expected), (1 - share) / share / of, WIDEST_UNBOUNDED)
    ratio = found.loc["observed_over_expected"]
    assert np.log(ratio[["estimate", "low", "high"]].tolist()) == pytest.approx(logs[:3], abs=1e-4)
    # With variances from each study's own deaths, as in metafor, so many deaths hardly change it.
    assert np.log(ratio["estimate"]) == pytest.approx(-0.0110455199, abs=0.005)
    assert ratio["tau"] ** 2 == pytest.approx(0.0289940698, abs=0.001)
    assert (ratio["low"], ratio["high"]) == pytest.approx((0.8927, 1.0957), abs=0.005)
    for name, estimate, tau2, ends in (
        ("calibration_in_the_large", 0.0010512849, 0.1145367775, (-0.1963, 0.1984)),
        ("calibration_slope", 0.9838425970, 0.0230499845, (0.8827, 1.0850)),
    ):
        assert found.loc[name, "estimate"] == pytest.approx(estimate, abs=1e-8)
        assert found.loc[name, "tau"] ** 2 == pytest.approx(tau2, abs=1e-8)
        assert (found.loc[name, "low"], found.loc[name, "high"]) == pytest.approx(ends, abs=1e-4)


def test_taking_part_against_being_left_out(folder: Path, table: pd.DataFrame, tmp_path: Path) -> None:
    """Five folds of rows, put together, against models that never had a row of the study: judged as predictions."""
    said = []
    for k in range(5):
        asked = config(table, split={"column": f"fold {k}"}) | {"evaluation": {"predictions": True, "clinical": None}}
        out = tmp_path / f"seen-{k}"
        newton = {"name": "newton", "ridge": 1.0, "firth": "never"}
        raysim.run(asked, data=table, strategy=newton, out=out, in_process=True)
        rows = pd.read_csv(out / "predictions.csv")
        said.append(rows[rows["part"] == "test"].assign(model="seen"))
    for fold in sorted((folder / "unseen" / "newton" / "seed-0").iterdir()):
        rows = pd.read_csv(fold / "predictions.csv")
        said.append(rows[rows["part"] == "test"].assign(model="unseen"))
    frame = pd.concat(said, ignore_index=True).drop(columns="part").assign(seed=0)
    frame["label"] = table["mort"].to_numpy()[frame["row"]]
    assert frame.groupby("model").size().tolist() == [len(table)] * 2
    found = raysim.judge(frame, "unseen", out=tmp_path / "judged")
    seen = found.hospitals[found.hospitals["strategy"] == "seen"].set_index("hospital")["auroc"]
    assert seen.to_dict() == pytest.approx({name: each[2] for name, each in STUDIES.items()}, abs=1e-4)
    assert seen.mean() == pytest.approx(0.7885, abs=1e-4)
    of = found.comparison.set_index("strategy").loc["seen"]
    assert of["auroc_difference"] == pytest.approx(0.000386, abs=1e-6)
    assert (of["auroc_low"], of["auroc_high"]) == pytest.approx((-0.00028, 0.00105), abs=1e-5)
