"""What recalibration on few rows costs and gains: excess log loss over the truth, by method, as in docs/statistics.md.

``python -m benchmarks.recalibration --federations 40`` simulates federations of 20 hospitals whose true risks are
``logit P(y) = a + b l`` with ``l`` normal (standard deviation 1.2). Each method is fitted to ``k`` rows of each
hospital and judged on new rows of the same hospital, by quadrature. A Markdown table is printed, times 1000.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from raysim.core.streams import stream
from raysim.statistics.clinical.recalibration import Method, Rows, Shifts, estimated_prior, fit, rows_of

HOSPITALS = 20
SPREAD = 1.2
"""The standard deviation of predicted logits."""

POINTS, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()

METHODS: tuple[Method, ...] = ("intercept", "logistic", "closed", "eb")
PREVALENCES, SPREADS, ROWS = (0.11, 0.31), ((0.0, 0.0), (0.3, 0.1), (0.6, 0.2)), (10, 30, 100, 300)


def middle(prevalence: float) -> float:
    """The mean logit at which the mean risk is ``prevalence``."""
    return float(brentq(lambda mu: WEIGHTS @ expit(mu + SPREAD * POINTS) - prevalence, -10, 10))


def excess(mean: float, truth: np.ndarray, shifts: Shifts) -> np.ndarray:
    """The log loss of shifted risks above that of the true ones ``truth [2, H]``, of new rows, ``[H]``."""
    margins = mean + SPREAD * POINTS
    eta = truth[0][:, None] + truth[1][:, None] * margins
    served = shifts.intercept[:, None] + shifts.slope[:, None] * margins
    p = expit(eta)
    loss = (p * np.logaddexp(0, -served) + (1 - p) * np.logaddexp(0, served)) @ WEIGHTS
    return loss - (p * np.logaddexp(0, -eta) + (1 - p) * np.logaddexp(0, eta)) @ WEIGHTS


def federation(mean: float, spread: tuple[float, float], k: int, seed: int) -> tuple[np.ndarray, Rows]:
    """The true shifts of hospitals, ``[2, H]``, and ``k`` rows of each."""
    rng = stream(seed, "recalibration study")
    truth = np.stack([rng.normal(0, spread[0], HOSPITALS), np.maximum(rng.normal(1, spread[1], HOSPITALS), 0.05)])
    margins = rng.normal(mean, SPREAD, (HOSPITALS, k))
    y = rng.random((HOSPITALS, k)) < expit(truth[0][:, None] + truth[1][:, None] * margins)
    return truth, rows_of(margins.ravel(), y.ravel(), np.arange(HOSPITALS + 1) * k)


def study(prevalence: float, spread: tuple[float, float], k: int, federations: int) -> dict[str, tuple[float, float]]:
    """Mean excess log loss times 1000 by method, with its Monte-Carlo error."""
    mean, draws = middle(prevalence), {name: [] for name in ("none", *METHODS)}
    for seed in range(federations):
        truth, rows = federation(mean, spread, k, seed)
        none = Shifts(np.zeros(HOSPITALS), np.ones(HOSPITALS), np.full(HOSPITALS, "", object))
        prior = estimated_prior(rows)
        for name in draws:
            shifts = none if name == "none" else fit(rows, name, prior if name == "eb" else None)
            draws[name].append(1000 * excess(mean, truth, shifts).mean())
    return {name: (float(np.mean(each)), float(np.std(each) / np.sqrt(len(each)))) for name, each in draws.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--federations", type=int, default=40)
    federations = parser.parse_args().federations
    print("| events, sd of $a$, of $b$ | rows | " + " | ".join(f"`{name}`" for name in ("none", *METHODS)) + " |")
    print("|---|---|" + "---|" * (1 + len(METHODS)))
    for prevalence in PREVALENCES:
        for spread in SPREADS:
            for k in ROWS:
                found = study(prevalence, spread, k, federations)
                cells = " | ".join(f"{value:.1f} ({error:.1f})" for value, error in found.values())
                print(f"| {prevalence:.0%}, {spread[0]:g}, {spread[1]:g} | {k} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
