"""What a page says to one hospital: its own interval, where it took part, and what left it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import raysim
from raysim.metrics.labels import CLASSIFICATION
from raysim.report.hospital import card_tables, gains
from raysim.report.hospital.your_hospital import own_headline
from raysim.report.pages.again import rewritten
from raysim.statistics.over_seeds import OverSeeds
from tests.report.pages import Page, assert_sound

SETTINGS = {
    "data": {"hospitals": 8, "rows": 1600, "features": 6},
    "training": {"rounds": 4},
    "selection": {"name": "uniform", "fraction": 0.4, "minimum": 2},
    "evaluation": {"clinical": {"thresholds": [0.1, 0.3]}},
    "seeds": [0, 1],
    "tracking": {"uri": "none"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of real runs."""
    out = tmp_path_factory.mktemp("hospital") / "out"
    raysim.compare(SETTINGS, strategies=["fedavg", "local"], out=out, in_process=True)
    return out


def made(low: list[float], high: list[float]) -> tuple[gains.Gains, OverSeeds]:
    ends = np.array(low), np.array(high)
    value = (ends[0] + ends[1]) / 2
    seeds = np.where(np.isfinite(value), 3, 0)
    of = gains.Gains(value, *ends, seeds, 3, "FedAvg", "training alone", CLASSIFICATION)
    return of, OverSeeds(0.8 + value, 0.7 + value, 0.85 + value, seeds)


def test_the_headline_is_the_hospital_s_own() -> None:
    wide = own_headline(*made([-0.6], [0.5]), "FedAvg", 0, CLASSIFICATION)
    assert wide == [
        "No difference is demonstrated at this hospital: the interval of FedAvg against training alone says nothing."
    ]
    of, figures = made([0.01, -0.09, -0.1, np.nan], [0.05, -0.01, 0.1, np.nan])
    up, down, neither, nothing = (own_headline(of, figures, "FedAvg", h, CLASSIFICATION) for h in range(4))
    assert (
        up[0]
        == "This hospital does better with FedAvg: AUROC +0.030 (+0.010 to +0.050) with FedAvg against training alone."
    )
    assert down[0].startswith("This hospital does better alone: AUROC \N{MINUS SIGN}0.050 (")
    for said in (up, down):
        assert said[1] == (
            "Of 3 judged hospitals, 1 has an interval that demonstrates this; at most 0.1 would by chance, on average."
        )
    assert neither[0].startswith("No difference is demonstrated at this hospital: AUROC 0.000 (")
    assert len(neither) == 1
    assert nothing[0].startswith("This hospital cannot be judged")
    alone = own_headline(None, figures, "global model", 0, CLASSIFICATION)
    assert alone == ["Global model: AUROC 0.830 (0.730 to 0.880) at this hospital."]


def test_what_a_page_says_of_a_hospital_is_what_its_files_say(folder: Path) -> None:
    cards = json.loads((folder / "report.json").read_text())["values"]["cards"]
    left = cards["tables"][2]["caption"]
    assert left.startswith("What this hospital sent.")
    hospitals = pd.read_csv(folder / "hospitals.csv")
    egress = {seed: pd.read_csv(folder / f"runs/fedavg/seed-{seed}/egress.csv") for seed in (0, 1)}
    clinical = {seed: pd.read_csv(folder / f"runs/fedavg/seed-{seed}/clinical.csv") for seed in (0, 1)}
    differ = 0
    for card in cards["hospitals"]:
        assert "Take" not in card["lead"][0]
        name, (models, acted, sent) = card["name"], card["tables"]
        rows = {row[0]: row[1:] for row in sent}
        of = hospitals[(hospitals["hospital"] == name) & (hospitals["strategy"] == "fedavg")]
        low, high = of["participated"].min(), of["participated"].max()
        times = f"{low}" if low == high else f"{low} to {high}"
        assert rows["FedAvg"][0] == f"in {times} of 4 rounds" + (", by seed" if low < high else "")
        assert dict(card["facts"])["Took part in FedAvg"] == rows["FedAvg"][0]
        updates = [
            int(table.loc[(table["hospital"] == name) & (table["kind"] == "update"), "bytes"].sum())
            for table in egress.values()
        ]
        ends = f"{min(updates):,}" if min(updates) == max(updates) else f"{min(updates):,} to {max(updates):,}"
        differ += min(updates) < max(updates)
        if max(updates):
            assert f"update {ends} bytes" in rows["FedAvg"][1]
        ratio = np.mean(
            [
                table[(table["hospital"] == name) & (table["figure"] == "observed_over_expected")]["value"].item()
                for table in clinical.values()
            ]
        )
        assert models[0][-1].startswith(f"{ratio:.2f}")
        ppv = [
            table[(table["hospital"] == name) & (table["figure"] == "ppv") & (table["at"] == 0.1)]
            for table in clinical.values()
        ]
        share = sum(each["of"].item() for each in ppv) / sum(each["n"].item() for each in ppv)
        at = {row[0]: row[2] for row in acted}
        assert at["10%, FedAvg"] == f"{100 * share:.0f}"
    assert differ, "some hospital was sampled more often with one seed: a mean would be what left it in neither"


def test_rounds_that_differ_between_seeds_are_both_given() -> None:
    runs = pd.DataFrame({"strategy": "fedavg", "hospital": "north", "participated": [4, 4], "rounds": [22, 30]})
    assert card_tables.participation(runs) == {("fedavg", "north"): "in 4 of 22 to 30 rounds, by seed"}
    assert card_tables.participation(runs[:1]) == {("fedavg", "north"): "in 4 of 22 rounds"}


def test_the_page_of_one_hospital_and_the_link_to_it(folder: Path) -> None:
    page = rewritten(folder, "hospital_3", None)
    parsed = assert_sound(page.read_text(encoding="utf-8"))
    lead = json.loads((folder / "report.json").read_text())["values"]["cards"]["hospitals"][2]["lead"]
    assert lead[0] in parsed.text
    assert not re.search(r"\bTake\b", parsed.text), "the federation's answer is not the hospital's"
    whole = rewritten(folder, None, None).read_text(encoding="utf-8")
    assert whole.count('"page":"hospital_hospital_3.html"') == 1
    assert whole.count('"page":') == 1, "no other hospital has one"
    elsewhere = rewritten(folder, None, folder / "elsewhere.html").read_text(encoding="utf-8")
    assert '"page":' not in elsewhere
    assert "hospital_3" in Page(whole).text or 'value="hospital_3"' in whole
