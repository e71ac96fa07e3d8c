"""Each line of the decision card, and the headline, from made figures."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from raysim.metrics.labels import CLASSIFICATION, REGRESSION
from raysim.metrics.measures import hanley_mcneil
from raysim.metrics.score_counts import ScoreCounts, score_counts
from raysim.report.judgement.card import Line
from raysim.report.judgement.choice import choose
from raysim.report.judgement.compose import alone_is_taken
from raysim.report.judgement.facts import limits as limiting
from raysim.report.judgement.facts.calibration import NOT_MEASURED, Calibration, calibration
from raysim.report.judgement.facts.fairness import fairness
from raysim.report.judgement.facts.federate import AtSome, federate
from raysim.report.judgement.facts.harmed import harmed
from raysim.report.judgement.facts.headline import Verdict, headline, use_of
from raysim.report.judgement.facts.limits import Data
from raysim.report.judgement.facts.quality import quality
from raysim.report.judgement.facts.training import training
from raysim.report.judgement.gathered import level_interval, most_seeds, per_patient
from raysim.report.possible import NOTHING
from raysim.statistics.clinical.by_hospital import HospitalCalibration, calibration_by_hospital
from raysim.statistics.clinical.curves import CURVE
from raysim.statistics.clinical.usefulness import Usefulness, usefulness
from raysim.statistics.differences.harm import Harm
from raysim.statistics.differences.paired import Limits, Paired
from raysim.statistics.intervals import score_interval
from raysim.statistics.patient_groups.within import PairGap, WithinGap
from raysim.statistics.several import Bound

NAN = float("nan")

# D1: is it any good?


def useful(
    low: float,
    high: float,
    worth: tuple[tuple[float, float], ...] = ((0.05, 0.4),),
    demonstrated: tuple[tuple[float, float], ...] = (),
) -> Usefulness:
    return Usefulness(0.2, "nobody", (low + high) / 2, Limits(low, high), worth, demonstrated)


@pytest.mark.parametrize(
    ("auroc", "benefit", "state", "forbids", "words"),
    [
        ((0.48, 0.62), useful(0.02, 0.04), "warn", True, "not demonstrated to rank better than chance"),
        ((0.50, 0.62), useful(0.02, 0.04), "warn", True, "not demonstrated to rank better than chance"),
        ((0.81, 0.87), useful(0.02, 0.042), "ok", False, r"Acting at 20 % is worth it: \+3.1 \(\+2.0 to \+4.2\)"),
        ((0.81, 0.87), useful(-0.04, -0.02), "warn", True, "Acting at 20 % does more harm than acting on nobody"),
        ((0.81, 0.87), useful(-0.01, 0.02), "open", False, "Whether acting at 20 % beats acting on nobody is open"),
        ((0.81, 0.87), None, "open", False, "Whether acting on it is worth it was not measured"),
    ],
)
def test_quality(auroc, benefit, state, forbids, words) -> None:
    line = quality(CLASSIFICATION, sum(auroc) / 2, Limits(*auroc), 15, benefit)
    assert (line.fact, line.state, line.forbids) == ("quality", state, forbids)
    assert re.search(words, line.text), line.text
    assert "over 15 hospitals" in line.text
    assert bool(line.remedy) == bool(line.short) == forbids


def test_quality_says_where_acting_is_worth_it() -> None:
    one = quality(CLASSIFICATION, 0.84, Limits(0.8, 0.88), 9, useful(0.01, 0.02))
    assert one.text.endswith(" It is worth using between 5 and 40 %; this is demonstrated at no threshold.")
    ranges = ((0.01, 0.06), (0.3, 0.4))
    two = quality(CLASSIFICATION, 0.84, Limits(0.8, 0.88), 9, useful(0.01, 0.02, ranges, ((0.02, 0.05), (0.33, 0.33))))
    worth = " It is worth using between 1 and 6 % and between 30 and 40 %"
    assert two.text.endswith(f"{worth}; this is demonstrated between 2 and 5 % and at 33 %.")
    assert two.figure is not None
    assert two.figure["worth_using_demonstrated"] == [[0.02, 0.05], [0.33, 0.33]]
    none = quality(CLASSIFICATION, 0.84, Limits(0.8, 0.88), 9, useful(-0.02, -0.01, ()))
    assert none.text.endswith(" At no threshold is it worth using.")
    assert none.remedy == "do not act on it"
    error = quality(REGRESSION, 2.31, Limits(2.1, 2.52), 20, None)
    assert (error.state, error.text) == ("open", "Mean absolute error 2.31 (2.10 to 2.52) over 20 hospitals.")


def counts_of(logits: np.ndarray, y: np.ndarray, hospitals: int, thresholds: tuple[float, ...]) -> ScoreCounts:
    return score_counts(logits, y, np.linspace(0, len(y), hospitals + 1).astype(int), thresholds)


@pytest.mark.parametrize(("shift", "default"), [(-1.0, "nobody"), (2.5, "everybody")])
def test_usefulness_is_the_mean_over_rows_of_what_acting_adds(shift: float, default: str) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(-1.6 + shift, 1.2, 4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-logits))).astype(int)
    counts = counts_of(logits, y, 20, (0.1, 0.2))
    got = usefulness([counts], (0.1, 0.2), 0.2)
    called, odds = logits >= np.log(0.25), 0.25
    acted = np.where(called, np.where(y == 1, 1.0, -odds), 0.0)
    everybody = np.where(y == 1, 1.0, -odds)
    gain = acted - (everybody if default == "everybody" else 0.0)
    assert got.default == default
    assert got.value == pytest.approx(gain.mean(), abs=1e-12)
    assert got.limits.low < got.value < got.limits.high
    # Never narrower than what patients alone make of it, by the t quantile of twenty equal hospitals.
    within = (gain.reshape(20, 200) - gain.reshape(20, 200).mean(axis=1, keepdims=True)).std()
    assert got.limits.high - got.value >= 2.093 * within / np.sqrt(4000)
    twice = usefulness([counts, counts], (0.1, 0.2), 0.2)
    assert twice.value == pytest.approx(got.value)
    assert twice.limits == pytest.approx(got.limits), "seeds that test the same rows are no further evidence"


def test_these_hospitals_count_where_others_are_open() -> None:
    """Four hospitals that differ much: the model ranks well at these, and the line says that others may differ."""
    line = quality(CLASSIFICATION, 0.8, Limits(0.74, 0.86), 4, useful(0.02, 0.04), elsewhere=False)
    assert (line.state, line.forbids) == ("open", False)
    assert (
        "over 4 hospitals, for these hospitals and trained models only (elsewhere it may rank no better than chance)"
        in line.text
    )
    far = Paired(0.8, 4, 3, 0.04, 1e-3, 1e-4, 2.6)
    assert level_interval(CLASSIFICATION, far) == (replace(far, seed_variance=0.0).fixed(), False)
    assert level_interval(CLASSIFICATION, replace(far, difference=0.5)) == (NOTHING, True)
    near = replace(far, hospital_variance=1e-3)
    assert level_interval(CLASSIFICATION, near) == (near.population(), True)


@pytest.mark.parametrize(
    ("p", "together"),
    [((0.03,), 0.03), ((0.01, 0.04), 0.04), ((0.085, 0.00995, 0.005), 0.0199), ((0.9, 0.8, 0.7), 1.0), ((), NAN)],
)
def test_several_seeds_have_one_p(p, together) -> None:
    assert most_seeds(p) == pytest.approx(together, nan_ok=True)


@pytest.mark.parametrize("seeds", [1, 2])
def test_acting_is_demonstrably_worth_it_where_the_interval_of_each_threshold_says_so(seeds: int) -> None:
    """At each threshold of the curve, as a call with this threshold alone, but for rows in the same bin of scores."""
    rng = np.random.default_rng(7)
    logits = np.round(rng.normal(-1.6, 1.2, 1200), 1) + 0.0123
    y = (rng.random(1200) < 1 / (1 + np.exp(-logits))).astype(int)
    counts = [counts_of(logits, y, 6, tuple(CURVE))] * seeds
    each = [usefulness(counts, tuple(CURVE), at) for at in CURVE]
    shown = [at for at, one in zip(CURVE, each, strict=True) if one.limits.low > 0]
    got = each[0].demonstrated
    assert [at for at in CURVE if any(low <= at <= high for low, high in got)] == shown
    assert got
    assert len(shown) < sum(one.value > 0 for one in each)


def test_usefulness_needs_the_threshold() -> None:
    counts = counts_of(np.zeros(10), np.arange(10) % 2, 2, (0.1,))
    with pytest.raises(ValueError, match=r"0\.2"):
        usefulness([counts], (0.1,), 0.2)


# D2: federate at all?


def pair(difference: float, seeds: int = 3) -> Paired:
    return Paired(difference, 20, seeds, 1e-4, 1e-4, 1e-5, 12.0)


@pytest.mark.parametrize(
    ("limits", "verdict", "state", "words"),
    [
        ((0.0004, 0.0091), "yes", "ok", "better by less than 0.01"),
        ((0.004, 0.03), "yes", "ok", "ranks better than training alone"),
        ((-0.03, -0.004), "no", "warn", "ranks worse than training alone"),
        ((-0.006, 0.008), "equal", "open", "are equal within 0.01"),
        ((-0.100, 0.057), "not shown", "open", "Not demonstrated that federating helps"),
    ],
)
def test_federating(limits, verdict, state, words) -> None:
    got, line = federate(CLASSIFICATION, "FedAvg", "Training alone", pair(sum(limits) / 2), Limits(*limits), None)
    assert (got, line.state, line.fact) == (verdict, state, "federate")
    assert words in line.text
    assert ("less than 0.01" in line.text) == (limits == (0.0004, 0.0091))


def test_one_seed_compares_nothing() -> None:
    got, line = federate(CLASSIFICATION, "FedAvg", "Training alone", pair(0.02, seeds=1), Limits(0.01, 0.03), None)
    assert (got, line.state) == ("not shown", "open")
    assert line.text.endswith("One seed cannot compare methods, so this applies only to these trained models.")


def test_training_alone_is_compared_where_it_is_defined() -> None:
    _, line = federate(
        CLASSIFICATION,
        "FedAvg",
        "alone",
        pair(0.02),
        Limits(0.01, 0.03),
        None,
        0.8,
        (2, AtSome(pair(0.02), 0.8)),
        hospitals=22,
    )
    assert line.text == (
        "Federating ranks better than training alone: FedAvg against alone +0.020 (+0.010 to +0.030) over the 20 of 22 "
        "hospitals at which both are defined."
    )
    wide = AtSome(Paired(0.017, 3, 2, 0.05, 0.01, 0.01, 2.0), 0.8)
    _, line = federate(CLASSIFICATION, "FedAvg", "alone", pair(0.02), Limits(0.01, 0.03), wide, 0.8, (5, wide))
    assert line.text.endswith(
        "At small hospitals: the interval says nothing. Without 5 hospitals that trained on one class: "
        "the interval says nothing."
    )


@pytest.mark.parametrize(("alone", "most"), [(0.70, math.inf), (0.84, 0.160)])
def test_a_difference_at_some_hospitals_is_cut_at_what_is_possible_there(alone: float, most: float) -> None:
    """Training alone may rank at 0.70 at small hospitals, and at 0.88 over all."""
    some = AtSome(pair(0.143), alone)
    args = (CLASSIFICATION, "FedAvg", "alone", Paired(0.05, 40, 3, 1e-4, 1e-4, 1e-5, 12.0), Limits(0.02, 0.09))
    _, line = federate(*args, some, 0.88, (5, some))
    found = re.findall(r"(small hospitals|one class): \+0\.143 \(\+(\S+) to \+(\S+)\), better", line.text)
    assert [where for where, _, _ in found] == ["small hospitals", "one class"], line.text
    highest = min(most, round(some.pair.population().high, 3))
    assert all(float(low) < 0.143 < float(high) == highest for _, low, high in found)


def test_a_smaller_error_is_better_than_training_alone() -> None:
    got, line = federate(REGRESSION, "FedAvg", "Training alone", pair(-0.2), Limits(-0.3, -0.1), None)
    assert got == "yes"
    assert line.text == (
        "Federating has a smaller error than training alone: FedAvg against Training alone -0.200 (-0.300 to -0.100)."
    )


def test_an_interval_that_says_nothing_has_no_numbers() -> None:
    got, line = federate(CLASSIFICATION, "FedAvg", "alone", pair(-0.03), Limits(-1.2, 1.1), None, 0.8)
    assert got == "not shown"
    assert line.text == ("Not demonstrated that federating helps: FedAvg against alone, the interval says nothing.")
    wide = quality(CLASSIFICATION, 0.7, NOTHING, 3, None)
    assert (wide.state, wide.text) == (
        "warn",
        "It is not demonstrated to rank better than chance: the interval of its AUROC over 3 hospitals says nothing.",
    )


# D3: which way?


def matrix(size: int, *pairs: tuple[int, int]) -> np.ndarray:
    flags = np.zeros((size, size), dtype=np.bool_)
    for i, j in pairs:
        flags[i, j] = True
    return flags


@pytest.mark.parametrize(
    ("better", "equal", "traffic", "reference", "taken", "why", "instead"),
    [
        ((), (), (9, 1, 1), 0, 0, "reference", None),  # not distinguished is no tie
        (((1, 0), (2, 0)), (), (1, 1, 1), 0, 2, "better", None),  # the best mean of those that are better
        (((1, 0), (2, 0), (1, 2)), (), (1, 1, 1), 0, 1, "better", None),  # which no other beats
        (((1, 0), (2, 0)), ((1, 2),), (1, 6, 9), 0, 1, "better", 2),  # equals: .67 of the bytes or less
        (((1, 0), (2, 0)), ((1, 2),), (1, 7, 9), 0, 2, "better", None),  # .78 of the bytes decides nothing
        ((), ((0, 1),), (100, 97, 1), 0, 0, "reference", None),
        ((), ((0, 1),), (100, 50, 1), 0, 1, "reference", 0),
        ((), (), (1, 1, 1), None, 2, "unbeaten", None),
        (((2, 1), (1, 0)), (), (1, 1, 1), 0, 2, "unbeaten", None),  # who beats the reference is itself beaten
    ],
)
def test_the_choice(better, equal, traffic, reference, taken, why, instead) -> None:
    same = matrix(3, *equal) | matrix(3, *equal).T
    choice = choose([0.80, 0.81, 0.82], matrix(3, *better), same, traffic, reference)
    assert (choice.index, choice.why, choice.instead_of) == (taken, why, instead)


@pytest.mark.parametrize(
    ("better", "equal", "traffic", "reference", "complexity", "taken", "why", "instead"),
    [
        ((), (), (1, 1, 1), 2, (0, 1, 1), 0, "simpler", None),  # the reference has a more complex model
        ((), (), (1, 1, 1), None, (0, 0, 1), 1, "simpler", None),  # of the simplest the best mean
        ((), (), (1, 1, 1), 0, (0, 0, 1), 0, "reference", None),  # the reference has the simplest
        (((2, 0), (2, 1)), (), (1, 1, 1), 0, (0, 0, 1), 2, "better", None),  # better than all simpler ones
        (((2, 0),), (), (1, 1, 1), 2, (0, 0, 1), 1, "simpler", None),  # a worse one of a simple model does not stand
        ((), ((0, 1),), (9, 1, 1), 0, (0, 1, 1), 0, "reference", None),  # fewer bytes do not excuse a complex model
        ((), ((0, 1),), (9, 1, 1), 0, (1, 0, 1), 1, "simpler", None),
        ((), ((0, 1),), (9, 1, 1), 0, (0, 0, 1), 1, "reference", 0),
    ],
)
def test_a_more_complex_model_has_to_be_better(
    better, equal, traffic, reference, complexity, taken, why, instead
) -> None:
    same = matrix(3, *equal) | matrix(3, *equal).T
    choice = choose([0.80, 0.81, 0.82], matrix(3, *better), same, traffic, reference, complexity)
    assert (choice.index, choice.why, choice.instead_of) == (taken, why, instead)


# D4: whom does it harm?

NAMES = ("north", "south", "east", "west", "centre")


@pytest.mark.parametrize(
    ("harm", "state", "words"),
    [
        (Harm(Bound(2, 5, (3, 0)), Bound(0, 5, ()), 1), "warn", "At least 2 of 5 judged hospitals lose"),
        (Harm(Bound(1, 5, ()), Bound(0, 5, ()), 0), "warn", r"loses against Training alone \(which ones is open\)"),
        (Harm(Bound(0, 5, ()), Bound(1, 5, (2,)), 1), "ok", r"at least 1 gains \(east\); 1 hospital has too few"),
        (Harm(Bound(0, 5, ()), Bound(0, 5, ()), 4), "open", "No hospital of 5 demonstrably loses"),
        (Harm(Bound(0, 0, ()), Bound(0, 0, ()), 0), "open", "No hospital can be judged against Training alone"),
    ],
)
def test_harm(harm: Harm, state: str, words: str) -> None:
    numbers, line = harmed(harm, NAMES, "Training alone")
    assert (line.fact, line.state, line.forbids) == ("harm", state, False)
    assert re.search(words, line.text), line.text
    assert numbers == {
        "against": "Training alone",
        "at_least": harm.losses.at_least,
        "of": harm.losses.of,
        "named": [NAMES[h] for h in harm.losses.named],
    }


# D5: calibration


def made(
    estimate: float, limits: tuple[float, float], p: float, of_hospitals: list[float], within: int = 0
) -> Calibration:
    """Calibration with each hospital's p; the first ``within`` hospitals lie within what is tolerated."""
    count = len(of_hospitals)
    ratio = np.linspace(0.5, 1.5, count)
    states = tuple("within" if h < within else "open" for h in range(count))
    each = HospitalCalibration(ratio, ratio, ratio, ratio, ratio, ratio, np.array(of_hospitals), states)
    return Calibration(estimate, Limits(*limits), p, each)


