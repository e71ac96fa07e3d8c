"""Figures by patient group: against plain loops, whatever the placement, and where groups are undefined."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.measuring import subgroups
from raysim.engine.server.job_checks import check_job
from raysim.metrics.labels import CLASSIFICATION, REGRESSION
from raysim.metrics.measures import FIGURES
from raysim.report import tables
from raysim.report.supplement import patient_groups
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, job_of, run_strategy

SIZES, TESTED = [40, 30, 50, 0, 20], [30, 25, 40, 12, 1]


@pytest.fixture
def demographic(federate: MakeFederation) -> Federation:
    """A federation that knows its patients: sex with unknown ones, age with NaN."""
    federation = federate(SIZES, TESTED, features=4)
    rng, n = np.random.default_rng(5), len(federation.y)
    age = rng.uniform(18, 95, n)
    age[rng.random(n) < 0.1] = np.nan
    np.savez(
        federation.folder / "patients.npz",
        sex=rng.choice(["Female", "Male", ""], n, p=[0.5, 0.4, 0.1]),
        age=age,
    )
    return Federation.open(federation.folder)


def band(age: float) -> str:
    bands = ((45, "under 45"), (65, "45 to under 65"), (80, "65 to under 80"), (200, "80 and over"))
    return next((name for end, name in bands if age < end), "unknown")


def expected_auroc(y: np.ndarray, score: np.ndarray) -> float:
    return roc_auc_score(y, score) if 0 < y.sum() < len(y) else np.nan


def test_figures_are_those_of_a_plain_loop(demographic: Federation):
    outcome = run_strategy(demographic, FedAvg(), rounds=2)
    assert outcome.grouping is not None
    theta = outcome.models[0]
    for attribute, levels in outcome.grouping.levels:
        figures, together = outcome.groups["global"][attribute]
        assert figures.shape == (len(SIZES), len(levels), len(FIGURES))
        scores, labels, names = [], [], []
        for h in range(len(SIZES)):
            rows = demographic.rows(h, "test")
            values = demographic.patients[attribute][rows]
            named = [band(v) for v in values] if attribute == "age" else [str(v) or "unknown" for v in values]
            z = demographic.X[rows] @ theta[:-1] + theta[-1]
            for g, level in enumerate(levels):
                mine = np.array([name == level for name in named])
                assert figures[h, g, 0] == mine.sum()
                assert figures[h, g, 1] == demographic.y[rows][mine].sum()
                np.testing.assert_allclose(
                    figures[h, g, 2], expected_auroc(demographic.y[rows][mine], z[mine]), atol=1e-9
                )
            scores.append(z)
            labels.append(demographic.y[rows])
            names += named
        z, y = np.concatenate(scores), np.concatenate(labels)
        for g, level in enumerate(levels):
            mine = np.array([name == level for name in names])
            np.testing.assert_allclose(together[g, 2], expected_auroc(y[mine], z[mine]), atol=0.01)
            np.testing.assert_allclose(together[g, 6], ((z[mine] >= 0) == y[mine]).mean(), atol=1e-12)
            positive = mine & (y == 1)
            np.testing.assert_allclose(together[g, 7], (z[positive] >= 0).mean(), atol=1e-12)
            assert np.isnan(together[g, 3])


def test_groups_are_ordered_and_the_unknown_come_last(demographic: Federation):
    grouping = subgroups.grouping(demographic, None, (45.0, 65.0, 80.0))
    assert grouping is not None
    assert dict(grouping.levels) == {
        "sex": ("Female", "Male", "unknown"),
        "age": ("under 45", "45 to under 65", "65 to under 80", "80 and over", "unknown"),
    }


def test_unknown_has_several_spellings_and_groups_have_their_whole_name(demographic: Federation):
    said = ["F", "", "Unknown", "f", "UNKNOWN", "F ", "unknown"]
    np.savez(demographic.folder / "patients.npz", sex=np.resize(np.array(said), len(demographic.y)))
    federation = Federation.open(demographic.folder)
    outcome = run_strategy(federation, FedAvg(), rounds=1)
    assert outcome.grouping is not None
    assert dict(outcome.grouping.levels) == {"sex": ("F", "F ", "f", "unknown")}
    figures, _ = outcome.groups["global"]["sex"]
    for h in range(len(SIZES)):
        sexes = federation.patients["sex"][federation.rows(h, "test")].tolist()
        counts = [sexes.count(name) for name in ("F", "F ", "f")]
        assert figures[h, :, 0].tolist() == [*counts, len(sexes) - sum(counts)]


def test_an_attribute_of_nobody_is_none_and_one_of_everybody_is_refused(demographic: Federation, federate):
    n = len(demographic.y)
    np.savez(demographic.folder / "patients.npz", sex=np.full(n, ""))
    empty = Federation.open(demographic.folder)
    assert subgroups.grouping(empty, None, ()) is None
    other = federate([60, 60])
    np.savez(other.folder / "patients.npz", name=np.arange(len(other.y)).astype(str))
    with pytest.raises(
        ConfigError, match=r"evaluation.groups: 'name' divides patients into 1[0-9]+ groups, and at most"
    ):
        subgroups.grouping(Federation.open(other.folder), None, ())


def test_gaps_by_hand():
    figures = np.full((3, 2, len(FIGURES)), np.nan)
    figures[:, :, 0] = [[10, 10], [5, 5], [4, 0]]
    figures[:, :, 2] = [[0.9, 0.7], [0.8, np.nan], [0.6, np.nan]]
    together = np.full((2, len(FIGURES)), np.nan)
    together[:, 2], together[:, 6], together[:, 7] = [0.85, 0.75], [0.9, 0.95], [0.5, np.nan]
    gaps = subgroups.gaps("sex", ("Female", "Male"), figures, together, CLASSIFICATION)
    assert gaps == pytest.approx(
        {
            "sex_gap": 0.1,
            "sex_accuracy_gap": 0.05,
            "sex_recall_gap": np.nan,
            "sex_gap_within": 0.2,
            "sex_undefined": 1.0,
        },
        nan_ok=True,
    )


def test_who_is_not_known_is_in_no_gap_and_reported_beside():
    """Females .9, males .8 and the unknown .5 over all hospitals: a gap of .1, not of .4."""
    figures = np.full((2, 3, len(FIGURES)), np.nan)
    figures[:, :, 0] = [[10, 10, 3], [5, 5, 4]]
    figures[:, :, 2] = [[0.9, 0.7, 0.1], [0.8, np.nan, np.nan]]
    together = np.full((3, len(FIGURES)), np.nan)
    together[:, 0] = [15, 15, 7]
    together[:, 2], together[:, 6], together[:, 7] = [0.9, 0.8, 0.5], [0.7, 0.6, 0.1], [0.4, 0.1, 0.9]
    gaps = subgroups.gaps("sex", ("Female", "Male", "unknown"), figures, together, CLASSIFICATION)
    assert gaps == pytest.approx(
        {
            "sex_gap": 0.1,
            "sex_accuracy_gap": 0.1,
            "sex_recall_gap": 0.3,
            "sex_gap_within": 0.2,
            "sex_undefined": 1.0,
            "sex_unknown_rows": 7.0,
            "sex_unknown": 0.5,
        }
    )
    one = subgroups.gaps("sex", ("Male", "unknown"), figures[:, 1:], together[1:], CLASSIFICATION)
    assert np.isnan([one["sex_gap"], one["sex_gap_within"]]).all(), "one known group has no gap"


def test_unknown_in_any_case_is_not_known(federate: MakeFederation):
    federation = federate([4], [5])
    sexes = np.array(["F", "M", "Unknown", "", "unknown", "F", "M", "UNKNOWN", "F"])
    np.savez(federation.folder / "patients.npz", sex=sexes)
    grouping = subgroups.grouping(Federation.open(federation.folder), None, ())
    assert grouping is not None
    assert dict(grouping.levels) == {"sex": ("F", "M", "unknown")}


def test_the_terminal_and_the_page_say_who_is_not_known():
    columns = {"sex_gap": 0.1, "sex_gap_within": 0.1, "sex_undefined": 0, "sex_unknown_rows": 7.0}
    per_seed = pd.DataFrame({"strategy": ["a", "b"], "model": "global", "auroc": 0.8, "seed": 4})
    per_seed = per_seed.assign(**columns, sex_unknown=[0.4, 0.5])
    table = patient_groups.printed(per_seed, 160)
    assert table is not None
    said = "not known, and left out of differences: sex of 7 test rows (AUROC 0.500), with b"
    assert str(table.caption).endswith(said)
    assert said[1:] in patient_groups.plots(per_seed, stacked({4: {"F": 10}})).caption
    nobody = patient_groups.printed(per_seed.assign(sex_unknown_rows=0.0), 160)
    assert nobody is not None
    assert "not known" not in str(nobody.caption)


def test_errors_of_all_hospitals_together_by_hand():
    """Two groups at three hospitals, of actors that serve hospitals 2 and 0, and 1: all but R2 follows from theirs."""
    figures = np.full((3, 2, len(REGRESSION.figures)), np.nan)
    figures[:, :, 0] = [[3, 0], [1, 2], [4, 0]]
    figures[:, 0, 1:] = [[0.5, 1.0, 0.9, -0.5], [3.0, 3.0, np.nan, 3.0], [1.0, 2.0, 0.1, 0.0]]
    figures[1, 1, 1:] = [1.0, 1.5, 0.4, -1.0]
    parts = [subgroups.GroupFigures(figures[[2, 0]], []), subgroups.GroupFigures(figures[[1]], [])]
    ordered, together = subgroups.merged(parts, np.array([1, 2, 0]), REGRESSION)
    np.testing.assert_array_equal(ordered, figures)
    first = dict(zip(REGRESSION.figures, together[0], strict=True))
    assert first == pytest.approx(
        {
            "n": 8,
            "mae": (3 * 0.5 + 1 * 3.0 + 4 * 1.0) / 8,
            "rmse": np.sqrt((3 * 1.0 + 1 * 9.0 + 4 * 4.0) / 8),
            "r2": np.nan,
            "bias": (3 * -0.5 + 1 * 3.0) / 8,
        },
        nan_ok=True,
    )
    assert together[1] == pytest.approx([2, 1.0, 1.5, np.nan, -1.0], nan_ok=True)


def test_who_is_on_the_edge_of_a_band_is_in_the_older_one(federate: MakeFederation):
    federation = federate([4], [7])
    ages = np.array([50.0] * 4 + [np.nextafter(45, 0), 45, np.nextafter(65, 0), 65, 80, 0, np.inf])
    np.savez(federation.folder / "patients.npz", age=ages)
    outcome = run_strategy(Federation.open(federation.folder), FedAvg(), rounds=1, age_bands=(45.0, 65.0, 80.0))
    assert outcome.grouping is not None
    ((_, levels),) = outcome.grouping.levels
    counts = outcome.groups["global"]["age"][1][:, 0]
    assert dict(zip(levels, counts, strict=True)) == {
        "under 45": 2,
        "45 to under 65": 2,
        "65 to under 80": 1,
        "80 and over": 1,
        "unknown": 1,
    }


def test_placement_changes_nothing(demographic: Federation):
    alone = run_strategy(demographic, FedAvg(), actors=1)
    apart = run_strategy(demographic, FedAvg(), actors=5)
    for attribute, (figures, together) in alone.groups["global"].items():
        other = apart.groups["global"][attribute]
        np.testing.assert_array_equal(figures, other[0])
        np.testing.assert_array_equal(together, other[1])


def test_the_gaps_are_metrics_of_the_last_round_only(demographic: Federation):
    outcome = run_strategy(demographic, FedAvg(), rounds=3)
    assert [("sex_gap" in row.metrics["global"]) for row in outcome.rounds] == [False, False, True]
    assert outcome.metrics["global"]["age_undefined"] >= 1  # the hospital with one test row


def test_the_table_has_a_row_for_everybody_and_one_for_each_hospital(demographic: Federation):
    outcome = run_strategy(demographic, FedAvg())
    assert outcome.grouping is not None
    table = subgroups.table(demographic, outcome.grouping, outcome.groups)
    sex = table[table["attribute"] == "sex"]
    by_hand = sum(sex.loc[sex["hospital"] != "", "n"])
    assert by_hand == sum(TESTED) == sum(sex.loc[sex["hospital"] == "", "n"])
    assert (table["n"] > 0).all()


def test_an_attribute_that_the_data_does_not_know_is_refused(demographic: Federation, federate: MakeFederation):
    message = r"evaluation\.groups: 'income' is not an attribute of these patients; known: sex, age"
    with pytest.raises(ConfigError, match=message):
        check_job(job_of(demographic, FedAvg(), groups=("income",)), demographic)
    nobody = federate([5, 5])
    with pytest.raises(ConfigError, match=r"evaluation\.groups: 'sex' is not an attribute .*; remove the key"):
        check_job(job_of(nobody, FedAvg(), groups=("sex",)), nobody)
    assert run_strategy(nobody, FedAvg()).grouping is None


def test_the_comparison_s_table_and_picture(demographic: Federation, tmp_path: Path):
    frames, seeds = [], []
    for seed in (1, 2):
        outcome = run_strategy(demographic, FedAvg(), seed=seed)
        assert outcome.grouping is not None
        subgroups.table(demographic, outcome.grouping, outcome.groups).to_csv(tmp_path / "patients.csv", index=False)
        table = tables.read_csv(tmp_path / "patients.csv")
        frames.append(table.assign(strategy="fedavg", seed=seed))
        seeds.append({"strategy": "fedavg", "model": "global", "seed": seed, **outcome.metrics["global"]})
    per_seed = pd.DataFrame(seeds)
    gaps = patient_groups.gaps(per_seed)
    assert gaps["attribute"].tolist() == ["sex", "age"]
    np.testing.assert_allclose(gaps["gap"][0], per_seed["sex_gap"].mean())
    assert patient_groups.printed(per_seed, 160) is not None
    drawn = patient_groups.plots(per_seed, pd.concat(frames), titles={"fedavg": "FedAvg"})
    assert "FedAvg by sex" in drawn.charts[0].description
    assert [chart.title for chart in drawn.charts] == ["Sex", "Age"]
    assert "Lines are one standard deviation over seeds" in drawn.caption


def stacked(counts: dict[int, dict[str, int]]) -> pd.DataFrame:
    """Stacked ``patients.csv`` of one strategy, a hospital called NA: by seed, the rows of each group."""
    return pd.DataFrame(
        {
            "strategy": "a", "model": "global", "seed": seed, "attribute": "sex", "group": group,
            "hospital": hospital, "n": n, "auroc": 0.5 if hospital else 0.8,
        }
        for seed, groups in counts.items()
        for group, n in groups.items()
        for hospital in ("", "NA")
    )  # fmt: skip


def test_the_picture_is_of_all_hospitals_and_says_whose_rows_it_counts():
    per_seed = pd.DataFrame({"strategy": "a", "model": "global", "auroc": 0.8, "seed": [4, 5]})
    per_seed = per_seed.assign(sex_gap=0.1, sex_gap_within=0.1, sex_undefined=0)
    differing = stacked({4: {"F": 10, r"$\bar{$": 20}, 5: {"F": 11, r"$\bar{$": 19, "M": 3}})
    drawn = patient_groups.plots(per_seed, differing, "validation")
    assert "its validation rows of seed 4 are in brackets." in drawn.caption
    (chart,) = drawn.charts
    assert chart.y.texts == ("F (10)", r"$\bar{$ (20)", "M (0)")
    marks = re.findall(r'<circle cx="([\d.]+)"|<path d="([^"]*)"[^>]* class="c\d+ filled', str(chart.markup()))
    places = [float(cx) if cx else np.mean([float(x) for x in re.findall(r"[ML]([\d.]+) ", d)]) for cx, d in marks]
    assert places == pytest.approx([float(chart.across([0.8])[0])] * 3, abs=0.1)  # the middle of whatever mark it has
    assert "F: a 0.800" in chart.description
    same = patient_groups.plots(per_seed, stacked({4: {"F": 10}, 5: {"F": 10}}))
    assert "its test rows are in brackets. " in same.caption
