"""A trial on hospitals in this process: what it reports, that it is pure, and that it sees no test row."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.resources import ResourcesSection
from raysim.core import importing
from raysim.data.federation import Federation, write
from raysim.engine.job import Job, Outcome, Round
from raysim.engine.server.coordinator import JobRun
from raysim.strategies.base import Strategy
from raysim.training.base import Optimizer
from raysim.tune.plan import make_plan
from raysim.tune.running.places import Hospitals
from raysim.tune.running.trainable import TrialProcess
from raysim.tune.trial import Trial, continued, figures, mean_and_spread
from tests.tune.conftest import small_tree


def local_pool(plan, actors=2):
    federation = Federation.open(next(iter(plan.folders.values())))
    return LocalPool(Placement(balance(federation.totals, actors), 1, 0), "cpu")


def whole(plan):
    """All hospitals in the trial's own process."""
    federation = Federation.open(next(iter(plan.folders.values())))
    return Hospitals(None, federation.totals, ResourcesSection())


def run_strategy(trial):
    reports = [trial.step()]
    while not reports[-1].done:
        reports.append(trial.step())
    return reports


def test_a_trial_reports_all_seeds_at_once_or_round_by_round():
    plan, _ = make_plan(small_tree(seeds=[1, 2]))
    pool, jobs = local_pool(plan), plan.jobs({"strategy.lam": 0.3}, "validation")
    (whole,) = run_strategy(Trial(pool, jobs, paced=False, retries=0))
    assert whole.done
    assert whole.round == 3
    assert {seed: [row.round for row in rows] for seed, rows in whole.rounds.items()} == {1: [1, 2, 3], 2: [1, 2, 3]}
    *early, last = run_strategy(Trial(pool, jobs, paced=True, retries=0))
    assert [report.round for report in early] == [1, 2]
    assert last.finals == whole.finals
    paced = [row for report in [*early, last] for row in report.rounds[2]]
    assert [row.metrics for row in paced] == [row.metrics for row in whole.rounds[2]]
    assert early[0].latest()[0] == list(whole.rounds[1][0].metrics.values())[-1]


def test_seeds_that_stop_in_different_rounds_end_a_trial_together():
    tree = small_tree(seeds=[1, 2], training__rounds=15, training__learning_rate=1.0)
    tree["training"]["stop"] = {"patience": 2, "tolerance": 0.01}
    plan, _ = make_plan(tree)
    pool, jobs = local_pool(plan), plan.jobs({"strategy.lam": 0.3}, "validation")
    (whole,) = run_strategy(Trial(pool, jobs, paced=False, retries=0))
    lasts = {seed: rows[-1].round for seed, rows in whole.rounds.items()}
    assert len(set(lasts.values())) == 2
    assert max(lasts.values()) < 15
    *early, last = run_strategy(Trial(pool, jobs, paced=True, retries=0))
    assert last.finals == whole.finals
    assert not any(report.done for report in early)
    assert len(early) + 1 >= max(lasts.values())
    rounds_of_seed = {
        seed: [row.round for report in (*early, last) for row in report.rounds.get(seed, [])] for seed in (1, 2)
    }
    assert rounds_of_seed == {seed: list(range(1, end + 1)) for seed, end in lasts.items()}
    # Whoever decides knows both seeds to the end, of one that has ended by its final figures.
    assert all(len(report.latest()) == 2 for report in (*early, last))


def test_two_trials_of_one_configuration_agree_whatever_runs_beside_them():
    plan, _ = make_plan(small_tree())
    pool = local_pool(plan)
    jobs, others = plan.jobs({"strategy.lam": 0.3}, "validation"), plan.jobs({"strategy.lam": 9.0}, "validation")
    alone = run_strategy(Trial(pool, jobs, paced=False, retries=0))[-1].finals
    first, beside, second = (Trial(pool, each, paced=True, retries=0) for each in (jobs, others, jobs))
    while True:
        reports = [trial.step() for trial in (first, beside, second)]
        if reports[0].done:
            break
    assert reports[0].finals == reports[2].finals == alone
    assert reports[1].finals != alone