CALM = [0.5, 0.6, 0.7, 0.8, 0.9]


@pytest.mark.parametrize(
    ("own", "state", "words"),
    [
        (made(0.95, (0.91, 0.99), 0.3, CALM, 5), "ok", "demonstrably off at none of 5 hospitals"),
        (made(0.95, (0.91, 0.99), 0.3, CALM, 3), "open", r"within 0.8 to 1.25\) at 3"),
        (made(0.95, (0.91, 0.99), 0.04, CALM, 5), "warn", "risks differ between hospitals"),
        (
            made(0.95, (0.91, 0.99), 0.3, [1e-6, *CALM[1:]], 4),
            "warn",
            r"off at 1 or more of 5 hospitals \(north: 0.50 times the events expected\)",
        ),
        (made(0.32, (0.30, 0.35), 0.3, CALM, 5), "warn", "risks are 3.1 times too high"),
        (made(1.6, (1.4, 1.8), NAN, CALM, 5), "warn", "risks are 1.6 times too low"),
        (made(0.7, (0.4, 1.1), 0.3, CALM, 0), "open", "0.70"),
        (made(0.9, (0.85, 0.95), 0.3, CALM, 5), "ok", "0.90"),
    ],
)
def test_calibration(own: Calibration, state: str, words: str) -> None:
    numbers, line = calibration(own, NAMES)
    assert (line.state, line.forbids, numbers["state"]) == (state, state == "warn", state)
    assert re.search(words, line.text, re.IGNORECASE), line.text
    assert re.search(r"\d\.\d\d \(\d\.\d\d to \d\.\d\d\)", line.text)
    assert numbers["at_least"] == own.by_hospital.bound.at_least
    assert set(numbers) == {"estimate", "low", "high", "state", "at_least", "of", "named"}


