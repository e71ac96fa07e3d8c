"""``raysim judge`` on a comparison's own predictions, and on those of others."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.cli import main as cli
from raysim.experiment.judging.run import Search
from raysim.statistics.differences.paired import Limits
from raysim.statistics.differences.search import Searched
from tests.commands import refusal

CONFIG = {
    "name": "own",
    "data": {"source": "synthetic", "hospitals": 8, "rows": 1600},
    "strategies": ["local", "fedavg", "clustered", "centralized"],
    "seeds": [0, 1],
    "training": {"rounds": 2},
    "evaluation": {"predictions": True},
    "tracking": {"uri": "none"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A comparison, and its own predictions judged."""
    home = tmp_path_factory.mktemp("judging")
    raysim.compare(CONFIG, out=home / "compared", in_process=True)
    raysim.judge(home / "compared" / "predictions.csv", "fedavg", out=home / "judged")
    return home / "compared", home / "judged"


def test_figures_intervals_and_choice_are_the_comparisons(folders: tuple[Path, Path]) -> None:
    compared, judged = (json.loads((folder / "answer.json").read_text()) for folder in folders)
    for key in ("recommended", "difference_shown", "not_dominated", "use", "federate", "calibration"):
        assert compared[key] == judged[key]
    ways = [[{k: v for k, v in way.items() if k != "name"} for way in answer["ways"]] for answer in (compared, judged)]
    assert ways[0] == ways[1]
    harm = [{k: v for k, v in answer["harmed"].items() if k != "against"} for answer in (compared, judged)]
    assert harm[0] == harm[1]
    assert "search" in judged


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("hospitals.csv", ["strategy", "model", "seed", "hospital"]),
        ("noise.csv", []),
        ("comparison.csv", ["strategy", "model"]),
    ],
)
def test_tables_are_the_comparisons(folders: tuple[Path, Path], file: str, keys: list[str]) -> None:
    ours, theirs = (pd.read_csv(folder / file) for folder in folders)
    if keys:
        ours, theirs = (each.sort_values(keys, ignore_index=True) for each in (ours, theirs))
    common = [name for name in ours if name in theirs and not str(name).startswith(("n_total", "bytes"))]
    assert len(common) > 10
    pd.testing.assert_frame_equal(ours[common], theirs[common], check_exact=True, check_dtype=False)


def others(seeds: int = 2) -> pd.DataFrame:
    """Predictions of another framework: ``flower`` knows more than ``fedavg``."""
    rows = []
    for h in range(10):
        rng = np.random.default_rng(h)
        x, more = rng.normal(size=(2, 120))
        y = (rng.random(120) < 1 / (1 + np.exp(1.5 - 1.5 * x - 1.2 * more))).astype(int)
        for seed in range(seeds):
            for model, weight in (("fedavg", 0.1), ("flower", 1.2)):
                margin = -1.5 + 1.5 * x + weight * more + np.random.default_rng([h, seed]).normal(0, 0.05, 120)
                rows.append(
                    pd.DataFrame(
                        {
                            "hospital": f"h{h}",
                            "row": np.arange(120),
                            "label": y,
                            "model": model,
                            "seed": seed,
                            "probability": 1 / (1 + np.exp(-margin)),
                        }
                    )
                )
    return pd.concat(rows, ignore_index=True)


def test_the_gain_after_a_search_is_an_estimate_and_no_limit() -> None:
    """A true gain is larger in about four of ten searches."""
    limits = Limits(-0.01, 0.05), Limits(-0.02, 0.03)
    said = Search("fedavg", ("a", "b"), (0.02, 0.01), Searched(0, 0.02, 0.0124, limits, 2)).sentence
    assert said.endswith("The best of several is partly luck: without this luck, its gain is about +0.012.")


