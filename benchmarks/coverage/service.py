"""One model: intervals of AUROC, of its mean, spread and slope on size, and the noise floor.

Drawing and sorting what a noise floor is made of takes most of the time. Federations that share their sizes and events
therefore share it, as models of one run do; each has scores of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import expit

from benchmarks.coverage.tally import Tally
from benchmarks.coverage.truth import MEAN, Design, Floats, Served, designed, middle, scored, served
from raysim.metrics.error_counts import error_counts
from raysim.statistics.chance.dispersion import Dispersion
from raysim.statistics.chance.noise_floor import error_floor, noise_floor
from raysim.statistics.chance.simulate import Chance
from raysim.statistics.discrimination.auroc import delong, placements
from raysim.statistics.discrimination.common_curve import common_curve
from raysim.statistics.intervals import auroc_interval
from raysim.statistics.meta_analysis.between_hospitals import WIDEST, pooled, shrunken_auroc
from raysim.statistics.meta_analysis.size_slope import size_slope

FLOOR_DRAWS = 200
"""Draws of each floor, as many as a run's."""

SHARING = 20
"""Federations that share one floor's draws: few enough for the draws' own error to be averaged out over many."""


def single(m: int, n: int, law: str, rng: np.random.Generator, draws: int) -> Tally:
    """The AUROC of one hospital: the printed interval, by the true AUROC."""
    tally = Tally()
    y = np.tile(np.repeat([1, 0], [m, n]), draws)
    cuts = (m + n) * np.arange(draws + 1)
    for true in (0.6, 0.8, 0.95):
        estimates = delong(placements(scored(law, np.full(len(y), true), y.astype(bool), rng), y, cuts))
        printed = auroc_interval(estimates.auroc[0], estimates.variance[0], m, n)
        low, high = printed.low, printed.high
        for inside, width in zip((low <= true) & (true <= high), high - low, strict=True):
            tally.add(f"printed interval, true AUROC {true}", inside)
            tally.add(f"width of printed interval, true AUROC {true}", width)
    return tally


def service(hospitals: int, law: str, tau: float, rng: np.random.Generator, draws: int) -> Tally:
    """Hospitals under one model, all equal (``tau`` 0) or truly different."""
    tally = Tally()
    for design, chance in _designs(hospitals, rng, draws):
        federation = served(design, law, tau, rng)
        curve = common_curve(federation.sums)
        judged = curve.judged
        if judged.sum() < 3:
            continue
        true = federation.true[judged]
        _floor(tally, federation, true, tau, chance)

        between = pooled(curve.auroc, curve.variance, WIDEST)
        tally.covers("mean (Hartung-Knapp)", between.low, between.high, MEAN)
        further = float(expit(middle(tau) + tau * rng.standard_normal()))
        tally.covers("a further hospital", between.next_low, between.next_high, further)
        _, low, high = shrunken_auroc(curve)[:, judged]
        tally.add("shrunken estimate of a hospital", float(((low <= true) & (true <= high)).mean()))
        per_hospital = delong(federation.placed)
        raw = auroc_interval(
            per_hospital.auroc[0], per_hospital.variance[0], per_hospital.events, per_hospital.non_events
        )
        tally.add("raw estimate of a hospital", float(((raw.low[judged] <= true) & (true <= raw.high[judged])).mean()))

        slope = size_slope(curve.auroc, curve.variance, federation.sizes, between.tau**2)
        tally.covers("slope on size", slope.low, slope.high, 0.0)
        # A true slope would be added to the one that is found.
        tally.add("true slope of .02 claimed", np.nan if np.isnan(slope.slope) else slope.low + 0.02 > 0)
    return tally


def _designs(hospitals: int, rng: np.random.Generator, draws: int) -> Iterator[tuple[Design, Chance]]:
    """For each of ``draws`` federations its design and where its floor's chance comes from; :data:`SHARING` share."""
    for first in range(0, draws, SHARING):
        design, chance = designed(hospitals, rng), _chance(rng)
        for _ in range(min(SHARING, draws - first)):
            yield design, chance


def _chance(rng: np.random.Generator) -> Chance:
    seed = int(rng.integers(1 << 62))
    return Chance(lambda: np.random.default_rng(seed))


def _floor(tally: Tally, federation: Served, true: Floats, tau: float, chance: Chance) -> None:
    floor = noise_floor(federation.sums, federation.sizes, chance, draws=FLOOR_DRAWS)
    tally.add("difference claimed", floor.demonstrated)
    tally.covers("true spread", floor.tau.low, floor.tau.high, tau)
    tally.add("spread has no upper limit", bool(np.isinf(floor.tau.high)))
    judged = federation.sums.judged
    dispersion = Dispersion(federation.sums.events[judged] >= 5, np.log(federation.sizes[judged]))
    truth = dispersion.figures(true)
    for name, figure in floor.figures.items():
        if tau == 0:
            tally.add(f"`{name}`: p <= .05", figure.p <= 0.05)
        elif name != "size_bias":
            tally.covers(f"true `{name}`", figure.true.low, figure.true.high, float(truth[name]))


def errors(hospitals: int, law: str, tau: float, rng: np.random.Generator, draws: int) -> Tally:
    """Hospitals' mean absolute errors under one model: rows' errors of one ``law``, levels of the spread ``tau``."""
    tally = Tally()
    for design, chance in _designs(hospitals, rng, draws):
        rows, first = design.rows, design.offsets[:-1]
        level = np.exp(tau * rng.standard_normal(hospitals) - tau**2 / 2)
        error = np.repeat(level, rows) * ERRORS[law](rng, int(rows.sum()))
        mae = np.add.reduceat(error, first) / rows
        rmse = np.sqrt(np.add.reduceat(np.square(error), first) / rows)
        together = error_counts(error, np.zeros(len(error)), [0, len(error)]).errors
        floor = error_floor("MAE", mae, rmse, together, rows, 5 * rows, chance, draws=FLOOR_DRAWS)
        tally.add("difference claimed", floor.demonstrated)
        tally.covers("true spread", floor.tau.low, floor.tau.high, tau)
        truth = Dispersion(rows >= 5, np.log(5.0 * rows), larger=False).figures(level * ERROR_MEANS[law])
        for name, figure in floor.figures.items():
            if tau == 0:
                tally.add(f"`{name}`: p <= .05", figure.p <= 0.05)
            elif name != "size_bias":
                tally.covers(f"true `{name}`", figure.true.low, figure.true.high, float(truth[name]))
    return tally


ERRORS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: np.abs(rng.standard_normal(n)),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t with 4 degrees of freedom": lambda rng, n: np.abs(rng.standard_t(4, n)),
    "log-normal": lambda rng, n: rng.lognormal(size=n),
}
"""Absolute errors of rows by their law."""

ERROR_MEANS = {
    "normal": np.sqrt(2 / np.pi),
    "exponential": 1.0,
    "t with 4 degrees of freedom": 1.0,
    "log-normal": np.exp(0.5),
}
"""Their means."""