def test_of_two_that_rank_alike_the_one_whose_risks_are_right_is_taken() -> None:
    off, right = made(0.5, (0.4, 0.6), 0.5, CALM), made(1.0, (0.9, 1.1), 0.5, CALM)
    assert (off.state, right.state) == ("warn", "open")
    assert alone_is_taken("equal", off, right)
    assert not any(alone_is_taken("equal", own, alone) for own, alone in ((off, off), (right, off), (right, right)))
    assert not any(alone_is_taken("equal", own, alone) for own, alone in ((None, right), (off, None)))
    assert not any(alone_is_taken(federates, off, right) for federates in ("yes", "not shown", "not tested"))
    assert all(alone_is_taken("no", own, right) for own in (None, off, right))


def test_hospitals_where_nothing_is_expected_are_named_without_a_ratio() -> None:
    """Of a model that has diverged: it expects no event, and there were some."""
    own = made(NAN, (NAN, NAN), NAN, [1e-6, *CALM[1:]])
    of = own.by_hospital._replace(ratio=np.array([NAN, 1.0, 1.0, 1.0, 1.0]))
    _, line = calibration(replace(own, by_hospital=of), NAMES)
    assert "off at 1 or more of 5 hospitals (north)" in line.text
    everywhere = made(0.5, (0.4, 0.6), 0.3, [1e-6] * 5)
    assert "off at all 5 hospitals" in calibration(everywhere, NAMES)[1].text


