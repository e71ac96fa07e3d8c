"""Attacks in which all Byzantine hospitals send the same update ``[P]``, computed from the updates ``[h, P]`` of ``h``
hospitals.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raysim.adversaries.who import Deviation
from raysim.core.arrays import Floats


def alie(updates: Floats, m: int, f: int, factor: float | None = None) -> Floats:
    """Return the update ``[P]`` of ALIE (A Little Is Enough): the mean of ``updates [h, P]`` minus ``factor`` standard
    deviations.

    If ``factor`` is None, it is :func:`alie_factor` for ``m`` updates, of which ``f`` are Byzantine.
    """
    a = alie_factor(m, f) if factor is None else factor
    return np.asarray(updates.mean(axis=0) - a * updates.std(axis=0))


def alie_factor(m: int, f: int) -> float:
    """Return ALIE's number of standard deviations for ``m`` updates, of which ``f`` are Byzantine.

    The Byzantine updates need ``s = m // 2 + 1 - f`` honest updates for a majority. The result is 0 if ``s <= 0`` or
    ``s >= m - f``. Otherwise it is negative if ``s`` is more than half of the ``m - f`` honest updates.
    """
    from scipy.special import ndtri

    honest = m - f
    needed = m // 2 + 1 - f
    if honest <= 0 or needed <= 0:
        return 0.0
    return float(ndtri((honest - needed) / honest)) if needed < honest else 0.0


def ipm(updates: Floats, factor: float) -> Floats:
    """Return the update ``[P]`` of inner product manipulation: ``-factor`` times the mean of ``updates [h, P]``."""
    return np.asarray(-factor * updates.mean(axis=0))


def deviation(updates: Floats, kind: Deviation) -> Floats:
    """Return the direction ``[P]`` in which an attack moves the mean of ``updates [h, P]``."""
    mean: Floats = updates.mean(axis=0)
    towards: Floats
    if kind == "sd":
        towards = updates.std(axis=0)
    elif kind == "sign":
        towards = np.sign(mean)
    else:
        towards = mean / (np.linalg.norm(mean) or 1.0)
    return -towards


def min_max_factor(updates: Floats, direction: Floats) -> float:
    """Return the largest step by which the mean of ``updates`` can be moved along ``direction``.

    No update may then be further from the moved mean than the largest distance between two updates.
    """
    mean = updates.mean(axis=0)
    offsets = mean - updates
    widest = max(float(((updates - row) ** 2).sum(axis=1).max()) for row in updates)
    a = float(direction @ direction)
    if a == 0.0:
        return 0.0
    b = offsets @ direction
    c = np.minimum((offsets**2).sum(axis=1) - widest, 0.0)
    root = (-b + np.sqrt(b**2 - a * c)) / a
    # Slightly less, so that the bound also holds after rounding.
    return max(0.0, float(root.min()) * (1 - 1e-12))


def min_sum_factor(updates: Floats, direction: Floats) -> float:
    """Return the largest step by which the mean of ``updates`` can be moved along ``direction``.

    The sum of squared distances from the moved mean to all updates may be at most the largest sum of squared distances
    from one update to all updates.
    """
    a = float(direction @ direction)
    if a == 0.0:
        return 0.0
    widest = max(float(((updates - row) ** 2).sum()) for row in updates)
    scatter = float(((updates - updates.mean(axis=0)) ** 2).sum())
    return float(np.sqrt(max(0.0, widest - scatter) / (len(updates) * a))) * (1 - 1e-12)


def min_max(updates: Floats, kind: Deviation) -> Floats:
    """Return the mean of ``updates [h, P]``, moved along direction ``kind`` as far as :func:`min_max_factor` allows."""
    direction = deviation(updates, kind)
    return np.asarray(updates.mean(axis=0) + min_max_factor(updates, direction) * direction)


def min_sum(updates: Floats, kind: Deviation) -> Floats:
    """Return the mean of ``updates [h, P]``, moved along direction ``kind`` as far as :func:`min_sum_factor` allows."""
    direction = deviation(updates, kind)
    return np.asarray(updates.mean(axis=0) + min_sum_factor(updates, direction) * direction)


STEPS = np.geomspace(0.1, 20.0, 10)
"""The factors that :func:`adaptive` tries with ALIE and with inner product manipulation."""


def adaptive(updates: Floats, rule: Callable[[Floats], Floats]) -> Floats:
    """Try ALIE and inner product manipulation with each factor in :data:`STEPS`. Return the update that moves the
    server's aggregate furthest from the mean of ``updates [h, P]``.

    ``rule(sent)`` is the aggregate ``[P]`` if all Byzantine hospitals send ``sent [P]``.
    """
    mean = updates.mean(axis=0)
    tried = [alie(updates, 0, 0, float(a)) for a in STEPS] + [ipm(updates, float(a)) for a in STEPS]
    pushed = [float(np.linalg.norm(rule(sent) - mean)) for sent in tried]
    return tried[int(np.argmax(pushed))]


def principal_direction(updates: Floats, before: Floats | None, round: int) -> Floats:
    """Estimate the first principal direction ``[P]`` of the updates of all calls so far.

    ``before`` is the result of the previous call; one step of Oja's rule improves it. In the first call ``before`` is
    None, and the direction is exact. ``round`` is the number of this call, from 1.
    """
    centred = updates - updates.mean(axis=0)
    if before is None:
        _, vectors = np.linalg.eigh(centred @ centred.T)
        direction = centred.T @ vectors[:, -1]
    else:
        weight = 1.0 / round
        spread = max(float((centred**2).sum()), np.finfo(np.float64).tiny)
        direction = (1 - weight) * before + weight * (centred.T @ (centred @ before)) / spread
    return np.asarray(direction / (np.linalg.norm(direction) or 1.0))


def mimicked(updates: Floats, direction: Floats) -> int:
    """Return the index of the update that the Byzantine hospitals copy (Mimic).

    It is the update whose deviation from the mean has the largest projection on ``direction``, in magnitude.
    """
    return int(np.argmax(np.abs((updates - updates.mean(axis=0)) @ direction)))
