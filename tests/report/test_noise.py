"""What is said of differences between hospitals and patients beside what equal service shows."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysim.engine.job import Result
from raysim.engine.messages.plan import ModelSpec
from raysim.report import tables
from raysim.report.judgement import noise
from raysim.report.naming import signed
from raysim.report.pages import contents, sentences
from raysim.statistics.chance.floor_figures import share_as_extreme
from raysim.statistics.patient_groups.composition import Composition
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, run_strategy, store
from tests.report.answered import answered
from tests.statistics.federations import sums

SIZES = [60, 40, 80, 30, 120, 50, 70, 45, 55, 90, 65, 35]


@pytest.fixture
def result(federate: MakeFederation, tmp_path: Path) -> Result:
    """A run on twelve hospitals that know the sex of their patients, some of it unknown."""
    federation = federate(SIZES, SIZES, features=4)
    rng, n = np.random.default_rng(3), len(federation.y)
    np.savez(federation.folder / "patients.npz", sex=rng.choice(["F", "M", ""], n, p=[0.5, 0.4, 0.1]))
    federation = type(federation).open(federation.folder)
    return Result(
        "fedavg", False, 7, federation, run_strategy(federation, FedAvg(), rounds=2, tests_groups=True), tmp_path
    )


def test_fewer_federations_are_simulated_where_hospitals_are_very_many() -> None:
    assert [noise.draws_for(hospitals) for hospitals in (0, 208, 50_000, 100_000, 1_000_000)] == [
        200,
        200,
        200,
        100,
        40,
    ]
    # Even the fewest can exclude equal service: none of the draws is as extreme.
    assert share_as_extreme(np.zeros(noise.FEWEST_DRAWS, bool)) < 0.025


def test_the_table_has_floors_excesses_the_slope_and_the_gap(result: Result) -> None:
    (judged,) = noise.noise([result], 5).values()
    table = noise.table({("fedavg", "global"): judged}).set_index("figure")
    assert {"std", "gini", "lowest", "worst_decile", "p10", "size_bias", "size_slope", "sex_gap", "sex_within"} <= set(
        table.index
    )
    measured = result.outcome.metrics["global"]
    assert table.loc["sex_gap", "value"] == measured["sex_gap"]
    assert np.isnan(table.loc["sex_gap", "p"]), "over all rows nothing is tested"
    within = table.loc["sex_within"]
    assert within["true_low"] <= within["value"] == within["true"] <= within["true_high"]
    assert within["p"] == judged.gaps["sex"].p
    for figure in ("std", "gini", "worst_decile", "p10"):
        row = table.loc[figure]
        assert row["value"] == pytest.approx(measured[figure])
        assert row["floor_low"] <= row["floor"] <= row["floor_high"]
    for figure in ("std", "gini", "worst_decile", "p10"):
        row = table.loc[figure]
        assert row["excess_low"] <= row["excess"] <= row["excess_high"]
    assert table.loc["worst_decile", "excess_high"] <= 0, "a true spread lowers the worst decile"
    slope = table.loc["size_slope"]
    assert slope["true_low"] < slope["true"] < slope["true_high"]


def test_other_seeds_are_no_further_evidence(result: Result) -> None:
    other = Result("fedavg", False, 8, result.federation, result.outcome, result.folder)
    both, alone = noise.noise([result, other], 5), noise.noise([result], 5)
    pd.testing.assert_frame_equal(noise.table(both), noise.table(alone))


def test_the_page_says_first_whether_hospitals_differ_and_has_size_and_groups_apart(result: Result) -> None:
    by_chance = noise.noise([result], 5)
    judged = by_chance["fedavg", "global"]
    table = tables.comparison(frame(12))
    assert contents.noise_headings(table, by_chance)[0] == "Do hospitals differ?"
    (row,) = contents.noise_rows(table, ["FedAvg"], by_chance)
    figure = judged.floor.figures["worst_decile"]
    assert row.cells[0].mean == ("yes" if judged.floor.demonstrated else "no")
    assert row.cells[0].interval == f"p = {judged.floor.p:.2f}"
    assert row.cells[1].mean == f"{figure.value:.3f}"
    assert row.cells[1].interval.startswith(f"chance: {figure.low:.3f} to {figure.high:.3f}; beyond chance: ")
    assert contents.fairness_headings(table, by_chance) == ["AUROC by size", "Within hospitals, by sex"]
    (row,) = contents.fairness_rows(table, ["FedAvg"], by_chance)
    gap = judged.gaps["sex"]
    assert [cell.mean for cell in row.cells] == [signed(judged.slope.slope, 4), signed(gap.estimate, 3)]
    assert row.cells[1].interval == f"F minus M: {signed(gap.low, 3)} to {signed(gap.high, 3)}; p = {gap.p:.2f}"
    few = tables.comparison(frame(9))
    assert contents.fairness_headings(few, by_chance) == ["Within hospitals, by sex"]


def test_a_slope_is_a_direction_only_where_its_interval_excludes_none() -> None:
    rng, sizes = np.random.default_rng(1), np.geomspace(40, 2000, 40).astype(int)
    events = np.maximum(2, sizes // 5)
    flat = noise.slope_of(sums(rng, events, sizes - events, 0.8), sizes.tolist())
    assert not flat.demonstrated
    assert noise.size_sentence(flat).startswith("No dependence of AUROC on hospital size was demonstrated: ")
    rising = noise.slope_of(sums(rng, events, sizes - events, np.linspace(0.6, 0.95, 40)), sizes.tolist())
    assert rising.demonstrated
    said = noise.size_sentence(rising)
    assert said.startswith("AUROC is higher at larger hospitals: +")
    assert f"{rising.doubling:+.4f} AUROC for twice the stays" in said


def frame(hospitals: int, **figures: float) -> pd.DataFrame:
    row = {"auroc": 0.8, "worst_decile": 0.6, "gini": 0.1, "std": 0.1, "size_bias": 0.02, "hospitals": hospitals}
    return pd.DataFrame([{"strategy": "fedavg", "model": "global", "seed": 0, **row, **figures}])


@pytest.mark.parametrize(("hospitals", "few"), [(9, True), (10, False)])
def test_under_ten_hospitals_there_is_no_decile_and_no_slope(hospitals, few) -> None:
    table = tables.comparison(frame(hospitals))
    headings = [heading for _, heading, *_ in contents.columns(table)]
    assert ("Lowest hospital" in headings) == few
    assert ("Worst decile" in headings) != few
    assert ("Size bias" in headings) != few
    (lead,) = sentences.run_lead(table, ["global"])
    assert ("at the lowest hospital" in lead) == few
    assert "do better" not in lead, "a slope without an interval is no direction"


def test_the_lead_of_a_run_has_the_interval_of_its_mean() -> None:
    table = tables.comparison(frame(20, auroc=0.75))
    hospitals = pd.DataFrame({"hospital": ["a", "b", "c"], "model": "global", "n_test": [30, 10, 5]})
    hospitals = hospitals.assign(auroc=[0.8, 0.6, np.nan], auroc_low=[0.7, 0.3, np.nan], auroc_high=[0.9, 0.7, np.nan])
    lead, note = sentences.run_lead(table, ["global"], hospitals=hospitals)
    # Half the width: the root of (3/4 of .1) squared and (1/4 of .2) squared.
    assert lead.startswith("Global model: a mean AUROC of 0.750 (0.660 to 0.840), and 0.600 at the worst tenth")
    assert "other patients of these hospitals" in note
    none = hospitals.assign(auroc_low=np.nan)
    assert sentences.run_lead(table, ["global"], hospitals=none)[0].startswith(
        "Global model: a mean AUROC of 0.750, and"
    )
    (sentence,) = sentences.run_lead(table, ["personal"])
    assert sentence.startswith("Hospitals' own models: a mean")


def test_a_hospital_that_is_named_has_its_interval() -> None:
    rows = {"strategy": "a", "model": "global", "hospital": [f"h{i}" for i in range(12)], "n_train": 9, "n_test": 9}
    hospitals = pd.DataFrame(rows | {"auroc": np.linspace(0.5, 0.9, 12)})
    hospitals = hospitals.assign(auroc_low=hospitals["auroc"] - 0.2, auroc_high=hospitals["auroc"] + 0.1)
    table = sentences.worst_served(hospitals)
    assert table["intervals"]
    assert table["rows"][0] | {"interval": "0.300 to 0.600"} == table["rows"][0]
    assert not sentences.worst_served(hospitals.drop(columns="auroc_low"))["intervals"]
    assert "of 3." in sentences.worst_served(hospitals.head(3))["caption"]


@pytest.mark.parametrize(("shift", "shown"), [(0.0, False), (3.0, True)])
def test_real_labels_have_a_floor_of_their_errors(tmp_path: Path, shift: float, shown: bool) -> None:
    """Twelve hospitals with one law of labels; in the other case two of them have labels that the model cannot know."""
    rng, rows = np.random.default_rng(5), np.array(SIZES)
    stops = np.cumsum(np.stack([rows, 0 * rows, rows], axis=1))
    bounds = np.concatenate([[0], stops])[np.arange(12)[:, None] * 3 + np.arange(4)]
    X = rng.normal(size=(stops[-1], 3)).astype(np.float32)
    noisy = np.repeat(np.where(np.arange(12) < 2, 1 + shift, 1.0), 2 * rows)
    y = X @ [2.0, -1.0, 0.5] + 7 + noisy * rng.normal(size=len(X))
    (tmp_path / "federation").mkdir()
    federation = store(tmp_path / "federation", X, y, bounds, classes=0)
    # Most rows of the first group are at four hospitals, of which two are noisy.
    often = np.where(np.repeat(np.arange(12) < 4, 2 * rows), 0.9, 0.1)
    sex = np.where(rng.random(len(X)) < often, "F", "M")
    np.savez(federation.folder / "patients.npz", sex=np.where(np.arange(len(X)) % 9, sex, ""))
    federation = type(federation).open(federation.folder)
    model = ModelSpec("linear_regression", None, {"loss": "squared"}, "default")
    outcome = run_strategy(
        federation, FedAvg(), rounds=30, batch_size=0, model=model, learning_rate=0.3, tests_groups=True
    )
    both = noise.noise([Result("fedavg", False, 7, federation, outcome, tmp_path)], 5)
    table = noise.table(both).set_index("figure")
    assert set(table.index) == {"std", "gini", "highest", "worst_decile", "p90", "size_bias", "sex_gap", "sex_within"}
    measured = outcome.metrics["global"]
    for figure in ("std", "gini", "worst_decile", "p90", "sex_gap"):
        assert table.loc[figure, "value"] == pytest.approx(measured[figure])
    judged = both["fedavg", "global"]
    assert judged.floor.demonstrated == shown
    # Groups are served alike within hospitals: that one goes to the noisy ones is no difference between patients.
    gap = judged.gaps["sex"]
    assert gap.groups == ("F", "M")
    assert gap.judged
    assert not gap.demonstrated
    assert gap.low < 0 < gap.high
    if shown:
        assert gap.pooled > 3 * abs(gap.estimate), "over all rows they differ"
        assert gap.composition.estimate > 0.5, "they are treated where errors are larger"
    said = "No difference between F and M demonstrated within hospitals ("
    assert any(sentence.startswith(said) for sentence in judged.sentences())
    per_model = pd.DataFrame([{"strategy": "fedavg", "model": "global", **measured}])
    headings = contents.noise_headings(tables.comparison(per_model), both)
    assert headings == ["Do hospitals differ?", "Worst decile", "90 % quantile", "Gini", "Deviation over hospitals"]
    (row,) = contents.noise_rows(tables.comparison(per_model), ["fedavg"], both)
    assert len(row.cells) == len(headings)
    assert contents.fairness_headings(tables.comparison(per_model), both) == ["Within hospitals, by sex"]
    ((cell,),) = (row.cells for row in contents.fairness_rows(tables.comparison(per_model), ["fedavg"], both))
    assert cell.mean.startswith(("+", "\N{MINUS SIGN}"))


def test_the_answer_says_what_noise_explains(result: Result) -> None:
    by_chance = noise.noise([result], 5)
    columns = {"strategy": "fedavg", "model": "global", "hospital": list(result.federation.hospitals), "n_test": SIZES}
    hospitals = pd.DataFrame(columns | {"auroc": result.outcome.figures["global"][:, 2], "seed": 7})
    other = hospitals.assign(strategy="other", auroc=hospitals["auroc"] + np.resize([0.01, -0.01], len(SIZES)))
    both = pd.concat([hospitals, other])
    per_seed = pd.DataFrame({"strategy": ["fedavg", "other"], "model": "global", "seed": 7, "auroc": [0.8, 0.8]})
    said = answered(per_seed, both, "fedavg", noise=by_chance)
    floor = by_chance["fedavg", "global"].floor
    assert f"Seed 7: {floor.sentence()}" in said.reasons
    fairness = said.card.line("fairness")
    assert fairness is not None
    assert fairness.text.startswith("No gap within hospitals demonstrated: sex ")
    assert json.loads(json.dumps(said.as_json()))["difference_shown"] is False
    assert math.isfinite(floor.p)
    of = by_chance["fedavg", "global"]
    for high, claims in ((-0.03, 1), (0.01, 0)):
        sex = replace(of.gaps["sex"], composition=Composition(-0.05, -0.1 - high, high, 20))
        apart = {("fedavg", "global"): replace(of, gaps={"sex": sex})}
        reasons = answered(per_seed, both, "fedavg", noise=apart).reasons
        assert sum("are treated at hospitals" in reason for reason in reasons) == claims
