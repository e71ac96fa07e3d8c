"""Hospitals that are left out in turn: nothing of theirs reaches a model, and what is said of them."""

from __future__ import annotations

import json
import os
import time
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from safetensors.numpy import load_file

import raysim
from raysim.api.comparison_result import ComparisonResult
from raysim.config import reading
from raysim.experiment.one_run import Run
from raysim.experiment.planning.plan import make_plan
from raysim.experiment.planning.tables import render
from raysim.experiment.unseen import fold_runs, rows
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, pooled
from raysim.storage import resume

prepare = Run.prepare

KEYS = ["strategy", "model", "seed", "hospital"]


def table(hospitals: int = 5, rows: int = 60) -> pd.DataFrame:
    """Rows of hospitals that differ in how often the event happens; ``ward`` has a value at one of them alone."""
    frames = []
    for h in range(hospitals):
        rng = np.random.default_rng(h)
        x, z = rng.normal(size=(2, rows))
        y = rng.random(rows) < 1 / (1 + np.exp(1 - 1.5 * x - (h - 2) / 2))
        ward = np.where(rng.random(rows) < 0.5, "a", "b").astype(object)
        if h == 0:
            ward[:10] = "only here"
        frames.append(pd.DataFrame({"hospital": f"h{h}", "x": x, "z": z, "ward": ward, "died": y.astype(int)}))
    return pd.concat(frames, ignore_index=True)


def larger() -> pd.DataFrame:
    """The same rows, and forty more of ``h4``."""
    more = table(1, 40).assign(hospital="h4", ward="a")
    return pd.concat([table(), more], ignore_index=True)


