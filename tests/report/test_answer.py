"""What a comparison claims, and what it does not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from raysim.report.judgement.answer import answer
from raysim.report.judgement.evidence import evidence
from raysim.report.tables import differences

NOISE = {"auroc": 0.01, "mae": 0.02}


def frames(
    means: dict[str, float],
    *,
    hospitals: int = 20,
    seeds: int = 3,
    figure: str = "auroc",
    traffic: dict[str, int] | None = None,
    aside: tuple[str, ...] = (),
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
            per_seed.append({**key, figure: mean_over, "yardstick": strategy in aside, "undefined": 0, **moved})
    return pd.DataFrame(per_seed), pd.concat(by_hospital, ignore_index=True)


def test_a_true_difference_is_found_and_the_better_one_recommended():
    said = answer(*frames({"fedavg": 0.80, "chip": 0.84, "clustered": 0.76}), "fedavg")
    assert said.recommended == "chip"
    assert said.difference_shown
    assert said.lead.startswith("chip: +0.04")
    assert said.lead.endswith("mean AUROC against fedavg.")
    worse = next(reason for reason in said.reasons if reason.startswith("Shown to be worse than chip"))
    assert "fedavg: -0.04" in worse
    assert "clustered: -0.08" in worse
    assert said.as_json() == {
        "recommended": "chip",
        "difference_shown": True,
        "not_dominated": ["chip"],
        "reasons": list(said.sentences),
    }


def test_no_difference_is_an_answer_and_says_what_could_have_been_seen():
    said = answer(*frames({"fedavg": 0.80, "chip": 0.8001}, noise=0.02, traffic={"chip": 170}), "fedavg")
    assert not said.difference_shown
    assert said.recommended == "fedavg"
    assert said.lead == (
        "No difference in mean AUROC between the 2 ways of federating can be shown with these data; fedavg moves the "
        "fewest bytes."
    )
    assert any("that four of five such comparisons would show by itself: " in reason for reason in said.reasons)


def test_equal_models_are_one_entry():
    per_seed, hospitals = frames({"fedavg": 0.8, "fedprox": 0.8, "chip": 0.7}, noise=0.0)
    said = answer(per_seed, hospitals, "fedprox")
    assert "fedavg and fedprox have the same figure at every hospital and count as one." in said.reasons
    weighed = evidence(per_seed, hospitals, "fedprox")
    assert weighed is not None
    assert [entry.name for entry in weighed.entries] == ["fedavg", "chip"]
    assert weighed.base == 0
    alone = answer(*frames({"fedavg": 0.8, "fedprox": 0.8}, noise=0.0), "fedavg")
    assert not alone.difference_shown
    assert alone.lead.startswith("All ways of federating have the same AUROC at every hospital")


def test_a_recalibrated_model_stands_for_the_one_that_it_was_made_of():
    plain = frames({"fedavg": 0.80, "chip": 0.84, "local": 0.7}, aside=("local",))

    def both(table: pd.DataFrame) -> pd.DataFrame:
        each = [group for _, group in table.groupby("strategy", sort=False)]
        return pd.concat([half for of in each for half in (of, of.assign(model="recalibrated"))], ignore_index=True)

    per_seed, hospitals = map(both, plain)
    one, other = evidence(*plain, "fedavg"), evidence(per_seed, hospitals, "fedavg")
    assert [entry.key for entry in other.entries] == [("fedavg", "recalibrated"), ("chip", "recalibrated")]
    assert [entry.key for entry in other.references] == [("local", "recalibrated")]
    assert other.made_of["chip", "recalibrated"] == ("chip", "global")
    # The same pairs, tested the same way: recalibration adds none and widens nothing.
    assert other.differences.keys() == one.differences.keys()
    assert other.intervals == one.intervals
    assert (other.best, other.base) == (one.best, one.base)
    assert not any("count as one" in reason for reason in answer(per_seed, hospitals, "fedavg").reasons)
    assert one.made_of == {}


def test_a_reference_is_never_recommended_and_may_be_beaten():
    means = {"fedavg": 0.80, "chip": 0.83, "local": 0.7, "centralized": 0.86}
    said = answer(*frames(means, aside=("local", "centralized")), "fedavg")
    assert said.recommended == "chip"
    local, centralized = (reason for reason in said.reasons if reason.startswith("For reference"))
    assert local.startswith("For reference, local against chip: -0.1")
    assert local.endswith("it is worse.")
    assert centralized.endswith("it is better.")
    beaten = answer(*frames(means | {"centralized": 0.75}, aside=("local", "centralized")), "fedavg")
    assert any(
        reason.startswith("For reference, centralized") and reason.endswith("worse.") for reason in beaten.reasons
    )


def test_of_those_not_shown_worse_the_one_that_moves_least_is_taken():
    means = {"fedavg": 0.80, "chip": 0.8002, "afl": 0.8001, "clustered": 0.7}
    per_seed, hospitals = frames(means, traffic={"fedavg": 300, "chip": 200, "afl": 100, "clustered": 1}, noise=0.02)
    weighed = evidence(per_seed, hospitals, "fedavg")
    assert weighed is not None
    assert [weighed.entries[i].name for i in weighed.unbeaten] == ["fedavg", "chip", "afl"]
    assert weighed.entries[weighed.best].name == "afl"
    assert answer(per_seed, hospitals, "fedavg").difference_shown, "clustered differs from the reference"


def test_a_smaller_error_is_better():
    said = answer(*frames({"fedavg": 3.0, "chip": 2.8}, figure="mae", noise=0.02), "fedavg")
    assert said.recommended == "chip"
    assert said.lead.startswith("chip: -0.1")
    assert said.lead.endswith("mean MAE against fedavg.")


def test_nothing_defined_and_nothing_to_compare():
    per_seed, hospitals = frames({"fedavg": 0.8, "chip": 0.9})
    hospitals["auroc"] = np.nan
    nothing = answer(per_seed, hospitals, "fedavg")
    assert (nothing.recommended, nothing.difference_shown) == (None, False)
    assert nothing.lead.startswith("No AUROC of this comparison is defined")
    alone = answer(*frames({"fedavg": 0.8}), "fedavg")
    assert alone.recommended is None
    assert alone.lead == "Only fedavg was run, so there is nothing to compare it with."


def test_one_way_of_federating_is_compared_with_references():
    means = {"fedavg": 3.0, "local": 3.04, "centralized": 2.7}
    said = answer(*frames(means, figure="mae", aside=("local", "centralized"), noise=0.002), "fedavg")
    assert said.lead == "fedavg is the only way of federating that was run, and is compared with references alone."
    assert (said.recommended, said.not_dominated, said.difference_shown) == (None, (), False), "local may be better"
    local, central = said.reasons
    assert re.fullmatch(r"For reference, local against fedavg: \+0.0[34]\d \(.*\); it is worse\.", local)
    assert re.fullmatch(r"For reference, centralized against fedavg: -0.\d{3} \(.*\); it is better\.", central)
    assert said.caution == "3 training seeds: what they change is uncertain, and more of them narrow the intervals."
    once = answer(*frames(means, figure="mae", aside=("local", "centralized"), seeds=1, hospitals=4), "fedavg")
    assert once.reasons[0].endswith("; one seed shows no difference.")
    assert once.caution.startswith("4 hospitals")
    alone = answer(*frames({"local": 0.8}, aside=("local",)), "local")
    assert alone.lead == "Only local was run, so there is nothing to compare it with."


@pytest.mark.parametrize("hospitals", [20, 40])
def test_one_seed_shows_no_difference_however_large(hospitals):
    means = {"fedavg": 0.80, "chip": 0.84, "clustered": 0.76}
    per_seed, by_hospital = frames({**means, "local": 0.7}, hospitals=hospitals, seeds=1, aside=("local",))
    said = answer(per_seed, by_hospital, "fedavg")
    assert (said.difference_shown, said.recommended) == (False, "fedavg")
    assert said.not_dominated == ("fedavg", "chip", "clustered")
    assert said.lead == (
        "No difference in mean AUROC between the 3 ways of federating can be shown with one training seed: how much "
        "the result hangs on it is unknown, so run 3 or more; fedavg moves the fewest bytes."
    )
    alone = next(reason for reason in said.reasons if reason.startswith("These trained models alone"))
    assert "chip: +0.04" in alone, "what the trained models show is told as theirs"
    reference = next(reason for reason in said.reasons if reason.startswith("For reference, local"))
    assert reference.endswith("one seed shows no difference.")
    text = " ".join(said.sentences)
    assert "worse" not in text
    assert "four of five" not in text
    assert answer(*frames(means, hospitals=hospitals, seeds=2, noise=0.003), "fedavg").difference_shown


def test_few_hospitals_are_said_to_be_few():
    said = answer(*frames({"fedavg": 0.80, "chip": 0.805, "afl": 0.79}, hospitals=4, seeds=1), "fedavg")
    assert "4 hospitals" in said.caution
    assert "Holm's procedure" in said.caution
    assert "one training seed" in said.caution


def test_an_interval_goes_no_further_than_a_difference_can():
    means = {f"s{i}": 0.8 for i in range(6)}
    said = answer(*frames(means, hospitals=3, seeds=2, noise=0.15), "s0")
    text = " ".join(said.reasons)
    assert "(-1.000 to +1.000)" in text
    assert max(abs(float(number)) for number in re.findall(r"[+-]\d+\.\d+", text)) <= 1
    errors = answer(*frames(means, hospitals=3, seeds=2, noise=0.15, figure="mae"), "s0")
    assert max(abs(float(number)) for number in re.findall(r"[+-]\d+\.\d+", " ".join(errors.reasons))) > 1


def test_the_order_of_rows_changes_nothing():
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.84, "clustered": 0.76})
    shuffled = answer(per_seed, hospitals.sample(frac=1, random_state=1), "fedavg")
    assert shuffled == answer(per_seed, hospitals, "fedavg")


@pytest.mark.parametrize(("hospitals", "there"), [(4, False), (29, False), (30, True)])
def test_no_interval_of_a_worst_decile_from_few_hospitals(hospitals, there):
    per_seed, by_hospital = frames({"fedavg": 0.8, "chip": 0.82}, hospitals=hospitals)
    per_seed["worst_decile"] = 0.6
    table = differences(per_seed, "fedavg", by_hospital).set_index("figure")
    assert np.isfinite(table.loc["worst_decile", "low"]) == there
    assert np.isfinite(table.loc["auroc", "low"])


def test_equal_models_are_never_called_different():
    """Strategies that differ by chance alone: at most 5 % of comparisons find a difference; 60 of them, at most 7."""
    shown = 0
    for draw in range(60):
        rng = np.random.default_rng(draw)
        by_hospital, per_seed = [], []
        for strategy in ("fedavg", "a", "b", "c"):
            for seed in range(2):
                values = 0.8 + rng.normal(0, 0.05, 20)
                key = {"strategy": strategy, "model": "global", "seed": seed}
                names = [f"h{i}" for i in range(20)]
                by_hospital.append(pd.DataFrame({**key, "hospital": names, "n_test": 50, "auroc": values}))
                per_seed.append({**key, "auroc": values.mean()})
        shown += answer(pd.DataFrame(per_seed), pd.concat(by_hospital), "fedavg").difference_shown
    assert shown <= 7


def test_the_non_dominated_set_is_of_intervals_and_not_of_means():
    same = answer(*frames({"fedavg": 0.80, "chip": 0.8002, "afl": 0.8001}, noise=0.02), "fedavg")
    assert same.not_dominated == ("fedavg", "chip", "afl"), "means differ, and nothing is shown"
    assert not any("Not dominated" in reason for reason in same.reasons)
    worse = answer(*frames({"fedavg": 0.80, "chip": 0.8002, "clustered": 0.7}, noise=0.02), "fedavg")
    assert worse.not_dominated == ("fedavg", "chip")
    assert "Not dominated on mean AUROC and worst decile, by intervals: fedavg and chip." in worse.reasons


def test_who_serves_the_worst_better_is_not_dominated_by_a_better_mean():
    """Forty hospitals: the second is .02 better at most of them, and far worse at the worst tenth."""
    per_seed, hospitals = frames({"fedavg": 0.80, "chip": 0.82}, hospitals=40, noise=0.002)
    low = hospitals["hospital"].isin([f"h{i}" for i in range(4)])
    rows = hospitals["n_test"].where(~low, 5)
    hospitals = hospitals.assign(
        n_test=rows, auroc=hospitals["auroc"].where(~(low & (hospitals["strategy"] == "chip")), 0.4)
    )
    weighed = evidence(per_seed, hospitals, "fedavg")
    assert weighed is not None
    chip, fedavg = 1, 0
    assert [entry.name for entry in weighed.entries] == ["fedavg", "chip"]
    assert weighed.better[chip, fedavg]
    assert weighed.front.all(), "each is shown better on one of the two figures"
