"""Existing scores are references of a comparison: never features, and each pair is judged on the same rows."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import raysim
from raysim.config import plugins, reading
from raysim.core.errors import ConfigError, DataError, RaysimError
from raysim.report.judgement.card import Card
from raysim.report.terminal.answers import block
from raysim.statistics.discrimination.auroc import delong_of_sums, pair_sums


def table(hospitals: int = 5, rows: int = 120) -> pd.DataFrame:
    """Rows with an old score, which is a probability and lacks some rows, and with points, which only rank."""
    frames = []
    for h in range(hospitals):
        rng = np.random.default_rng(h)
        x, z = rng.normal(size=(2, rows))
        y = rng.random(rows) < 1 / (1 + np.exp(1 - 1.5 * x - h / 4))
        old = 1 / (1 + np.exp(1 - 0.8 * x))
        old[rng.random(rows) < 0.2] = np.nan
        each = {"hospital": f"h{h}", "x": x, "z": z, "old": old, "points": np.round(5 + 2 * x), "died": y.astype(int)}
        frames.append(pd.DataFrame(each))
    return pd.concat(frames, ignore_index=True)


def config(**more: Any) -> dict[str, Any]:
    data = {"source": "table", "silo": "hospital", "label": "died", "split": {"train": 0.5, "test": 0.5}}
    return {
        "name": "scored",
        "data": data | {"scores": ["old", "points"]},
        "strategies": ["fedavg", "local"],
        "seeds": [0, 1],
        "training": {"rounds": 2},
        "tracking": {"uri": "none"},
        **more,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison with scores, in which hospitals were left out too."""
    out = tmp_path_factory.mktemp("scores") / "out"
    raysim.compare(config(evaluation={"unseen": True}), data=table(), out=out, in_process=True)
    return out


def test_scores_are_references_and_no_features(folder: Path) -> None:
    fitted = json.loads((folder / "runs/fedavg/seed-0/preprocessing.json").read_text())
    assert [column["name"] for column in fitted["columns"]] == ["x", "z"]
    answer = json.loads((folder / "answer.json").read_text())
    roles = {way["name"]: way["role"] for way in answer["ways"]}
    assert roles["old"] == roles["points"] == "reference"
    assert [way["name"] for way in answer["ways"] if not way["same_rows"]] == ["old"]
    assert any(text.startswith("old has no value in") for text in answer["reasons"])


def test_the_terminal_says_which_difference_is_on_fewer_rows(folder: Path) -> None:
    """It differs from the difference of the two printed means, which readers would take for a mistake."""
    card = Card.read(json.loads((folder / "answer.json").read_text()))
    rows = {row[0]: row[-1] for row in block(card, "scored", 1.0, "report.html", "").rows}
    assert rows["old (reference)"].endswith(", on its rows")
    assert not any("on its rows" in said for name, said in rows.items() if name != "old (reference)")


def test_a_score_is_judged_where_it_has_a_value(folder: Path) -> None:
    frame = table()
    rows = pd.read_csv(folder / "predictions.csv").query("strategy == 'fedavg' and seed == 0")
    tested = frame.iloc[rows["row"]]
    of = pd.read_csv(folder / "hospitals.csv").query("strategy == 'old' and seed == 0").set_index("hospital")
    for name, each in tested[tested["old"].notna()].groupby("hospital"):
        offsets = [0, len(each)]
        auroc, _ = delong_of_sums(pair_sums(each["old"].to_numpy(), each["died"].to_numpy(), offsets))
        assert of.loc[str(name), "n_test"] == len(each)
        assert of.loc[str(name), "auroc"] == pytest.approx(auroc[0])
        p, y = each["old"].to_numpy(), each["died"].to_numpy()
        assert of.loc[str(name), "brier"] == pytest.approx(((p - y) ** 2).mean())


def test_a_difference_from_a_score_is_on_the_rows_that_both_have(folder: Path) -> None:
    """By hand: the AUROC of both on the same rows of each hospital and seed, weighted by these rows."""
    frame, predicted = table(), pd.read_csv(folder / "predictions.csv").query("strategy == 'fedavg'")
    differences, weights = [], []
    for _, of in predicted.groupby("seed"):
        rows = frame.iloc[of["row"]].assign(p=of["probability"].to_numpy())
        for _, each in rows[rows["old"].notna()].groupby("hospital"):
            y, offsets = each["died"].to_numpy(), [0, len(each)]
            old, ours = (delong_of_sums(pair_sums(each[name].to_numpy(), y, offsets))[0][0] for name in ("old", "p"))
            differences.append(old - ours)
            weights.append(len(each))
    way = next(way for way in json.loads((folder / "answer.json").read_text())["ways"] if way["name"] == "old")
    assert way["difference"] == pytest.approx(float(np.average(differences, weights=weights)), abs=1e-9)


