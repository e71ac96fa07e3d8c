"""Calibration and decisions on a page: the tables' numbers, what is undefined, one hospital, and curves by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from raysim.config.sections.evaluation import ClinicalSection
from raysim.core.csv_files import write_csv
from raysim.engine.job import Result
from raysim.report.figures.curve import curve_figure
from raysim.report.hospital import clinical, clinical_rows, your_hospital
from raysim.report.naming import with_interval
from raysim.storage.clinical_tables import tables
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from tests.conftest import MakeFederation, run_strategy


@pytest.fixture
def run(federate: MakeFederation, tmp_path: Path) -> Path:
    """The clinical tables of a run that serves two models to three hospitals, one of them tiny."""
    federation = federate([60, 40, 5], [80, 50, 4])
    written = tables(
        federation, run_strategy(federation, Ditto(), rounds=3), ClinicalSection(thresholds=(0.3,), act_at=0.3)
    )
    for name, table in written.items():
        table.to_csv(tmp_path / name, index=False)
    return tmp_path


def test_the_page_says_what_the_tables_say(run: Path):
    served = clinical_rows.of_run("ditto", run)
    assert [each.name for each in served] == ["global model", "hospitals' own models"]
    decisions, calibration, table = clinical.plots(served)
    text = str(table.markup)
    written = pd.read_csv(run / "clinical.csv")
    together = written[written["hospital"].isna() & (written["model"] == "global")].set_index("figure")
    for name, digits in (("calibration_slope", 2), ("observed_over_expected", 2), ("ppv", 3), ("net_benefit", 4)):
        row = together.loc[name]
        assert f"<td>{row['value']:.{digits}f}<" in text, name
        assert f"{row['low']:.{digits}f} to {row['high']:.{digits}f}" in text, name
    assert "134 test rows" in text
    error = together.loc["calibration_error"]
    assert f"{error['low']:.3f} to {error['high']:.3f}" in text
    assert f"by chance to {together.loc['calibration_error_floor', 'high']:.3f}" in text
    assert ">PPV</dfn> from 30%" in text
    bins = pd.read_csv(run / "calibration.csv")
    dots = bins[bins["hospital"].isna() & (bins["model"] == "global")]
    first = str(calibration.markup).split("<svg")[1]
    assert len(re.findall('<(?:circle|path)[^>]*class="[^"]*filled', first)) == len(dots)
    assert str(decisions.markup).count('class="c') >= 4, "two lines and two signs"


def test_few_rows_have_no_calibration_error(run: Path, federate: MakeFederation):
    *_, table = clinical.plots(clinical_rows.of_run("ditto", run), "validation")
    assert "134 validation rows" in str(table.markup)
    federation = federate([40], [50])
    for name, table in tables(federation, run_strategy(federation, FedAvg(), rounds=1), ClinicalSection()).items():
        table.to_csv(run / name, index=False)
    *_, table = clinical.plots(clinical_rows.of_run("fedavg", run))
    assert "fewer than 100 rows" in str(table.markup)
    assert "–" in str(table.markup)


def test_a_card_sets_the_calibration_error_beside_what_chance_makes_of_it(tmp_path: Path, federate: MakeFederation):
    federation = federate([150, 110, 5], [130, 120, 4])
    outcome = run_strategy(federation, FedAvg(), rounds=1)
    results = []
    for seed, more in ((0, 0.0), (1, 0.1)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        written = tables(federation, outcome, ClinicalSection(thresholds=(0.3,), act_at=0.3))["clinical.csv"]
        rows = written["figure"].isin(["calibration_error", "calibration_error_floor"])
        columns = ["value", "low", "high"]
        written.loc[rows, columns] = written.loc[rows, columns] + more
        written.to_csv(folder / "clinical.csv", index=False)
        results.append(Result("fedavg", False, seed, federation, outcome, folder))
    figures = pd.read_csv(tmp_path / "0" / "clinical.csv")
    figures = figures[figures["hospital"] == "h0"].set_index("figure")
    hospitals = pd.DataFrame({"hospital": federation.hospitals})
    made = your_hospital.cards(results, {("fedavg", "global"): "FedAvg"}, "", None, "test", hospitals)
    ece, floor = figures.loc["calibration_error"], float(figures.loc["calibration_error_floor", "high"]) + 0.05
    value = float(ece["value"]) + 0.05
    of_seeds = float(stdtrit(1, 0.975)) * 0.05  # two seeds, .1 apart
    below, above = (float(np.hypot(ece["value"] - ece[name], of_seeds)) for name in ("low", "high"))
    facts = dict(made["hospitals"][0]["facts"])
    shown = with_interval(value, max(0.0, value - below), min(1.0, value + above), 2)
    assert facts["Calibration error (ECE)"] == f"{shown} (up to {floor:.2f} by chance if calibrated)"
    assert dict(made["hospitals"][2]["facts"])["Calibration error (ECE)"] == "undefined: fewer than 100 rows"


@pytest.mark.parametrize(
    "name", ["Saint Mary's", "=1+1", "north, south", 'the "old" one', "a\rb", "x\u2028y", "NA", "007"]
)
def test_rows_of_a_hospital_are_read_whatever_it_is_called(name: str, tmp_path: Path):
    table = pd.DataFrame(
        {"hospital": ["", name, "other", name], "model": ["m", "m", "m", "n"], "figure": "ppv", "at": [0.5, 0.25, 1, 2]}
    )
    write_csv(table, tmp_path / "table.csv")
    rows = clinical_rows.read_rows([tmp_path / "table.csv"], hospital={name}, model={"m", "k"})
    assert rows.to_dict("records") == [{"hospital": name, "model": "m", "figure": "ppv", "at": 0.25}]
    assert len(clinical_rows.read_rows([tmp_path / "table.csv"], hospital={""})) == 1
    assert len(clinical_rows.read_rows([tmp_path / "table.csv"], figure={"ppv"})) == 4
    assert clinical_rows.read_rows([tmp_path / "table.csv"] * 2, model={"n"})["at"].tolist() == [2, 2]


def test_several_seeds_are_means_with_their_seeds_in_the_interval(run: Path, tmp_path: Path):
    second = tmp_path / "second"
    second.mkdir()
    for name in ("clinical.csv", "calibration.csv", "net_benefit.csv"):
        table = pd.read_csv(run / name, keep_default_na=False)
        if name == "clinical.csv":
            at = (table["figure"] == "ppv") & (table["hospital"] == "")
            for column in ("value", "low", "high"):
                table.loc[at, column] = [f"{float(value) + 0.1}" for value in table.loc[at, column]]
        table.to_csv(second / name, index=False)
    (one,), (two,) = (
        clinical_rows.of_runs([("ditto", "Ditto", each) for each in folders]) for folders in ([run], [run, second])
    )
    assert (one.seeds, two.seeds) == (1, 2)
    for figure in ("calibration_slope", "ppv"):
        ((a, *ends),) = one.figures.loc[one.figures["figure"] == figure, ["value", "low", "high"]].to_numpy()
        ((b, low, high),) = two.figures.loc[two.figures["figure"] == figure, ["value", "low", "high"]].to_numpy()
        moved = 0.05 if figure == "ppv" else 0.0
        assert b == pytest.approx(a + moved)
        seeds = 12.706204736**2 * moved**2  # two values that differ by twice as much, over their number
        assert low == pytest.approx(max(b - np.hypot(a - ends[0], np.sqrt(seeds)), 0.0 if moved else -np.inf))
        assert high == pytest.approx(min(b + np.hypot(ends[1] - a, np.sqrt(seeds)), 1.0 if moved else np.inf))
    _, calibration, drawing = clinical.plots([two])
    assert "Means over 2 training seeds, each on 134 test rows with" in str(drawing.markup)
    assert "its 95 % interval (patients and seeds)" in str(drawing.markup)
    assert "by chance to" in str(drawing.markup)
    assert len(two.calibration) == len(one.calibration)
    assert "means over 2 seeds" in calibration.caption


def test_of_runs_the_headline_models_and_none_where_nothing_was_left(run: Path, tmp_path: Path):
    served = clinical_rows.of_runs([("a", "Method A", run), ("gone", "Gone", tmp_path / "gone")])
    assert [each.name for each in served] == ["Method A"]
    assert set(served[0].figures["model"]) == {"personal"}
    assert clinical.plots(clinical_rows.of_runs([])) == []
    assert clinical_rows.of_run("a", tmp_path / "gone") == []


def test_one_class_has_a_page_that_says_so(federate: MakeFederation, tmp_path: Path):
    federation = federate([30, 20], [10, 12])
    outcome = run_strategy(federation, FedAvg(), rounds=1)
    counts = outcome.scores["global"]
    none = np.zeros_like(counts.positives)
    called = counts.at_least.copy()
    called[..., 0] = 0
    outcome.scores["global"] = counts._replace(positives=none, at_least=called)
    for name, table in tables(federation, outcome, ClinicalSection()).items():
        table.to_csv(tmp_path / name, index=False)
    *_, shown = clinical.plots(clinical_rows.of_run("a", tmp_path))
    assert "one class only" in str(shown.markup)
    assert "no event" in str(shown.markup)


def curve(values: list[float | None], means: list[float], seeds: int = 1) -> pd.DataFrame:
    return pd.DataFrame(
        {"line": "b" if value is None else "a", "k": value, "seed": s, "mean": mean + 0.1 * s, "variance": 0.01}
        for value, mean in zip(values, means, strict=True)
        for s in range(seeds)
    )


def test_a_curve_has_a_logarithmic_axis_where_its_values_are_spaced_so():
    for values, wide in (([0.001, 0.01, 0.1, None], True), ([2.0, 3.0, 4.0, None], False)):
        figure = curve_figure(curve(values, [0.5, 0.4, 0.3, 0.45], seeds=2), "k", "log_loss")
        text = str(figure.markup)
        assert ("0.001" in text) == wide
        assert text.count("line level") == 2
        assert text.count('band"') == 2
        assert "log loss, nats" in text
        assert "a: 0.55 at" in text
        assert figure.caption.endswith("Horizontal: b, which has no k to vary.")
    one = curve_figure(curve([1.0, 2.0], [0.5, 0.4]), "k", "auroc", "log")
    assert one.caption == "One seed."
    assert "2.5" not in re.findall(r'class="tick"[^>]*>([^<]+)<', str(one.markup)), "whole values have whole ticks"


def test_means_are_where_they_belong():
    figure = curve_figure(curve([1.0, 2.0, 3.0], [0.2, 0.4, 0.6]), "k", "auroc")
    _, _, mean, _ = str(figure.markup).split("<svg")
    (line,) = re.findall(r'd="M([^"Z]+)" class="c\d+ line"', mean)
    heights = [float(point.split()[1]) for point in line.split("L")]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert heights[0] > heights[2]


def test_a_decision_curve_says_where_a_model_is_worth_using():
    at = np.arange(1, 100) / 100
    everyone = 0.09 - (1 - 0.09) * at / (1 - at)
    value = np.where(at < 0.09, np.minimum(everyone, 0.08), np.where(at < 0.405, -0.04, 0.005))
    value[at > 0.715] = 0.0
    curve = pd.DataFrame({"threshold": at, "value": value, "of_all": everyone})
    said = clinical.worth_using(curve)
    assert said == "worth using between 41 % and 71 %; net benefit below 0 between 9 % and 40 %"
    nothing = curve.assign(value=np.minimum(everyone, 0.0))
    assert clinical.worth_using(nothing).startswith(
        "worth using at no threshold; net benefit below 0 between 10 % and 99 %"
    )
    assert clinical.worth_using(curve.assign(value=everyone)[:3]) == "worth using at no threshold"


def test_the_decision_curve_labels_its_lines_and_leaves_few_patients_out_for_others(run: Path):
    served = clinical_rows.of_run("ditto", run)
    decisions = clinical.plots(served)[0]
    assert ">act on nobody</text>" in str(decisions.markup)
    assert ">act on all</text>" in str(decisions.markup)
    for each in served:
        assert f"{each.name}: worth using" in decisions.charts[0].description
    assert "worth using" in decisions.caption
    few = served[0].without_few(5)
    assert few is not None
    assert (few.calibration["events"] >= 5).all()
    assert (few.calibration["n"] - few.calibration["events"] >= 5).all()
    assert few.net_benefit["threshold"].max() <= few.calibration["from"].max() + 1e-9
    assert len(few.calibration) < len(served[0].calibration)
    assert served[0].without_few(10_000) is None
    assert clinical.shared(served)


def test_alerts_are_those_at_or_above_a_threshold(run: Path):
    (first, _) = clinical_rows.of_run("ditto", run)
    written = pd.read_csv(run / "clinical.csv")
    row = written[(written["figure"] == "ppv") & written["hospital"].isna() & (written["model"] == "global")].iloc[0]
    assert first.alerts(0.3) == row["of"] / row["n"]
    assert np.isnan(first.alerts(0.7)), "no such threshold"
    text = str(clinical.plots([first])[-1].markup)
    assert f"<td>{100 * row['of'] / row['n']:.1f}</td>" in text
    false = 100 * round(row["of"] * (1 - row["value"])) / row["n"]
    assert f"with global model: {100 * row['of'] / row['n']:.1f} from 30% ({false:.1f} false)." in text
