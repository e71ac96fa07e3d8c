"""Whether small hospitals gain more over training alone than large ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.core.words import chance
from raysim.engine.job import Result
from raysim.metrics.labels import CLASSIFICATION
from raysim.report.naming import Key, interval, number
from raysim.statistics.chance.dispersion import TENTH
from raysim.statistics.differences.one_hospital import Sent, one_seed
from raysim.statistics.meta_analysis.gain_slope import GainSlope, gain_slope, smoothed_variances


def sentence(results: Sequence[Result], key: Key, by_itself: Key | None) -> str:
    """Return a sentence on whether the gain of the model ``key`` over training alone is larger at small hospitals.

    ``by_itself`` is the model of training alone, None if it was not run. The sentence is empty if it was not run, if
    the label does not have two classes, or if sizes are not public.
    """
    alone = {result.seed: result for result in results if by_itself and result.label == by_itself[0]}
    ours = {result.seed: result for result in results if result.label == key[0] and result.seed in alone}
    public = all(result.outcome.noisy_sizes is None for result in results)
    if by_itself is None or not ours or not public or results[0].federation.task is not CLASSIFICATION:
        return ""
    pairs = [(_sent(result, key[1]), _sent(alone[seed], by_itself[1])) for seed, result in ours.items()]
    if any(one is None or other is None for one, other in pairs):
        return ""
    found = slope([(one, other) for one, other in pairs if one and other], results[0].federation.totals)
    if np.isnan(found.slope):
        return (
            f"Whether small hospitals gain more was not tested: {TENTH} judged hospitals of different sizes are needed."
        )
    low, high = (-end * float(np.log(2.0)) for end in (found.high, found.low))
    gain = f"{number(found.halving, 3, sign=True)} ({interval(low, high, 3, sign=True)})"
    more = "more" if found.halving > 0 else "less"
    begin = f"Small hospitals gain {more}" if found.demonstrated else "Not demonstrated that small hospitals gain more"
    return (
        f"{begin} over training alone: halving the size changes the gain in AUROC by {gain}, {chance(found.p)} (with "
        f"HC3 {chance(found.robust_p)})."
    )


def slope(pairs: Sequence[tuple[Sent, Sent]], sizes: NDArray[np.int64]) -> GainSlope:
    """Regress hospitals' gains from one model over another on the logarithm of their ``sizes``.

    ``pairs`` has, for each seed, the statistics that hospitals sent: those of the one model, then those of the other.
    """
    seeds = [one_seed(model, against) for model, against in pairs]
    gains = np.mean([seed.difference for seed in seeds], axis=0)
    own = np.square(np.mean([seed.sums for seed in seeds], axis=0)).mean(axis=1)
    events, others = (
        np.mean([getattr(model.pairs, name) for model, _ in pairs], axis=0) for name in ("events", "non_events")
    )
    judged = np.isfinite(gains)
    variance = np.full_like(gains, np.nan)
    if judged.any():
        variance[judged] = smoothed_variances(own[judged], events[judged], others[judged], sizes[judged])
    return gain_slope(gains, variance, sizes)


def _sent(result: Result, model: str) -> Sent | None:
    outcome = result.outcome
    return Sent(outcome.pairs[model], outcome.sketches[model]) if model in outcome.sketches else None