def test_the_alternative_is_counted_in_one_clause() -> None:
    own, alone = made(0.95, (0.91, 0.99), 0.3, [1e-9] * 4 + [0.5]), made(1.0, (0.9, 1.1), 1.0, CALM)
    _, line = calibration(own, NAMES, [("alone", alone)])
    assert (
        "off at 4 or more of 5 hospitals (north, south, east and west: 0.50 to 1.25 times the events expected)"
        in line.text
    )
    assert line.text.endswith(" Alone: 1.00 (0.90 to 1.10), off at none of 5.")


def test_perfect_hospitals_are_not_warned_of() -> None:
    """208 hospitals whose risks are right: single intervals exclude 1 at about nine, the card names none."""
    rng = np.random.default_rng(4)
    single, warned = [], 0
    for _ in range(10):
        logits = rng.normal(-2.6, 1.0, 208 * 17)
        y = (rng.random(len(logits)) < 1 / (1 + np.exp(-logits))).astype(int)
        counts = score_counts(logits, y, np.arange(209) * 17)
        each, together = calibration_by_hospital(counts), calibration_by_hospital(counts.together())
        own = Calibration(float(together.ratio[0]), Limits(float(together.low[0]), float(together.high[0])), 0.5, each)
        single.append(int(((each.low > 1) | (each.high < 1)).sum()))
        warned += own.state == "warn"
    assert np.mean(single) > 1
    assert warned <= 1


