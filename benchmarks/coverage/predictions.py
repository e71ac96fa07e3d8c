"""Predictions: calibration, thresholds, and the verdict on a curve of losses."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import shape, test_rows, ungrouped
from raysim.metrics.score_counts import score_counts
from raysim.statistics.clinical.by_hospital import calibration_by_hospital
from raysim.statistics.clinical.calibration import Groups, binned, calibration, calibration_error
from raysim.statistics.clinical.equity import calibration_chance
from raysim.statistics.clinical.thresholds import net_benefits
from raysim.statistics.convergence import convergence
from raysim.statistics.intervals import observed_over_expected, share_interval

SPREAD = 1.2
"""Standard deviation of predicted logits."""


SHARES = ("sensitivity", "specificity", "ppv", "npv")


def calibrated(rows: int, prevalence: float, rng: np.random.Generator, draws: int) -> Tally:
    """One hospital whose risks have twice the odds and less spread than predicted, and one that is well calibrated."""
    tally = Tally()
    offset, slope, threshold = np.log(2.0), 0.8, prevalence
    centre = logit(prevalence) - 0.5
    population = centre + SPREAD * rng.standard_normal(1_000_000)
    risk = expit(offset + slope * population)
    large = _in_the_large(population, risk)
    called, odds = expit(population) >= threshold, threshold / (1 - threshold)
    benefit = float(np.mean(called * (risk - odds * (1 - risk))))
    shares = [
        float(np.sum(called * risk) / risk.sum()),
        float(np.sum(~called * (1 - risk)) / (1 - risk).sum()),
        float(np.mean(risk[called])),
        float(np.mean(1 - risk[~called])),
    ]
    ratio = float(risk.mean() / expit(population).mean())
    everyone = binned(Groups(population, np.ones(len(population)), risk))
    ece = float(np.abs(everyone.events - everyone.predicted).sum() / len(population))
    for _ in range(draws):
        z = centre + SPREAD * rng.standard_normal(rows)
        y = rng.random(rows) < expit(offset + slope * z)
        groups = ungrouped(expit(z), y)
        estimates = calibration(groups)
        for name, coefficient, truth in (
            ("in the large", estimates.in_the_large, large),
            ("intercept", estimates.intercept, offset),
            ("slope", estimates.slope, slope),
        ):
            tally.covers(name, coefficient.low, coefficient.high, truth)
        printed = observed_over_expected(y.sum(), expit(z).sum(), rows)
        tally.covers("observed over expected", float(printed.low), float(printed.high), ratio)
        acted = expit(z) >= threshold
        tp, fp, fn, tn = (int(np.sum(each)) for each in (acted & y, acted & ~y, ~acted & y, ~acted & ~y))
        _, low, high, _ = net_benefits(tp, fp, tp + fn, rows, threshold)
        tally.covers("net benefit", float(low), float(high), benefit)
        of = ((tp, tp + fn), (tn, tn + fp), (tp, tp + fp), (tn, tn + fn))
        for name, (right, among), truth in zip(SHARES, of, shares, strict=True):
            share = share_interval(right, among)
            tally.covers(name, float(share.low), float(share.high), truth)
        error = calibration_error(binned(ungrouped(expit(z), rng.random(rows) < expit(z))), rng, 300)
        tally.add("calibration error above its floor's 95 %, calibrated", error.value > error.floor_high)
        tally.covers("calibration error, calibrated", error.low, error.high, 0.0)
        error = calibration_error(binned(groups), rng, 300)
        tally.covers("calibration error", error.low, error.high, ece)
    return tally


def calibrations(hospitals: int, rng: np.random.Generator, draws: int) -> Tally:
    """Hospitals' calibration: equal, or with intercepts of standard deviation .4."""
    tally = Tally()
    for tau in (0.0, 0.4):
        measure = f"difference claimed, intercepts with standard deviation {tau:g}"
        for _ in range(draws):
            rows = test_rows(hospitals, rng)
            centre = logit(shape(hospitals)[2]) - 0.5
            groups = []
            for n, intercept in zip(rows, 0.3 + tau * rng.standard_normal(hospitals), strict=True):
                z = centre + SPREAD * rng.standard_normal(n)
                groups.append(ungrouped(expit(z), rng.random(n) < expit(z + intercept)))
            tally.add(measure, calibration_chance(groups, rng, 200) <= 0.05)
    return tally


def off(hospitals: int, tau: float, rng: np.random.Generator, draws: int) -> Tally:
    """Hospitals' calibration by itself: right, or off by intercepts of the standard deviation ``tau``."""
    tally = Tally()
    intercepts = f"intercepts with standard deviation {tau:g}"
    for _ in range(draws):
        rows = test_rows(hospitals, rng)
        z = logit(shape(hospitals)[2]) - 0.5 + SPREAD * rng.standard_normal(rows.sum())
        risk = expit(z + np.repeat(tau * rng.standard_normal(hospitals), rows))
        offsets = np.concatenate([[0], np.cumsum(rows)])
        found = calibration_by_hospital(score_counts(z, (rng.random(len(z)) < risk).astype(np.int64), offsets))
        truth = np.add.reduceat(risk, offsets[:-1]) / found.expected
        tally.add("observed over expected, one hospital", float(np.mean((found.low <= truth) & (truth <= found.high))))
        tally.add(f"difference claimed at some hospital, {intercepts}", found.bound.at_least > 0)
        tally.add(f"hospitals off, at least, {intercepts}", found.bound.at_least)
        tally.add(f"hospitals whose interval excludes 1, {intercepts}", int(((found.low > 1) | (found.high < 1)).sum()))
    return tally


CURVES = {
    "flat, noise .02: called converged": (lambda t: 0.69 + 0 * t, 0.02, "converged"),
    "decay 5, noise .02: called converged": (lambda t: 0.4 + 0.29 * np.exp(-t / 5), 0.02, "converged"),
    "decay 60, noise .02: called falling": (lambda t: 0.4 + 0.29 * np.exp(-t / 60), 0.02, "falling"),
    "decay 25, noise .01: called falling": (lambda t: 0.4 + 0.29 * np.exp(-t / 25), 0.01, "falling"),
    "decay 60, no noise: called falling": (lambda t: 0.4 + 0.29 * np.exp(-t / 60), 0.0, "falling"),
}
"""Curves of 61 losses with their noise and the right verdict."""


def curves(rng: np.random.Generator, draws: int) -> Tally:
    """How often the verdict on a noisy curve is right."""
    tally = Tally()
    t = np.arange(61)
    for name, (curve, noise, verdict) in CURVES.items():
        for _ in range(draws):
            judgement = convergence(list(curve(t) + noise * rng.standard_normal(len(t))))
            tally.add(name, judgement.verdict == verdict)
            tally.add(name.split(":")[0] + ": called diverged", judgement.verdict == "diverged")
    return tally


def _in_the_large(logits: np.ndarray, risk: np.ndarray) -> float:
    """The intercept that makes predicted and true risks equal in the mean."""
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(logits + middle).mean() < risk.mean() else (low, middle)
    return (low + high) / 2
