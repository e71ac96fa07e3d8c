"""Calibration at the fifteen studies of IMPACT, each predicted by a model of the other fourteen (package metamisc)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from raysim.core.levels import Z
from raysim.metrics.score_counts import score_counts
from raysim.statistics.clinical.by_hospital import calibration_by_hospital, events_p
from raysim.statistics.clinical.calibration import calibration
from raysim.statistics.discrimination.auroc import pair_sums
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.intervals import observed_over_expected
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, WIDEST_UNBOUNDED, pooled
from raysim.statistics.several import bound, holm
from tests.statistics.rows import raw

RATIOS = {
    "SKB": (0.8750, 0.631, 1.155),
    "TCDB": (1.3270, 1.206, 1.450),
    "APOE": (0.7531, 0.631, 0.888),
    "UK4": (1.3610, 1.256, 1.467),
    "PHARMOS": (0.7923, 0.677, 0.918),
    "TINT": (1.1806, 1.061, 1.306),
    "PEG": (0.7806, 0.711, 0.853),
}
"""Observed over expected deaths with the interval."""

OFF = {"TCDB": 0.0, "APOE": 0.0007, "UK4": 0.0, "PHARMOS": 0.0052, "TINT": 0.0069, "PEG": 0.0}
"""The studies that Holm's procedure names, with the adjusted p."""


def fitted(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logistic regression with a penalty of half the squared weights, on all but the intercept."""
    weights, penalty = np.zeros(X.shape[1]), np.r_[1e-6, np.ones(X.shape[1] - 1)]
    for _ in range(12):
        p = expit(X @ weights)
        information = (X * (p * (1 - p))[:, None]).T @ X + np.diag(penalty)
        weights += np.linalg.solve(information, X.T @ (y - p) - penalty * weights)
    return weights


@pytest.fixture(scope="module")
def studies(data_folder: Path) -> tuple[list[str], list[np.ndarray], list[np.ndarray]]:
    """Names, predicted risks and deaths of each study."""
    table = pd.read_csv(data_folder / "impact" / "impact.csv.gz", keep_default_na=False)
    columns = [np.ones(len(table)), (table["age"].astype(float) - 34.930411903) / 15.886294164]
    for name in ("motor_score", "pupil", "ct"):
        columns += [table[name] == level for level in sorted(table[name].unique())[1:]]
    columns += [table[name] for name in ("hypox", "hypots", "tsah", "edh")]
    X, y = np.column_stack(columns).astype(float), table["mort"].to_numpy(float)
    names = sorted(table["name"].unique())
    at = [(table["name"] == name).to_numpy() for name in names]
    return names, [expit(X[own] @ fitted(X[~own], y[~own])) for own in at], [y[own] for own in at]


def test_six_of_fifteen_studies_are_off(studies) -> None:
    names, risks, deaths = studies
    p = [events_p(y.sum(), risk, np.ones(len(y), int)) for y, risk in zip(deaths, risks, strict=True)]
    found, adjusted = bound(p), dict(zip(names, holm(p), strict=True))
    assert found.at_least == 6
    assert {names[h]: round(adjusted[names[h]], 4) for h in found.named} == OFF
    for name, expected in RATIOS.items():
        y, risk = deaths[names.index(name)], risks[names.index(name)]
        low, high = observed_over_expected(y.sum(), risk.sum(), len(y))
        assert (y.sum() / risk.sum(), low, high) == pytest.approx(expected, abs=6e-4)


def test_so_they_are_from_what_hospitals_count(studies) -> None:
    names, risks, deaths = studies
    p, y = np.concatenate(risks), np.concatenate(deaths).astype(np.int64)
    offsets = np.cumsum([0, *map(len, risks)])
    found = calibration_by_hospital(score_counts(np.log(p) - np.log1p(-p), y, offsets))
    assert (
        {names[h] for h in found.bound.named}
        == set(OFF)
        == {n for n, s in zip(names, found.state, strict=True) if s == "off"}
    )
    assert found.bound.at_least == 6
    for name, (ratio, low, high) in RATIOS.items():
        h = names.index(name)
        assert (found.ratio[h], found.low[h], found.high[h]) == pytest.approx((ratio, low, high), abs=0.003)


def test_what_the_next_study_may_see(studies) -> None:
    """Pooled over studies each of which was left out: metafor's estimates, and the interval for a further one."""
    _, risks, deaths = studies
    offsets = np.concatenate([[0], np.cumsum([len(y) for y in deaths])])
    margins, y = logit(np.concatenate(risks)), np.concatenate(deaths)
    curve = common_curve(pair_sums(margins, y, offsets))
    auroc = pooled(curve.auroc, curve.variance, WIDEST)
    assert auroc.estimate == pytest.approx(0.7904864786, abs=1e-8)
    assert (auroc.low, auroc.high) == pytest.approx((0.7619, 0.8190), abs=1e-4)
    assert auroc.tau**2 == pytest.approx(0.0022142137, abs=1e-8)
    assert (auroc.next_low, auroc.next_high) == pytest.approx((0.6710, 0.9085), abs=0.005)
    observed, expected, rows = (
        np.array([f(r, d) for r, d in zip(risks, deaths, strict=True)])
        for f in (lambda r, d: d.sum(), lambda r, d: r.sum(), lambda r, d: float(len(d)))
    )
    ratio = pooled(np.log(observed / expected), (1 - observed / rows) / observed, WIDEST_UNBOUNDED)
    assert ratio.estimate == pytest.approx(-0.0110455199, abs=1e-8)
    assert ratio.tau**2 == pytest.approx(0.0289940698, abs=1e-8)
    assert np.exp([ratio.low, ratio.high]) == pytest.approx((0.8927, 1.0957), abs=1e-4)
    assert np.exp([ratio.next_low, ratio.next_high]) == pytest.approx((0.6383, 1.5245), abs=0.02)
    fits = [calibration(raw(r, d)) for r, d in zip(risks, deaths, strict=True)]
    for name, golden, tau2 in (
        ("in_the_large", 0.0010512849, 0.1145367775),
        ("slope", 0.9838425970, 0.0230499845),
    ):
        each = [getattr(fit, name) for fit in fits]
        found = pooled(
            np.array([c.estimate for c in each]),
            np.array([(c.high - c.low) / (2 * Z) for c in each]) ** 2,
            WIDEST_UNBOUNDED,
        )
        assert found.estimate == pytest.approx(golden, abs=1e-6)
        assert found.tau**2 == pytest.approx(tau2, abs=1e-6)


def test_few_studies_are_not_pooled() -> None:
    assert np.isnan(pooled(np.array([0.7, 0.8]), np.array([0.01, 0.01]), WIDEST).estimate)
    four = pooled(np.array([0.7, 0.8, 0.75, 0.72]), np.full(4, 0.001), WIDEST)
    assert np.isfinite(four.estimate)
    assert np.isnan(four.next_low)
