"""The mean over hospitals and their spread: from the estimators that are tested alone, and the rules for few."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.statistics.between_hospitals import between_hospitals
from raysim.statistics.common_curve import common_curve
from raysim.statistics.spread import hartung_knapp, paule_mandel, prediction, q_profile, shrink
from tests.statistics.federations import sums

EVENTS, NON_EVENTS = [20, 1, 60, 30, 12, 0, 25], [80, 16, 90, 30, 70, 9, 300]
TRUE = [0.9, 0.8, 0.6, 0.75, 0.95, 0.5, 0.7]


def test_it_is_paule_mandel_with_hartung_knapp_on_the_common_variances():
    curve = common_curve(sums(np.random.default_rng(0), EVENTS, NON_EVENTS, TRUE))
    found = between_hospitals(curve)
    y, v = curve.auroc[curve.judged], curve.variance[curve.judged]
    t = paule_mandel(y, v)
    assert t > 0
    mean = hartung_knapp(y, v, t)
    assert (found.hospitals, found.mean, found.tau) == (6, mean, np.sqrt(t))
    assert (found.tau_low, found.tau_high) == pytest.approx(tuple(np.sqrt(q_profile(y, v))))
    assert found.tau_logit == pytest.approx(found.tau / (mean.estimate * (1 - mean.estimate)))
    low, high = prediction(mean, t, 6)
    assert (found.predicted_low, found.predicted_high) == (max(low, 0), min(high, 1))
    each = shrink(y, v, t, mean)
    assert found.shrunken[curve.judged] == pytest.approx(each.estimate)
    reach = 1.959963984540054 * np.sqrt(each.variance)
    assert found.shrunken_high[curve.judged] == pytest.approx(np.minimum(each.estimate + reach, 1))
    assert found.shrunken_low[curve.judged] == pytest.approx(each.estimate - reach)
    assert np.isnan([found.shrunken[5], found.shrunken_low[5], found.shrunken_high[5]]).all()


@pytest.mark.parametrize(
    ("hospitals", "summary", "predicts"), [(2, False, False), (3, True, False), (4, True, False), (5, True, True)]
)
def test_few_hospitals(hospitals, summary, predicts):
    found = between_hospitals(common_curve(sums(np.random.default_rng(1), [20] * hospitals, [60] * hospitals, 0.8)))
    assert found.hospitals == hospitals
    assert np.isfinite(found.mean.estimate) == np.isfinite(found.tau) == np.isfinite(found.shrunken).all() == summary
    assert np.isfinite(found.predicted_low) == np.isfinite(found.predicted_high) == predicts
