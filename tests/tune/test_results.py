"""The journal, the choice among trials, and the files of a sweep's folder."""

from __future__ import annotations

import io
import json
import math

import pandas as pd
import pytest
import yaml
from rich.console import Console

from raysim.config import plugins, reading
from raysim.core.errors import ConfigError, DataError
from raysim.engine.job import Round
from raysim.report.terminal.block import MOST, lines
from raysim.storage.manifest import Manifest
from raysim.tune import answer, results
from raysim.tune.choice import at_the_edge, choose, reason
from raysim.tune.journal import Finished, Journal, working
from raysim.tune.plan import make_plan
from raysim.tune.running.progress import SweepProgress
from raysim.tune.search import objectives
from raysim.tune.settings import Sweep
from tests.tune.conftest import small_tree

HEADER = {"sweep": "abc", "data": ["d"]}


def trial(number, auroc, bias, status="completed", spread=0.0, **params):
    def metrics(shift):
        values = {"auroc": auroc + shift, "worst_decile": auroc - 0.2, "size_bias_abs": bias, "gini": 0.1}
        return {"global": {"auroc": 0.1}, "personal": values}

    finals = {} if status == "failed" else {1: metrics(spread), 2: metrics(-spread)}
    rounds = {seed: [Round(1, 0.1, 5, 100, 10, {}), Round(2, 0.1, 5, 100, 10, finals[seed])] for seed in finals}
    error = "OSError: no" if status == "failed" else None
    return Finished(number, params, status, error=error, rounds=rounds, finals=finals, seconds=1.5)


TRIALS = {
    t.number: t
    for t in (
        trial(1, 0.90, 0.30, **{"strategy.lam": 0.1}),
        trial(2, 0.88, 0.12, spread=0.03, **{"strategy.lam": 0.2}),
        trial(3, 0.80, 0.10, **{"strategy.lam": 0.3}),
        trial(4, 0.70, 0.40, **{"strategy.lam": 0.4}),
        trial(5, 0.99, 0.01, "stopped", **{"strategy.lam": 0.5}),
        trial(6, 0, 0, "failed", **{"strategy.signature": ["mean", "std"]}),
        trial(7, math.nan, 0.01, **{"strategy.lam": 0.7}),
    )
}
SWEEP = Sweep(space={"a": {"choice": [1]}}, trials=9, objectives={"auroc": "max", "size_bias_abs": "min"})


def test_only_trials_that_ran_to_their_end_are_chosen_among():
    choice = choose(TRIALS, SWEEP)
    assert [t.number for t in choice.trials] == [1, 2, 3, 4, 7]
    assert choice.front.tolist() == [True, True, True, False, False]
    assert choice.recommended is TRIALS[2]
    lines = reason(choice)
    assert lines[0].startswith("recommended: trial 2: the best compromise of the 3 trials that no other beats on all")
    assert lines[1] == ("auroc 0.8800: 0.0200 worse than trial 1 (20 % of the range), less than its spread over seeds")
    assert lines[2] == "size_bias_abs 0.1200: 0.0200 worse than trial 3 (10 % of the range)"


def test_a_sweep_answers_in_one_block():
    choice = choose(TRIALS, SWEEP)
    tested = {"auroc": (0.75, 0.01), "size_bias_abs": (0.13, 0.01)}
    tree = results.summary(choice, TRIALS, 9, tested, events=12)
    shown = answer.block(choice, tree, "small", "41 s", "out", "out/report.html", ended=False)
    printed = lines(shown)
    assert len(printed) <= MOST
    text = " ".join(" ".join(printed).split())
    assert text.startswith("small: 9 trials x 2 seeds, 5 completed, 1 stopped, 1 failed, 41 s Trial 2: the best compro")
    assert "Validation rows hold 12 events" in text
    # 0.13 lower of a span of 0.2; the size bias, 0.01 higher of 0.31, is within what trials span.
    assert (
        "Mean AUROC falls from 0.880 on validation rows to 0.750 on test rows, while trials differ by at most 0.200: "
        in text
    )
    assert "Size bias, absolute rises" not in text
    assert "mean AUROC validation 0.880 test 0.750 trial 1: 0.900" in text
    assert "strategy.lam 0.2" in text
    assert text.endswith("Report out/report.html Next raysim resume out")
    ended = answer.block(choice, tree, "small", "41 s", "out", "out/report.html", ended=True)
    assert ended.next == "raysim run out/recommended.yaml"
    nothing = choose({}, SWEEP)
    for count, command in ((1, "raysim resume out --failed"), (0, "")):
        shown = answer.block(nothing, tree | {"failed": count}, "small", "41 s", "out", "out/report.html", ended=True)
        assert shown.next == command
    console = Console(file=io.StringIO(), width=160, record=True)
    answer.details(choice, tree, console)
    assert "3 trials not dominated, hypervolume" in console.export_text()