def test_no_test_row_reaches_a_trial(tmp_path):
    """With nonsense for every test row a trial's figures stay the same bit for bit; those on test rows do not."""
    plan, _ = make_plan(small_tree())
    ((seed, folder),) = plan.folders.items()
    federation = Federation.open(folder)
    X, y = np.array(federation.X), np.array(federation.y)
    for hospital in range(len(federation.hospitals)):
        rows = federation.rows(hospital, "test")
        X[rows], y[rows] = np.nan, 1 - y[rows]
    poisoned = tmp_path / "poisoned"
    poisoned.mkdir()
    write(
        poisoned,
        X=X,
        y=y,
        observed=np.array(federation.observed),
        bounds=federation.bounds,
        patients=dict(federation.patients),
        meta=json.loads((folder / "federation.json").read_text()),
    )
    other = dataclasses.replace(plan, folders={seed: poisoned})
    params = {"strategy.lam": 0.3}

    def judged(which, part):
        return run_strategy(Trial(local_pool(which), which.jobs(params, part), paced=False, retries=0))[-1]

    clean, dirty = judged(plan, "validation"), judged(other, "validation")
    assert clean.error is None
    assert dirty.finals == clean.finals
    assert [r.metrics for r in dirty.rounds[seed]] == [r.metrics for r in clean.rounds[seed]]
    assert str(judged(other, "test").finals) != str(judged(plan, "test").finals)


class Stumbles(Strategy):
    """Fails in a round for the first ``times``."""

    left = 0

    def select(self, view, state, round):
        if round == 2 and Stumbles.left > 0:
            Stumbles.left -= 1
            raise OSError("the disk\nis full")
        return super().select(view, state, round)


@pytest.mark.parametrize("paced", [False, True])
def test_an_error_is_retried_as_configured_and_then_reported(paced):
    plan, _ = make_plan(small_tree())
    pool = local_pool(plan)
    jobs = [dataclasses.replace(job, strategy=Stumbles()) for job in plan.jobs({}, "validation")]
    Stumbles.left = 0
    good = run_strategy(Trial(pool, jobs, paced=paced, retries=0))
    Stumbles.left = 2
    again = run_strategy(Trial(pool, jobs, paced=paced, retries=2))
    assert again[-1].finals == good[-1].finals
    assert again[-1].attempts == 3
    assert [report.round for report in again] == [report.round for report in good]
    Stumbles.left = 2
    failed = run_strategy(Trial(pool, jobs, paced=paced, retries=1))[-1]
    assert failed.error == "OSError: the disk is full"
    assert (failed.done, failed.finals, failed.attempts) == (True, {}, 2)


@pytest.mark.parametrize("strategy", [{"name": "chip", "clusters": 2}, {"name": "fine_tuning"}, {"name": "local"}])
def test_a_run_goes_on_from_where_another_stood(strategy):
    plan, _ = make_plan(small_tree(strategy=strategy, sweep__space={"training.learning_rate": {"uniform": [0.1, 0.2]}}))
    pool = local_pool(plan)
    (job,) = plan.jobs({}, "validation")
    *rounds, whole = JobRun(pool, job).run()
    first = JobRun(pool, job)
    events = first.run()
    assert first.state_after_round() is None
    next(events), next(events)
    standing = first.state_after_round()
    assert standing is not None
    assert standing.round == 2
    *later, outcome = JobRun(pool, job, standing).run()
    assert isinstance(outcome, Outcome)
    assert isinstance(whole, Outcome)
    np.testing.assert_array_equal(outcome.models, whole.models)
    assert outcome.metrics == whole.metrics
    assert [row.round for row in later] == [3]
    assert rounds[-1].metrics == later[-1].metrics


def test_a_trial_goes_on_from_another_ones_standing_with_its_own_settings():
    plan, _ = make_plan(small_tree(training__rounds=4))
    pool = local_pool(plan)
    donor = Trial(pool, plan.jobs({"strategy.lam": 0.3}, "validation"), paced=True, retries=0)
    donor.step(), donor.step()
    heir = Trial(pool, plan.jobs({"strategy.lam": 0.9}, "validation"), paced=True, retries=0)
    heir.step()
    heir.go_on(donor.states())
    assert [report.round for report in run_strategy(heir)] == [3, 4]


