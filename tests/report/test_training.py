"""What is said of the training behind figures, from runs whose training is known."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.data.federation import Federation
from raysim.engine.job import Result
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.stopping import Stopped
from raysim.report.supplement import training
from raysim.storage.finished import load_finished, save_finished
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, run_strategy


def result(federation: Federation, label: str, strategy: Any, seed: int = 1, **settings: Any) -> Result:
    outcome = run_strategy(federation, strategy, seed=seed, **settings)
    return Result(label, False, seed, federation, outcome, Path())


def with_losses(one: Result, losses: list[float], label: str | None = None) -> Result:
    """The result with another curve; the first is before training."""
    rounds = [replace(row, training_loss=loss) for row, loss in zip(one.outcome.rounds, losses[1:], strict=True)]
    outcome = replace(one.outcome, rounds=rounds, losses=TrainingLosses({"global": losses[0]}, "global"))
    return replace(one, outcome=outcome, label=label or one.label)


@pytest.fixture
def run(federate: MakeFederation) -> Result:
    return result(federate([9, 7, 14]), "fedavg", FedAvg(), rounds=6)


def test_a_run_that_still_falls(run: Result) -> None:
    falling = with_losses(run, [0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4])
    # The last windows of three: (.5 + .45 + .4)/3 and (.65 + .6 + .55)/3, .15 of .7.
    assert training.of_run(falling) == (
        "The training loss went from 0.7 to 0.4 in 6 rounds: still falling (by 21 % of its start over the last "
        "measurements). More rounds or a larger learning rate may change the figures."
    )
    flat = with_losses(run, [0.7, *[0.69] * 6], "flat")
    assert training.sentences([falling, flat])[0] == (
        "Not trained to the end (fall of the training loss over the last measurements, relative to its start): "
        "fedavg 21 %. More rounds or a larger learning rate may change which is best."
    )


def test_a_small_fall_counts_as_trained(run: Result) -> None:
    """Windows of three: a fall by 1.9 % of the start is trained, one by 2.1 % is not."""
    slow, fast = (with_losses(run, [1.0, *[0.5] * 3, *[0.5 - fall] * 3], f"{fall}") for fall in (0.019, 0.021))
    assert slow.outcome.convergence is not None
    assert slow.outcome.convergence.verdict == "falling"
    assert training.of_run(slow).endswith(
        "in 6 rounds. It still falls, but only by 1.9 % of its start over the last measurements: it counts as "
        "converged."
    )
    assert training.sentences([slow]) == ()
    assert training.untrained([slow, fast]) == [("0.021", pytest.approx(0.021))]


def test_whoever_is_untrained_is_named_with_its_largest_fall(run: Result, federate: MakeFederation) -> None:
    def fell(fall: float, label: str, seed: int) -> Result:
        return replace(with_losses(run, [1.0, *[0.5] * 3, *[0.5 - fall] * 3], label), seed=seed)

    short = result(federate([9, 7]), "short", FedAvg(), rounds=3)
    wild = with_losses(run, [0.7, 1.0, 3.0, 5.0, 8.0, 9.0, 10.9], "wild")
    found = training.untrained(
        [fell(0.03, "a", 0), fell(0.05, "a", 1), fell(0.01, "a", 2), fell(0.0, "b", 0), short, wild]
    )
    assert [label for label, _ in found] == ["a", "short"]
    assert found[0][1] == pytest.approx(0.05)
    assert np.isnan(found[1][1])
    assert training.untrained([fell(0.03, "wild", 0), replace(wild, seed=1)]) == []


def test_a_run_that_ended_where_its_validation_loss_fell_no_more(run: Result) -> None:
    """Its training loss may fall on: more rounds would make it worse."""
    falling = with_losses(run, [0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4])
    how = Stopped(before=0.7, model="global", early=True, last=6, served=4, loss=0.61234)
    overfitted = replace(falling, outcome=replace(falling.outcome, stopped=how))
    assert training.of_run(overfitted) == (
        "The training loss went from 0.7 to 0.4 in 6 rounds. The validation loss no longer fell, so training "
        "ended after round 6. The models of round 4 are used (validation loss 0.6123)."
    )
    assert training.sentences([overfitted]) == ()
    assert training.untrained([overfitted]) == []
    flat = with_losses(run, [0.7, *[0.69] * 6], "flat")
    flat = replace(flat, outcome=replace(flat.outcome, stopped=how))
    assert training.of_run(flat).endswith("and no longer changes. " + training.of_run(overfitted).partition(". ")[2])
    whole = replace(falling, outcome=replace(falling.outcome, stopped=replace(how, early=False)))
    assert training.of_run(whole) == training.of_run(falling)
    assert training.sentences([whole]) == training.sentences([falling])


def test_a_run_that_diverged(run: Result) -> None:
    wild = with_losses(run, [0.7, 1.0, 3.0, 5.0, 8.0, 9.0, 10.9])
    assert training.of_run(wild) == (
        "The training loss went from 0.7 to 10.9 in 6 rounds: it diverged. Lower training.learning_rate, or scale the "
        "features."
    )
    assert training.sentences([wild])[0] == (
        "Diverged, so figures are meaningless: fedavg (training loss 0.7 to 10.9). Lower training.learning_rate."
    )
    seeds = [replace(with_losses(run, [0.7] * 7), seed=0), replace(wild, seed=3)]
    assert training.sentences(seeds)[0].count("seed 3") == 1


def test_a_method_without_a_learning_rate_has_no_advice_to_lower_it(run: Result) -> None:
    wild = replace(with_losses(run, [0.7, 1.0, 3.0, 5.0, 8.0, 9.0, 10.9]), by_steps=False)
    mends = "Add rows or a ridge, or under privacy raise epsilon."
    assert training.of_run(wild).endswith(f"10.9 in 6 rounds: it diverged. {mends}")
    (said,) = training.sentences([replace(wild, label="newton"), replace(wild, by_steps=True)])
    assert said == (
        "Diverged, so figures are meaningless: fedavg (training loss 0.7 to 10.9). Lower "
        "training.learning_rate. Diverged, so figures are meaningless: newton (training loss 0.7 to 10.9). "
        f"{mends}"
    )
    falling = replace(with_losses(run, [0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4]), by_steps=False)
    assert training.of_run(falling).endswith("More rounds may change the figures.")
    outcome = wild.outcome
    assert training.sentence(outcome.convergence, 6, None, by_steps=False) == training.of_run(wild)


def test_a_fit_that_began_again_has_not_diverged(run: Result, tmp_path: Path) -> None:
    """Newton starts again with Firth's penalty where classes are separated, and says that it has not converged."""
    again = with_losses(run, [0.7, 0.4, 0.4, 0.4, 0.69, 0.65, 0.6])
    assert again.outcome.convergence is not None
    assert again.outcome.convergence.verdict == "diverged"
    fit = replace(again, outcome=replace(again.outcome, facts={"converged": 0.0}))
    flat = with_losses(run, [0.7, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]).outcome
    assert training.untrained([replace(fit, outcome=replace(flat, facts=fit.outcome.facts))]) == []
    assert training.untrained([fit]) == [("fedavg", pytest.approx(np.nan, nan_ok=True))]
    assert training.of_run(fit).endswith("too few to judge convergence. More rounds may change the figures.")
    save_finished(tmp_path, fit.outcome)  # as a comparison waits for its other runs
    waited = load_finished(tmp_path)
    assert waited is not None
    assert training.of_run(replace(fit, outcome=waited)) == training.of_run(fit)