def test_a_line_of_progress_has_no_empty_part():
    """The first trial of many does not say how long the others take."""
    said = io.StringIO()
    with SweepProgress(Console(file=said, width=200), SWEEP, 500, []) as progress:
        progress.finished(TRIALS[1])
    assert said.getvalue().startswith("1/500 trials done, 0 running; best auroc 0.9000 (trial 1)")


def test_a_fall_within_what_trials_span_is_not_said():
    choice = choose(TRIALS, SWEEP)
    assert answer.falls(choice, {"auroc": (0.79, 0.0), "size_bias_abs": (0.12, 0.0)}) == []
    assert len(answer.falls(choice, {"auroc": (0.77, 0.0), "size_bias_abs": (0.33, 0.0)})) == 2
    assert answer.falls(choice, None) == []


def test_the_reference_is_stated_configured_or_usual():
    assert choose(TRIALS, SWEEP).reference == (0.5, 0.1)
    stated = SWEEP.model_copy(update={"reference": {"size_bias_abs": 0.5}})
    choice = choose(TRIALS, stated)
    assert choice.reference == (0.5, 0.5)
    # Boxes of trials 3, 2 and 1 above (0.5, 0.5): worked by hand.
    assert choice.hypervolume == pytest.approx(0.30 * 0.40 + 0.08 * 0.38 + 0.02 * 0.20)
    unusual = Sweep(space={"a": {}}, trials=1, objectives={"bytes_up": "min", "auroc": "max"})
    assert choose(TRIALS, unusual).reference == (20.0, 0.5)


def test_an_objective_that_is_turned_round_is_measured_from_the_worst_of_its_trials():
    """Its usual reference is the worst on the other side: above .5 nobody is small, below .1 nobody is large."""
    turned = Sweep(space={"a": {}}, trials=1, objectives={"auroc": "min", "size_bias_abs": "max"})
    choice = choose(TRIALS, turned)
    assert choice.reference == (0.90, 0.01)
    # Boxes below .9 and above .01: trial 4 covers those of 2 and 3.
    assert choice.hypervolume == pytest.approx(0.20 * 0.39)


def test_nothing_to_recommend_is_said():
    choice = choose({6: TRIALS[6]}, SWEEP)
    assert choice.recommended is None
    assert reason(choice) == ["no trial has all objectives defined: nothing to recommend"]
    assert choice.hypervolume == 0


def test_tables_have_every_trial_and_the_pareto_set(tmp_path):
    choice = choose(TRIALS, SWEEP)
    out = Manifest.begin(tmp_path, "sweep")
    results.write_tables(out, TRIALS, choice)
    assert set(out.files) == {"trials.csv", "pareto.csv"}
    table = pd.read_csv(tmp_path / "trials.csv").set_index("trial")
    assert table["status"].tolist() == [*["completed"] * 4, "stopped", "failed", "completed"]
    assert table.loc[6, "error"] == "OSError: no"
    assert table.loc[6, "strategy.signature"] == "[mean, std]"
    assert table.loc[2, "auroc"] == pytest.approx(0.88)
    assert table.loc[2, "auroc_std"] == pytest.approx(0.03 * math.sqrt(2))
    assert table.loc[2, "bytes_up"] == 20
    assert table["recommended"].tolist()[:4] == [False, True, False, False]
    front = pd.read_csv(tmp_path / "pareto.csv")
    assert sorted(front["trial"]) == [1, 2, 3]
    assert front["trial"].iloc[-1] == 2  # the least lonely last
    results.write_tables(out, {}, choose({}, SWEEP))


def test_the_recommended_configuration_can_be_run(tmp_path):
    plan, _ = make_plan(small_tree(seeds=[5, 6]))
    chosen = {1: trial(1, 0.9, 0.1, **{"strategy.lam": 0.125})}
    results.write_recommended(Manifest.begin(tmp_path, "sweep"), plan, choose(chosen, plan.sweep))
    path = tmp_path / "recommended.yaml"
    assert path.read_text().startswith("# recommended: trial 1")
    config = reading.resolve(path)
    assert config.evaluation.part == "test"
    assert config.seed == 5
    assert plugins.build_strategy(config.strategy).lam == 0.125


def test_the_summary_says_what_the_choice_costs(tmp_path):
    choice = choose(TRIALS, SWEEP)
    tree = results.summary(choice, TRIALS, 9, {"auroc": (0.87, math.nan)})
    read = json.loads(json.dumps(tree))
    assert (read["completed"], read["stopped"], read["failed"], read["pareto"]) == (5, 1, 1, 3)
    assert read["recommended"]["costs"]["auroc"]["best_trial"] == 1
    assert read["recommended"]["test"] == {"auroc": {"mean": 0.87, "std": None}}


