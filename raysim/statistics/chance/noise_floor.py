"""The noise floor: differences between hospitals under equal service, and the true spread beyond it.

Hospitals with few events differ in AUROC by chance. raysim simulates federations in which each hospital has its actual
numbers of rows, and all hospitals have the same true AUROC and ROC shape. The test uses Q, the weighted sum of squares
of hospitals' AUROCs around their mean. The interval of the true spread (standard deviation) between hospitals contains
the spreads that this test does not reject. The noise-free value of every figure is derived from this one interval, so
that figures cannot contradict each other.

The floor assumes one ROC shape for all hospitals; prevalence and the level of scores may differ. The interval assumes
that hospitals' true AUROCs are normal on the logit scale and unrelated to size. Definitions and coverage:
``docs/statistics.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from raysim.core.arrays import Floats
from raysim.core.levels import Z
from raysim.core.words import chance, counted
from raysim.statistics.chance.dispersion import Dispersion
from raysim.statistics.chance.floor_figures import (
    FigureAndFloor,
    compared_with_floor,
    noise_free_figure,
    share_as_extreme,
)
from raysim.statistics.chance.inversion import SAME, TAUS, Estimate, invert, visible
from raysim.statistics.chance.simulate import Chance, SimulatedFederations, centres, errors, federations
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.discrimination.common_curve import common_curve

FEWEST = 3
"""The smallest number of hospitals with a defined AUROC or error for a statement about how much they differ."""

DRAWS = 1000

STAGE = 3
"""The number of true standard deviations between hospitals that are simulated at a time, in ascending order."""


@dataclass(frozen=True, eq=False)
class NoiseFloor:
    """How much a model's AUROC or error differs between hospitals, compared with simulations of equal service, in which
    all hospitals have the same true value.

    - ``figure``: the name of the figure, AUROC or an error. ``common``: its true value at every hospital under equal
      service. ``hospitals``: the number of hospitals at which the figure is defined.
    - ``q``: the statistic Q, the weighted sum of squares of hospitals' figures around their mean. ``p``: twice the
      share of simulations under equal service with a Q at least as large (twice, because the interval of ``tau`` has
      two sides).
    - ``tau``: the true standard deviation over hospitals of the figure's logit (for an error: of its logarithm). The
      upper limit of its interval, ``high``, is infinite if it is above the largest simulated spread.
    - ``demonstrated``: whether the interval of ``tau`` excludes 0.
    - ``visible``: the smallest tau that would be demonstrated in 80 % of simulated federations; infinite if it is above
      the largest simulated spread.
    - ``figures``: the figures of :class:`raysim.statistics.chance.dispersion.Dispersion`, by name.
    - ``larger``: whether larger values of the figure are better; False for an error.

    With fewer than three hospitals, or if errors do not vary within any hospital, there are no ``figures``, and ``q``,
    ``p``, ``tau`` and ``visible`` are NaN.
    """

    figure: str
    common: float
    hospitals: int
    q: float
    p: float
    tau: Estimate
    demonstrated: bool
    visible: float
    figures: dict[str, FigureAndFloor]
    larger: bool = True

    def sentence(self) -> str:
        """Return a sentence on what the data show about the spread between hospitals."""
        if self.hospitals < FEWEST:
            judged = counted(self.hospitals, "judged hospital")
            return f"With {judged}, differences between hospitals cannot be judged."
        if not np.isfinite(self.p):
            return f"The spread of {self.figure} between hospitals cannot be estimated."
        if self.demonstrated:
            return f"Hospitals differ beyond chance: {self._spread()}."
        nothing = f"No difference between hospitals beyond chance was demonstrated ({chance(self.p)})."
        low, high = self._range(self.visible)
        if not low:
            return f"{nothing} These data could not demonstrate any."
        return (
            f"{nothing} The test has 80 % power only if the true {self.figure} of 95 % of hospitals ranges from {low} "
            f"to {high}."
        )

    def _spread(self) -> str:
        """Return a clause on how much hospitals differ."""
        (low, high), (least, most) = self._range(self.tau.estimate), self._range(self.tau.low)
        excluded = f"the data exclude a range as narrow as {least} to {most}" if least else ""
        if low:
            between = f"the true {self.figure} of 95 % of them is estimated between {low} and {high}"
            return f"{between}, and {excluded}" if excluded else between
        apart = f"how far apart their true {self.figure} lies cannot be estimated"
        return f"{apart}; {excluded}" if excluded else apart

    def _range(self, tau: float) -> tuple[str, str]:
        """Return, as two texts, the range of the true figures of 95 % of hospitals at spread ``tau``; empty if
        undefined.
        """
        if not np.isfinite([self.common, tau]).all() or (self.larger and not 0 < self.common < 1):
            return "", ""
        low, high = (true_range if self.larger else true_error_range)(self.common, tau)
        digits = ".2f" if self.larger else ".3g"
        return (f"{low:{digits}}", f"{high:{digits}}") if np.isfinite([low, high]).all() else ("", "")


def noise_floor(
    sums: PairSums,
    sizes: ArrayLike,
    rng: np.random.Generator | Chance,
    *,
    minimum_events: int = 5,
    draws: int = DRAWS,
    taus: Sequence[float] = TAUS,
) -> NoiseFloor:
    """Compare the differences between ``H`` hospitals' AUROCs with differences by chance, from the sums that each
    hospital sends.

    ``sizes [H]`` are the total numbers of rows of the hospitals, on which ``size_bias`` depends. ``minimum_events`` is
    the number of rows of the rarer class that a hospital needs to be reported as the lowest. The test and the spread
    use every hospital with a defined AUROC. ``taus``, the true spreads that are simulated, ascend from 0.
    """
    curve = common_curve(sums)
    judged = curve.judged
    events, non_events = sums.events[judged], sums.non_events[judged]
    dispersion = Dispersion(
        np.minimum(events, non_events) >= minimum_events, np.log(np.asarray(sizes, dtype=np.float64)[judged])
    )
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    middle = dict(zip(taus, centres(curve.common, taus).tolist(), strict=True))

    def simulate(spreads: Sequence[float]) -> Iterable[SimulatedFederations]:
        middles = [middle[tau] for tau in spreads]
        return federations(events, non_events, middles, curve.event_sd, spreads, draws, chance)

    return _against("AUROC", curve.auroc[judged], curve.variance[judged], curve.common, dispersion, simulate, taus)


def error_floor(
    figure: str,
    mean_absolute: ArrayLike,
    root_mean_square: ArrayLike,
    errors_of_all: ArrayLike,
    rows: ArrayLike,
    sizes: ArrayLike,
    rng: np.random.Generator | Chance,
    *,
    minimum_rows: int = 5,
    draws: int = DRAWS,
    taus: Sequence[float] = TAUS,
) -> NoiseFloor:
    """Compare the differences between ``H`` hospitals' mean absolute errors with differences by chance.

    Hospitals without rows, or with an error that is not finite, are left out. ``errors_of_all [N]`` are the absolute
    errors of all rows of the remaining hospitals, in any order; they may be rounded to bins. The test permutes errors
    over hospitals.

    ``minimum_rows`` is the number of rows that a hospital needs to be reported as the highest. ``sizes [H]`` and
    ``taus`` are as for :func:`noise_floor`. Raises ``ValueError`` if the remaining hospitals do not have ``N`` rows in
    total.
    """
    mae, rmse = np.asarray(mean_absolute, dtype=np.float64), np.asarray(root_mean_square, dtype=np.float64)
    n = np.asarray(rows, dtype=np.int64)
    judged = (n > 0) & np.isfinite(mae) & np.isfinite(rmse)
    mae, rmse, n = mae[judged], rmse[judged], n[judged]
    common = float(n @ mae / n.sum()) if n.sum() else float("nan")
    squares = np.maximum(rmse**2 - mae**2, 0.0)
    between_rows = float(n @ squares) / max(int((n - 1).sum()), 1)
    dispersion = Dispersion(n >= minimum_rows, np.log(np.asarray(sizes, dtype=np.float64)[judged]), larger=False)
    if not between_rows > 0:
        return _undefined(figure, common, len(mae), dispersion)
    chance = rng if isinstance(rng, Chance) else Chance(lambda: rng)
    # The spread of errors within a hospital relative to its mean error; the squared mean is corrected for its variance.
    levels = float((n - 1) @ np.square(mae)) - float(squares.sum())
    within = float(np.sqrt(n @ squares / levels)) if levels > 0 else float("inf")

    def simulate(spreads: Sequence[float]) -> Iterable[SimulatedFederations]:
        return errors(n, errors_of_all, within, spreads, draws, chance)

    return _against(figure, mae, between_rows / np.maximum(n, 1), common, dispersion, simulate, taus)


def _against(
    figure: str,
    values: Floats,
    variance: Floats,
    common: float,
    dispersion: Dispersion,
    draw: Callable[[Sequence[float]], Iterable[SimulatedFederations]],
    taus: Sequence[float],
) -> NoiseFloor:
    """Compare the spread of hospitals' ``values [M]`` with the spread by chance. ``variance [M]`` are the variances of
    these values. ``draw`` simulates federations with the true standard deviations ``taus`` between hospitals.
    """
    if not len(taus) or taus[0] != 0 or np.any(np.diff(taus) <= 0):
        raise ValueError(f"taus: {tuple(taus)} must begin with 0 and ascend")
    if len(values) < FEWEST:
        return _undefined(figure, common, len(values), dispersion)
    weights = 1.0 / variance
    observed = dispersion.figures(values)
    q, stages = float(weighted_squares(values, weights)), []
    for first in range(0, len(taus), STAGE):
        stages.append(_stage(draw(taus[first : first + STAGE]), weights, dispersion))
        simulated_q = np.concatenate([stage.q for stage in stages])
        tried = taus[: len(simulated_q)]
        tau, least = invert(q, simulated_q, tried), visible(simulated_q, tried)
        if np.isfinite(tau.high + least):
            break  # no result below depends on larger spreads
    taus = tried
    level, level_se = np.concatenate([stage.level for stage in stages]), float(weights.sum() ** -0.5)

    def figure_of(name: str) -> FigureAndFloor:
        equal_service, noise_free = (
            np.concatenate([figures[name] for figures in each])
            for each in ([stage.observed for stage in stages], [stage.true for stage in stages])
        )
        if name == "size_bias":
            implied = Estimate(*[float("nan")] * 3)
        else:
            around, around_se = (level, level_se) if name in dispersion.levels else (0.0, 0.0)
            most = 1.0 if dispersion.larger or name == "gini" else np.inf
            implied = noise_free_figure(noise_free, around, around_se, tau, taus, most)
        lower = dispersion.larger and name in dispersion.levels
        return compared_with_floor(
            name, float(observed[name]), equal_service, implied, tau, taus, worse_when_lower=lower
        )

    return NoiseFloor(
        figure,
        common,
        len(values),
        q,
        min(1.0, 2.0 * share_as_extreme(simulated_q[0] >= q - SAME * q)),
        tau,
        tau.low > 0,
        least,
        {name: figure_of(name) for name in observed},
        dispersion.larger,
    )


def _undefined(figure: str, common: float, hospitals: int, dispersion: Dispersion) -> NoiseFloor:
    nan = float("nan")
    return NoiseFloor(figure, common, hospitals, nan, nan, Estimate(nan, nan, nan), False, nan, {}, dispersion.larger)


class _Stage(NamedTuple):
    """Statistics of ``B`` simulated federations at each of ``t`` true spreads, as arrays ``[t, B]``.

    ``q`` is the statistic Q, and ``level`` is the weighted mean of hospitals' true metrics. ``observed`` are the
    figures of dispersion over hospitals, by name; ``true`` are the same figures without noise.
    """

    q: Floats
    level: Floats
    observed: dict[str, Floats]
    true: dict[str, Floats]


def _stage(blocks: Iterable[SimulatedFederations], weights: Floats, dispersion: Dispersion) -> _Stage:
    each = [
        _Stage(
            weighted_squares(block.observed, weights),
            block.true @ weights / weights.sum(),
            dispersion.figures(block.observed),
            dispersion.figures(block.true),
        )
        for block in blocks
    ]
    if len(each) == 1:
        return each[0]
    observed, true = (
        {name: np.hstack([figures[name] for figures in of_blocks]) for name in of_blocks[0]}
        for of_blocks in ([block.observed for block in each], [block.true for block in each])
    )
    return _Stage(np.hstack([b.q for b in each]), np.hstack([b.level for b in each]), observed, true)


def weighted_squares(auroc: Floats, weights: Floats) -> Floats:
    """Return Q, the weighted sum of squares of ``M`` hospitals' AUROCs around their weighted mean, ``sum w (A - mean_w
    A)^2``.

    ``auroc`` is ``[..., M]``, ``weights`` are ``[M]``, and the result is ``[...]``.
    """
    mean = auroc @ weights / weights.sum()
    return np.asarray(np.square(auroc - mean[..., None]) @ weights)


def true_range(common: float, tau: float) -> tuple[float, float]:
    """Return the range in which 95 % of hospitals' true AUROCs lie. The AUROCs have the mean ``common``, and their
    logits are normal with standard deviation ``tau``.
    """
    if not np.isfinite(tau):
        return float("nan"), float("nan")
    (mu,) = centres(common, [tau])
    return float(expit(mu - Z * tau)), float(expit(mu + Z * tau))


def true_error_range(common: float, tau: float) -> tuple[float, float]:
    """Return the range in which 95 % of hospitals' true errors lie. The errors have the mean ``common``, and their
    logarithms are normal with standard deviation ``tau``.
    """
    if not np.isfinite(tau):
        return float("nan"), float("nan")
    middle = common * float(np.exp(-(tau**2) / 2))
    return middle * float(np.exp(-Z * tau)), middle * float(np.exp(Z * tau))
