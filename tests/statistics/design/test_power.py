"""Power before there is data, against figures computed elsewhere under the same model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from raysim.design.settings import read_design
from raysim.statistics.chance.noise_floor import noise_floor
from raysim.statistics.chance.simulate import Chance
from raysim.statistics.design.power import Sites, differences, slope_power, spread_power
from raysim.statistics.discrimination.auroc import pair_sums


def sites(hospitals: int, median: float, sigma: float = 0.8) -> Sites:
    """The sites of a design of which only the number of hospitals is known."""
    many = {"hospitals": hospitals, "median_rows": median, "prevalence": 0.12, "sigma": sigma}
    return read_design({"sites": many}).judged()


GOLDEN = [
    (4, 100, 3, (0.0, 0.01, 0.18), 0.061),
    (4, 500, 5, (0.02, 0.11, 0.85), 0.030),
    (8, 200, 3, (0.07, 0.32, 0.99), 0.024),
    (20, 60, 5, (0.12, 0.41, 1.0), 0.021),
    (20, 200, 3, (0.18, 0.65, 1.0), 0.016),
    (50, 60, 5, (0.27, 0.82, 1.0), 0.014),
    (50, 200, 3, (0.30, 0.84, 1.0), 0.013),
    (208, 17, 5, (0.37, 0.92, 1.0), 0.012),
    (208, 60, 3, (0.34, 0.87, 1.0), 0.012),
]


@pytest.mark.parametrize(("hospitals", "median", "seeds", "powers", "half_width"), GOLDEN)
def test_power_for_a_difference(
    hospitals: int, median: float, seeds: int, powers: tuple[float, ...], half_width: float
) -> None:
    drawn = differences(sites(hospitals, median), seeds, 2000)
    assert [drawn.power(d) for d in (0.01, 0.02, 0.05)] == pytest.approx(powers, abs=0.03)
    assert drawn.half_width == pytest.approx(half_width, abs=0.0015)
    assert drawn.power(0.0) <= 0.05
    assert drawn.power(drawn.visible(0.8)) == pytest.approx(0.8, abs=0.005)


def test_twenty_equal_hospitals_and_patients_alone() -> None:
    equal = Sites(np.full(20, 24.0), np.full(20, 176.0), 0.8, 0.9, 0.0, 0.0)
    assert equal.variance == pytest.approx(0.00062584, abs=1e-8)
    # (t + t) standard errors; the larger of two variances widens it a little.
    assert differences(equal, 2, 1500).visible(0.8) == pytest.approx(0.016524, abs=0.0015)


@pytest.mark.parametrize(
    ("hospitals", "median", "powers"),
    [
        (4, 100, (0.04, 0.12, 0.44)),
        (8, 200, (0.07, 0.47, 0.93)),
        (20, 60, (0.04, 0.20, 0.82)),
        (20, 200, (0.09, 0.73, 1.0)),
        (50, 200, (0.18, 0.98, 1.0)),
        (208, 17, (0.04, 0.25, 0.99)),
    ],
)
def test_power_for_a_spread(hospitals: int, median: float, powers: tuple[float, ...]) -> None:
    found = [spread_power(sites(hospitals, median), tau) for tau in (0.02, 0.05, 0.10)]
    assert found == pytest.approx(powers, abs=0.03)
    assert spread_power(sites(hospitals, median), 0.0) == pytest.approx(0.025, abs=0.006)


def test_power_for_a_spread_is_that_of_a_comparison() -> None:
    """Scores of hospitals whose AUROC varies, tested as a comparison tests them."""
    of, rng, demonstrated = sites(20, 60), np.random.default_rng(5), 0
    m, n = of.events.astype(int), of.non_events.astype(int)
    event = np.concatenate([np.repeat([1, 0], counts) for counts in zip(m, n, strict=True)])
    chance = Chance(lambda: np.random.default_rng(6))
    for _ in range(200):
        shift = np.sqrt(2) * ndtri(np.clip(0.8 + 0.05 * rng.standard_normal(20), 0.02, 0.98))
        scores = rng.standard_normal(len(event)) + event * np.repeat(shift, m + n)
        sums = pair_sums(scores, event, np.concatenate([[0], np.cumsum(m + n)]))
        demonstrated += noise_floor(sums, m + n, chance, draws=200).demonstrated
    assert spread_power(of, 0.05) == pytest.approx(demonstrated / 200, abs=0.06)


def test_power_for_a_slope() -> None:
    few = slope_power(sites(50, 200), 0.001, 200)
    assert few < 0.15
    assert slope_power(sites(50, 200), 0.02, 200) > 0.95
    assert np.isnan(slope_power(sites(9, 200), 0.02, 10))
    assert np.isnan(slope_power(sites(20, 200, sigma=0.0), 0.02, 10))