# D6: fairness


def gap(attribute: str, estimate: float, p_holm: float) -> WithinGap:
    between = PairGap(("men", "women"), estimate, 0.015, estimate - 0.03, estimate + 0.03, NAN, NAN, 9, 0.05)
    return WithinGap(attribute, True, between, (between,), p_holm, p_holm)


def test_fairness() -> None:
    none = fairness([])
    assert (none.state, none.text) == (
        "open",
        "Fairness between groups of patients was not tested: no group is known.",
    )
    calm = fairness([gap("sex", 0.004, 0.8)])
    assert (calm.state, calm.text) == (
        "ok",
        "No gap within hospitals demonstrated: sex +0.004 (-0.026 to +0.034).",
    )
    open_one = fairness([gap("sex", 0.004, 0.8), gap("age", 0.021, 0.8)])
    assert open_one.state == "open"
    assert open_one.remedy == "judge age on more rows: gaps beyond 0.05 are not ruled out"
    assert fairness([replace(gap("sex", 0.004, 0.8), larger=False)]).state == "open"
    assert fairness([gap("sex", -0.021, 0.8)]).state == "open", "a gap of either sign is a gap"
    shown = fairness([gap("sex", 0.08, 0.01), gap("age", -0.01, 0.7)])
    assert (shown.state, shown.forbids) == ("warn", False)
    assert shown.text.startswith("Within hospitals by sex the model ranks better for men than for women (+0.080, ")
    assert f"; {gap('sex', 0.08, 0.01).hospitals} hospitals). No gap" in shown.text, (
        "a claim names its hospitals' number"
    )
    assert "No gap within hospitals demonstrated: age -0.010 (-0.040 to +0.020)" in shown.text
    wide = PairGap(("men", "women"), 0.1, 0.3, -0.4, 0.6, NAN, NAN, 3, 0.5)
    vague = fairness([WithinGap("sex", True, wide, (wide,), 0.7, 0.7)])
    assert (vague.state, vague.text) == (
        "open",
        "Gaps within hospitals by sex: too few rows for an informative interval.",
    )
    one_of_two = fairness([replace(gap("sex", 0.04, 0.07), p=0.035), gap("age", 0.0, 0.9)])
    assert "sex +0.040 (+0.010 to +0.070), p = 0.07 adjusted for all attributes; and age 0.000" in one_of_two.text
    undefined = replace(wide, estimate=NAN)
    assert not WithinGap("sex", True, undefined, (undefined,), 1.0, 1.0).judged
    unjudged = fairness([WithinGap("ethnicity", True)])
    assert (unjudged.state, unjudged.text) == ("open", "Groups by ethnicity: gaps within hospitals cannot be judged.")


