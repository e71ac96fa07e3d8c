"""What a comparison claims, and what it does not."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from raysim.report.judgement.card import FACTS, Card
from raysim.report.judgement.evidence import evidence_from
from raysim.report.judgement.gathered import visible_from_alone, visible_sizes
from raysim.report.tables import differences
from tests.report.answered import answered

NOISE = {"auroc": 0.01, "mae": 0.02}


def frames(
    means: dict[str, float],
    *,
    hospitals: int = 20,
    seeds: int = 3,
    figure: str = "auroc",
    traffic: dict[str, int] | None = None,
    references: tuple[str, ...] = (),
    noise: float = 0.01,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """``per_seed`` and ``hospitals`` of strategies with these true means; equal means with noise 0 are equal models."""
    rng = np.random.default_rng(5)
    rows = rng.integers(20, 200, hospitals)
    base = rng.normal(0, 0.03, (seeds, hospitals))
    per_seed, by_hospital = [], []
    for strategy, mean in means.items():
        values = mean + base + rng.normal(0, noise, (seeds, hospitals))
        for seed in range(seeds):
            key = {"strategy": strategy, "model": "global", "seed": seed}
            columns = {"hospital": [f"h{i}" for i in range(hospitals)], "n_test": rows, figure: values[seed]}
            by_hospital.append(pd.DataFrame({**key, **columns}))
            moved = {"bytes_down": (traffic or {}).get(strategy, 100), "bytes_up": 0}
            mean_over = float(np.average(values[seed], weights=rows))
            per_seed.append({**key, figure: mean_over, "yardstick": strategy in references, "undefined": 0, **moved})
    return pd.DataFrame(per_seed), pd.concat(by_hospital, ignore_index=True)


def test_a_true_difference_is_found_and_the_better_one_recommended():
    said = answered(*frames({"fedavg": 0.80, "chip": 0.84, "clustered": 0.76}), "fedavg")
    assert said.card.recommended == "chip"
    assert said.difference_shown
    assert said.card.headline == "Take chip. Whether federating helps was not tested."
    which = said.card.line("which")
    assert which is not None
    assert which.text.startswith("chip is better than fedavg: +0.04")
    worse = next(reason for reason in said.reasons if reason.startswith("Worse than chip"))
    assert "fedavg: -0.04" in worse
    assert "clustered: -0.08" in worse
    tree = said.as_json()
    assert [tree[name] for name in ("recommended", "difference_shown", "not_dominated")] == ["chip", True, ["chip"]]
    assert tree["reasons"] == list(said.sentences)
    assert tree["reasons"][0] == said.card.headline


def test_in_a_tie_between_models_the_simpler_is_taken_and_said():
    per_seed, hospitals = frames({"fedavg, linear": 0.80, "fedavg, mlp": 0.8001, "prox, mlp": 0.8002}, noise=0.05)
    learners = [name.partition(", ")[2] for name in per_seed["strategy"]]
    said = answered(per_seed.assign(learner=learners), hospitals, "fedavg, mlp")
    assert said.card.recommended == "fedavg, linear"
    assert said.card.headline.endswith("No gain over linear is demonstrated with MLP.")
    which = said.card.line("which")
    assert which is not None
    assert "fedavg, linear has the simplest model of the 3 methods that no other method beats" in which.text
    assert which.text.endswith("Take linear, the simpler model.")
    assert which.figure is not None
    assert which.figure["learner"] == "linear"
    unknown = answered(per_seed, hospitals, "fedavg, mlp")
    assert unknown.card.recommended == "fedavg, mlp"


def test_a_complex_model_that_is_better_is_taken():
    per_seed, hospitals = frames({"fedavg, linear": 0.80, "fedavg, mlp": 0.84, "prox, mlp": 0.79})
    learners = [name.partition(", ")[2] for name in per_seed["strategy"]]
    said = answered(per_seed.assign(learner=learners), hospitals, "fedavg, linear")
    assert said.card.recommended == "fedavg, mlp"
    which = said.card.line("which")
    assert which is not None
    assert "Linear against MLP (fedavg, linear): -0.04" in which.text
    assert which.text.endswith("worse.")
    assert "No gain" not in said.card.headline


def test_training_alone_stands_with_the_model_that_does_best_there():
    means = {"fedavg, linear": 0.80, "local, linear": 0.70, "local, mlp": 0.83}
    per_seed, hospitals = frames(means, references=("local, linear", "local, mlp"))
    shown = evidence_from(per_seed, hospitals, "fedavg, linear", alone=("local, linear", "local, mlp"))
    assert shown is not None
    assert shown.alone is not None
    assert shown.references[shown.alone].name.startswith("local, mlp")
    assert shown.over_alone_intervals[0].high < 0
    by_itself = evidence_from(per_seed, hospitals, "fedavg, linear", alone=("local, mlp",))
    assert by_itself is not None
    together, one = (np.diff(each.over_alone_intervals[0])[0] for each in (shown, by_itself))
    assert together >= one  # of two that hospitals train alone the better one: the interval holds for both


def test_answer_json_can_be_read_again():
    said = answered(*frames({"fedavg": 0.80, "chip": 0.84, "local": 0.7}, references=("local",)), "fedavg", ("local",))
    tree = json.loads(json.dumps(said.as_json(), allow_nan=False))
    card = Card.read(tree)
    assert card.as_json() == {key: tree[key] for key in card.as_json()}
    assert set(FACTS) >= {line["fact"] for line in tree["lines"]}
    assert {"use", "forbids", "calibration", "harmed", "federate", "predicts"} <= tree.keys()
    assert (tree["use"], tree["forbids"], tree["federate"]) == ("ranking", [], "yes")


def test_no_difference_is_an_answer_and_the_reference_stands():
    """The other moves fewer bytes, which decides nothing: the two are not equal, only not distinguished."""
    means = {"fedavg": 0.80, "chip": 0.8001}
    said = answered(*frames(means, noise=0.05, traffic={"chip": 10}), "fedavg")
    assert not said.difference_shown
    assert said.card.recommended == "fedavg"
    which, limits = said.card.line("which"), said.card.line("limits")
    assert which is not None
    assert limits is not None
    assert which.text == "The other method is not better than fedavg, the reference."
    assert "between fedavg and other methods could be found (80 % power)" in limits.text


def test_a_difference_that_could_be_found_is_claimed_by_the_joint_intervals() -> None:
    """One of six methods is better by this much: about 80 % of comparisons claim it against another."""
    rng, found, sizes = np.random.default_rng(9), [], []
    for better in (0.0, None):
        size = float(np.median(sizes)) if better is None else better
        for _ in range(20):
            per_seed, hospitals = frames({f"s{i}": 0.8 for i in range(6)}, seeds=5, noise=0.0)
            for s in range(6):
                of = hospitals["strategy"] == f"s{s}"
                place, seed = rng.normal(0, 0.02, 20), rng.normal(0, 0.004, 5)
                shift = np.repeat(seed, 20) + np.tile(place, 5) + rng.normal(0, 0.004, 100) + (size if s == 0 else 0.0)
                hospitals.loc[of, "auroc"] += shift
            shown = evidence_from(per_seed, hospitals, "s0")
            assert shown is not None
            sizes += [] if size else visible_sizes(shown)
            found += [shown.between(0, i)[1].low > 0 for i in range(1, 6)] if size else []
    assert 0.6 <= np.mean(found) <= 0.95


@pytest.mark.parametrize(("unit", "printed"), [(0.0001, r"0\.0000\d+"), (1000.0, r"\d\d\.\d|\d\d\d")])
def test_the_difference_that_could_be_found_is_in_the_unit_of_the_error(unit: float, printed: str):
    per_seed, hospitals = frames({"fedavg": 3.0, "chip": 3.0}, figure="mae", noise=0.2)
    per_seed["mae"] *= unit
    hospitals["mae"] *= unit
    limits = answered(per_seed, hospitals, "fedavg").card.line("limits")
    assert limits is not None
    assert re.search(f"ifferences of ({printed}) between fedavg and other methods could be found", limits.text)


def test_what_could_be_found_against_training_alone_is_a_number_of_its_own() -> None:
    """Two methods that agree nearly everywhere are compared sharply; training alone, which is noisy, is not."""
    rng = np.random.default_rng(3)
    means = {"fedavg": 0.80, "newton": 0.80, "local": 0.78}
    per_seed, hospitals = frames(means, references=("local",), seeds=5, noise=0.0)
    for name, deviation in (("newton", 0.002), ("local", 0.06)):
        of = hospitals["strategy"] == name
        hospitals.loc[of, "auroc"] += np.tile(rng.normal(0, deviation, 20), 5) + rng.normal(0, deviation / 9, 100)
    card = answered(per_seed, hospitals, "fedavg", ("local",)).card
    limits = card.line("limits")
    assert limits is not None
    assert card.federate == "not shown"
    shown = evidence_from(per_seed, hospitals, "fedavg", alone=("local",))
    assert shown is not None
    (between,), (alone,) = visible_sizes(shown), visible_from_alone(shown)
    # Training alone is compared with two methods, so that alpha is divided by two.
    assert alone == shown.over_alone[shown.best].visible(0.025)
    assert alone > 10 * between
    assert f"Differences of {between:.3f} between fedavg and other methods could be found (80 % power)." in limits.text
    assert f"Differences of {alone:.3f} between fedavg and local could be found (80 % power)." in limits.text


def test_bytes_decide_between_equals_only():
    means = {"fedavg": 0.80, "chip": 0.8001}
    for moved, taken in ((10, "chip"), (67, "chip"), (97, "fedavg"), (200, "fedavg")):
        said = answered(*frames(means, noise=0.002, traffic={"chip": moved}, seeds=5), "fedavg")
        assert said.card.recommended == taken
        which = said.card.line("which")
        assert which is not None
        assert ("bytes" in which.text) == (moved in (10, 67, 97)), which.text
        assert "equal within 0.01" in which.text


@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_a_method_of_unknown_bytes_does_not_send_fewer(noise: float):
    """As in a table of ``raysim judge`` whose column ``bytes`` is empty for one method."""
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.80}, noise=noise, seeds=5)
    known = per_seed.assign(bytes=np.where(per_seed["strategy"] == "chip", np.nan, 100.0))
    said = answered(known.drop(columns=["bytes_down", "bytes_up"]), hospitals, "fedavg")
    assert said.card.recommended == "fedavg"


def test_equal_models_are_one_entry():
    per_seed, hospitals = frames({"fedavg": 0.8, "fedprox": 0.8, "chip": 0.7}, noise=0.0)
    said = answered(per_seed, hospitals, "fedprox")
    assert "fedavg and fedprox have the same AUROC at every hospital and count as one." in said.reasons
    weighed = evidence_from(per_seed, hospitals, "fedprox")
    assert weighed is not None
    assert [entry.name for entry in weighed.entries] == ["fedprox", "chip"], "the reference gives its name"
    assert weighed.base == 0
    for share, name in ((0.5, "fedavg"), (0.9, "fedprox")):
        moved = per_seed.assign(bytes_down=np.where(per_seed["strategy"] == "fedavg", share, 1.0), bytes_up=0.0)
        cheaper = evidence_from(moved, hospitals, "fedprox")
        assert cheaper is not None
        assert cheaper.entries[0].name == name
    for unknown in (hidden := per_seed.drop(columns=["bytes_down", "bytes_up"]), hidden.assign(bytes=0.0)):
        named = evidence_from(unknown, hospitals, "fedprox")
        assert named is not None
        assert named.entries[0].name == "fedprox"
    alone = answered(*frames({"fedavg": 0.8, "fedprox": 0.8}, noise=0.0), "fedavg")
    assert not alone.difference_shown
    which = alone.card.line("which")
    assert which is not None
    assert (
        which.text
        == "fedavg is the only method that was compared (fedavg and fedprox have the same AUROC at every hospital)."
    )


def test_a_reference_is_no_method_and_may_be_beaten():
    means = {"fedavg": 0.80, "chip": 0.83, "local": 0.7, "centralized": 0.86}
    said = answered(*frames(means, references=("local", "centralized")), "fedavg", ("local",))
    assert said.card.recommended == "chip"
    assert said.card.headline == "Take chip."
    local, centralized = (reason for reason in said.reasons if reason.startswith("For reference"))
    assert local.startswith("For reference, local against chip: -0.1")
    assert local.endswith("worse.")
    assert centralized.endswith("better.")
    beaten = answered(*frames(means | {"centralized": 0.75}, references=("local", "centralized")), "fedavg")
    assert any(
        reason.startswith("For reference, centralized") and reason.endswith("worse.") for reason in beaten.reasons
    )


def test_training_alone_is_taken_where_federating_is_worse():
    means = {"fedavg": 0.75, "chip": 0.751, "local": 0.80, "centralized": 0.86}
    said = answered(*frames(means, references=("local", "centralized")), "fedavg", ("local",))
    assert (said.card.recommended, said.card.federate) == ("local", "no")
    assert said.card.headline == "Train alone: federating ranks worse."
    assert [(way.name, way.role) for way in said.card.rows[:2]] == [("local", "taken"), ("centralized", "reference")]
    assert {way.verdict for way in said.card.rows if way.role == "method"} == {"worse"}


def test_whether_to_federate_is_said_before_any_method_is_named():
    means = {"fedavg": 0.80, "local": 0.79}
    said = answered(*frames(means, references=("local",), noise=0.08), "fedavg", ("local",))
    assert said.card.federate == "not shown"
    assert said.card.headline == "No method demonstrably beats training alone; fedavg is the reference."
    equal = answered(*frames({"fedavg": 0.80, "local": 0.8}, references=("local",), noise=0.002), "fedavg", ("local",))
    assert equal.card.federate == "equal"
    assert equal.card.headline.startswith("fedavg and training alone rank alike (within 0.01)")
    better = answered(
        *frames({"fedavg": 0.805, "local": 0.8}, references=("local",), noise=0.002), "fedavg", ("local",)
    )
    line = better.card.line("federate")
    assert (better.card.federate, better.card.headline) == ("yes", "Take fedavg.")
    assert line is not None
    assert line.text.endswith("better by less than 0.01.")


def test_a_method_that_beats_the_reference_is_not_called_the_reference():
    means = {"fedavg": 0.70, "chip": 0.80, "local": 0.80}
    said = answered(*frames(means, references=("local",), noise=0.03), "fedavg", ("local",))
    assert (said.card.federate, said.card.recommended) == ("not shown", "chip")
    assert said.card.headline == "No method demonstrably beats training alone; chip is better than the reference."
    limits = said.card.line("limits")
    assert limits is not None
    assert "other methods" not in limits.text, "the one difference was found"
    assert "between chip and local could be found" in limits.text


def test_small_hospitals_are_compared_by_themselves():
    per_seed, hospitals = frames({"fedavg": 0.80, "local": 0.8}, references=("local",), noise=0.004)
    size = hospitals["hospital"].str[1:].astype(int) + 10
    gained = (size < 20) & (hospitals["strategy"] == "fedavg")
    hospitals = hospitals.assign(n_train=size, auroc=hospitals["auroc"] + 0.05 * gained)
    line = answered(per_seed, hospitals, "fedavg", ("local",)).card.line("federate")
    assert line is not None
    assert re.search(r"small hospitals: \+0\.0[45]\d \(.*\), better\.$", line.text), line.text
    few = hospitals[size < 18]
    line = answered(per_seed, few, "fedavg", ("local",)).card.line("federate")
    assert line is not None
    assert "small" not in line.text


def test_a_smaller_error_is_better():
    said = answered(*frames({"fedavg": 3.0, "chip": 2.8}, figure="mae", noise=0.02), "fedavg")
    assert said.card.recommended == "chip"
    which, quality = said.card.line("which"), said.card.line("quality")
    assert which is not None
    assert quality is not None
    assert which.text.startswith("chip is better than fedavg: -0.1")
    assert quality.text.startswith("Mean absolute error 2.8")


def test_nothing_defined_and_nothing_to_compare():
    per_seed, hospitals = frames({"fedavg": 0.8, "chip": 0.9})
    hospitals["auroc"] = np.nan
    nothing = answered(per_seed, hospitals, "fedavg")
    assert (nothing.card.recommended, nothing.card.use, nothing.difference_shown) == (None, "none", False)
    assert nothing.card.headline == "No AUROC is defined at any hospital."
    alone = answered(*frames({"fedavg": 0.8}), "fedavg")
    assert alone.card.recommended == "fedavg"
    assert alone.card.headline == "Take fedavg. Whether federating helps was not tested."


def test_one_method_is_compared_with_references():
    means = {"fedavg": 3.0, "local": 3.04, "centralized": 2.7}
    said = answered(
        *frames(means, figure="mae", references=("local", "centralized"), noise=0.002), "fedavg", ("local",)
    )
    assert (said.card.recommended, said.not_dominated, said.difference_shown) == ("fedavg", (), False)
    local, central = said.reasons
    assert re.fullmatch(r"For reference, local against fedavg: \+0.0[34]\d \(.*\); worse\.", local)
    assert re.fullmatch(r"For reference, centralized against fedavg: -0.\d{3} \(.*\); better\.", central)
    assert said.caution == "3 training seeds: variation between seeds is uncertain; more seeds narrow the intervals."
    once = answered(*frames(means, figure="mae", references=("local", "centralized"), seeds=1, hospitals=4), "fedavg")
    assert once.reasons[0].endswith("; for these trained models, as one seed cannot compare methods.")
    assert once.caution.startswith("4 hospitals")


@pytest.mark.parametrize("hospitals", [20, 40])
def test_one_seed_shows_no_difference_however_large(hospitals):
    means = {"fedavg": 0.80, "chip": 0.84, "clustered": 0.76}
    per_seed, by_hospital = frames({**means, "local": 0.7}, hospitals=hospitals, seeds=1, references=("local",))
    said = answered(per_seed, by_hospital, "fedavg", ("local",))
    assert (said.difference_shown, said.card.recommended, said.card.federate) == (False, "fedavg", "not shown")
    assert said.not_dominated == ("fedavg", "chip", "clustered")
    assert said.card.headline == "One seed cannot compare methods; fedavg is the reference."
    alone = next(
        reason for reason in said.reasons if reason.startswith("Differences from fedavg for these trained models")
    )
    assert "chip: +0.04" in alone, "what the trained models show is reported as theirs"
    assert {way.verdict for way in said.card.rows[1:]} == {"one seed"}
    text = " ".join(said.sentences)
    assert "worse" not in text
    assert "80 % power" not in text
    assert answered(*frames(means, hospitals=hospitals, seeds=2, noise=0.003), "fedavg").difference_shown


def test_few_hospitals_are_said_to_be_few():
    said = answered(*frames({"fedavg": 0.80, "chip": 0.805, "afl": 0.79}, hospitals=4, seeds=1), "fedavg")
    limits = said.card.line("limits")
    assert limits is not None
    assert re.match(r"Few hospitals: 4 \(\d\.\d degrees of freedom\)", limits.text)
    assert "4 hospitals" in said.caution
    assert "Holm's procedure" in said.caution
    assert "one training seed" in said.caution


def test_nothing_is_recommended_where_too_few_hospitals_are_judged():
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.9}, hospitals=4)
    two = hospitals.assign(auroc=hospitals["auroc"].where(hospitals["hospital"].isin(["h0", "h1"])))
    said = answered(per_seed, two, "fedavg")
    assert (said.card.recommended, said.card.use) == (None, "none")
    assert said.card.headline == "Nothing is recommended: 2 of 4 hospitals can be judged."
    assert [line.fact for line in said.card.forbids] == ["limits"]
    small = hospitals.assign(
        auroc=hospitals["auroc"].where(hospitals["hospital"] != "h0"),
        n_test=hospitals["n_test"].where(hospitals["hospital"] != "h0", 10_000),
    )
    rows = answered(per_seed, small, "fedavg")
    assert rows.card.recommended is None
    assert re.search(r"3 of 4 hospitals can be judged, with \d+ % of the test rows\.$", rows.card.headline)


def test_an_interval_goes_no_further_than_a_difference_can():
    means = {f"s{i}": 0.8 for i in range(6)}
    said = answered(*frames(means, hospitals=3, seeds=2, noise=0.15), "s0")
    text = " ".join(said.reasons)
    # Intervals reach from -.8 to .2 at most, and the smallest visible difference would be larger than both.
    assert "s1: says nothing" in text
    assert not re.findall(r"[+-]\d+\.\d+", text)
    limits = said.card.line("limits")
    assert limits is not None
    assert "No difference between s0 and other methods could have been found" in limits.text
    assert {way.verdict for way in said.card.rows[1:]} == {"says nothing"}
    errors = answered(*frames(means, hospitals=3, seeds=2, noise=0.15, figure="mae"), "s0")
    assert max(abs(float(number)) for number in re.findall(r"[+-]\d+\.\d+", " ".join(errors.reasons))) > 1


def test_the_order_of_rows_changes_nothing():
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.84, "clustered": 0.76})
    shuffled = answered(per_seed, hospitals.sample(frac=1, random_state=1), "fedavg")
    assert shuffled.as_json() == answered(per_seed, hospitals, "fedavg").as_json()


@pytest.mark.parametrize(("hospitals", "there"), [(4, False), (29, False), (30, True)])
def test_no_interval_of_a_worst_decile_from_few_hospitals(hospitals, there):
    per_seed, by_hospital = frames({"fedavg": 0.8, "chip": 0.82}, hospitals=hospitals)
    per_seed["worst_decile"] = 0.6
    table = differences(per_seed, "fedavg", by_hospital).set_index("figure")
    assert np.isfinite(table.loc["worst_decile", "low"]) == there
    assert np.isfinite(table.loc["auroc", "low"])


def test_equal_models_are_never_called_different():
    """Strategies that differ by chance alone; in draw 18, one of six differences is beyond its unadjusted interval."""
    for draw in range(17, 20):
        rng = np.random.default_rng(draw)
        by_hospital, per_seed = [], []
        for strategy in ("fedavg", "a", "b", "c"):
            for seed in range(2):
                values = 0.8 + rng.normal(0, 0.05, 20)
                key = {"strategy": strategy, "model": "global", "seed": seed}
                names = [f"h{i}" for i in range(20)]
                by_hospital.append(pd.DataFrame({**key, "hospital": names, "n_test": 50, "auroc": values}))
                per_seed.append({**key, "auroc": values.mean()})
        assert not answered(pd.DataFrame(per_seed), pd.concat(by_hospital), "fedavg").difference_shown


def test_the_non_dominated_set_is_of_intervals_and_not_of_means():
    same = answered(*frames({"fedavg": 0.80, "chip": 0.8002, "afl": 0.8001}, noise=0.02), "fedavg")
    assert same.not_dominated == ("fedavg", "chip", "afl"), "means differ, and nothing is shown"
    assert not any("dominates" in reason for reason in same.reasons)
    worse = answered(*frames({"fedavg": 0.80, "chip": 0.8002, "clustered": 0.7}, noise=0.02), "fedavg")
    assert worse.not_dominated == ("fedavg", "chip")
    assert "Not dominated by another method on mean AUROC and worst decile: fedavg and chip." in worse.reasons
    # Figures and comparison.csv take the same set, and members of an entry of equals share its place.
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.8002, "clustered": 0.7}, noise=0.02)
    again = [table.assign(strategy=table["strategy"].replace("clustered", "copy")) for table in (per_seed, hospitals)]
    twice = [
        pd.concat([table, copy[copy["strategy"] == "copy"]], ignore_index=True)
        for table, copy in zip((per_seed, hospitals), again, strict=True)
    ]
    shown = evidence_from(twice[0], twice[1], "fedavg")
    assert shown is not None
    assert shown.dominated == {("clustered", "global"), ("copy", "global")}


def test_who_serves_the_worst_better_is_not_dominated_by_a_better_mean():
    """Forty hospitals: the second is .02 better at most of them, and far worse at the worst tenth."""
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.82}, hospitals=40, noise=0.002)
    low = hospitals["hospital"].isin([f"h{i}" for i in range(4)])
    rows = hospitals["n_test"].where(~low, 5)
    hospitals = hospitals.assign(
        n_test=rows, auroc=hospitals["auroc"].where(~(low & (hospitals["strategy"] == "chip")), 0.4)
    )
    weighed = evidence_from(per_seed, hospitals, "fedavg")
    assert weighed is not None
    chip, fedavg = 1, 0
    assert [entry.name for entry in weighed.entries] == ["fedavg", "chip"]
    assert weighed.better[chip, fedavg]
    assert weighed.front.all(), "each is shown better on one of the two figures"


def test_training_on_one_class_is_counted_with_and_without():
    """A hospital that trained alone on one class is in the difference, which is given without it, too."""
    per_seed, hospitals = frames({"fedavg": 0.80, "local": 0.78}, hospitals=12, noise=0.01)
    per_seed = per_seed.assign(yardstick=per_seed["strategy"] == "local")
    odd = (hospitals["hospital"] == "h3") & (hospitals["strategy"] == "local")
    marked = hospitals.assign(trained=np.where(odd, "one class", "yes"))
    shown = evidence_from(per_seed, marked, "fedavg", alone={"local"})
    assert shown is not None
    assert shown.over_alone_two_classes is not None
    count, others = shown.over_alone_two_classes
    assert (count, others.pair.hospitals) == (1, 11)
    assert shown.over_alone[0].hospitals == 12
    both = evidence_from(per_seed, marked.assign(trained="yes"), "fedavg", alone={"local"})
    assert both is not None
    assert both.over_alone_two_classes is None


def test_hospitals_that_sent_no_update_are_reported_apart():
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.80}, hospitals=6)
    outside = hospitals["hospital"].isin(["h2", "h4"])
    sizes = {"n_train": np.where(outside, 0, 50), "n_validation": 0}
    line = answered(per_seed, hospitals.assign(**sizes), "fedavg").card.line("unseen")
    assert line is not None
    assert line.text.startswith("AUROC at 2 hospitals that took no part (h2 and h4): 0.")
    assert line.figure is not None
    there = hospitals[outside & (hospitals["strategy"] == "fedavg")]
    assert line.figure["auroc"] == pytest.approx(np.average(there["auroc"], weights=there["n_test"]))
    inside = answered(per_seed, hospitals.assign(n_train=50, n_validation=0), "fedavg").card.line("unseen")
    assert inside is not None
    assert inside.text.startswith("Not tested at hospitals that took no part")


def test_what_may_not_be_used_is_not_recommended():
    said = answered(*frames({"fedavg": 0.5, "chip": 0.5}, noise=0.05), "fedavg")
    assert (said.card.use, said.card.recommended) == ("none", None)
    assert said.card.headline.startswith("Do not use fedavg")


def test_models_that_are_not_defined_alike_are_two():
    """Equal figures at shared hospitals make no one entry where one of the two was never trained at another."""
    per_seed, hospitals = frames({"fedavg": 0.80, "fedper": 0.80}, hospitals=12, noise=0.0)
    alike = evidence_from(per_seed, hospitals, "fedavg")
    assert alike is not None
    assert len(alike.entries) == 1
    lost = hospitals.assign(
        auroc=hospitals["auroc"].where((hospitals["strategy"] != "fedper") | (hospitals["hospital"] != "h0"))
    )
    apart = evidence_from(per_seed, lost, "fedavg")
    assert apart is not None
    assert len(apart.entries) == 2
