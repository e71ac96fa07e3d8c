"""Noise has the distribution that its guarantee needs, from either origin."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from raysim.core.exact import FRACTION_BITS
from raysim.core.streams import quick_stream
from raysim.privacy.events import Gaussian, Laplace, Repeated
from raysim.privacy.noise import StepNormals, grid_units, laplaces, normals, with_rounding
from raysim.privacy.noisy_sums import SUM_BITS, Bounds, Mechanism, clipped_sum, total_of

DRAWS = 100_000


@pytest.mark.parametrize("origin", ["seeded", "system"])
@pytest.mark.parametrize(
    ("drawn", "law"),
    [
        (lambda origin: laplaces(origin, DRAWS, 7, "a purpose"), stats.laplace),
        (lambda origin: normals(origin, (DRAWS,), 7, "a purpose"), stats.norm),
    ],
    ids=["laplace", "normal"],
)
def test_the_share_below_each_quantile_is_the_laws(origin, drawn, law):
    x = drawn(origin)
    chances = np.array([0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999])
    below = (x[:, None] <= law.ppf(chances)).mean(axis=0)
    # Eight standard deviations: the system's numbers are others each time.
    assert (np.abs(below - chances) <= 8 * np.sqrt(chances * (1 - chances) / DRAWS)).all()


def test_the_systems_numbers_are_never_the_same():
    assert (laplaces("system", 50, 7, "a purpose") != laplaces("system", 50, 7, "a purpose")).all()
    assert (laplaces("seeded", 50, 7, "a purpose") == laplaces("seeded", 50, 7, "a purpose")).all()


def test_noise_is_rounded_to_the_nearest_step_of_the_grid():
    step = 2.0**-FRACTION_BITS
    assert grid_units(step * np.array([0.4, 0.6, -0.6, 1.5, 2.5, -7.0])).tolist() == [0, 1, -1, 2, 2, -7]
    # Each of nine scalars moves by half a step at most, in a sum that holds a quarter of the message.
    assert with_rounding(1.0, 9, 0.25) == 1.0 + 3 * step / 2 / 0.25


@pytest.mark.parametrize(("steps", "size"), [(1, 50_001), (5, 3), (9, 2000)])
def test_noise_of_a_step_is_the_same_whichever_steps_were_asked_for_before(steps, size):
    seeded, each = StepNormals("seeded", steps, 7, "a purpose", 3), {}
    for step in range(steps):
        each[step] = StepNormals("seeded", steps, 7, "a purpose", 3)(step, size).copy()
    for step in [*reversed(range(steps)), *range(steps)]:
        assert (seeded(step, size) == each[step]).all()
        assert seeded(step, size).shape == (size,)
    assert len({drawn.tobytes() for drawn in each.values()}) == steps
    assert (StepNormals("seeded", steps, 7, "a purpose", 4)(0, size) != each[0]).any()
    assert (StepNormals("seeded", steps, 8, "a purpose", 3)(0, size) != each[0]).any()


@pytest.mark.parametrize(
    ("steps", "size", "step", "block", "together"),
    [(10_000, 100, 80, 0, 81), (10_000, 100, 81, 1, 81), (5, 3, 4, 0, 5), (3, 50_001, 2, 2, 1)],
)
def test_steps_together_draw_some_eight_thousand_numbers(steps, size, step, block, together):
    drawn = StepNormals("seeded", steps, 7, "a purpose")(step, size)
    whole = StepNormals("seeded", steps, 7, "a purpose")
    whole._draw(quick_stream(7, "a purpose", block), together * size)
    assert whole._numbers.shape == (2, (together * size + 1) // 2)
    assert (drawn == whole._numbers.ravel()[(step % together) * size :][:size]).all()


def test_the_systems_noise_is_never_the_same():
    system = StepNormals("system", 2, 7, "a purpose", 3)
    assert system(0, 4).shape == (4,)
    assert (system(0, 4) != system(0, 4)).all()


def test_noise_of_steps_is_normal_far_out_and_its_numbers_know_nothing_of_each_other():
    """A million of a large model's, and as many of a small one's: quantiles, moments and neighbours."""
    large = np.concatenate([StepNormals("seeded", 20, 7, "a purpose")(step, 50_001).copy() for step in range(20)])
    drawn = StepNormals("seeded", 10_000, 7, "another purpose")
    small = np.array([drawn(step, 100).copy() for step in range(10_000)])
    for sums in (small.sum(axis=0), small.sum(axis=1), small.reshape(20, 500, 100).sum(axis=1).ravel()):
        variance = small.size / len(sums)
        assert abs((sums.astype(np.float64) ** 2).mean() / variance - 1) <= 5 * np.sqrt(2 / len(sums))
    for x in (large, small.ravel()):
        x = x.astype(np.float64)
        chances = np.array([1e-5, 1e-4, 0.001, 0.01, 0.1, 0.25, 0.5])
        for part in (x, -x):
            below = (part[:, None] <= stats.norm.ppf(chances)).mean(axis=0)
            assert (np.abs(below - chances) <= 5 * np.sqrt(chances * (1 - chances) / len(x))).all()
        for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96)}.items():
            assert abs((x**power).mean() - mean) <= 5 * np.sqrt(variance / len(x))
        for apart in (1, 2, 50, 100, 4050, 25_001):  # the two of a pair are half of what is drawn at once apart
            for of in (lambda v: v, np.square):
                assert abs(np.corrcoef(of(x[:-apart]), of(x[apart:]))[0, 1]) <= 5 / np.sqrt(len(x))


def test_an_event_is_one_release_of_all_unless_more_is_said():
    assert Gaussian(2.0) == Gaussian(2.0, 1.0, 1)
    assert Laplace(2.0) == Laplace(2.0, 1)
    assert Repeated(2.0, 0.5, 3) == Repeated(2.0, 0.5, 3, 1)


@pytest.mark.parametrize(("hospitals", "shares"), [(1, 1), (3, 1), (4, 1), (5, 2), (6, 3), (10, 5), (208, 137)])
def test_two_thirds_of_the_shares_but_one_hold_the_whole_of_normal_noise(hospitals, shares):
    normal, laplace = (Mechanism(event, "seeded") for event in (Gaussian(2.0, 0.5, 3), Laplace(2.0)))
    assert normal.in_shares(hospitals).event == Gaussian(2.0 / np.sqrt(shares), 0.5, 3)
    assert laplace.in_shares(hospitals) == laplace


@pytest.mark.parametrize(("event", "bound"), [(Laplace(1.0), 7.0), (Gaussian(1.0), 5.0)])
def test_what_a_unit_adds_is_clipped_beyond_the_bound_alone(event, bound):
    """Unit 0 is as long as the bound, unit 1 twice as long in two rows, and unit 2 is not finite."""
    rows, unit = np.array([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0], [np.nan, 1.0]]), np.array([0, 1, 1, 2])
    how, bounds = Mechanism(event, "seeded"), Bounds(7.0, 5.0)
    assert how.bound(bounds) == bound
    assert clipped_sum(rows[:1], unit[:1], how, bounds).tolist() == [3.0, 4.0]
    both = clipped_sum(rows, unit, how, bounds)
    assert both == pytest.approx([6.0, 8.0], rel=1e-11)
    assert (both < [6.0, 8.0]).all()
    assert clipped_sum(rows[:0], unit[:0], how, bounds).tolist() == [0.0, 0.0]


def test_a_secure_sum_is_in_fixed_point_of_thirty_bits():
    step = 2.0**-30
    assert total_of([np.array([0.6 * step, 1.0]), np.array([0.6 * step, -2.25])], None, 0).tolist() == [2 * step, -1.25]


def test_a_hidden_total_is_what_masks_leave():
    hidden: Any = SimpleNamespace(total=lambda units, seed: np.array([seed, *(each[0] for each in units)]))
    sums = [np.array([0.5]), np.array([-2.0])]
    assert total_of(sums, hidden, 7).tolist() == [7 * 2.0**-SUM_BITS, 0.5, -2.0]
    assert total_of(sums, None, 7).tolist() == [-1.5]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_step_of_few_numbers_has_as_many(size):
    assert StepNormals("seeded", 1, 7, "a purpose")(0, size).shape == (size,)