# Training


def test_training() -> None:
    assert training([], [], True, 20).state == "ok"
    assert training([], [], False, 20).state == "open"
    line = training([("FedAvg", 0.068), ("CHiP-FL", NAN)], [], True, 20)
    assert line.text == (
        "Not trained to the end: FedAvg (loss still falling by 6.8 %) and CHiP-FL (too few rounds to tell)."
    )
    assert (line.state, line.remedy, line.setting) == ("warn", "try training.rounds=40", "training.rounds=40")
    assert not line.forbids
    assert training([], ["FedAvg"], True, 20).text == "Training diverged: FedAvg."
    assert training([], ["FedAvg"], True, 20).remedy == "lower training.learning_rate"
    assert "learning_rate" not in training([], ["Newton"], True, 20, by_steps=False).remedy


# D8: what the data cannot tell


def data(judged: int = 20, share: float = 1.0, rarer: tuple[float, ...] = (), **fields: Any) -> Data:
    return Data("death in hospital", 20, 4000, 400, "test", judged, share, rarer, **fields)


def test_rows_of_a_patient_are_counted_among_evaluated_rows_alone() -> None:
    """Nine rows of two hospitals; the evaluated ones are of the patients 4, 4, 4, 7 and 4."""
    bounds, patients = np.array([[0, 1, 2, 6], [6, 8, 8, 9]]), np.array([7, 9, 4, 4, 4, 7, 4, 1, 4])
    of: Any = SimpleNamespace(bounds=bounds, sizes=lambda part: bounds[:, 3] - bounds[:, 2], identities=patients)
    assert per_patient(of, "test") == 5 / 2