def test_a_trials_standing_is_kept_in_files_that_hold_no_code(tmp_path, monkeypatch):
    """What population-based training hands on: the next process goes on from it as if it had never stopped."""
    monkeypatch.setattr(importing, "_standing", None)  # a process of its own would keep what it receives
    paced = {"name": "asha", "objective": "auroc"}
    plan, _ = make_plan(small_tree(seeds=[1, 2], training__rounds=4, sweep__scheduler=paced))

    def process():
        made = TrialProcess.__new__(TrialProcess)
        made._trial_info = None
        made.setup({"trial": {"params": {}}}, plan, whole(plan), [], tmp_path / "alive")
        return made

    donor, heir = process(), process()
    heir.save_checkpoint(str(tmp_path))  # before its first round there is nothing to keep
    assert list(tmp_path.iterdir()) == []
    donor.step(), donor.step()
    donor.save_checkpoint(str(tmp_path))
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["standing-0.safetensors", "standing-1.safetensors"]
    assert not any(pickle.PROTO + bytes([protocol]) in path.read_bytes()[:2] for path in files for protocol in range(6))
    heir.load_checkpoint(str(tmp_path))
    assert [heir.step()["auroc"] for _ in range(2)] == [donor.step()["auroc"] for _ in range(2)]


def test_the_scheduler_receives_all_bytes_so_far(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """With a scheduler a trial reports round by round; its traffic is what the journal will sum up."""
    asha = {"name": "asha", "objective": "auroc"}
    objectives = {"auroc": "max", "bytes_down": "min", "bytes_up": "min"}
    plan, _ = make_plan(small_tree(seeds=[1, 2], sweep__scheduler=asha, sweep__objectives=objectives))
    process = TrialProcess.__new__(TrialProcess)
    monkeypatch.setattr(importing, "_standing", None)  # a process of its own would keep what it receives
    process._trial_info = None
    process.setup({"trial": {"params": {}}}, plan, whole(plan), [], tmp_path / "alive")
    bytes_down, rounds = [], {1: [], 2: []}
    for _ in range(3):
        result = process.step()
        for seed, news in result["report"].rounds.items():
            rounds[seed] += news
        bytes_down.append(result["bytes_down"])
        for name in ("bytes_down", "bytes_up"):
            assert result[name] == np.mean([sum(getattr(row, name) for row in rows) for rows in rounds.values()])
    assert result["done"]
    assert bytes_down[0] < bytes_down[1] < bytes_down[2]
    process.reset_config({"trial": {"params": {}}})  # the process serves the next trial
    assert process.step()["bytes_down"] == bytes_down[0]


def test_a_second_report_replaces_the_first():
    def rounds(*numbers: int, sent: int) -> list[Round]:
        return [Round(number, 0.1, 5, sent, 0, {}) for number in numbers]

    first = continued([], rounds(1, 2, sent=10))
    assert continued(first, []) == first
    again = continued(first, rounds(2, 3, sent=7))
    assert [(row.round, row.bytes_down) for row in again] == [(1, 10), (2, 7), (3, 7)]


def test_mean_and_spread_over_seeds():
    assert mean_and_spread([1.0, 3.0]) == (2.0, pytest.approx(np.sqrt(2)))
    mean, spread = mean_and_spread([0.5])
    assert (mean, np.isnan(spread)) == (0.5, True)
    assert np.isnan(mean_and_spread([0.5, float("nan")])[0])  # undefined with any seed is undefined
    assert figures([], {}) == {}


def test_jobs_are_what_the_configuration_says():
    plan, _ = make_plan(small_tree())
    (job,) = plan.jobs({"training.learning_rate": 0.5, "strategy.lam": 2}, "validation")
    assert isinstance(job, Job)
    assert job.work.optimizer == Optimizer("sgd", 0.5, 64)
    assert getattr(job.strategy, "lam", None) == 2
    assert job.work.seed == 3
