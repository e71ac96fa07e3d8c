"""Means over hospitals, and prediction intervals for a further hospital, contain the true values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from raysim.config.sections.evaluation import ClinicalSection
from raysim.experiment.unseen.measured import Unseen, of_rows
from raysim.experiment.unseen.rows import JudgedRows
from raysim.experiment.unseen.tables import by_hospital, summary
from raysim.metrics.labels import CLASSIFICATION

HOSPITALS = 20
CLINICAL = ClinicalSection()


def unseen() -> Unseen:
    """A model without histograms and pairs, whose figures are in the table alone."""
    names, none = tuple(map(str, range(HOSPITALS))), np.zeros((HOSPITALS, 0))
    folds = np.arange(HOSPITALS)
    return Unseen(
        "s", "global", 0, 0, names, folds, names, none, None, None, None, None, np.full(HOSPITALS, np.nan), folds
    )


def test_a_mean_auroc_has_no_limit_above_1() -> None:
    """Of three hospitals with an AUROC near 1, the interval by Student's t ends at 1.11."""
    rng, rows = np.random.default_rng(1), []
    for h, apart in enumerate((1.5, 3.0, 6.0)):
        y = np.arange(120) % 2
        z = rng.normal(apart * y, 1.0)
        rows.append(JudgedRows(z, z, y, np.arange(120), h, f"h{h}", h, "global"))
    judged = of_rows("s", "global", 0, 0, rows, CLASSIFICATION, None)
    table = by_hospital([judged], CLASSIFICATION, None)
    of = summary([judged], table, None).set_index("figure").loc["auroc"]
    assert of["estimate"] == pytest.approx(table["auroc"].mean(), abs=0.02)
    assert 0.5 < of["low"] < of["estimate"] < of["high"] == 1.0


@pytest.mark.parametrize("spread", [0.2, 0.8, 1.2])
def test_the_ratio_of_a_further_hospital_is_in_its_interval(spread: float) -> None:
    """Of observed to expected events: a hospital with half of them and one with twice as many are 1.4 apart."""
    rng = np.random.default_rng(11)
    covered = []
    for _ in range(200):
        true = rng.normal(0, spread, HOSPITALS + 1)
        events = rng.binomial(4000, np.minimum(0.05 * np.exp(true[:-1]), 1.0))
        head = {"strategy": "s", "model": "global", "seed": 0, "k": 0, "hospital": list(unseen().hospitals)}
        table = pd.DataFrame(head | {"rows": 4000, "events": events, "observed_over_expected": events / 200})
        found = summary([unseen()], table, None).set_index("figure").loc["observed_over_expected"]
        covered.append(found["next_low"] <= np.exp(true[-1]) <= found["next_high"])
    assert 0.93 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize(("row_events", "pooled"), [(0, False), (100, True)])
def test_the_ratio_is_undefined_only_if_hospitals_have_no_event(row_events: int, pooled: bool) -> None:
    """Three of twenty hospitals have rows of one class; with events alone, their logarithms are defined."""
    events = np.r_[[row_events] * 3, [10] * (HOSPITALS - 3)]
    head = {"strategy": "s", "model": "global", "seed": 0, "k": 0, "hospital": list(unseen().hospitals)}
    expected = np.where(events == 100, 90.0, 10.0)
    table = pd.DataFrame(head | {"rows": 100, "events": events, "observed_over_expected": events / expected})
    found = summary([unseen()], table, None).set_index("figure").loc["observed_over_expected"]
    assert np.isfinite(found["estimate"]) == pooled


@pytest.mark.parametrize("figure", ["calibration_in_the_large", "calibration_slope"])
def test_so_are_calibration_intercepts_and_slopes(figure: str) -> None:
    rng = np.random.default_rng(12)
    covered = []
    for _ in range(200):
        true = rng.normal(0, 1.2, HOSPITALS + 1)
        values = true[:-1] + rng.normal(size=HOSPITALS) * 0.2
        head = {"strategy": "s", "model": "global", "seed": 0, "k": 0, "hospital": list(unseen().hospitals)}
        ends = {f"{figure}_low": values - 0.392, f"{figure}_high": values + 0.392, "rows": 400, "events": 100}
        found = summary([unseen()], pd.DataFrame(head | {figure: values} | ends), None).set_index("figure").loc[figure]
        covered.append(found["next_low"] <= true[-1] <= found["next_high"])
    assert 0.93 <= np.mean(covered) <= 0.99


def found_at(hospitals: int, rows: int, middle: float, rng: np.random.Generator) -> pd.DataFrame:
    """Evaluate right risks, whose logits are normal around ``middle``, at hospitals that do not differ."""
    judged, prevalence = [], float(expit(middle + 1.2 * rng.standard_normal(10**6)).mean())
    for h in range(hospitals):
        logits = middle + 1.2 * rng.standard_normal(rows)
        y = (rng.random(rows) < expit(logits)).astype(np.int64)
        judged.append(JudgedRows(logits, logits, y, np.arange(rows), h, f"h{h}", 1, "global", {}, prevalence))
    found = of_rows("s", "global", 0, 0, judged, CLASSIFICATION, CLINICAL)
    return summary([found], by_hospital([found], CLASSIFICATION, CLINICAL), CLINICAL).set_index("figure")


def test_means_over_small_hospitals_are_not_biased() -> None:
    """A hospital with few events by chance has a small loss with a small estimated variance: it must not weigh more."""
    rng = np.random.default_rng(13)
    logits = -1.5 + 1.2 * rng.standard_normal(10**6)
    p = expit(logits)
    loss, prevalence = -(p * np.log(p) + (1 - p) * np.log1p(-p)).mean(), p.mean()
    constant = -(prevalence * np.log(prevalence) + (1 - prevalence) * np.log1p(-prevalence))
    gain = np.where(p >= 0.5, 2 * p - 1, 0.0).mean()
    true = {"log_loss": loss, "log_loss_skill": 1 - loss / constant, "net_benefit_gained_0.5": gain}
    # At this threshold the two defaults are nearly equal: each hospital's better one would be so by chance.
    near = np.where(p >= 0.2, p - 0.25 * (1 - p), 0.0).mean() - max(prevalence - 0.25 * (1 - prevalence), 0.0)
    true |= {"observed_over_expected": 1.0, "net_benefit_gained_0.2": near}
    found = [found_at(60, 50, -1.5, rng).loc[list(true)] for _ in range(20)]
    for figure, value in true.items():
        of = pd.DataFrame([each.loc[figure] for each in found])
        assert of["estimate"].mean() == pytest.approx(value, abs=3 * of["estimate"].std() / 20**0.5)
        assert ((of["low"] <= value) & (value <= of["high"])).mean() >= 0.8


def test_hospitals_that_reach_enough_events_by_chance_give_no_mean_intercept() -> None:
    """About half of the hospitals have ten events: those with more events than expected."""
    found = found_at(60, 85, -2.5, np.random.default_rng(14)).loc["calibration_in_the_large"]
    assert np.isnan(found["estimate"])
    assert found_at(60, 250, -2.5, np.random.default_rng(15)).loc["calibration_in_the_large", "hospitals"] > 54
