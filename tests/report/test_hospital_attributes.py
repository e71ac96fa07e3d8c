"""How hospitals of one kind are served, against the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import raysim
from raysim.report.figures.models import styles
from raysim.report.panel import Panel
from raysim.report.supplement.hospital_attributes import MOST, plots, table
from raysim.report.tables import KEYS
from tests.conftest import MakeFederation

REGIONS = ["east", "west", "east", "west", "east", "north"]


def hospitals() -> pd.DataFrame:
    """Two models at six hospitals with two seeds; one figure is undefined."""
    rng = np.random.default_rng(1)
    rows = [
        (strategy, "global", seed, f"h{h}", 10 + 7 * h, rng.uniform(0.6, 0.9))
        for strategy in ("fedavg", "local")
        for seed in (1, 2)
        for h in range(6)
    ]
    made = pd.DataFrame(rows, columns=[*KEYS, "seed", "hospital", "n_test", "auroc"])
    made.loc[(made["strategy"] == "fedavg") & (made["hospital"] == "h4"), "auroc"] = np.nan
    return made


def test_means_are_over_the_hospitals_of_a_kind(federate: MakeFederation):
    federation = federate([8] * 6)
    federation.attributes["region"] = REGIONS
    frame = hospitals()
    means = table(frame, federation, {})
    assert means[["attribute", "value", "strategy"]].to_numpy().tolist() == [
        ["region", value, strategy] for value in ("east", "north", "west") for strategy in ("fedavg", "local")
    ]
    for row in means.to_dict("records"):
        inside = [f"h{h}" for h, region in enumerate(REGIONS) if region == row["value"]]
        mine = frame[(frame["strategy"] == row["strategy"]) & frame["hospital"].isin(inside)]
        defined = mine.dropna()
        of_seeds = defined.groupby("seed")[["auroc", "n_test"]].apply(
            lambda each: np.average(each["auroc"], weights=each["n_test"])
        )
        assert row["auroc"] == pytest.approx(of_seeds.mean(), abs=1e-12)
        assert row["hospitals"] == defined["hospital"].nunique()
        # The interval is that of a federation of these hospitals alone.
        level = Panel.of(mine).level((row["strategy"], "global"))
        assert_allclose([row["low"], row["high"]], level.population(), equal_nan=True)
        assert np.isnan(row["low"]) == (row["hospitals"] == 1)


def test_attributes_without_groups_are_left_out(federate: MakeFederation):
    federation = federate([8] * 6)
    federation.attributes["country"] = ["here"] * 6
    assert table(hospitals(), federation, {}).empty
    many = federate([8] * (MOST + 1))
    many.attributes["name"] = [f"h{h}" for h in range(MOST + 1)]
    assert table(hospitals(), many, {}).empty


def test_the_figure_tells_each_mean_in_words(federate: MakeFederation):
    federation = federate([8] * 6)
    federation.attributes["region"] = REGIONS
    means = table(hospitals(), federation, {})
    keys = [("fedavg", "global"), ("local", "global")]
    names = {keys[0]: "FedAvg", keys[1]: "Training alone (reference)"}
    looks = styles(means.drop_duplicates(KEYS))
    (figure,) = plots(means, keys, names, looks)
    (chart,) = figure.charts
    row = means[(means["value"] == "north") & (means["strategy"] == "local")].iloc[0]
    assert f"north, Training alone: {row['auroc']:.3f} over 1 hospital" in chart.description
    assert chart.title == "Region"
    errors = hospitals().rename(columns={"auroc": "mae"}).assign(mae=lambda each: each["mae"] / 1000)
    (figure,) = plots(table(errors, federation, {}), keys, names, looks)
    assert f"north, Training alone: {row['auroc'] / 1000:.6f} over 1 hospital" in figure.charts[0].description
    assert plots(means, [("chip", "own")], names, looks) == []


def test_a_run_says_it_too(tmp_path: Path) -> None:
    """On its page and in its folder, in the words of a comparison."""
    rows = np.random.default_rng(3).normal(size=(800, 2))
    patients = pd.DataFrame(rows, columns=["x", "z"]).assign(
        hospital=[f"h{k % 4}" for k in range(800)],
        region=[("coast", "ICU hills")[k % 2] for k in range(800)],
        died=(rows[:, 0] + rows[:, 1] > 0).astype(int),
    )
    config = {
        "data": {"source": "table", "silo": "hospital", "label": "died", "attributes": ["region"]},
        "training": {"rounds": 1},
        "tracking": {"uri": "none"},
    }
    result = raysim.run(config, data=patients, out=tmp_path / "out", in_process=True)
    means = pd.read_csv(result.folder / "attributes.csv")
    assert means[["model", "value", "hospitals"]].to_numpy().tolist() == [
        ["global", "ICU hills", 2],
        ["global", "coast", 2],
    ]
    page = (result.folder / "report.html").read_text()
    assert '<h2 id="equity">Equity</h2>' in page
    assert f"ICU hills, FedAvg: {means['auroc'][0]:.3f}" in page
