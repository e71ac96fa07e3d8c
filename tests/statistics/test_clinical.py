"""Clinical figures: worked by hand, against scikit-learn, and undefined where there is nothing to say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

from raysim.metrics.equity import gini
from raysim.metrics.score_counts import score_counts
from raysim.statistics.clinical import clinical_figures as clinical
from raysim.statistics.clinical import operating_points as operating
from raysim.statistics.clinical.calibration import Bins, calibration, calibration_error, edges
from raysim.statistics.clinical.clinical_figures import calibration_metrics, figures
from raysim.statistics.clinical.curves import (
    CURVE,
    HOSPITAL_CURVE,
    _first_bins,
    binned,
    calibration_bins,
    net_benefit_curve,
)
from raysim.statistics.clinical.equity import _binomial, _groups, clinical_equity
from raysim.statistics.clinical.operating_points import operating_points
from raysim.statistics.clinical.thresholds import gained, net_benefits, threshold_at_sensitivity
from raysim.statistics.intervals import clopper_pearson, wilson
from tests.statistics.rows import raw

Y = np.array([1] * 5 + [0] * 7)
P = np.array([0.9, 0.8, 0.55, 0.4, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.35])
THRESHOLDS = (0.2, 0.5)


def rng():
    return np.random.default_rng(0)


def measured(p, y, offsets, thresholds=THRESHOLDS, bins=10):
    counts = score_counts(logit(p), y, offsets, thresholds)
    points = operating_points(counts, None, 0.8, 0.8)
    all_figures = figures(counts, thresholds, points, bins, rng())
    return counts, {(figure.name, None if np.isnan(figure.at) else figure.at): figure for figure in all_figures}


def federation(sizes, seed=0, shift=0.0, scale=1.0):
    """Rows of hospitals with ``p`` right but for ``shift`` and ``scale``."""
    random = np.random.default_rng(seed)
    n = sum(sizes)
    z = random.standard_normal(n) * 1.2 - 0.7
    y = (random.random(n) < expit(shift + scale * z)).astype(int)
    return expit(z), y, np.concatenate([[0], np.cumsum(sizes)])


def test_worked_figures_at_thresholds():
    _, by_name = measured(P, Y, [0, 12])
    for (name, at), x, of in (
        (("sensitivity", 0.5), 4, 5),
        (("specificity", 0.5), 5, 7),
        (("ppv", 0.5), 4, 6),
        (("npv", 0.5), 5, 6),
        (("sensitivity", 0.2), 5, 5),
        (("specificity", 0.2), 1, 7),
        (("npv", 0.2), 1, 1),
    ):
        figure = by_name[name, at]
        low, high = map(float, clopper_pearson(x, of))
        assert (figure.value[0], figure.low[0], figure.high[0]) == pytest.approx((x / of, low, high))
        assert (figure.of[0], figure.undefined[0], figure.threshold) == (of, "", at)
    assert by_name["ppv", 0.2].value[0] == pytest.approx(5 / 11)
    assert by_name["ppv", 0.2].low[0] == pytest.approx(float(wilson(5, 11).low)), "ten rows and more have Wilson's"
    assert by_name["net_benefit", 0.2].value[0] == pytest.approx(0.2916666667, abs=6e-11)
    assert by_name["net_benefit_of_all", 0.2].value[0] == pytest.approx(0.2708333333, abs=6e-11)
    _, lowest, _, _ = net_benefits(4, 2, 5, 12, 0.5)
    assert by_name["net_benefit", 0.5].low[0] == pytest.approx(lowest)
    assert by_name["observed_over_expected", None].value[0] == pytest.approx(0.8620689655, abs=2e-3)


@pytest.mark.parametrize("probability", [0.2, 0.5, 0.9])
def test_the_interval_of_net_benefit_is_that_of_a_mean_of_rows(probability):
    """A true positive brings 1, a false one costs the odds, another row brings nothing."""
    odds = probability / (1 - probability)
    of_rows = np.repeat([1.0, -odds, 0.0], [3, 2, 5])
    reach = 1.959963984540054 * of_rows.std() / np.sqrt(10)
    gain = net_benefits(3, 2, 4, 10, probability)
    expected = (of_rows.mean(), of_rows.mean() - reach, of_rows.mean() + reach, 0.4 - 0.6 * odds)
    assert gain == pytest.approx(expected, rel=1e-12)


def test_the_thresholds_of_curves():
    assert CURVE.tolist() == [k / 100 for k in range(1, 100)]
    assert HOSPITAL_CURVE.tolist() == [k / 100 for k in range(5, 100, 5)]


def test_against_scikit_learn_on_every_hospital():
    sizes = [300, 250, 400]
    p, y, offsets = federation(sizes, shift=0.3, scale=0.7)
    counts, by_name = measured(p, y, offsets)
    bins = calibration_bins(counts, 10)
    for h in range(3):
        rows = slice(offsets[h], offsets[h + 1])
        mine, labels = p[rows], y[rows]
        for t in THRESHOLDS:
            tn, fp, fn, tp = confusion_matrix(labels, mine >= t).ravel()
            for name, value in (
                ("sensitivity", tp / (tp + fn)),
                ("specificity", tn / (tn + fp)),
                ("ppv", tp / (tp + fp)),
                ("npv", tn / (tn + fn)),
                ("net_benefit", tp / len(mine) - fp / len(mine) * t / (1 - t)),
            ):
                assert by_name[name, t].value[h] == pytest.approx(value, abs=1e-12)
        fit = LogisticRegression(C=np.inf, tol=1e-8).fit(logit(mine)[:, None], labels)
        assert by_name["calibration_slope", None].value[h] == pytest.approx(fit.coef_[0, 0], rel=0.005)
        assert by_name["calibration_intercept", None].value[h] == pytest.approx(fit.intercept_[0], abs=0.005)
        observed, predicted = calibration_curve(labels, mine, n_bins=10)
        filled = bins.rows[h] > 0
        # A bin of scores that an edge of these runs through lies on one side of it.
        assert bins.observed[h, filled] == pytest.approx(observed, abs=0.02)
        assert bins.predicted[h, filled] == pytest.approx(predicted, abs=0.02)
    low, high = by_name["calibration_slope", None].low, by_name["calibration_slope", None].high
    assert ((low < 0.7) & (high > 0.7)).all()


def test_from_bins_as_from_rows():
    p, y, offsets = federation([800], shift=0.4)
    _, by_name = measured(p, y, offsets)
    exact = calibration(raw(p, y))
    for name, coefficient in (
        ("calibration_in_the_large", exact.in_the_large),
        ("calibration_intercept", exact.intercept),
        ("calibration_slope", exact.slope),
    ):
        figure = by_name[name, None]
        expected = (coefficient.estimate, coefficient.low, coefficient.high)
        assert (figure.value[0], figure.low[0], figure.high[0]) == pytest.approx(expected, abs=0.005)


def test_the_calibration_error_is_its_definition_beside_its_floor():
    p = np.repeat([0.25, 0.75], [60, 40])  # their margins lie within one bin of scores each
    y = np.concatenate([np.repeat([1, 0], [30, 30]), np.repeat([1, 0], [20, 20])])
    counts, by_name = measured(p, y, [0, 100])
    assert by_name["calibration_error", None].value[0] == pytest.approx(0.25, abs=0.002)
    exact = calibration_error(Bins(*(part[0] for part in binned(counts, 10))), rng())
    error = by_name["calibration_error", None]
    assert (error.low[0], error.high[0]) == (exact.low, exact.high)
    assert 0 < error.low[0] < error.value[0] < error.high[0]
    floor = by_name["calibration_error_floor", None]
    assert 0 < floor.value[0] < floor.high[0] < 0.25
    metrics = calibration_metrics(counts, 10)
    assert metrics["calibration_error"] == by_name["calibration_error", None].value[0]
    fewer, _ = measured(p[:99], y[:99], [0, 99])
    assert np.isnan(calibration_metrics(fewer, 10)["calibration_error"]), "99 rows are too few, as at a hospital"
    bins = calibration_bins(counts, 3)
    assert bins.rows[0].tolist() == [60, 0, 40]
    assert bins.observed[0, [0, 2]].tolist() == [0.5, 0.5]
    assert np.isnan(bins.observed[0, 1])


def test_the_curve_is_net_benefit_at_each_threshold():
    p, y, offsets = federation([500])
    counts = score_counts(logit(p), y, offsets)
    thresholds = np.array([0.1, 0.3, 0.5, 0.8])
    curve = net_benefit_curve(counts, thresholds)
    for i, t in enumerate(thresholds):
        called = p >= t
        near = np.abs(logit(p) - logit(t)) < 0.02  # rows in the bin that the threshold is in
        tp, fp = (called & (y == 1)).sum(), (called & (y == 0)).sum()
        expected = tp / 500 - fp / 500 * t / (1 - t)
        assert curve.value[0, i] == pytest.approx(expected, abs=near.sum() / 500 * max(1, t / (1 - t)) + 1e-12)
        assert curve.everyone[0, i] == pytest.approx(y.mean() - (1 - y.mean()) * t / (1 - t))
    called = p >= 0.5  # where a bin of scores begins
    assert curve.value[0, 2] == pytest.approx((called & (y == 1)).mean() - (called & (y == 0)).mean(), abs=1e-12)


def test_rows_at_a_threshold_are_acted_on():
    curve = net_benefit_curve(score_counts(np.zeros(3), np.array([1, 1, 0]), [0, 3]), np.array([0.5]))
    assert curve.value.tolist() == [[pytest.approx(1 / 3)]]


def test_every_threshold_lies_between_0_and_1():
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="must be above 0 and below 1"):
            net_benefits(1, 0, 1, 2, np.array([0.5, wrong]))


# --- one threshold for all ---


def test_sensitivity_at_a_specificity_and_the_reverse_by_hand():
    z = np.array([-3.0, -2, -1, 0, 1, 2, -2.5, -1, 1, 2, 3])
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    counts = score_counts(z, y, [0, 4, 11])
    at_specificity, at_sensitivity = operating_points(counts, None, 4 / 6, 0.8)
    # Four of six other rows lie below 1; from -1 on four of five events are called.
    assert at_specificity.threshold == pytest.approx(expit(1.0))
    assert at_sensitivity.threshold == pytest.approx(expit(-1.0), abs=0.002)
    by_name = {figure.name: figure for figure in figures(counts, (), [at_specificity, at_sensitivity], 10, rng())}
    assert by_name["sensitivity_at_specificity"].value.tolist() == pytest.approx([np.nan, 3 / 5], nan_ok=True)
    assert by_name["sensitivity_at_specificity"].undefined.tolist() == ["no event", ""]
    assert by_name["specificity_at_sensitivity"].value.tolist() == pytest.approx([2 / 4, 0 / 2])
    assert by_name["sensitivity_at_specificity"].high[1] == pytest.approx(float(clopper_pearson(3, 5).high))


def test_a_threshold_is_chosen_on_validation_rows_where_there_are_any():
    """On five rows of each class: by validation from 3 and 1 on, by the rows themselves from 0 and -2 on."""
    y = np.repeat([0, 1], 5)
    z = np.array([-4.0, -3, -2, -1, 0, -3, -2, -1, 0, 1])
    counts, validation = score_counts(z, y, [0, 10]), score_counts(z + 3, y, [0, 10])
    for given, first, second, same in ((None, 0, -2, True), (validation, 3, 1, False)):
        points = operating_points(counts, given, 0.8, 0.8)
        assert [point.threshold for point in points] == pytest.approx(expit([first, second]), abs=0.002)
        assert [point.same_rows for point in points] == [same, same]


@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.95])
def test_the_threshold_is_the_largest_that_is_sensitive_enough(wanted):
    p, y, _ = federation([60], seed=4)
    z = logit(p)
    candidates = [value for value in z if (z[y == 1] >= value).mean() >= wanted]
    t = threshold_at_sensitivity(raw(p, y), wanted)
    assert np.isnan(t) if y.sum() * (1 - wanted) < 1 - 1e-9 else t == pytest.approx(max(candidates))


def test_a_threshold_from_validation_rows_leaves_wilson_s_interval_and_one_from_the_same_rows_is_less_sure():
    p, y, offsets = federation([400, 400], seed=1)
    other_p, other_y, _ = federation([400, 400], seed=2)
    counts, validation = score_counts(logit(p), y, offsets), score_counts(logit(other_p), other_y, offsets)
    together = counts.together()
    chosen = operating_points(counts, validation, 0.9, 0.9)
    cut = logit(other_p)[other_y == 0]
    assert (cut < logit(chosen[0].threshold)).mean() == pytest.approx(0.9, abs=0.01)
    fixed = figures(together, (), chosen, 10, rng())[-2]
    x = round(fixed.value[0] * y.sum())
    assert (fixed.low[0], fixed.high[0]) == pytest.approx(tuple(map(float, wilson(x, y.sum()))))
    same = figures(together, (), operating_points(counts, None, 0.9, 0.9), 10, rng())
    for figure, share in ((same[-2], "sensitivity"), (same[-1], "specificity")):
        assert figure.low[0] < figure.value[0] < figure.high[0], share
        narrow = wilson(figure.value[0] * figure.of[0], figure.of[0])
        assert figure.high[0] - figure.low[0] > 1.2 * (narrow.high - narrow.low), share


def test_the_interval_of_a_chosen_threshold_covers():
    """Of 100 draws about 95 hold what a threshold chosen on endless rows would give."""
    p, y, offsets = federation([200_000], seed=9)
    counts = score_counts(logit(p), y, offsets)
    points = operating_points(counts, None, 0.9, 0.9)
    truth = [figure.value[0] for figure in figures(counts, (), points, 10, rng())[-2:]]
    held = np.zeros(2)
    for seed in range(100):
        p, y, offsets = federation([400], seed=100 + seed)
        counts = score_counts(logit(p), y, offsets)
        chosen = figures(counts, (), operating_points(counts, None, 0.9, 0.9), 10, np.random.default_rng(seed))[-2:]
        held += [figure.low[0] <= t <= figure.high[0] for figure, t in zip(chosen, truth, strict=True)]
    assert (held >= 88).all()


# --- undefined ---


def reasons(p, y, offsets):
    _, by_name = measured(np.asarray(p, dtype=float), np.asarray(y), offsets)
    for figure in by_name.values():
        assert (np.isnan(figure.value) == (figure.undefined != "")).all(), figure.name
        assert not np.isfinite(figure.low[figure.undefined != ""]).any(), figure.name
    return {key: figure.undefined.tolist() for key, figure in by_name.items()}


def test_what_is_undefined_says_why():
    # Hospitals: no rows; one class; few of both; every row is predicted positive; one prediction that is not a number.
    p = [0.3, 0.6, 0.3, 0.6, 0.9, 0.8, np.nan, 0.4]
    y = [0, 0, 1, 0, 1, 0, 1, 0]
    why = reasons(p, y, [0, 0, 2, 4, 6, 8])
    none, broken = clinical.NO_ROWS, clinical.BROKEN
    assert why["calibration_slope", None] == [none, clinical.ONE_CLASS, *[clinical.FEW_OF_A_CLASS] * 2, broken]
    assert why["calibration_error", None] == [none, *[clinical.FEW_ROWS] * 3, broken]
    assert why["sensitivity", 0.5] == [none, clinical.NO_EVENT, "", "", broken]
    assert why["specificity", 0.5] == [none, "", "", "", broken]
    assert why["npv", 0.5] == [none, "", "", clinical.ALL_POSITIVE, broken]
    assert why["npv", 0.2] == [none, *[clinical.ALL_POSITIVE] * 3, broken]
    assert why["net_benefit", 0.5] == [none, "", "", "", broken]
    assert why["observed_over_expected", None] == [none, "", "", "", broken]
    assert why["sensitivity_at_specificity", 0.8] == [none, *[clinical.NO_THRESHOLD] * 3, broken]
    low = reasons([0.1] * 4, [0, 0, 0, 1], [0, 4])
    assert low["ppv", 0.5] == [clinical.NONE_POSITIVE]
    assert reasons([0.1] * 4, [1, 1, 1, 1], [0, 4])["specificity", 0.5] == [clinical.NO_OTHER]


def test_ten_of_either_class_are_enough_for_coefficients():
    p, row = np.tile([0.2, 0.4, 0.6, 0.8], 10), np.arange(40)
    for events, why in ((9, clinical.FEW_OF_A_CLASS), (10, "")):
        y = (row % 4 == row // 4 % 4) & (row < 4 * events)  # one of four, each prediction in its turn
        for labels in (y, ~y):
            _, by_name = measured(p, labels.astype(int), np.array([0, 40]))
            assert by_name["calibration_intercept", None].undefined.tolist() == [why]


def test_classes_that_predictions_separate_have_no_slope():
    p, y = np.linspace(0.05, 0.95, 40), (np.arange(40) >= 20).astype(int)
    _, by_name = measured(p, y, [0, 40])
    assert by_name["calibration_slope", None].undefined.tolist() == [clinical.SEPARATED]
    assert by_name["calibration_in_the_large", None].undefined.tolist() == [""]


def test_certain_predictions_are_counted_and_have_no_slope():
    z, y = np.repeat([np.inf, -np.inf, 0.5], 20), np.tile([1, 0], 30)
    counts = score_counts(z, y, [0, 60], (0.5,))
    by_name = {figure.name: figure for figure in figures(counts, (0.5,), (), 10, rng())}
    assert by_name["calibration_slope"].undefined.tolist() == [clinical.SEPARATED]
    assert by_name["ppv"].value[0] == 0.5
    expected = 20 + 20 * expit(0.5)
    assert by_name["observed_over_expected"].value[0] == pytest.approx(30 / expected, rel=0.001)


# --- over hospitals ---


def test_equity_by_the_rules_of_auroc():
    sizes = [40, 60, 50, 80, 30, 70, 90, 20, 45, 55, 65]
    p, y, offsets = federation(sizes, seed=5)
    counts, by_name = measured(p, y, offsets)
    equity = {(e.figure, e.at): e for e in clinical_equity(counts, list(by_name.values()), np.array(sizes) * 5, rng())}
    shares = by_name["sensitivity", 0.5].value
    one = equity["sensitivity", 0.5]
    assert one.measure == "value"
    assert one.over["worst_decile"] == pytest.approx(np.sort(shares)[:2].mean())
    assert one.over["gini"] == pytest.approx(gini(shares))
    assert one.over["std"] == pytest.approx(shares.std())
    assert one.over["mean"] == pytest.approx(np.average(shares, weights=sizes))
    errors = np.abs(np.log(by_name["observed_over_expected", None].value))
    (ratio,) = (e for e in equity.values() if e.figure == "observed_over_expected")
    assert ratio.measure == "distance"
    assert ratio.over["worst_decile"] == pytest.approx(np.sort(errors)[-2:].mean()), "the furthest are the worst"
    assert np.isnan(ratio.p)
    assert ("net_benefit_of_all", 0.5) not in equity


def test_the_floor_of_shares_is_that_of_equally_served_hospitals():
    sizes = [30] * 20
    p, y, offsets = federation(sizes, seed=6)
    counts, by_name = measured(p, y, offsets)
    figure = by_name["specificity", 0.5]
    (equity,) = clinical_equity(counts, [figure], np.array(sizes), rng())
    common = (figure.value * figure.of).sum() / figure.of.sum()
    drawn = np.random.default_rng(1).binomial(figure.of.astype(int), common, (4000, 20)) / figure.of
    assert equity.floor_std == pytest.approx(drawn.std(axis=1).mean(), rel=0.05)
    assert equity.floor_worst_decile == pytest.approx(np.sort(drawn)[:, :2].mean(), abs=0.02)
    assert equity.p > 0.05
    unequal = figure._replace(value=np.where(np.arange(20) < 10, 1.0, 0.3))
    (equity,) = clinical_equity(counts, [unequal], np.array(sizes), rng())
    assert equity.p == 1 / 201


def test_chance_is_counted_in_units_of_each_hospitals_own_variance():
    """Draw by draw, of hospitals of 5 to 40 rows: how often they differ from what is expected as much as these do."""
    p, y, offsets = federation([30] * 4)
    counts, by_name = measured(p, y, offsets)
    of, right = np.array([5.0, 8, 20, 40]), np.array([2.0, 6, 15, 35])
    figure = by_name["specificity", 0.5]._replace(value=right / of, of=of)
    (equity,) = clinical_equity(counts, [figure], np.full(4, 30), rng())
    common = 58 / 73
    draws = rng().binomial(of.astype(int)[:, None], common, (4, 200)).T
    distance = [((x - of * common) ** 2 / of).sum() for x in (right, *draws)]
    assert equity.p == (1 + sum(other >= distance[0] for other in distance[1:])) / 201
    assert 0.05 < equity.p < 0.5
    assert equity.floor_std == pytest.approx(np.mean([np.std(x / of) for x in draws]))
    assert equity.floor_worst_decile == pytest.approx(np.mean([(x / of).min() for x in draws]))


def test_what_can_be_negative_has_no_gini():
    p, y, offsets = federation([30] * 4)
    counts, by_name = measured(p, y, offsets)
    for values, there in (([-0.1, 0.2, 0.3, 0.4], False), ([0.0, 0.2, 0.3, 0.4], True)):
        figure = by_name["net_benefit", 0.5]._replace(value=np.array(values))
        (equity,) = clinical_equity(counts, [figure], np.full(4, 30), rng())
        assert np.isfinite(equity.over["gini"]) == there


def test_a_share_is_of_whole_rows():
    figure = measured(*federation([30] * 4))[1]["specificity", 0.5]
    of, right = np.array([5.0, 8, 20, 40]), np.array([2.0, 6, 15, 35])
    whole, rounded = (_binomial(figure._replace(value=right / of + more, of=of), rng()) for more in (0, 0.01))
    assert whole == rounded


def test_draws_that_differ_just_as_much_count():
    class Same:
        def binomial(self, of, share, size):
            return np.repeat([[2.0], [6.0], [15.0]], size[1], axis=1)

    of, right = np.array([5.0, 8, 20]), np.array([2.0, 6, 15])
    figure = clinical.ClinicalFigure("ppv", 0.5, 0.5, right / of, right, right, of, np.full(3, "", object))
    assert _binomial(figure, Same())[2] == 1.0


def test_a_chosen_threshold_s_share_leaves_a_fortieth_of_draws_on_either_side():
    """Draws of 0 to 300 of 10 rows, of which 0.025 and 0.975 of the way are 7.5 and 292.5."""

    class Counted:
        def beta(self, a, b, size):
            return np.resize([0.5, 1.0], size)  # a number just below 1 can round to it: the last row decides

        def binomial(self, rows, share):
            return np.arange(301)

    p, y, offsets = np.full(20, 0.5), np.repeat([0, 1], 10), np.array([0, 20])
    point = operating.OperatingPoint("", 0.5, True, 0.0, 0.5, True)
    interval = operating.with_the_threshold_chosen_again(
        score_counts(logit(p), y, offsets).together(), point, Counted()
    )
    assert interval == pytest.approx((0.75, 29.25))


def test_each_hospital_has_its_own_calibration_error():
    p, y, offsets = federation([120, 150, 180])
    whole = measured(p, y, offsets)[1]["calibration_error", None].value
    alone = [measured(p[a:b], y[a:b], [0, b - a])[1]["calibration_error", None].value[0] for a, b in pairwise(offsets)]
    assert whole.tolist() == alone
    assert len(set(alone)) == 3


def test_a_hospital_of_one_class_lacks_the_other():
    p, y, _ = federation([200])
    by_name = measured(np.append(p, [0.5] * 4), np.append(y, [1, 1, 0, 0]), [0, 200, 202, 204])[1]
    assert by_name["sensitivity_at_specificity", 0.8].undefined.tolist() == ["", "", "no event"]
    assert by_name["specificity_at_sensitivity", 0.8].undefined.tolist() == ["", "no row without the event", ""]


def test_nobody_lies_beyond_the_last_score():
    """All others have the highest score, so that no event lies above the one that decides."""
    counts = score_counts(np.repeat([3.0, 0.0], 10), np.repeat([0, 1], 10), np.array([0, 20])).together()
    point = operating.OperatingPoint("", 0.9, True, 0.0, 0.5, True)
    assert operating.with_the_threshold_chosen_again(counts, point, rng()) == (0.0, 0.0)


def test_few_hospitals_have_no_floor():
    p, y, offsets = federation([30, 30])
    counts, by_name = measured(p, y, offsets)
    (equity,) = clinical_equity(counts, [by_name["specificity", 0.5]], np.array([30, 30]), rng())
    assert np.isnan([equity.p, equity.floor_std, equity.floor_worst_decile]).all()
    assert np.isfinite(equity.over["worst_decile"])


@pytest.mark.parametrize("of_events", [True, False])
@pytest.mark.parametrize("at", [0.5, 0.8, 0.95])
def test_the_bootstrap_of_a_chosen_threshold_is_that_of_whole_rows(monkeypatch, of_events, at):
    """Drawing the deciding score and one binomial number is drawing all rows: the same distribution of the share."""
    monkeypatch.setattr(operating, "BOOTSTRAP", 40_000)
    p, y, offsets = federation([60], seed=3)
    counts = score_counts(logit(p), y, offsets).together()
    point = operating.OperatingPoint("", at, of_events, 0.0, 0.5, True)
    kept = []
    monkeypatch.setattr(np, "quantile", lambda values, _: kept.append(values) or (0, 1))
    operating.with_the_threshold_chosen_again(counts, point, rng())
    random = np.random.default_rng(9)
    of_class = [np.repeat(np.arange(len(counts.bins)), rows) for rows in (counts.negatives, counts.positives)]
    judged, chosen = (random.choice(of_class[c], (40_000, len(of_class[c]))) for c in (of_events, not of_events))
    chosen.sort(axis=1)
    n, k = chosen.shape[1], int(np.ceil(at * chosen.shape[1] - 1e-9))
    if of_events:  # the least score at which so many of the others are not called: just above the k-th
        shares = (judged > chosen[:, k - 1, None]).mean(axis=1)
    else:
        shares = (judged < chosen[:, n - k, None]).mean(axis=1)
    values = np.arange(judged.shape[1] + 1) / judged.shape[1]
    quick, whole = ((np.isclose(each[:, None], values)).mean(axis=0) for each in (kept[0], shares))
    assert quick.sum() == pytest.approx(1)
    assert quick == pytest.approx(whole, abs=4 * np.sqrt(0.25 * 2 / 40_000))
    assert kept[0].mean() == pytest.approx(shares.mean(), abs=5 * shares.std() * np.sqrt(2 / 40_000))


def test_a_threshold_is_moved_to_the_nearest_edge_of_a_bin_of_scores():
    every = np.arange(0x0080, 0xFF80, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        low = edges(every)[0]
    sought = logit(CURVE)
    nearest = every[np.abs(low[None, :] - sought[:, None]).argmin(axis=1)]
    assert _first_bins(CURVE).tolist() == nearest.tolist()


def test_a_bin_with_a_single_row_has_a_point():
    counts = score_counts(logit(np.array([0.25, 0.85, 0.85])), np.array([1, 0, 1]), np.array([0, 3]), THRESHOLDS)
    bins = calibration_bins(counts, 10)
    assert bins.rows[0].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 2, 0]
    assert bins.observed[0, [2, 8]].tolist() == [1.0, 0.5]
    assert bins.predicted[0, [2, 8]] == pytest.approx([0.25, 0.85], abs=0.01)
    assert np.isnan(bins.observed[0, [0, 9]]).all()


def test_groups_are_of_hospitals_with_rows_whose_predictions_are_all_numbers():
    """The second has no rows, and the third a prediction that is none."""
    z, y = np.array([0.5, -1.0, np.nan, 2.0, 1.0]), np.array([1, 0, 1, 1, 0])
    counts = score_counts(z, y, np.array([0, 2, 2, 4, 5]), THRESHOLDS)
    first, last = _groups(counts)
    assert (first.rows.tolist(), first.events.tolist()) == ([1, 1], [0, 1])
    assert first.logit == pytest.approx([-1.0, 0.5], abs=0.01)
    assert (last.rows.tolist(), last.events.tolist()) == ([1], [0])


@pytest.mark.parametrize("at", [0.05, 0.2, 0.6])
def test_the_gain_in_net_benefit_is_that_of_rows(at: float) -> None:
    """A row's benefit less that of the default over all rows, which is to act on everyone or on nobody."""
    rng = np.random.default_rng(0)
    counts, expected = [], []
    y = rng.random((5, 60)) < np.array([[0.02], [0.1], [0.4], [0.7], [0.5]])
    called = rng.random((5, 60)) < np.where(y, 0.7, 0.3)
    benefit = np.where(y, 1.0, -at / (1 - at))
    everyone = benefit.mean() > 0
    assert everyone == (at < 0.5)
    for events, acted, of_row in zip(y, called, benefit, strict=True):
        each = of_row * acted - of_row * everyone
        counts.append([(acted & events).sum(), (acted & ~events).sum(), events.sum(), len(events)])
        expected.append((each.mean(), each.var(ddof=1) / len(each)))
    tp, fp, events, rows = np.array(counts).T
    np.testing.assert_allclose(np.transpose(gained(tp, fp, events, rows, at)), expected, atol=1e-12)
    nothing, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    assert np.isnan(gained(nothing, nothing, one, one, at)).all()