def test_runs_that_stand_still_and_runs_that_never_moved(run: Result) -> None:
    flat = with_losses(run, [0.7] * 7)
    assert training.of_run(flat) == (
        "The training loss went from 0.7 to 0.7 in 6 rounds, and no longer changes. It never fell below its start."
    )
    assert training.sentences([flat]) == ("The training loss never fell below its start: fedavg.",)


def test_too_few_rounds(federate: MakeFederation) -> None:
    short = result(federate([9, 7]), "fedavg", FedAvg(), rounds=3)
    assert training.sentences([short]) == ("Too few rounds to judge convergence: fedavg.",)
    assert training.of_run(short).endswith(
        " in 3 rounds: too few to judge convergence. More rounds may change the figures."
    )


@pytest.mark.parametrize("last", [0.7, 41.94], ids=["level", "risen"])
def test_few_rounds_that_brought_nothing_are_not_said_to_fall(federate: MakeFederation, last: float) -> None:
    one = with_losses(result(federate([9, 7]), "fedavg", FedAvg(), rounds=1), [0.7, last])
    assert training.of_run(one) == (
        f"The training loss went from 0.7 to {last:.4g} in 1 round: it is not below its start. More rounds or another "
        "learning rate may change the figures."
    )


def test_without_rounds_there_is_nothing_to_say(federate: MakeFederation) -> None:
    none = result(federate([9, 7]), "fedavg", FedAvg(), rounds=0)
    assert training.of_run(none) == ""
    assert training.sentences([none]) == ()
    assert training.plots([none]) == []


def test_the_picture_has_every_point(run: Result) -> None:
    (drawn,) = training.plots([run, with_losses(run, [0.7, 0.6, float("nan"), 0.5, 0.5, 0.5, 0.5], "other")])
    (chart,) = drawn.charts
    lines = re.findall(r'd="M([^"]*)" class="c\d+ line"', str(chart.markup()))
    first, second = (np.array([list(map(float, point.split())) for point in line.split("L")]) for line in lines)
    curve = run.outcome.loss_curve
    np.testing.assert_allclose(first[:, 0], chart.across(list(curve)), atol=0.06)
    np.testing.assert_allclose(first[:, 1], chart.up(list(curve.values())), atol=0.06)
    np.testing.assert_allclose(second[:, 0], chart.across([0, 1, 3, 4, 5, 6]), atol=0.06)
    assert chart.description == f"Line plot by round. fedavg ends at {curve[6]:.4f}; other ends at 0.5000."
