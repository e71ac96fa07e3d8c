"""How well one column ranks the rows of each hospital, against pairs counted one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from raysim.core.levels import Z
from raysim.data.checks.separation import FEWEST, Cells, Separation, separation
from raysim.metrics.measures import hanley_mcneil


def by_pairs(
    home: NDArray[np.int64], value: NDArray[np.float64], event: NDArray[np.bool_], directed: bool = False
) -> Separation:
    """The definition, with a loop over hospitals and all pairs of their rows."""
    parts = []
    for h in np.unique(home):
        above, below = value[(home == h) & event], value[(home == h) & ~event]
        if min(len(above), len(below)) >= FEWEST:
            won = np.mean((above[:, None] > below) + 0.5 * (above[:, None] == below))
            parts.append((won, len(above), len(below)))
    won_, m, n = np.array(parts).T
    w = m * n / (m + n)
    auroc = float((w * won_).sum() / w.sum())
    if not directed:
        auroc = max(auroc, 1 - auroc)
    shrunk = (auroc * (m * n).sum() + 0.5) / ((m * n).sum() + 1)
    se = math.sqrt((w**2 * hanley_mcneil(shrunk, m, n)).sum()) / w.sum()
    return Separation(auroc, se, len(parts))


def rows(seed: int, hospitals: int = 9) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    home, y = rng.integers(0, hospitals, 400), rng.integers(0, 3, 400)
    value = (np.round(rng.normal(y - home, 1.0) * 2) / 2).astype(np.float32)  # many ties, and -0
    return home, value, y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("event", range(3))
def test_one_class_against_the_rest(seed: int, event: int) -> None:
    home, value, y = rows(seed)
    found = separation(Cells.of(home, value, y, 3), event)
    asked = by_pairs(home, value.astype(float), y == event)
    assert found.hospitals == asked.hospitals
    assert (found.auroc, found.se) == pytest.approx((asked.auroc, asked.se), rel=1e-12)
    assert found.low == pytest.approx(asked.auroc - Z * asked.se)


@pytest.mark.parametrize("seed", range(3))
def test_categories_are_scored_by_other_hospitals_alone(seed: int) -> None:
    home, value, y = rows(seed, hospitals=5)
    code = (value.astype(np.int64) - int(value.min())) % 4
    code[home == 2] += (code[home == 2] == 3) * 4  # a category that no other hospital has
    event = y == 1
    rate = np.empty(len(y))
    for i, (h, c) in enumerate(zip(home, code, strict=True)):
        others = home != h
        same = others & (code == c)
        rate[i] = event[same].mean() if same.any() else event[others].mean()
    found = separation(Cells.of(home, code, y, 3).by_rate_elsewhere(1), 1, directed=True)
    asked = by_pairs(home, rate, event, directed=True)
    assert (found.auroc, found.se) == pytest.approx((asked.auroc, asked.se), rel=1e-9)


def test_what_tells_hospitals_apart_ranks_nothing() -> None:
    home = np.repeat(np.arange(10), 40)
    y = (np.arange(400) % 40 < 4 * (1 + home)).astype(np.int64)  # more events at later hospitals
    assert separation(Cells.of(home, home.astype(np.float32), y, 2), 1).auroc == 0.5


def test_the_side_is_chosen_once_over_all_hospitals() -> None:
    home, y = np.repeat([0, 1], 20), np.tile([0, 1], 20)
    value = np.where(home == 0, y, -y).astype(np.float32)  # high at one, low at the other
    assert separation(Cells.of(home, value, y, 2), 1).auroc == 0.5
    assert separation(Cells.of(home, -y.astype(np.float32), y, 2), 1).auroc == 1.0


def test_few_rows_are_never_sure() -> None:
    """Five against five that are separated: DeLong's variance would be 0."""
    y = np.repeat([0, 1], 5)
    few = separation(Cells.of(np.zeros(10, np.int64), y.astype(np.float32), y, 2), 1)
    assert few.auroc == 1.0
    assert few.low < 0.95
    y = np.repeat([0, 1], 10)
    assert separation(Cells.of(np.zeros(20, np.int64), y.astype(np.float32), y, 2), 1).low > 0.95


@pytest.mark.parametrize("rows_", [0, 8])
def test_nothing_to_judge(rows_: int) -> None:
    y = np.arange(rows_) % 2
    found = separation(Cells.of(np.zeros(rows_, np.int64), np.ones(rows_, np.float32), y, 2), 1)
    assert math.isnan(found.auroc)
    assert math.isnan(found.low)
    assert found.hospitals == 0