def config(**unseen: Any) -> dict[str, Any]:
    return {
        "name": "outside",
        "data": {
            "source": "table",
            "silo": "hospital",
            "label": "died",
            "split": {"train": 0.5, "validation": 0.25, "test": 0.25},
        },
        "strategies": ["fedavg", "local", "clustered", "fedper"],
        "seeds": [0, 1],
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"rounds": 2},
        "evaluation": {"unseen": unseen or True},
        "tracking": {"uri": "none"},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison in which each of five hospitals was left out."""
    out = tmp_path_factory.mktemp("unseen") / "out"
    raysim.compare(config(onboarding=[0, 10, 40]), data=larger(), out=out, in_process=True)
    return out


def test_every_hospital_is_left_out_once(folder: Path) -> None:
    unseen = pd.read_csv(folder / "unseen.csv")
    assert list(unseen.columns[:10]) == [
        "strategy",
        "model",
        "seed",
        "fold",
        "hospital",
        "k",
        "rows",
        "events",
        "non_events",
        "served_by",
    ]
    for _, of in unseen.groupby(["strategy", "model", "seed", "k"]):
        assert sorted(of["hospital"]) == [f"h{h}" for h in range(5)]
        assert of["fold"].nunique() == 5
    assert (folder / "unseen" / "fedavg" / "seed-1" / "fold-5" / "hospitals.csv").is_file()


def test_the_runs_of_a_comparison_leave_no_hospital_out(folder: Path) -> None:
    """The run of each strategy and seed, its metrics and its predictions are those of all hospitals."""
    result = raysim.load(folder)
    assert isinstance(result, ComparisonResult)
    assert result.run("fedavg", 1).folder == folder / "runs" / "fedavg" / "seed-1"
    means = result.seeds.groupby(["strategy", "model"])["auroc"].mean()
    table = result.comparison.set_index(["strategy", "model"])["auroc"]
    assert means.to_dict() == pytest.approx(table.to_dict(), abs=1e-12, nan_ok=True)


def test_nobody_serves_where_no_model_can(folder: Path) -> None:
    unseen = pd.read_csv(folder / "unseen.csv")
    for strategy, after in (("local", "personal, trained on its rows"), ("fedper", "personal, with its own head")):
        of = unseen[(unseen["strategy"] == strategy) & (unseen["model"] == "personal")].set_index("k")
        assert set(of.loc[0, "served_by"]) == {"nobody"}
        assert of.loc[0, "auroc"].isna().all()
        joined = of[of.index == 10]
        served = joined["served_by"] == after
        assert served.sum() >= 5
        assert set(joined["served_by"]) <= {after, "nobody"}  # of some hospitals the ten rows are of one class
        assert (joined["auroc"].notna() == served).all()
    assert set(unseen.loc[unseen["strategy"] == "fedavg", "served_by"]) == {"global"}
    # What others learn does not change hospitals that train alone, so they are not trained again.
    assert not (folder / "unseen" / "local").exists()


def test_the_rows_of_a_fold_are_kept_for_its_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    there = []

    def counting(*given: Any) -> Any:
        there.append(len(list((tmp_path / "cache").glob("folds-*/seed-*"))))
        return rows.judge(*given)

    monkeypatch.setattr(fold_runs, "judge", counting)
    asked = config(folds=["h0", "h1"]) | {"strategies": ["fedavg", "fedprox"], "seeds": [0]}
    raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=True)
    assert there == [1] * 4
    assert not list((tmp_path / "cache").glob("folds-*"))
    written = {path.name for path in (tmp_path / "out" / "unseen" / "fedavg" / "seed-0" / "fold-1").iterdir()}
    assert {"predictions.csv", "models.safetensors", "hospitals.csv", "summary.json"} <= written
    assert not {"clinical.csv", "net_benefit.csv", "egress.csv"} & written


@pytest.mark.faults
def test_a_comparison_that_was_killed_goes_on_without_its_finished_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    table().to_csv(tmp_path / "table.csv", index=False)
    asked = config(folds=["h0", "h1"], onboarding=[0, 10])
    asked |= {"strategies": ["clustered", "local"], "seeds": [0], "reference": "clustered"}
    asked["data"] |= {"path": str(tmp_path / "table.csv")}
    raysim.compare(asked, out=tmp_path / "whole", in_process=True)
    made = []

    def dying(*given: Any) -> Any:
        made.append(given)
        if len(made) == 3:  # two strategies are judged with each run: the second fold's first
            raise KeyboardInterrupt
        return rows.judge(*given)

    monkeypatch.setattr(fold_runs, "judge", dying)
    with pytest.raises(KeyboardInterrupt):
        raysim.compare(asked, out=tmp_path / "out", in_process=True)
    # What a killed comparison of another folder has left is removed, and what a living one uses is not.
    cache = tmp_path / "cache"
    for name in ("folds-dead/rows", "folds-dead.lock", "folds-alive/rows", "folds-alive.lock", "folds-starting.lock"):
        (cache / name).mkdir(parents=True)
    for name in ("folds-dead.lock", "folds-alive.lock"):
        os.utime(cache / name, (time.time() - 61,) * 2)
    prepared = []
    monkeypatch.setattr(Run, "prepare", lambda run: prepared.append(run.held) or prepare(run))
    with resume.held(cache / "folds-alive.lock"):
        raysim.resume(tmp_path / "out", in_process=True)
        left = sorted(path.name for path in cache.glob("folds-*"))
        assert left == ["folds-alive", "folds-alive.lock", "folds-starting.lock"]
    assert [held for held in prepared if held] == [("h1",)]
    for name in ("unseen.csv", "unseen_summary.csv", "unseen_difference.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list((tmp_path / "out").rglob("judged.safetensors"))


def test_rows_that_join_are_nested_and_all_are_judged_on_the_same(folder: Path) -> None:
    unseen = pd.read_csv(folder / "unseen.csv")
    of = unseen[(unseen["strategy"] == "fedavg") & (unseen["model"] == "global")]
    rows = of.pivot_table(index=["seed", "hospital"], columns="k", values="rows")
    # Forty rows are more than half of sixty: where nobody has them, ten decide which rows are judged.
    assert (rows.drop("h4", level="hospital") == 50).all(axis=None)
    assert (rows.xs("h4", level="hospital") == 60).all(axis=None)
    figures = of.pivot_table(index=["seed", "hospital"], columns="k", values="auroc", dropna=False)
    assert figures[40].notna().tolist() == [False, False, False, False, True] * 2
    np.testing.assert_array_equal(figures[0], figures[10])  # a shift changes no order
    page = (folder / "report.html").read_text()
    assert "Means are over 1 of 5 hospitals that have enough rows for every step" in page
    losses = of.pivot_table(index=["seed", "hospital"], columns="k", values="log_loss", dropna=False)
    assert (losses[0] != losses[10]).all()


def test_a_hospitals_rows_reach_no_model_that_leaves_it_out(folder: Path, tmp_path: Path) -> None:
    changed = larger()
    at = changed["hospital"] == "h0"
    changed.loc[at, "x"] *= -30
    changed.loc[at, "died"] = 1 - changed.loc[at, "died"]
    changed.loc[at, "ward"] = "a"
    # Strategies and seeds do not change each other, so that some of those before are enough.
    asked = config(folds=["h0", "h1"], onboarding=[0, 10, 40]) | {"strategies": ["fedavg", "clustered"], "seeds": [0]}
    raysim.compare(asked, data=changed, out=tmp_path / "out", in_process=True)
    for strategy in ("fedavg", "clustered"):
        of = Path("unseen") / strategy / "seed-0" / "fold-1"
        ours, theirs = (load_file(home / of / "models.safetensors") for home in (folder, tmp_path / "out"))
        shared = [name for name in ours if not name.startswith("personal/h0")]
        assert shared
        for name in shared:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        prepared = [(home / of / "preprocessing.json").read_text() for home in (folder, tmp_path / "out")]
        assert prepared[0] == prepared[1]
        assert "only here" not in prepared[0]
    before, after = (pd.read_csv(home / "unseen.csv").set_index([*KEYS, "k"]) for home in (folder, tmp_path / "out"))
    other = after.index.get_level_values("hospital") == "h0"
    assert not before.loc[after.index[other], "auroc"].equals(after.loc[other, "auroc"])


def test_a_later_fold_has_the_hospital_that_an_earlier_one_left_out(folder: Path) -> None:
    first, second = (
        pd.read_csv(folder / "unseen" / "fedavg" / "seed-0" / f"fold-{k}" / "hospitals.csv").set_index("hospital")
        for k in (1, 2)
    )
    assert first.loc["h0", "n_train"] == 0
    assert second.loc["h0", "n_train"] > 0
    assert first.loc["h0", "n_test"] == 60


def test_the_summary_and_the_answer_say_it(folder: Path) -> None:
    summary = pd.read_csv(folder / "unseen_summary.csv").set_index(["strategy", "model", "figure", "k"])
    auroc = summary.xs(("fedavg", "global", "auroc", 0))
    unseen = pd.read_csv(folder / "unseen.csv")
    of = unseen[(unseen["strategy"] == "fedavg") & (unseen["model"] == "global") & (unseen["k"] == 0)]
    each = of.groupby("hospital")["auroc"].mean()
    assert each.min() < auroc["estimate"] < each.max()
    assert auroc["hospitals"] == 5
    assert auroc["next_low"] < auroc["low"] < auroc["estimate"]
    loss = summary.xs(("fedavg", "global", "log_loss", 0))
    assert of.groupby("hospital")["log_loss"].mean().between(0.3, 1.5).all()
    assert loss["low"] < of.groupby("hospital")["log_loss"].mean().mean() < loss["high"]
    # Skill is against the prevalence of the others' training rows.
    parts, died = pd.read_csv(folder / "split.csv"), larger()["died"].to_numpy()
    one, h0 = of[(of["hospital"] == "h0") & (of["seed"] == 0)].iloc[0], parts["hospital"] == "h0"
    p = died[parts.loc[(parts["seed"] == 0) & (parts["part"] == "train") & ~h0, "row"]].mean()
    share = one["events"] / one["rows"]
    constant = -(share * np.log(p) + (1 - share) * np.log(1 - p))
    assert one["log_loss_skill"] == pytest.approx(1 - one["log_loss"] / constant, rel=1e-6)
    skill = summary.xs(("fedavg", "global", "log_loss_skill", 0))
    assert skill["low"] < of.groupby("hospital")["log_loss_skill"].mean().mean() < skill["high"]
    differences = pd.read_csv(folder / "unseen_difference.csv").set_index(["strategy", "model", "comparison"])
    assert ("fedavg", "global", "seen less unseen") in differences.index
    assert ("clustered", "cluster", "less fedavg") in differences.index
    assert differences["hospitals"].max() == 5
    line = next(line for line in json.loads((folder / "answer.json").read_text())["lines"] if line["fact"] == "unseen")
    assert "left out in turn" in line["text"] or "cannot serve" in line["text"]
    page = (folder / "report.html").read_text()
    assert "Hospitals that took no part" in page
    assert "the next hospital" in page


def test_what_a_hospital_records_otherwise_is_said(folder: Path, tmp_path: Path) -> None:
    said = "17% of the rows of h0 have a 'ward' that no participant has: they are scored with 0 for every category."
    assert said in json.loads((folder / "answer.json").read_text())["reasons"]
    changed = table()
    changed.loc[changed["hospital"] == "h1", "z"] = np.nan
    asked = config(folds=["h1", "h2"]) | {
        "strategies": ["fedavg"],
        "seeds": [0],
        "model": {"name": "mlp", "hidden": [4]},
    }
    raysim.compare(asked, data=changed, out=tmp_path / "out", in_process=True)
    reasons = json.loads((tmp_path / "out" / "answer.json").read_text())["reasons"]
    assert "h1 has no value of 'z': it is filled in as at the participants." in reasons
    assert not any("h2" in text and "no participant" in text for text in reasons)


def test_others_are_compared_with_the_global_model_of_the_reference(tmp_path: Path) -> None:
    """As in ``comparison.csv``; the other models of the reference are compared with it too."""
    asked = config() | {"strategies": ["fedavg", "chip"], "seeds": [0], "reference": "chip"}
    raysim.compare(asked, data=larger(), out=tmp_path / "out", in_process=True)
    unseen = pd.read_csv(tmp_path / "out" / "unseen.csv").groupby(["strategy", "model"], sort=False)
    base = unseen.get_group(("chip", "global")).set_index("hospital")
    differences = pd.read_csv(tmp_path / "out" / "unseen_difference.csv").set_index(["comparison", "strategy", "model"])
    less = differences[differences.index.get_level_values("comparison") == "less chip"]["difference"]
    assert [key[1:] for key in less.index] == [("fedavg", "global"), ("chip", "cluster"), ("chip", "personal")]
    for (_, *key), difference in less.items():
        ours = unseen.get_group(tuple(key)).set_index("hospital")
        mean = np.average(ours["auroc"] - base["auroc"], weights=base["rows"])
        assert difference == pytest.approx(mean, abs=1e-9)
        assert difference


def test_the_difference_is_that_of_the_same_rows(folder: Path) -> None:
    differences = pd.read_csv(folder / "unseen_difference.csv").set_index(["strategy", "model", "comparison"])
    hospitals = pd.read_csv(folder / "hospitals.csv")
    seen = hospitals[(hospitals["strategy"] == "fedavg") & (hospitals["model"] == "global")]
    means, rows = [], []
    for seed in (0, 1):
        for h in range(5):
            run = folder / "unseen" / "fedavg" / f"seed-{seed}" / f"fold-{h + 1}"
            said = pd.read_csv(run / "predictions.csv")
            split = pd.read_csv(folder / "split.csv")
            tested = split[(split["seed"] == seed) & (split["hospital"] == f"h{h}") & (split["part"] == "test")]["row"]
            p = said.set_index("row").loc[tested, "probability"].to_numpy()
            y = larger()["died"].to_numpy()[tested]
            wins = np.sign(p[y == 1][:, None] - p[y == 0]) / 2 + 0.5
            of = seen[(seen["seed"] == seed) & (seen["hospital"] == f"h{h}")].iloc[0]
            if wins.size:
                means.append(of["auroc"] - wins.mean())
                rows.append(len(tested))
    found = differences.loc[("fedavg", "global", "seen less unseen"), "difference"]
    assert found == pytest.approx(np.average(means, weights=rows), abs=1e-9)


@pytest.mark.parametrize(
    ("unseen", "said"),
    [
        (
            {"folds": [["h0", "h1", "h2"]]},
            "only 2 hospitals would take part without h0, h1, h2; leave out fewer, so that at least 3 take part",
        ),
        ({"folds": ["h9"]}, "'h9' is not a hospital"),
        ({"folds": ["h0", ["h1", "h0"]]}, "'h0' occurs twice"),
        ({"folds": 1}, "1 folds leave no hospital to train on"),
        ({"folds": 10**20}, "100000000000000000000 are more than the 5 hospitals; write leave_one_out"),
        ({"onboarding": [30, 10]}, "is not a list of ascending numbers of rows"),
        ({"onboarding": [0, 31]}, "31 is more than the 30 labelled rows that a hospital has at most with held 0.5"),
    ],
)
def test_folds_that_cannot_be_are_refused(unseen: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(raysim.RaysimError, match=said):
        raysim.compare(config(**unseen), data=table(), out=tmp_path / "out", in_process=True)
    assert not (tmp_path / "out").exists()


def test_other_commands_and_what_sees_all_hospitals_are_refused(tmp_path: Path) -> None:
    alone = {key: value for key, value in config().items() if key not in ("strategies", "seeds")}
    with pytest.raises(raysim.RaysimError, match="raysim run leaves no hospital out"):
        raysim.run(alone, data=table(), out=tmp_path / "run", in_process=True)
    tuned = config() | {"tune": {"training.learning_rate": [0.1, 0.3]}}
    with pytest.raises(raysim.RaysimError, match="chooses values on rows of all hospitals"):
        raysim.compare(tuned, data=table(), out=tmp_path / "tuned", in_process=True)


def test_hospitals_that_take_part_train_on_all_rows_where_that_is_asked(tmp_path: Path) -> None:
    asked = config(folds=["h0"], trained_on="all") | {"strategies": ["fedavg"], "seeds": [0]}
    raysim.compare(asked, data=table(), out=tmp_path / "out", in_process=True)
    seen = pd.read_csv(tmp_path / "out" / "hospitals.csv").set_index("hospital")
    fold = tmp_path / "out" / "unseen" / "fedavg" / "seed-0" / "fold-1"
    without = pd.read_csv(fold / "hospitals.csv").set_index("hospital")
    assert without.loc["h0", ["n_train", "n_test"]].tolist() == [0, 60]
    others = [f"h{h}" for h in range(1, 5)]
    assert (without.loc[others, "n_train"] == seen.loc[others, ["n_train", "n_test"]].sum(axis=1)).all()
    assert (without.loc[others, "n_test"] == 0).all()
    assert "trained_on: all" in (fold / "config.yaml").read_text()


def test_a_plan_says_what_leaving_out_costs(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "stays.csv", index=False)
    asked = config()
    asked["data"]["path"] = str(tmp_path / "stays.csv")
    plan = make_plan(reading.resolve(asked, reads=reading.COMPARISON), "1x2cpu")
    assert plan.left_out == "hospitals are left out in 5 folds: 30 more runs"
    shown = StringIO()
    render(plan, Console(file=shown))
    assert plan.left_out in shown.getvalue()


def test_folds_of_hospitals_are_dealt_by_the_seed(tmp_path: Path) -> None:
    two, data = config(folds=2) | {"strategies": ["fedavg"], "seeds": [0]}, table(hospitals=6)
    raysim.compare(two, data=data, out=tmp_path / "out", in_process=True)
    unseen = pd.read_csv(tmp_path / "out" / "unseen.csv")
    assert unseen.groupby("fold")["hospital"].nunique().tolist() == [3, 3]

    # Net benefit is pooled over hospitals: row by row, from the predictions of both folds.
    folds = tmp_path / "out" / "unseen" / "fedavg" / "seed-0"
    said = pd.concat([pd.read_csv(folds / f"fold-{k}" / "predictions.csv") for k in (1, 2)])
    y, p = data["died"].to_numpy()[said["row"]], said["probability"].to_numpy()
    summary = pd.read_csv(tmp_path / "out" / "unseen_summary.csv").set_index("figure")
    for at in (0.2, 0.5):
        benefit = np.where(y == 1, 1.0, -at / (1 - at))
        gains = []
        for _, of in said.assign(all=benefit, model=benefit * (p >= at)).groupby("hospital"):
            each = of["model"] - (of["all"] if benefit.mean() > 0 else 0.0)
            gains.append((each.mean(), each.var(), len(each)))
        value, variance, rows = np.array(gains).T
        expected = pooled(value, np.average(variance, weights=rows - 1) / rows, WIDEST)
        found = summary.loc[f"net_benefit_gained_{at:g}"]
        assert found[["estimate", "low", "high"]].tolist() == pytest.approx(expected[:3], abs=1e-12, nan_ok=True)
        assert found["hospitals"] == expected.hospitals


def test_folds_whose_others_have_one_label_are_refused(tmp_path: Path) -> None:
    data = table()
    data.loc[~data["hospital"].isin(["h1", "h2"]), "died"] = 0
    with pytest.raises(raysim.RaysimError, match="all training rows without h1, h2 have the label '0'"):
        raysim.compare(config(folds=[["h1", "h2"]]), data=data, out=tmp_path / "out", in_process=True)
