"""Noise has the distribution that its guarantee needs, from either origin."""

import numpy as np
import pytest
from scipy import stats

from raysim.core.exact import FRACTION_BITS
from raysim.privacy import counting
from raysim.privacy.noise import Normals, grid_units, laplaces, normals, with_rounding

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


def test_vectors_and_counts_that_are_told_together_cost_one_event():
    """Squares of what is told over its noise add up to those of one event, a tenth of them the counts'."""
    for multiplier in (0.5, 1.0, 3.7):
        vectors, counts = counting.split(multiplier)
        assert vectors**-2 + counts**-2 == pytest.approx(multiplier**-2)
        assert counts**-2 == pytest.approx(0.1 * multiplier**-2)


def test_noise_is_rounded_to_the_nearest_step_of_the_grid():
    step = 2.0**-FRACTION_BITS
    assert grid_units(step * np.array([0.4, 0.6, -0.6, 1.5, 2.5, -7.0])).tolist() == [0, 1, -1, 2, 2, -7]
    # Each of nine scalars moves by half a step at most, in a sum that holds a quarter of the message.
    assert with_rounding(1.0, 9, 0.25) == 1.0 + 3 * step / 2 / 0.25


def test_noise_step_by_step_is_that_of_each_step():
    seeded = Normals("seeded", 7, "a purpose", 3)
    for step in (0, 5, 2):
        assert (seeded(step, 4) == normals("seeded", (4,), 7, "a purpose", 3, step)).all()
    system = Normals("system", 7, "a purpose", 3)
    assert system(0, 4).shape == (4,)
    assert (system(0, 4) != system(0, 4)).all()
