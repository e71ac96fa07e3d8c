"""What a page says of recalibration: proposed where it is worth its rows, its cost elsewhere, and what it did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.engine.job import Result
from raysim.metrics.labels import CLASSIFICATION
from raysim.metrics.score_counts import ScoreCounts
from raysim.report.judgement import recalibrating
from raysim.report.judgement.card import Line, State
from raysim.report.judgement.facts.calibration import REMEDY
from raysim.report.judgement.facts.headline import Verdict, headline, use_of
from raysim.report.judgement.recalibrating import MORE_ROWS, NO_ROWS, Effect, effect, proposal, with_recalibration
from raysim.report.pages import sharing
from raysim.statistics.clinical.recalibration_benefit import Benefit, benefit
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.shared.personalization import RECALIBRATED, LastSteps, Recalibration
from tests.conftest import MakeFederation, run_strategy

TRAIN, TEST, VALIDATION = [30, 20, 12, 25, 40], [60, 40, 15, 30, 50], [40, 40, 0, 30, 46]
BOTH = "recalibrate=both"
LAST = LastSteps(recalibration=Recalibration())


def result(federation, tmp_path, last: LastSteps | None = None) -> Result:
    outcome = run_strategy(federation, FedAvg(), last=last, rounds=2)
    return Result("fedavg", False, 1, federation, outcome, tmp_path)


def test_it_is_proposed_by_the_rule_with_what_it_changes_and_costs(federate: MakeFederation, tmp_path) -> None:
    run = result(federate(TRAIN, TEST, validation=VALIDATION), tmp_path)
    found = proposal([run], ("fedavg", "global"), 0.01)
    assert found is not None
    assert found.labelled == np.median(VALIDATION)
    assert found.remedy == (REMEDY if found.log_loss < 0 else MORE_ROWS)
    assert f"on {np.median(VALIDATION):.0f} labelled rows at the median hospital would" in found.text
    assert ("lower" if found.log_loss < 0 else "raise") in found.text
    # Right risks, too, differ from few events: the factor alone does not say that risks are wrong.
    assert "observed and expected events differ by a factor of" in found.text
    assert "on average, chance included; after recalibration, of" in found.text
    other = proposal([run], ("fedavg", "global"), 0.2)
    assert other is not None
    assert other.text == f"Hospitals do not demonstrably differ in calibration. {found.text}"


@pytest.mark.parametrize("validation", [None, [1, 1, 1, 1, 1]])
def test_without_the_rows_it_says_what_it_would_cost(validation, federate: MakeFederation, tmp_path) -> None:
    federation = federate(TRAIN, TEST, **({} if validation is None else {"validation": validation}))
    run = result(federation, tmp_path)
    found = proposal([run], ("fedavg", "global"), 0.01)
    counts = run.outcome.scores["global"]
    share = min(counts.events.sum(), (counts.rows - counts.events).sum()) / counts.rows.sum()
    assert found is not None
    assert found.remedy == (NO_ROWS if validation is None else MORE_ROWS)
    verb = "need" if validation is None else "take"
    assert f"{verb} about {np.ceil(3 / share):.0f} labelled rows" in found.text
    assert " 1 labelled rows" not in found.text
    assert ("would" in found.text) == (validation is not None)
    if validation is not None:
        assert "has fewer than 5 validation rows of the rarer class" in sharing._sentence(found.text, {})


def test_validation_rows_without_an_event_give_no_estimate(federate: MakeFederation, tmp_path) -> None:
    run = result(federate(TRAIN, TEST, validation=[1, 1, 1, 1, 1]), tmp_path)
    counts = run.outcome.validation_scores["global"]
    none = counts._replace(positives=0 * counts.positives, negatives=counts.negatives + counts.positives)
    run.outcome.validation_scores["global"] = ScoreCounts(*none)
    found = proposal([run], ("fedavg", "global"), 0.01)
    assert found is not None
    assert found.text.startswith("What recalibration would change cannot be estimated: validation rows have too few")
    assert "nan" not in found.text
    assert found.remedy == MORE_ROWS, "rows are set aside already"


def test_what_it_did_is_measured_on_test_rows(federate: MakeFederation, tmp_path) -> None:
    run = result(federate(TRAIN, TEST, validation=VALIDATION), tmp_path, LAST)
    found = effect([run], ("fedavg", RECALIBRATED))
    assert found is not None
    for value, model in ((found.before, "global"), (found.after, RECALIBRATED)):
        assert value == pytest.approx(run.outcome.metrics[model]["log_loss"], rel=1e-9)
    assert effect([run], ("fedavg", "global")) is None
    assert Effect(0.2, 0.21).harms
    assert "the model without it has better risks" in Effect(0.2, 0.21).text
    assert Effect(0.21, 0.2).text == "Recalibration lowers log loss on test rows from 0.2100 to 0.2000."
    for after in (0.20004, 0.19996):
        alike = Effect(0.2, after)
        assert not alike.harms
        assert alike.text == "Recalibration leaves log loss on test rows as it is (0.2000)."


@pytest.mark.parametrize(("after", "harms"), [(0.21, True), (0.2, False), (0.19, False)])
@pytest.mark.parametrize(("state", "allowed"), [("ok", "risks"), ("open", "ranking")])
def test_a_recalibration_that_made_risks_worse_allows_no_use_of_them(
    state: State, allowed: str, after: float, harms: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recalibrating, "effect", lambda *_: Effect(0.2, after))
    line = with_recalibration(Line("calibration", state, "Risks.", {"state": state}), [], ("fedavg", RECALIBRATED), 0.5)
    good = Line("quality", "ok", "It ranks well.", {"auroc": 0.8, "low": 0.75})
    lines = [good, line, Line("limits", "open", "Few hospitals.")]
    use = use_of(CLASSIFICATION, lines, recommends=True)
    sentence = headline(
        Verdict("FedAvg, recalibrated", True, "yes", False, False, "20 %", recalibrated=True), use, lines
    )
    if not harms:
        assert (line.state, line.forbids, line.remedy, use) == (state, False, "", allowed)
        assert sentence == "Take FedAvg, recalibrated."
        return
    assert (line.state, line.forbids, line.figure, use) == ("warn", True, {"state": "warn"}, "ranking")
    assert line.remedy == "take it without recalibration"
    assert sentence == "Take FedAvg, recalibrated, for ranking, not for risks (recalibration raised log loss)."


def test_few_events_in_validation_rows_propose_no_recalibration(
    federate: MakeFederation, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 16 events at 5 hospitals, an estimated fall of the log loss is chance."""
    run = result(federate(TRAIN, TEST, validation=VALIDATION), tmp_path)
    monkeypatch.setattr(recalibrating, "benefit", lambda *_: Benefit(-0.01, 0.5, 0.4, 5, 10.0))
    for rarer, remedy in (([12, 2, 1, 1, 0], MORE_ROWS), ([12, 3, 3, 1, 0], REMEDY), ([60, 1, 0, 0, 0], REMEDY)):
        monkeypatch.setattr(recalibrating, "rarer_class", lambda _, rarer=rarer: np.array(rarer))
        off = Line("calibration", "warn", "Risks are off.", None, REMEDY, True, "risks off", BOTH)
        line = with_recalibration(off, [run], ("fedavg", "global"), 0.01)
        assert (line.remedy, line.setting) == (remedy, BOTH if remedy == REMEDY else "")


