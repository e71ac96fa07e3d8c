"""Tables and pages of a comparison, from invented frames of realistic shape."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raysim.report import tables
from raysim.report.pages import page
from raysim.report.pages.contents import difference_rows
from raysim.report.panel import Panel
from raysim.report.terms import TERMS
from tests.report.pages import CARD, PROVENANCE, SERVED, assert_sound, frames


def test_the_table_of_differences_has_no_second_interval_of_the_mean() -> None:
    """That of the forest is for all pairs together; a page does not show another beside it."""
    per_seed, hospitals, _ = frames()
    table = tables.comparison(per_seed)
    rows = difference_rows(table, tables.labels(table), tables.differences(per_seed, "fedavg", hospitals))
    assert rows
    assert {row.cells[0].interval for row in rows} == {""}
    assert all(" to " in row.cells[1].interval for row in rows)


def test_the_page_of_a_comparison() -> None:
    per_seed, hospitals, rounds = frames()
    html = page.comparison_page(
        "Six federated methods", per_seed, PROVENANCE, hospitals=hospitals, rounds=rounds, baseline="fedavg"
    ).html()
    parsed = assert_sound(html)
    assert not parsed.all("img")
    figures = [attrs["id"] for attrs in parsed.all("figure")]
    assert figures == ["forest", "trade-offs", "by-round", "by-size", "by-size-all"]
    assert len(parsed.all("table")) == 3
    for said in (
        "mean AUROC",
        "No difference from",
        "are adjusted for all",
        "Difference from fedavg",
        "2 of 40 hospitals with test rows are undefined for at least one seed",
        "8c1f6a0b2d93",
        "6,000 train, 1,500 test",
        "0, 1, 2",
        "raysim 0.1.0, numpy 2.4",
        "treatment.csv.gz is missing",
        "raysim compare demo.yaml --out runs/demo",
    ):
        assert said in parsed.text, said
    # Names and configuration from outside are text, not markup.
    assert "St. <b>Bold</b> & \"Sons\" <script>alert('x')</script>" in parsed.text
    assert "synthetic <mortality>" in parsed.text
    assert ("code", "name: <demo>\nseed: 0") in parsed.texts
    assert len(parsed.all("details")) == 2
    best = float(tables.comparison(per_seed)["worst_decile"].max())
    assert ("strong", f"{best:.3f}") in parsed.texts
    explained = {attrs["title"] for attrs in parsed.all("dfn")}
    assert {TERMS["AUROC"], TERMS["Gini"], TERMS["worst decile"], TERMS["size bias"]} <= explained
    rows = [text for tag, text in parsed.texts if tag == "th"]
    assert rows.count("chip, hospitals' own models") == 2
    assert rows.count("fedavg") == 1


def test_the_page_of_a_run() -> None:
    per_seed, hospitals, rounds = frames(seeds=1)
    models, rows, curve = (f[f["strategy"] == "chip"] for f in (per_seed, hospitals, rounds))
    parsed = assert_sound(page.run_page("CHiP-FL", models, PROVENANCE, card=CARD, hospitals=rows, rounds=curve).html())
    assert [attrs["id"] for attrs in parsed.all("figure")] == ["by-round", "by-size", "by-size-all"]
    assert "Mean AUROC by round" in parsed.text
    assert "Hospitals' own models: a mean AUROC of" in parsed.text
    assert "hospitals do better" in parsed.text
    assert "The tenth of hospitals with the lowest AUROC under the hospitals' own models" in parsed.text
    assert "2 of 40 hospitals with test rows are undefined:" in parsed.text


def test_pages_of_little_or_nothing() -> None:
    per_seed, hospitals, rounds = frames(seeds=1, hospitals=3)
    undefined = per_seed.assign(**dict.fromkeys(("auroc", *tables.EQUITY), math.nan))
    parsed = assert_sound(page.comparison_page("Nothing defined", undefined, PROVENANCE, baseline="fedavg").html())
    assert "No AUROC is defined at any hospital." in parsed.text
    one = per_seed[per_seed["strategy"] == "fedavg"]
    parsed = assert_sound(
        page.comparison_page("One", one, PROVENANCE, hospitals=hospitals.iloc[:1], baseline="fedavg").html()
    )
    assert "Nothing is recommended: 1 of 1 hospital can be judged" in parsed.text
    assert "Difference from" not in parsed.text
    parsed = assert_sound(page.comparison_page("No baseline", per_seed, PROVENANCE, baseline="absent").html())
    assert "No AUROC is defined at any hospital." in parsed.text
    assert "Difference from" not in parsed.text
    nowhere = hospitals.assign(auroc=math.nan)
    assert_sound(page.run_page("Bare", one, PROVENANCE, card=CARD).html())
    assert_sound(page.run_page("Undefined", undefined.iloc[:1], PROVENANCE, card=CARD, hospitals=nowhere).html())
    assert_sound(page.run_page("Rounds", one, PROVENANCE, card=CARD, rounds=rounds.assign(auroc=math.nan)).html())


def test_a_difference_of_means_is_the_mean_difference_also_if_seeds_test_different_rows() -> None:
    """By hand: weighted by the rows of both seeds, .8 and .9 with 10 and 90 rows, then .6 and .7 with 60 and 20."""
    aurocs = {"fedavg": ([0.8, 0.9], [0.6, 0.7]), "newton": ([0.9, 0.85], [0.7, 0.7])}
    rows = {0: [10, 90], 1: [60, 20]}
    hospitals = pd.DataFrame(
        [
            {"strategy": name, "model": "global", "seed": seed, "hospital": f"h{h}", "n_test": n, "auroc": of[seed][h]}
            for name, of in aurocs.items()
            for seed, counts in rows.items()
            for h, n in enumerate(counts)
        ]
    )
    per_seed = pd.DataFrame(
        [
            {"strategy": name, "model": "global", "seed": s, "auroc": np.average(of[s], weights=rows[s])}
            for name, of in aurocs.items()
            for s in rows
        ]
    ).assign(size_bias=0.0)
    table = tables.comparison(per_seed, hospitals).set_index("strategy")["auroc"]
    assert table["fedavg"] == pytest.approx((10 * 0.8 + 90 * 0.9 + 60 * 0.6 + 20 * 0.7) / 180, abs=1e-12)
    found = tables.differences(per_seed, "fedavg", hospitals)
    difference = found.loc[found["figure"] == "auroc", "mean"].item()
    assert table["newton"] - table["fedavg"] == pytest.approx(difference, abs=1e-12)
    unweighted = tables.comparison(per_seed).set_index("strategy")["auroc"]
    assert abs(unweighted["newton"] - unweighted["fedavg"] - difference) > 0.001
    broken = per_seed.replace({"auroc": {per_seed["auroc"].iloc[0]: np.inf}})
    assert np.isinf(tables.comparison(broken, hospitals)["auroc"].iloc[0])


def test_comparison_table() -> None:
    per_seed, _, _ = frames()
    table = tables.comparison(per_seed)
    assert list(zip(table["strategy"], table["model"], strict=True)) == list(SERVED)
    mine = per_seed[(per_seed["strategy"] == "chip") & (per_seed["model"] == "personal")]
    row = table.iloc[3]
    for figure in ("auroc", *tables.EQUITY):
        assert row[figure] == pytest.approx(mine[figure].mean())
        assert row[f"{figure}_std"] == pytest.approx(mine[figure].std(ddof=1))
    assert (row["seeds"], row["undefined"]) == (3, 2)
    bare = tables.comparison(per_seed[["strategy", "auroc", "size_bias"]].iloc[:1])
    assert bare.loc[0, "model"] == "global"
    assert bare["gini"].isna().all()
    assert tables.labels(table) == ["fedavg", "fedprox", "chip (global)", "chip (personal)", "clustered", "local"]


def test_differences_are_paired_and_do_not_depend_on_other_strategies() -> None:
    per_seed, hospitals, _ = frames()
    table = tables.differences(per_seed, "fedavg", hospitals)
    assert set(table["strategy"]) == {"fedprox", "chip", "clustered", "local"}
    row = table[(table["strategy"] == "local") & (table["figure"] == "auroc")].iloc[0]
    by_seed = per_seed.pivot_table(index="seed", columns=["strategy", "model"], values="auroc")
    gap = by_seed[("local", "personal")] - by_seed[("fedavg", "global")]
    assert (row["std"], row["pairs"]) == pytest.approx((gap.std(ddof=1), 3))
    # One definition, the answer's: over all hospitals and seeds at once, not of the seeds' means.
    assert row["mean"] == Panel.of(hospitals).difference(("local", "personal"), ("fedavg", "global")).difference
    alone = tables.differences(per_seed, "fedavg")
    assert alone[(alone["strategy"] == "local") & (alone["figure"] == "auroc")]["mean"].item() == pytest.approx(
        gap.mean()
    )
    assert row["low"] < row["mean"] < row["high"] < 0
    fewer = tables.differences(
        per_seed[per_seed["strategy"] != "chip"].sample(frac=1, random_state=0),
        "fedavg",
        hospitals.sample(frac=1, random_state=1),
    )
    again = fewer[(fewer["strategy"] == "local") & (fewer["figure"] == "auroc")].iloc[0]
    assert again[["mean", "low", "high"]].tolist() == pytest.approx(row[["mean", "low", "high"]].tolist(), abs=1e-12)
    assert table[table["figure"] == "gini"]["low"].isna().all()
    assert tables.differences(per_seed, "fedavg")["low"].isna().all()
    assert tables.differences(per_seed, "absent", hospitals).empty


def test_names_are_read_as_they_were_written(tmp_path: Path) -> None:
    hospitals = ["007", "NA", "None", "73", ""]
    table = pd.DataFrame({"model": "global", "group": ["1", "null", "N/A", "nan", "x"], "hospital": hospitals})
    figures = pd.DataFrame({"n": [1, 2, 3, 4, 5], "auroc": [0.1, math.nan, 0.3, math.inf, 0.5], "events": math.nan})
    table.join(figures).to_csv(tmp_path / "patients.csv", index=False)
    read_again = tables.read_csv(tmp_path / "patients.csv")
    assert read_again["hospital"].tolist() == hospitals
    assert read_again["group"].tolist() == ["1", "null", "N/A", "nan", "x"]
    pd.testing.assert_frame_equal(read_again[figures.columns], figures)


def test_pages_say_which_part_was_evaluated_and_of_which_seed_the_data_are() -> None:
    per_seed, hospitals, _ = frames(seeds=1, hospitals=8)
    of_seed = dataclasses.replace(PROVENANCE, of_seed=7)
    for each in (
        page.comparison_page("Validated", per_seed, of_seed, hospitals=hospitals, part="validation", baseline="fedavg"),
        page.run_page("Validated", per_seed.iloc[:1], of_seed, card=CARD, hospitals=hospitals, part="validation"),
    ):
        text = assert_sound(each.html()).text
        assert "test rows" not in text.lower()
        assert "is weighted by validation rows" in text
        assert "hospitals with validation rows are undefined: their validation rows hold one class" in text
        assert "8c1f6a0b2d93 (of seed 7)" in text
        assert "1,500 test (of seed 7)" in text
        assert "Of the data of seed 7:" in text
    assert "of seed" not in page.run_page("Tested", per_seed.iloc[:1], PROVENANCE, card=CARD).html()
