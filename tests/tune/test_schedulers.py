"""What Ray Tune's schedulers are made with; whole sweeps with them are in ``test_sweep``."""

from __future__ import annotations

import random
from types import SimpleNamespace

from ray.tune.schedulers import PopulationBasedTraining, TrialScheduler

from raysim.tune.plan import make_plan
from raysim.tune.schedulers import make_scheduler
from tests.tune.conftest import small_tree

RATES = {"training.learning_rate": {"loguniform": [1e-6, 0.5]}}


def test_population_based_training_draws_from_the_sweeps_seed_and_leaves_the_global_stream_alone(monkeypatch):
    scheduler = {"name": "pbt", "objective": "auroc", "every": 2}
    plan, _ = make_plan(small_tree(sweep__space=RATES, sweep__scheduler=scheduler))
    monkeypatch.setattr(PopulationBasedTraining, "on_trial_result", lambda *_: random.random())

    def draws(seed: int) -> list[float]:
        made = make_scheduler(plan.sweep, plan.space, 8, seed)
        return [made.on_trial_result(None, None, {}) for _ in range(3)]

    before = random.getstate()
    first = draws(5)
    assert random.getstate() == before
    random.random()  # somebody else draws, too
    assert draws(5) == first
    assert len({*first, *draws(6)}) == 6


def test_asha_stops_no_trial_before_the_longest_that_the_space_allows():
    space = {"training.rounds": {"choice": [2, 9]}}
    plan, config = make_plan(small_tree(sweep__space=space, sweep__scheduler={"name": "asha", "objective": "auroc"}))
    made = make_scheduler(plan.sweep, plan.space, plan.rounds(), seed=0)
    best = {"round": config.training.rounds, "auroc": 0.9, "training_iteration": 1}
    trial = SimpleNamespace(trial_id="a", stopped=False)
    made.on_trial_add(None, trial)
    assert made.on_trial_result(None, trial, best) == TrialScheduler.CONTINUE
    assert made.on_trial_result(None, trial, best | {"round": 9}) == TrialScheduler.STOP
