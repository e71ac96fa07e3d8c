"""What a comparison tells of clusters of patients: by hand, and in the files of one that was run."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy.stats import t

from raysim.cli import commands
from raysim.config import reading
from raysim.report import svg
from raysim.report.supplement import patient_clusters
from raysim.storage.detail_tables import composition, mean_overlap, overlap
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.fedgmc import FedGmc
from tests.conftest import MakeFederation, run_strategy


def test_overlap_by_hand():
    """Tops of 2: {0, 1}, {1, 2} and {0, 1}: shares 1/2, 1 and 1/2."""
    sizes = np.array([[3.0, 2.0, 1.0, 0.0], [0.0, 9.0, 8.0, 0.0], [5.0, 6.0, 0.0, 0.0]])
    assert mean_overlap(sizes, 2) == pytest.approx(2 / 3)
    assert mean_overlap(sizes[[0, 2]], 2) == 1
    assert mean_overlap(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), 1) == 0, "of equals the earlier"


def test_a_run_tells_of_its_clusters(federate: MakeFederation):
    federation = federate([30, 20, 0], features=7)
    outcome = run_strategy(federation, FedGmc(clusters=2), rounds=2)
    table = composition(federation, outcome)
    assert table is not None
    assert table.groupby("hospital", sort=False)["n_train"].sum().to_dict() == {"h0": 30, "h1": 20, "h2": 0}
    shared_tops = overlap(outcome)
    assert shared_tops is not None
    assert shared_tops["top"].tolist() == [5], "of seven features no ten"
    weights = np.abs(outcome.models[1:, :7])
    tops = [set(np.argsort(-row)[:5].tolist()) for row in weights]
    assert shared_tops["overlap"].tolist() == [len(tops[0] & tops[1]) / 5]
    assert composition(federation, run_strategy(federation, FedAvg(), rounds=1)) is None
    assert overlap(run_strategy(federation, FedAvg(), rounds=1)) is None
    assert overlap(run_strategy(federation, FedGmc(clusters=1), rounds=1)) is None


def hospitals(rows: list[tuple[str, str, int, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["strategy", "hospital", "seed", "auroc"])
    return frame.assign(model="global")


def test_improved_are_hospitals_strictly_above_the_reference_where_both_are_defined():
    """Means over the seeds in which both are: a .8 > .7, b equal, c .5 < .6, d never defined under both."""
    nan = np.nan
    frame = hospitals(
        [
            *[("local", h, s, v) for h, s, v in (("a", 0, 0.6), ("a", 1, 0.8), ("b", 0, 0.5), ("b", 1, nan))],
            *[("local", h, s, v) for h, s, v in (("c", 0, 0.6), ("c", 1, 0.6), ("d", 0, nan), ("d", 1, 0.9))],
            *[("ours", h, s, v) for h, s, v in (("a", 0, 0.7), ("a", 1, 0.9), ("b", 0, 0.5), ("b", 1, 0.9))],
            *[("ours", h, s, v) for h, s, v in (("c", 0, 0.7), ("c", 1, 0.3), ("d", 0, 0.9), ("d", 1, nan))],
        ]
    )
    ours, local = ("ours", "global"), ("local", "global")
    assert patient_clusters.improved(frame, ours, local, "auroc") == (1, 3)
    assert patient_clusters.improved(frame, local, local, "auroc") == (0, 4)
    errors = frame.rename(columns={"auroc": "mae"})
    assert patient_clusters.improved(errors, ours, local, "mae") == (1, 3), "of an error less is better"


def test_a_comparison_leaves_the_protocol(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    settings = [
        "name=types",
        "seeds=[0, 1]",
        "reference=local",
        "data={source: patient_types, hospitals: 4, rows: 400, features: 6, split: {folds: 2}}",
        "training={rounds: 3, batch_size: 16}",
        "selection=all",
        "strategies=[local, kfed, {name: fedgmc, clusters: 3}]",
        "tracking.uri=none",
    ]
    console = Console(width=160, record=True, file=io.StringIO())
    out = tmp_path / "found"
    commands.compare_all(reading.resolve(None, settings), console, out, in_process=True, verbose=False, details=True)
    protocol = pd.read_csv(out / "protocol.csv").set_index("strategy")
    per_run = pd.read_csv(out / "runs" / "fedgmc" / "seed-1" / "patient_clusters.csv")
    assert per_run.groupby("cluster").size().tolist() == [4, 4, 4]
    assert set(pd.read_csv(out / "patient_clusters.csv")["strategy"]) == {"kfed", "fedgmc"}
    overlaps = pd.read_csv(out / "feature_overlap.csv")
    assert protocol.loc["fedgmc", "overlap_5"] == pytest.approx(
        overlaps[overlaps["strategy"] == "fedgmc"]["overlap"].mean()
    )
    assert np.isnan(protocol.loc["local", "overlap_5"])
    table = pd.read_csv(out / "comparison.csv").set_index("strategy")
    for figure in ("recall", "auroc"):
        margin = table[f"{figure}_std"] / np.sqrt(2) * t.ppf(0.975, 1)
        assert protocol[f"{figure}_margin"].to_numpy() == pytest.approx(margin.to_numpy())
        assert protocol[f"{figure}_margin"].to_numpy() == pytest.approx(table[f"{figure}_margin"].to_numpy())
        means = pd.read_csv(out / "hospitals.csv").groupby(["strategy", "hospital"])[figure].mean().unstack("strategy")
        assert protocol.loc["fedgmc", f"{figure}_improved"] == (means["fedgmc"] > means["local"]).sum()
        assert protocol.loc["local", f"{figure}_improved"] == 0
    text = console.export_text()
    assert "hospitals improved over local" in text
    assert "Clusters of patients" in (out / "plots" / "patient_clusters.svg").read_text()
    assert "Clusters of patients" in (out / "report.html").read_text()


def test_areas_are_shares_of_clusters_the_largest_hospital_first_and_who_has_no_rows_is_left_out():
    frame = pd.DataFrame(
        {
            "strategy": "fedgmc",
            "seed": 3,
            "hospital": ["a", "a", "b", "b", "c", "c"],
            "cluster": [0, 1] * 3,
            "n_train": [1, 3, 6, 2, 0, 0],
        }
    )
    later = frame.assign(seed=4, n_train=9)
    figure = patient_clusters.plot(pd.concat([frame, later]), {"fedgmc": "FedGMC"})
    (chart,) = figure.charts
    assert chart.title == "FedGMC"
    assert chart.description.endswith("Over all hospitals: 0 58%, 1 42%.")
    lower, upper = areas(chart)
    # b has six of eight rows in the first cluster, a one of four.
    assert lower == [(0.5, 0.75), (1.5, 0.75), (1.5, 0.25), (2.5, 0.25), (2.5, 0.0), (1.5, 0.0), (1.5, 0.0), (0.5, 0.0)]
    assert upper[:4] == [(0.5, 1.0), (1.5, 1.0), (1.5, 1.0), (2.5, 1.0)]
    assert upper[4:] == lower[3::-1]


def test_an_area_too_thin_for_its_number_has_none():
    rows = pd.DataFrame({"strategy": "kfed", "seed": 0, "hospital": ["a", "a"], "cluster": [0, 1], "n_train": [1, 99]})
    (chart,) = patient_clusters.plot(rows).charts
    assert re.findall(r'class="note"[^>]*>(\d)<', str(chart.markup())) == ["1"]
    assert chart.title == "kfed"


def areas(chart: svg.Chart) -> list[list[tuple[float, float]]]:
    """The corners of a chart's areas, as values of its axes."""
    (left, right), (bottom, top) = chart.across([chart.x.low, chart.x.high]), chart.up([0.0, 1.0])
    drawn = re.findall(r'<path d="M([^"]*)Z" class="cell edged"', str(chart.markup()))
    return [
        [
            (
                round(chart.x.low + (float(x) - left) / (right - left) * (chart.x.high - chart.x.low), 1),
                round((float(y) - bottom) / (top - bottom), 2),
            )
            for x, y in (corner.split() for corner in area.split("L"))
        ]
        for area in drawn
    ]
