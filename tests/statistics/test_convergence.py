"""The verdict on curves of training losses whose answer is plain, and how often noise deceives it."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.statistics.convergence import convergence

t = np.arange(61)
DECAY = 0.4 + 0.29 * np.exp(-t / 5)
CURVES: dict[str, Any] = {
    "decayed": (DECAY, "converged", ()),
    "decaying": (0.4 + 0.29 * np.exp(-t / 40), "falling", ()),
    "twenty full-batch steps": (0.399 + 0.294 * np.exp(-t[:21] / 30), "falling", ()),
    "not a number": ([0.69, 0.6, math.nan], "diverged", ()),
    "infinite": ([0.69, math.inf, 0.5, 0.5, 0.5, 0.5, 0.5], "diverged", ()),
    "up at once": (np.linspace(0.69, 10.7, 30), "diverged", ("no_progress",)),
    "down and up": (np.where(t < 15, 0.69 - 0.01 * t, 0.54 + 0.01 * (t - 15))[:40], "diverged", ("oscillating",)),
    "a sine round a flat end": (DECAY + 0.02 * np.sin(t), "converged", ("oscillating",)),
    "a growing sine": (DECAY + 0.02 * np.exp(t / 12) * np.sin(t), "diverged", ("oscillating",)),
    "flat": (np.full(30, 0.69), "converged", ("no_progress",)),
    "flat from nothing": (np.zeros(9), "converged", ()),
    "four points": ([0.7, 0.4, 0.4, 0.4], "falling", ("few_points",)),
    "five points": ([0.7, 0.4, 0.4, 0.4, 0.4], "falling", ()),
    "five flat points": ([0.7, 0.7, 0.7, 0.7, 0.7], "converged", ("no_progress",)),
    "one point": ([0.7], "falling", ("few_points",)),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves(name: str) -> None:
    losses, verdict, notes = CURVES[name]
    answer = convergence(losses)
    assert (answer.verdict, answer.notes) == (verdict, notes)
    assert answer.before == losses[0]
    assert answer.last == losses[-1] or math.isnan(losses[-1])


def test_by_hand() -> None:
    """Eleven points, so windows of three: m1 = (.42 + .41 + .40)/3, m0 = (.45 + .44 + .43)/3; no noise."""
    losses = [0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.44, 0.43, 0.42, 0.41, 0.40]
    answer = convergence(losses)
    assert answer.fall == pytest.approx(0.03 / 0.7)
    assert answer.verdict == "falling"
    # The last two windows fall by .001, less than a hundredth of the gain of .2: it stands still.
    still = [*losses[:5], *np.linspace(0.5, 0.4983, 6)]
    assert convergence(still).fall == pytest.approx(0.00102 / 0.7)
    assert convergence(still).verdict == "converged"


def test_the_best_constant_excuses_what_a_start_below_it_would_not() -> None:
    """From .30 to .32 where the constant has .325; beyond it by more than a hundredth of the start is divergence."""
    up = [0.30, 0.31, *np.full(12, 0.32)]
    assert convergence(up).verdict == "diverged"
    assert convergence(up, constant=0.325).verdict == "converged"
    assert convergence([0.30, 0.31, *np.full(12, 0.34)], constant=0.325).verdict == "diverged"


@pytest.mark.parametrize(
    ("curve", "noise", "verdict", "share"),
    [
        (lambda t: 0.69 + 0 * t, 0.02, "converged", 0.89),
        (lambda t: 0.4 + 0.29 * np.exp(-t / 5), 0.02, "converged", 0.93),
        (lambda t: 0.4 + 0.29 * np.exp(-t / 60), 0.02, "falling", 0.58),
        (lambda t: 0.4 + 0.29 * np.exp(-t / 25), 0.01, "falling", 0.86),
    ],
)
def test_noise_seldom_deceives(curve: Callable[..., np.ndarray], noise: float, verdict: str, share: float) -> None:
    """Of 1,000 curves of 61 points; the shares are measured, less three of their errors."""
    rng = np.random.default_rng(0)
    verdicts = [convergence(curve(t) + rng.normal(0, noise, len(t))).verdict for _ in range(1000)]
    assert np.mean([concluded == verdict for concluded in verdicts]) >= share


@given(st.lists(st.floats(0.01, 5), min_size=5, max_size=60))
def test_the_unit_of_the_loss_does_not_matter(losses: list[float]) -> None:
    small, large = convergence(losses), convergence([4 * loss for loss in losses])
    assert (small.verdict, small.notes, small.fall) == (large.verdict, large.notes, large.fall)


def by_definition(curve: list[float], constant: float) -> tuple[str, tuple[str, ...]]:
    """The rule as its module states it, in plain Python."""
    w = max(3, min(10, (len(curve) - 1) // 4))
    last, before = curve[-w:], curve[-2 * w : -w]
    m1, m0 = statistics.fmean(last), statistics.fmean(before)
    steps = [b - a for a, b in pairwise(curve[-2 * w :])]
    middle = statistics.median(steps)
    s = statistics.median(abs(step - middle) for step in steps) / 0.6745 / math.sqrt(2)
    se = s * math.sqrt(2 / w)
    best = min(statistics.fmean(curve[i : i + w]) for i in range(len(curve) - w + 1))
    gain, swing = curve[0] - best, max(last) - min(last)
    if (
        m1 > max(curve[0], constant) + 2 * math.sqrt(se**2 + s**2) + 0.01 * curve[0]
        or (m1 - best > max(0.1 * gain, 0.02 * curve[0]) + 2 * se and m1 > m0)
        or (max(last) > curve[0] and swing > max(gain, 0.2 * curve[0]))
    ):
        verdict = "diverged"
    else:
        verdict = "falling" if m0 - m1 > max(0.01 * gain, 2 * se, 1e-4 * curve[0]) else "converged"
    if gain < 0.001 * curve[0]:
        return verdict, ("no_progress",)
    swings = verdict != "falling" and (s > 0.05 * gain or swing > 0.1 * gain)
    return verdict, ("oscillating",) * swings


def test_verdicts_are_those_of_the_rule_as_it_is_stated() -> None:
    """On curves that fall, turn and swing by chance, so that every threshold has some on either side of it."""
    rng, seen = np.random.default_rng(4), Counter[tuple[str, tuple[str, ...]]]()
    for _ in range(4000):
        points = int(rng.integers(5, 70))
        t = np.arange(points)
        fall, rise, swing, noise = 10.0 ** rng.uniform([-4, -5, -4, -5], [-0.4, -1, -0.3, -1.5])
        curve = 0.7 - fall * (1 - np.exp(-t / rng.uniform(1, 60)))
        curve += rise * np.maximum(t - rng.integers(points), 0) ** rng.uniform(0.2, 1.2)
        curve += rng.integers(2) * swing * np.sin(t / rng.uniform(0.3, 3))
        curve += rng.integers(2) * noise * rng.normal(size=points)
        constant = float(rng.choice([0.6, 0.69, 0.72, 0.8]))
        answer = convergence(curve, constant)
        assert (answer.verdict, answer.notes) == by_definition(curve.tolist(), constant)
        seen[answer.verdict, answer.notes] += 1
    assert len(seen) == 8
    assert min(seen.values()) > 10


def test_no_losses() -> None:
    with pytest.raises(ValueError, match="the list is empty"):
        convergence([])
