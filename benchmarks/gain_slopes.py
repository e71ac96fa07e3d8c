"""How often the slope of gains on size is claimed where all hospitals gain alike, and where it is real.

``python -m benchmarks.gain_slopes`` simulates the scores of two models at hospitals with log-normal sizes, and
estimates the slope as a comparison does. Beside it is the share of p at most .05 of a regression without weights. Every
hospital gains .02 AUROC under the null. The correlation of the two models' scores within a class is the same
everywhere, or rises with size: a small hospital's own model agrees less with the federation's. A Markdown table is
printed.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import linregress

from raysim.report.supplement.gain_by_size import slope
from raysim.statistics.differences.one_hospital import Sent
from raysim.statistics.discrimination.auroc import pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches

Floats = NDArray[np.float64]

STUDIES = [126, 350, 385, 409, 517, 603, 756, 791, 819, 822, 856, 919, 1041, 1118, 1510]
"""The sizes of fifteen studies of head injury."""

ALONE, GAIN = 0.76, 0.02
"""True AUROC of training alone, and what federating adds to it."""


class Design(NamedTuple):
    """Hospitals, the median of their rows, the share of events, and the correlations of scores at the smallest and the
    largest sizes. ``slope`` is the true slope of the gain on the logarithm of size."""

    hospitals: int
    median: int
    prevalence: float
    correlation: tuple[float, float]
    slope: float = 0.0


DESIGNS = [
    Design(15, 700, 0.25, (0.70, 0.91)),
    Design(21, 500, 0.28, (0.9, 0.9)),
    Design(21, 500, 0.28, (0.4, 0.95)),
    Design(50, 150, 0.20, (0.9, 0.9)),
    Design(50, 150, 0.20, (0.4, 0.95)),
    Design(208, 40, 0.15, (0.9, 0.9)),
    Design(208, 40, 0.15, (0.4, 0.95)),
    *(
        Design(*shape, (0.9, 0.9), slope)
        for shape in ((21, 500, 0.28), (50, 150, 0.20), (208, 40, 0.15))
        for slope in (-0.01 / np.log(2), -0.02)
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400, help="federations of each design; half with 208 hospitals")
    args = parser.parse_args()
    print("| hospitals, median rows, share of events | correlation | true slope | claimed | without weights | mean |")
    print("|---|---|---|---|---|---|")
    for number, design in enumerate(DESIGNS):
        draws = args.draws if design.hospitals < 100 else args.draws // 2
        found = np.array([federation(design, np.random.default_rng([number, draw])) for draw in range(draws)])
        claimed, plain, mean = found.mean(axis=0)
        low, high = design.correlation
        agree = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        shape = f"{design.hospitals}, {design.median}, {design.prevalence:g}"
        print(f"| {shape} | {agree} | {design.slope:.4f} | {claimed:.3f} | {plain:.3f} | {mean:+.4f} |", flush=True)


def federation(design: Design, rng: np.random.Generator) -> tuple[bool, bool, float]:
    """Whether a slope is claimed in one simulated federation, by a comparison and without weights, and the slope."""
    count = design.hospitals
    rows = np.exp(rng.normal(np.log(design.median), 0.8, count)) if count != len(STUDIES) else np.array(STUDIES)
    rows = np.maximum(20, rows).astype(np.int64)
    x = np.log(rows)
    place = (x - x.min()) / np.ptp(x)
    rho = design.correlation[0] + place * (design.correlation[1] - design.correlation[0])
    federated = ALONE + GAIN + design.slope * (x - x.mean())
    offsets = np.concatenate([[0], np.cumsum(rows)])
    home = np.repeat(np.arange(count), rows)
    y = rng.random(len(home)) < design.prevalence
    common, own = rng.standard_normal((2, len(home)))
    of_both = common, rho[home] * common + np.sqrt(1 - rho[home] ** 2) * own
    shifts = np.full(count, centre(ALONE)), centre(federated)
    alone, ours = (sent(noise + y * shift[home], y, offsets) for noise, shift in zip(of_both, shifts, strict=True))
    found = slope([(ours, alone)], rows)
    gains = auroc(ours) - auroc(alone)
    judged = np.isfinite(gains)
    return found.demonstrated, linregress(x[judged], gains[judged]).pvalue <= 0.05, found.slope


def centre(auroc: float | Floats) -> Floats:
    """The mean of events' scores, where non-events' have mean 0 and both the standard deviation 1."""
    return np.asarray(np.sqrt(2) * ndtri(np.clip(auroc, 0.51, 0.995)))


def sent(scores: Floats, y: NDArray[np.bool_], offsets: NDArray[np.int64]) -> Sent:
    """What hospitals send for a model."""
    hospitals = np.arange(len(offsets) - 1)
    placed = placements(scores, y, offsets)
    return Sent(pair_sums(scores, y, offsets), sketches(placed, hospitals, np.arange(len(y))))


def auroc(of: Sent) -> Floats:
    """The AUROC of each hospital, ``[H]``."""
    pairs = of.pairs.events * of.pairs.non_events
    return np.divide(of.pairs.first / 4, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)


if __name__ == "__main__":
    main()