@pytest.mark.parametrize(
    ("of", "recommends", "words"),
    [
        (data(2), False, "Nothing is recommended: 2 of 20 hospitals can be judged."),
        (data(12, 0.4), False, "Nothing is recommended: 12 of 20 hospitals can be judged, with 40 % of the test rows."),
        (data(4), True, "Few hospitals: 4 (12.0 degrees of freedom)."),
        (data(20), True, "All hospitals are judged."),
        (data(20, per_patient=1.4), True, "All hospitals are judged."),
        (data(20, per_patient=9.96), True, "A patient has 10.0 test rows on average: intervals and tests of single"),
        (
            data(4, rarer=(2, 12, 12, 30)),
            True,
            "The median hospital has 12 test rows of the rarer class, and 1 of 4 has fewer",
        ),
    ],
)
def test_limits(of: Data, recommends: bool, words: str) -> None:
    line = limiting.limits(of, pair(0.01))
    assert of.recommends == recommends
    assert line.forbids == (not recommends)
    assert words in line.text


@pytest.mark.parametrize("auroc", [1.0, 0.0])
def test_an_auroc_without_spread_has_an_interval(auroc: float) -> None:
    """All hospitals rank perfectly: Hanley and McNeil's variance at their rows, weighted by rows, bounds the AUROC."""
    level, of = Paired(auroc, 2, 1, 0.0, 0.0, 0.0, 1.0), data(2, rarer=(5, 9, 0), tested=(40, 60, 30))
    (low, high), _ = level_interval(CLASSIFICATION, level, of)
    end = high if auroc == 0 else low
    deviation = math.sqrt(0.16 * hanley_mcneil(end, 5, 35) + 0.36 * hanley_mcneil(end, 9, 51))
    assert abs(end - auroc) == pytest.approx(1.959964 * deviation, rel=1e-5)
    assert (low if auroc == 0 else high) == auroc
    one, _ = level_interval(CLASSIFICATION, level, data(1, rarer=(5,), tested=(40,)))
    expected = score_interval(auroc, 5, 35)
    assert one == pytest.approx((float(expected.low), float(expected.high)))


def test_what_was_found_at_hospitals_outside() -> None:
    level, limits = Paired(0.79, 2, 1, 1e-3, 1e-3, 0.0, 1.0), Limits(0.71, 0.86)
    assert limiting.unseen(CLASSIFICATION, data(), level, limits) is limiting.NOT_OUTSIDE
    of = data(outside=("va", "cleveland"))
    line = limiting.unseen(CLASSIFICATION, of, level, limits)
    assert (line.state, line.text) == (
        "ok",
        "AUROC at 2 hospitals that took no part (va and cleveland): 0.790 (0.710 to 0.860).",
    )
    assert limiting.unseen(CLASSIFICATION, of, level, Limits(0.48, 0.92)).state == "open", "chance is not ruled out"
    nowhere = limiting.unseen(CLASSIFICATION, of, Paired(NAN, 0, 0, NAN, NAN, NAN, NAN), Limits(NAN, NAN))
    assert (nowhere.state, "No AUROC is defined at the 2 hospitals" in nowhere.text) == ("open", True)
    assert limiting.unseen(CLASSIFICATION, of, level, NOTHING).text.endswith(": its interval says nothing.")


def test_a_difference_beyond_what_is_possible_could_not_have_been_found() -> None:
    visible = {"between A and other methods": [0.0023, 0.0061, math.inf], "between A and alone": [math.inf]}
    assert limiting.limits(data(), pair(0.0), visible).text == (
        "Differences of 0.002 to 0.006 between A and other methods could be found (80 % power). No difference between "
        "A and alone could have been found."
    )
    assert limiting.limits(data(), pair(0.0), dict.fromkeys(visible, ())) == limiting.limits(data(), pair(0.0))


# The headline, composed last

GOOD = quality(CLASSIFICATION, 0.84, Limits(0.81, 0.87), 20, useful(0.01, 0.02))
HARMFUL = quality(CLASSIFICATION, 0.84, Limits(0.81, 0.87), 20, useful(-0.02, -0.01))
COIN = quality(CLASSIFICATION, 0.52, Limits(0.47, 0.57), 20, useful(0.01, 0.02))
RIGHT = calibration(made(0.95, (0.91, 0.99), 0.3, CALM, 5), NAMES)[1]
OFF = calibration(made(0.32, (0.30, 0.35), 0.3, CALM, 5), NAMES)[1]
VAGUE = calibration(made(1.36, (0.5, 2.8), 0.3, CALM, 0), NAMES)[1]
ENOUGH, TOO_FEW = limiting.limits(data(), pair(0.01)), limiting.limits(data(2), pair(0.01))


def said(
    federate: str, quality: Line = GOOD, calibration: Line = RIGHT, limits: Line = ENOUGH, *more: Line, **fields: object
) -> tuple[str, str]:
    lines = [quality, calibration, limits, *more]
    use = use_of(CLASSIFICATION, lines, not limits.forbids)
    verdict = {"taken": "FedAvg", "compared": True, "federate": federate, "one_seed": False, "alone_taken": False}
    made_of = Verdict(**{**verdict, "act_at": "20 %", **fields})
    return headline(made_of, use, lines), use


