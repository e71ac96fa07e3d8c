"""Federations drawn from a seed with known truth, for the tests of this folder."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from raysim.statistics.discrimination.auroc import PairSums, pair_sums


def scored(rng, events, non_events, auroc, event_sd=1.0):
    """Scores, labels and offsets of hospitals with these counts, ``[H]``, and true AUROCs, ``[H]`` or one."""
    m, n = np.asarray(events), np.asarray(non_events)
    y = np.concatenate([np.repeat([1, 0], [a, b]) for a, b in zip(m, n, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(m + n)])
    shift = np.repeat(ndtri(np.broadcast_to(auroc, m.shape)) * np.sqrt(1 + event_sd**2), m + n)
    noise = rng.standard_normal(len(y))
    return np.where(y == 1, shift + event_sd * noise, noise), y, offsets


def sums(rng, events, non_events, auroc, event_sd=1.0) -> PairSums:
    """What these hospitals send."""
    return pair_sums(*scored(rng, events, non_events, auroc, event_sd))