def test_the_frozen_sweep_reads_back_the_same(tmp_path):
    plan, config = make_plan(small_tree(sweep__scheduler={"name": "asha", "objective": "auroc"}))
    results.write_sweep(Manifest.begin(tmp_path, "sweep"), plan, config)
    again, config_again = make_plan(yaml.safe_load((tmp_path / "sweep.yaml").read_text()))
    assert (again.sweep, config_again) == (plan.sweep, config)
    assert again.folders == plan.folders
    assert again.jobs({"strategy.lam": 1}, "validation") == plan.jobs({"strategy.lam": 1}, "validation")


def test_a_journal_gives_back_what_was_written(tmp_path):
    journal = Journal(tmp_path, HEADER)
    for each in TRIALS.values():
        journal.add(each)
    again = Journal(tmp_path, HEADER).trials
    assert list(again) == list(TRIALS)
    assert str(again) == str(TRIALS)  # as text, since NaN is not equal to itself


def test_a_line_that_was_being_written_when_the_driver_was_killed_is_dropped(tmp_path):
    journal = Journal(tmp_path, HEADER)
    journal.add(TRIALS[1])
    path = tmp_path / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:50])
    again = Journal(tmp_path, HEADER)
    assert list(again.trials) == [1]
    again.add(TRIALS[2])
    assert list(Journal(tmp_path, HEADER).trials) == [1, 2]
    path.write_bytes(whole[:10])  # not even the header
    assert Journal(tmp_path, HEADER).trials == {}


def test_a_changed_sweep_or_data_cannot_be_gone_on_with(tmp_path):
    Journal(tmp_path, HEADER)
    with pytest.raises(ConfigError, match=r"sweep.yaml: changed since the sweep began; restore it"):
        Journal(tmp_path, HEADER | {"sweep": "other"})
    with pytest.raises(DataError, match="the data changed since the sweep began"):
        Journal(tmp_path, HEADER | {"data": ["e"]})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[]", "line 2: "),
        (b"{", "line 2: cannot be read"),
        (b'{"number": "x"}', "line 2.number: 'x' is not a whole number"),
        (b"[" * 5000, "line 2: cannot be read .it is nested deeper than 100 levels"),
    ],
)
def test_a_line_of_the_journal_that_cannot_be_read_is_named(line, words, tmp_path):
    Journal(tmp_path, HEADER).add(TRIALS[1])
    path = tmp_path / "journal.jsonl"
    first, *rest = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, *rest, b""]))
    with pytest.raises(ConfigError, match=words) as said:
        Journal(tmp_path, HEADER)
    assert "remove the line" in str(said.value)


@pytest.mark.parametrize("line", [b"[]", b"5", b'{"working": 5}', b'{"working": ["."]}', b'{"sweep": []}'])
def test_a_first_line_of_the_journal_that_cannot_be_read(line, tmp_path):
    (tmp_path / "journal.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match=r"journal.jsonl line 1"):
        working(tmp_path)
    with pytest.raises(ConfigError, match=r"journal.jsonl line 1"):
        Journal(tmp_path, HEADER)


def test_a_recommended_value_at_the_edge_of_what_was_tried_is_said():
    choice = choose(TRIALS, SWEEP)
    assert choice.recommended.params == {"strategy.lam": 0.2}
    assert at_the_edge(choice) == []
    only = choose({number: TRIALS[number] for number in (2, 3)}, SWEEP)
    value = only.recommended.params["strategy.lam"]
    assert at_the_edge(only) == [
        (f"caution: at the edge of the tried values: strategy.lam {value:g}; also try values beyond it")
    ]
    assert reason(only)[-1] == at_the_edge(only)[0]
    assert at_the_edge(choose({2: TRIALS[2]}, SWEEP)) == [], "one value has no edge"
    zero = {1: trial(1, 0.9, 0.1, **{"strategy.mu": 0.0}), 2: trial(2, 0.8, 0.2, **{"strategy.mu": 1.0})}
    assert at_the_edge(choose(zero, SWEEP)) == [], "nothing lies below 0"


def test_what_takes_many_hospitals_is_undefined_where_few_were_judged():
    few = trial(1, 0.9, 0.3)
    for metrics in few.finals.values():
        metrics["personal"]["hospitals"] = 9.0
    values = objectives(few, SWEEP)
    assert values[0] == pytest.approx(0.9)
    assert math.isnan(values[1])
    (line,) = reason(choose({1: few}, SWEEP))
    assert line == (
        "no trial has all objectives defined (at least 10 judged hospitals are needed for "
        "size_bias_abs): nothing to recommend"
    )


def test_a_list_is_no_number_at_an_edge():
    trials = {k: trial(k, 0.8, 0.1, **{"model.hidden": hidden}) for k, hidden in enumerate(([8], [16, 8]))}
    choice = choose(trials, SWEEP)
    assert choice.recommended is not None
    assert at_the_edge(choice) == []