@pytest.mark.parametrize(
    ("federated", "calibrated", "fields", "words", "use"),
    [
        ("yes", RIGHT, {}, "Take FedAvg.", "risks"),
        ("yes", NOT_MEASURED, {}, "Take FedAvg.", "ranking"),
        # No fault is demonstrated, but neither that risks are right.
        ("yes", VAGUE, {}, "Take FedAvg.", "ranking"),
        (
            "yes",
            OFF,
            {},
            "Take FedAvg, recalibrated at each hospital. Before that, use it for ranking, not for risks "
            "(risks 3.1 times too high).",
            "ranking",
        ),
        ("not shown", RIGHT, {}, "No method demonstrably beats training alone; FedAvg is the reference.", "risks"),
        (
            "not shown",
            OFF,
            {},
            "No method demonstrably beats training alone; FedAvg is the reference. Use it for ranking, not for risks "
            "(risks 3.1 times too high), until it is recalibrated.",
            "ranking",
        ),
        ("no", RIGHT, {"alone_taken": True}, "Train alone: federating ranks worse.", "risks"),
        (
            "equal",
            RIGHT,
            {},
            "FedAvg and training alone rank alike (within 0.01): federating gains nothing in AUROC.",
            "risks",
        ),
        ("equal", RIGHT, {"alone_taken": True}, "Train alone: it ranks as well as federating", "risks"),
        ("not tested", RIGHT, {}, "Take FedAvg. Whether federating helps was not tested.", "risks"),
        (
            "not shown",
            RIGHT,
            {"stands": "is better than the reference"},
            "No method demonstrably beats training alone; FedAvg is better than the reference.",
            "risks",
        ),
        ("not shown", RIGHT, {"one_seed": True}, "One seed cannot compare methods; FedAvg is the reference.", "risks"),
        (
            "not tested",
            RIGHT,
            {"compared": False},
            "No reason was found against using FedAvg at these hospitals. Whether federating helps was not tested.",
            "risks",
        ),
        (
            "not tested",
            OFF,
            {"compared": False},
            "FedAvg is for ranking, not for risks (risks 3.1 times too high): recalibrate it at each hospital.",
            "ranking",
        ),
    ],
)
def test_headlines(federated, calibrated, fields, words, use) -> None:
    text, got = said(federated, GOOD, calibrated, **fields)
    assert text.startswith(words), text
    assert got == use


def test_a_model_whose_training_diverged_is_not_to_be_used() -> None:
    wild = replace(training([], ["FedAvg"], True, 20), forbids=True, short="training of FedAvg diverged")
    assert said("yes", GOOD, OFF, ENOUGH, wild) == ("Do not use FedAvg: its training diverged.", "none")
    text, use = said("yes", COIN, RIGHT, ENOUGH, wild)
    assert text.startswith("Do not use FedAvg: it is not demonstrated to rank better than chance")
    assert (text.endswith("its training diverged."), use) == (True, "none")


def test_a_label_that_is_a_number_has_values() -> None:
    line = quality(REGRESSION, 2.31, Limits(2.1, 2.52), 20, None)
    assert use_of(REGRESSION, [line, NOT_MEASURED], True) == "values"
    assert use_of(REGRESSION, [line, NOT_MEASURED], False) == "none"
    text, _ = said("no", line, NOT_MEASURED, alone_taken=True, larger=False)
    assert text == "Train alone: federating errs more."


def test_what_forbids_use_stands_in_the_headline() -> None:
    text, use = said("yes", HARMFUL)
    assert (text, use) == ("Do not act on FedAvg at a risk of 20 %. Take FedAvg for ranking, not for risks.", "ranking")
    text, use = said("yes", COIN)
    assert use == "none"
    assert text.startswith("Do not use FedAvg: it is not demonstrated to rank better than chance (AUROC 0.520")
    text, use = said("yes", GOOD, OFF, TOO_FEW)
    assert (text, use) == ("Nothing is recommended: 2 of 20 hospitals can be judged.", "none")
    leak = Line("leaks", "warn", "d.time all but is the label.", None, "leave it out", True, "d.time may be the label")
    text, _ = said("yes", GOOD, RIGHT, ENOUGH, leak)
    assert text == "Take FedAvg. d.time may be the label."
    text, _ = said("yes", GOOD, RIGHT, cautions=("rates at the edge of the grid: try beyond",))
    assert text == "Take FedAvg. Rates at the edge of the grid: try beyond."