def test_points_only_rank(folder: Path) -> None:
    of = pd.read_csv(folder / "hospitals.csv").query("strategy == 'points'")
    assert of["auroc"].notna().all()
    assert of[["log_loss", "brier", "accuracy"]].isna().all(axis=None)
    unseen = pd.read_csv(folder / "unseen.csv")
    points = unseen[unseen["strategy"] == "points"]
    assert points["auroc"].notna().all()
    assert points[["log_loss", "observed_over_expected"]].isna().all(axis=None)


def test_scores_are_judged_at_hospitals_that_are_left_out(folder: Path) -> None:
    unseen, frame = pd.read_csv(folder / "unseen.csv"), table()
    of = unseen[(unseen["strategy"] == "old") & (unseen["seed"] == 0)].set_index("hospital")
    known = frame[frame["old"].notna()].groupby("hospital")
    assert of["rows"].to_dict() == known.size().to_dict()  # all rows of a hospital, not its test rows
    differences = pd.read_csv(folder / "unseen_difference.csv")
    assert set(differences.loc[differences["strategy"] == "old", "comparison"]) == {"less fedavg"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"scores": ["olde"]}}, "data.scores: no column 'olde'"),
        ({"data": {"scores": ["died"]}}, "data.scores: 'died' is the hospital, label"),
        ({"data": {"scores": ["old"], "numeric": ["old", "x"]}}, "data.scores: 'old' is in data.numeric too"),
        ({"data": {"scores": ["old", "old"]}}, "data.scores: 'old' is named twice"),
        ({"evaluation": {"part": "validation"}}, "data.scores: are judged on test rows"),
        (
            {"strategies": ["local", {"name": "fedavg", "label": "old"}], "reference": "old"},
            "data.scores: 'old' is the",
        ),
    ],
)
def test_what_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    asked = config()
    asked = {**asked, **change, "data": {**asked["data"], **change.get("data", {})}}
    with pytest.raises(RaysimError) as raised:
        raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=True)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_source_without_scores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.scores: 'old', but source synthetic has no scores; use source table"):
        raysim.compare({"data": {"source": "synthetic", "scores": ["old"]}}, out=tmp_path / "out", in_process=True)
    with pytest.raises(ConfigError, match=r"data\.scores: are compared row by row, which privacy forbids"):
        raysim.compare(config(privacy={"epsilon": 8}), data=table(), out=tmp_path / "out", in_process=True)


def test_apache_in_the_demo(data_folder: Path) -> None:
    """What APACHE IV and IVa say of the stays of adults: -1 is no risk."""
    tree = {"source": "eicu", "path": str(data_folder / "eicu_demo"), "scores": ["apache_iv", "apache_iva"]}
    asked = reading.resolve({"data": tree})
    federation = plugins.build_federation(asked, plugins.build_source(asked.data), 0)
    expected = {"apache_iv": 193.0866, "apache_iva": 175.2346}
    for name, total in expected.items():
        score = federation.scores[name]
        known = np.isfinite(score)
        assert (known.sum(), federation.y[known].sum(), score[known].min() >= 0) == (1680, 139, True)
        assert score[known].sum() == pytest.approx(total, abs=1e-3)
    auroc = delong_of_sums(pair_sums(federation.scores["apache_iv"][known], federation.y[known], [0, 1680]))[0]
    assert auroc[0] == pytest.approx(0.8608724, abs=1e-6)
    other = reading.resolve({"data": {**tree, "scores": ["apache"]}})
    with pytest.raises(DataError, match=r"data\.scores: 'apache' is not a score of source eicu"):
        plugins.build_federation(other, plugins.build_source(other.data), 0)


def test_a_run_says_that_it_judges_no_score(tmp_path: Path) -> None:
    shown = StringIO()
    alone = {key: value for key, value in config().items() if key not in ("strategies", "seeds")}
    raysim.run(alone, data=table(), out=tmp_path / "run", in_process=True, console=Console(file=shown))
    assert "data.scores: 'old' and 'points' are not features; raysim run does not evaluate scores" in shown.getvalue()
    fitted = json.loads((tmp_path / "run" / "preprocessing.json").read_text())
    assert [column["name"] for column in fitted["columns"]] == ["x", "z"]


def test_a_curve_has_them_as_references(tmp_path: Path) -> None:
    asked = config(strategies=["fedavg", "fedprox"], seeds=[0]) | {"curve": {"field": "mu", "values": [0.1, 1]}}
    raysim.curve(asked, data=table(), out=tmp_path / "out", in_process=True)
    answer = json.loads((tmp_path / "out" / "answer.json").read_text())
    assert {way["name"] for way in answer["ways"] if way["role"] == "reference"} >= {"old", "points"}