def test_the_estimate_is_the_same_each_time(federate: MakeFederation, tmp_path) -> None:
    run = result(federate(TRAIN, TEST, validation=VALIDATION), tmp_path)
    one, two = (proposal([run], ("fedavg", "global"), 0.01) for _ in range(2))
    assert one == two
    rng = np.random.default_rng(0)
    assert np.isfinite(benefit(run.outcome.validation_scores["global"], "eb", rng).log_loss)


def test_the_line_on_calibration_says_it_and_the_remedy_fits(
    federate: MakeFederation, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = federate(TRAIN, TEST, validation=VALIDATION)
    off = Line("calibration", "warn", "Risks are off.", None, "recalibrate it", True, "risks off", BOTH)
    plain, done = result(federation, tmp_path), result(federation, tmp_path, LAST)
    proposed = proposal([plain], ("fedavg", "global"), 0.01)
    assert proposed is not None
    key = ("fedavg", "global")
    reported = replace(off, text=f"Risks are off. {proposed.text}")
    more = replace(reported, remedy="recalibrate it with more labelled rows than here", setting="")
    for remedy, line in ((REMEDY, reported), (MORE_ROWS, more)):
        with monkeypatch.context() as patch:
            patch.setattr(recalibrating, "proposal", lambda *_, remedy=remedy: replace(proposed, remedy=remedy))
            assert with_recalibration(off, [plain], key, 0.01) == line, "a command is proposed only if it helps"
    right = replace(off, state="ok", text="Risks are right.", remedy="", forbids=False)
    assert with_recalibration(right, [plain], key, 0.01) == right
    did = effect([done], ("fedavg", RECALIBRATED))
    assert did is not None
    reported = with_recalibration(off, [done], ("fedavg", RECALIBRATED), 0.01)
    assert reported.text == f"Risks are off. {did.text}"
    assert reported.remedy == ("take it without recalibration" if did.harms else "more labelled rows")
    of_right = with_recalibration(right, [done], ("fedavg", RECALIBRATED), 0.01)
    assert of_right.remedy == ("take it without recalibration" if did.harms else "")


def test_a_headline_does_not_ask_twice() -> None:
    good = Line("quality", "ok", "It ranks well.", {"auroc": 0.8, "low": 0.75})
    off = Line("calibration", "warn", "Risks are off.", None, "", True, "risks 3.1 times too high")
    lines = [good, off, Line("limits", "open", "Few hospitals.")]
    once = Verdict("FedAvg, recalibrated", True, "yes", False, False, "20 %", recalibrated=True)
    assert headline(once, "ranking", lines) == (
        "Take FedAvg, recalibrated, for ranking, not for risks (risks 3.1 times too high)."
    )
    assert "recalibrated at each hospital" in headline(replace(once, recalibrated=False), "ranking", lines)
    alone = replace(once, compared=False)
    assert "recalibrate it" not in headline(alone, "ranking", lines)
    assert "recalibrate it at each hospital" in headline(replace(alone, recalibrated=False), "ranking", lines)