def test_several_rows_of_a_patient_are_said_to_be_taken_as_independent(tmp_path: Path) -> None:
    frame = others(seeds=2)
    frame["patient"] = frame["hospital"].astype(str) + "-" + (frame["row"] // 3).astype(str)
    line = raysim.judge(frame, "fedavg", out=tmp_path / "out").answer.card.line("limits")
    assert line is not None
    assert "calibration and groups of patients take them as independent, and claim too much" in line.text


@pytest.mark.parametrize("file", [True, False])
def test_codes_of_groups_are_no_ages(file: bool, tmp_path: Path) -> None:
    """Only ``group_age`` is divided into bands of years: 0 and 1 are two groups, an empty cell is none."""
    frame = others(seeds=2).assign(group_age=lambda rows: 30.0 + rows["row"] % 60)
    frame["group_sex"] = (frame["row"] % 3).map({0: 0, 1: 1})
    frame["group_unit"] = pd.Categorical((frame["row"] % 3).map({0: "007", 1: "7"}))
    if file:
        frame.to_csv(tmp_path / "table.csv", index=False)
    judged = raysim.judge(tmp_path / "table.csv" if file else frame, "fedavg", out=tmp_path / "out")
    line = judged.answer.card.line("fairness")
    assert line is not None
    groups = {name: of["groups"] for name, of in line.figure.items()}
    assert groups["sex"] == ["0", "1"]
    assert groups["unit"] == ["007", "7"]
    assert "to under" in " ".join(groups["age"])


def test_a_better_model_is_taken_and_a_search_widens_its_interval(tmp_path: Path) -> None:
    """And bytes are what the predictions say, of no direction."""
    moved = others(seeds=3).assign(bytes=lambda rows: rows["model"].map({"fedavg": 1000, "flower": 4000}))
    found = raysim.judge(moved, "fedavg", tried=1, out=tmp_path / "one")
    table = pd.read_csv(tmp_path / "one" / "comparison.csv")
    assert table.set_index("strategy")["bytes"].to_dict() == {"fedavg": 1000, "flower": 4000}
    assert not [name for name in table if "bytes_" in name and name != "bytes_std"]
    assert found.answer.card.recommended == "flower"
    many = raysim.judge(others(seeds=3), "fedavg", tried=50, predicts="death", out=tmp_path / "many")
    assert found.search is not None
    assert many.search is not None
    assert many.search.found.limits[0].low < found.search.found.limits[0].low
    assert many.search.demonstrated
    assert "Of 50 models tried, flower is the best" in many.search.sentence
    page = (tmp_path / "many" / "report.html").read_text()
    assert "death" in page
    assert "Of 50 models tried" in page
    assert repr(many) == f"<judged: {many.answer.card.headline}>"
    saved = json.loads((tmp_path / "many" / "answer.json").read_text())
    assert saved["search"]["tried"] == 50
    assert saved["search"]["models"][0]["low"] == many.search.found.limits[0].low


def test_what_is_worse_than_a_coin_everywhere_is_said(tmp_path: Path) -> None:
    frame = others()
    backwards = frame["model"] == "flower"
    frame.loc[backwards, "probability"] = 1 - frame.loc[backwards, "probability"]
    said = " ".join(raysim.judge(frame, "fedavg", out=tmp_path / "out").answer.sentences)
    assert "flower has an AUROC below .5 at every hospital" in said.replace("Flower", "flower")


def test_one_seed_makes_no_claim(tmp_path: Path) -> None:
    found = raysim.judge(others(seeds=1), "fedavg", out=tmp_path / "out")
    assert found.search is None
    assert not found.answer.difference_shown


def test_one_model_is_described_and_not_recommended(tmp_path: Path) -> None:
    alone = others()[lambda f: f["model"] == "flower"]
    found = raysim.judge(alone, "flower", out=tmp_path / "out")
    assert found.content["recommended"] is None
    assert found.answer.card.headline.startswith("No reason was found against using flower at these hospitals.")
    assert str(found).splitlines() == list(found.answer.sentences)


def test_remedies_name_no_key_of_a_configuration(tmp_path: Path) -> None:
    off = others()
    off["probability"] **= 3
    lines = {line.fact: line for line in raysim.judge(off, "fedavg", out=tmp_path / "out").answer.card.lines}
    assert lines["unseen"].remedy == "add each hospital's predictions by models trained without it"
    assert lines["calibration"].state == "warn"
    assert lines["calibration"].remedy == "recalibrate it on labelled rows that were not used for training"
    assert not any(line.setting for line in lines.values())
    assert not any(re.search(r"\b(data|evaluation|training)\.", line.remedy) for line in lines.values())


def test_of_two_hospitals_nothing_is_recommended(tmp_path: Path) -> None:
    few = others()[lambda f: f["hospital"].isin(["h0", "h1"])]
    headline = raysim.judge(few, "fedavg", out=tmp_path / "out").answer.card.headline
    assert headline == "Nothing is recommended: 2 of 2 hospitals can be judged."


def test_decisions_are_ranked_and_have_no_calibration(tmp_path: Path) -> None:
    frame = others()
    at = frame["model"] == "flower"
    frame.loc[at, "probability"] = (frame.loc[at, "probability"] > 0.5).astype(float)
    raysim.judge(frame, "fedavg", out=tmp_path / "out")
    found = pd.read_csv(tmp_path / "out" / "hospitals.csv").set_index("strategy")
    assert found.loc["flower", ["log_loss", "brier"]].isna().all(axis=None)
    assert found.loc["flower", "auroc"].notna().all()
    assert found.loc["fedavg", "brier"].notna().all()


def test_two_references_and_what_is_no_table_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    others(seeds=1).to_csv("predictions.csv", index=False)
    named = ["--reference", "fedavg", "--reference", "flower"]
    monkeypatch.setattr(sys, "argv", ["raysim", "judge", "predictions.csv", *named])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert (
        "--reference: fedavg and flower are 2 models, but there can be only one reference; name one model"
    ) in refusal(capsys.readouterr().err)
    with pytest.raises(raysim.RaysimError, match="a list is neither a data frame nor the path of a file"):
        raysim.judge([1, 2], "fedavg")


def test_fewer_tried_than_shown_is_refused(tmp_path: Path) -> None:
    frame = others(seeds=1)
    third = frame[frame["model"] == "flower"].assign(model="pfl")
    with pytest.raises(
        raysim.RaysimError,
        match="--tried: 1 is fewer than the 2 models of the table that are neither the reference nor have a role;",
    ):
        raysim.judge(pd.concat([frame, third]), "fedavg", tried=1, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    others().to_parquet("predictions.parquet")
    asked = ["raysim", "judge", "predictions.parquet", "--reference", "fedavg", "--tried", "3", "--common"]
    monkeypatch.setattr(sys, "argv", [*asked, "--out", "out"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    said = capsys.readouterr()
    assert shlex.split(said.out.partition("Next ")[2].replace("\\\n", "")) == [*asked, "--details"]
    assert "Take flower" in said.out
    assert "warning: No column 'patient'" in said.out + said.err
    monkeypatch.setattr(sys, "argv", ["raysim", "judge", "none.csv", "--reference", "fedavg"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "predictions: 'none.csv' does not exist" in capsys.readouterr().err.replace("\n", " ")
