"""What is said of gaps between groups of patients: never a claim from the gap over all patients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from raysim.report.judgement import fairness
from raysim.statistics.patient_groups.composition import Composition
from raysim.statistics.patient_groups.risks import GroupRisk
from raysim.statistics.patient_groups.within import NOTHING, PairGap, WithinGap
from raysim.storage.detail_tables import fairness_table, risks_table

MINUS = "\N{MINUS SIGN}"


def gap(attribute: str, p: float, p_holm: float, estimate: float = 0.004, half: float = 0.034) -> WithinGap:
    names = {"sex": ("women", "men")}.get(attribute, ("80 and over", "under 45"))
    pair = PairGap(names, estimate, half / 2, estimate - half, estimate + half, -0.1, 0.1, 12, 0.05)
    return WithinGap(attribute, True, pair, (pair,), p, p_holm, 2000, False, estimate + 0.098)


def test_nothing_shown():
    (said,) = fairness.sentences([gap("sex", 0.8, 0.8)])
    assert said == (
        f"No difference between women and men demonstrated within hospitals (+0.004, {MINUS}0.030 to +0.038; "
        "80 % power for 0.050)."
    )


def test_an_interval_that_says_nothing_has_no_numbers():
    (said,) = fairness.sentences([gap("sex", 0.8, 0.8, half=0.3)])
    assert said.endswith("within hospitals (+0.004, the interval says nothing; 80 % power for 0.050).")
    (errors,) = fairness.sentences([replace(gap("sex", 0.8, 0.8, half=0.3), larger=False)])
    assert f"{MINUS}0.296 to +0.304" in errors


def test_a_gap_that_no_two_aurocs_have_is_not_said_to_be_found():
    wide = gap("sex", 0.8, 0.8)
    (said,) = fairness.sentences([replace(wide, pair=replace(wide.pair, visible=1.266))])
    assert "power" not in said
    errors = replace(wide, larger=False, pair=replace(wide.pair, visible=1.266))
    assert "80 % power for 1.266" in fairness.sentences([errors])[0]


def test_a_small_p_of_one_attribute_is_no_claim_where_several_were_looked_at():
    (said,) = fairness.sentences([gap("sex", 0.03, 0.06), gap("age", 0.5, 0.5)])
    assert said.startswith(
        "No difference between groups of patients demonstrated within hospitals: sex, women minus men: +0.004"
    )
    assert "age, 80 and over minus under 45: +0.004" in said


def test_a_difference_that_is_shown_names_whom_it_favours():
    claimed, other = fairness.sentences([gap("sex", 0.0005, 0.001, -0.05), gap("age", 0.5, 0.5)])
    assert claimed == (
        f"Within hospitals, by sex, the model ranks better for men than for women: {MINUS}0.050, {MINUS}0.084 to "
        f"{MINUS}0.016; p < 0.01."
    )
    assert other.startswith("No difference between 80 and over and under 45 demonstrated")
    (errors,) = fairness.sentences([replace(gap("sex", 0.02, 0.02, -0.05), larger=False)])
    assert errors.startswith("Within hospitals, by sex, the model errs less for women than for men: ")
    assert errors.endswith("; p = 0.02.")


def test_where_no_hospital_tells_it_is_said_and_the_gap_over_all_patients_is_not():
    (said,) = fairness.sentences([WithinGap("sex", True, pooled=0.3)])
    assert said == (
        "Groups by sex: gaps within hospitals cannot be judged, as no hospital has enough patients of two groups."
    )


def test_where_groups_are_treated_is_said_apart():
    apart = replace(gap("sex", 0.8, 0.8), composition=Composition(-0.012, -0.02, -0.004, 12))
    _, said = fairness.sentences([apart])
    assert said == (
        "women are treated at hospitals where the AUROC is lower by 0.012 on average than where men are "
        "(0.004 to 0.020). This difference lies between hospitals. Over all patients they differ by +0.102: +0.004 "
        "within hospitals and +0.098 by where they are treated."
    )
    unsure = replace(apart, composition=Composition(-0.012, -0.02, 0.004, 12))
    assert len(fairness.sentences([unsure])) == 1
    few = replace(apart, composition=Composition(-0.012, np.nan, np.nan, 4))
    assert len(fairness.sentences([few])) == 1


def test_where_groups_are_treated_is_claimed_by_holm_over_attributes():
    """An interval that just excludes 0, t = 2.3 of 11 degrees of freedom, is a claim for one attribute alone."""
    composition = Composition(-0.012, -0.012 - 0.0115, -0.0005, 12)
    assert composition.p == pytest.approx(2 * student.sf(2.200985160 * 0.012 / 0.0115, 11), abs=1e-9)
    just = replace(gap("sex", 0.8, 0.8), composition=composition)
    assert len(fairness.sentences([just])) == 2
    assert len(fairness.sentences([just, replace(gap("age", 0.8, 0.8), composition=composition)])) == 1
    assert len(fairness.sentences([just, gap("age", 0.8, 0.8)])) == 2, "an attribute without an interval is no test"


@pytest.mark.parametrize(
    ("p", "said"), [(0.0005, "p < 0.01"), (0.00999, "p < 0.01"), (0.012, "p = 0.01"), (1, "p = 1.00")]
)
def test_p_is_never_0(p: float, said: str):
    assert fairness.chance(gap("sex", p, p)) == said


def test_the_tables():
    pairs = tuple(PairGap(names, 0.1, 0.05, 0.0, 0.2, -0.1, 0.3, 7, 0.14) for names in (("a", "b"), ("a", "c")))
    several = WithinGap("age", True, pairs[1], pairs, 0.04, 0.08, 2000, False, 0.3, Composition(0.1, 0.0, 0.2, 12))
    risks = (GroupRisk("a", 5, 4.0, 1.25, 0.2, -0.1, 0.5, 0.2),)
    table = fairness_table("global", {"age": replace(several, risks=risks), "sex": WithinGap("sex", True)})
    assert table["attribute"].tolist() == ["age", "age", "sex"]
    assert table["second"].tolist() == ["b", "c", NOTHING.groups[1]]
    assert np.isnan(table["p"][0]), "the test stands once"
    assert table.loc[1, ["p", "p_holm", "pooled", "mixed"]].tolist() == pytest.approx([0.04, 0.08, 0.3, 0.2])
    assert table["hospitals"].tolist() == [7, 7, 0]
    assert np.isnan(table["p"][2])
    of_risks = risks_table("global", {"age": replace(several, risks=risks)})
    pd.testing.assert_frame_equal(
        of_risks,
        pd.DataFrame(
            {
                "model": ["global"], "attribute": ["age"], "group": ["a"], "observed": [5], "expected": [4.0],
                "ratio": [1.25], "log_odds": [0.2], "low": [-0.1], "high": [0.5], "p": [0.2],
            }
        ),
    )  # fmt: skip
