"""Federations side by side are what each is alone, and an audit's page says what was found."""

from __future__ import annotations

import json
import math
import re

import pandas as pd

from raysim.report.pages.audit import audit_page, by_size, lead
from tests.audit.test_command import audited
from tests.report.pages import PROVENANCE

SMALL = ["data.hospitals=8", "data.rows=300", "training.rounds=3", "training.batch_size=0", "evaluation.every=0"]


def test_the_page_says_and_shows_what_was_found(tmp_path):
    shown = audited(tmp_path, "--shadows", "8", "--set", "selection=all")
    assert shown.code == 0, shown.err
    page = (tmp_path / "a" / "audit.html").read_text()
    summary = json.loads((tmp_path / "a" / "audit.json").read_text())
    for sentence in lead(summary):
        assert sentence.replace("'", "&#39;") in page
    assert re.findall(r'<figure id="([^"]+)"', page) == ["inversion", "by-size"]
    assert page.count(' class="c9 open"') == 22 + 1, "a feature each, and the legend"
    assert "No privacy guarantee is claimed against an auditor who sees the last model." in page
    table = pd.read_csv(tmp_path / "a" / "membership.csv")
    assert f"{table.loc[table['hospital'] == '(all)', 'auroc'].iloc[-1]:.3f}" in page


def test_what_is_said_of_size_needs_an_interval():
    figures = {"auroc": 0.6, "auroc_low": 0.55, "auroc_high": 0.65, "slope_per_doubling": -0.02}
    figures |= {"slope_low": -0.03, "slope_high": -0.01, "smaller_leak_more": True, "larger_leak_more": False}
    assert "smaller hospitals leak more: -0.0200 for twice the rows (-0.0300 to -0.0100)." in by_size("lira", figures)
    open_ended = figures | {"slope_high": 0.01, "smaller_leak_more": False}
    assert "no dependence of leakage on size was demonstrated" in by_size("lira", open_ended)
    assert "a slope on size needs ten hospitals" in by_size("lira", figures | {"slope_low": None})


def test_an_undefined_auroc_is_named_so_on_the_page():
    """As ``audit.json`` stores it if every row is a training row."""
    ends = ("auroc", "auroc_low", "auroc_high", "found_at_0.01", "found_at_0.001", "slope_low", "slope_high")
    none = dict.fromkeys(ends) | {"smaller_leak_more": False, "larger_leak_more": False}
    row = {"attack": "lira", "n_train": 9, "auroc": math.nan, "auroc_low": math.nan, "auroc_high": math.nan}
    table = pd.DataFrame([row | {"hospital": name} for name in ("h0", "(all)")])
    page = audit_page("audit", {"lira": none}, table, None, PROVENANCE)
    assert "Whether training rows are recognised could not be measured." in page
    cells = re.search(r">LiRA</th>(.*?)</tr>", page, re.DOTALL)
    assert cells is not None
    assert re.findall(r">(\w+)</td>", cells[1]) == ["undefined"] * 3
    assert "with AUROC undefined; a slope on size needs ten hospitals." in by_size("lira", none)


def test_a_broken_guarantee_leads_the_page():
    bound = {"sees": "each sum of every round", "right": 99, "guesses": 100, "canaries": 200, "ceiling": 3.6}
    broken = lead({"one_run": bound | {"epsilon_at_least": 2.9, "epsilon_claimed": 1.0}})
    assert broken[0].endswith("The run claims 1: its guarantee is broken. Do not publish its models.")
    kept = lead({"one_run": bound | {"epsilon_at_least": 0.4, "epsilon_claimed": 1.0}})
    assert kept[-1].endswith(
        "That does not refute the epsilon of 1 that the run claims; this many records can demonstrate at most 3.60."
    )
