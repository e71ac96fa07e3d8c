"""Ray Tune's scheduler for a sweep."""

from __future__ import annotations

import random
from typing import Any

from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
)

from raysim.tune.plan import perturbed
from raysim.tune.settings import Asha, Median, Pbt, Sweep
from raysim.tune.spaces import Dimension, Space


class Population(PopulationBasedTraining):  # type: ignore[misc]
    """Population-based training with a random stream seeded by ``seed`` in place of Python's global generator."""

    def __init__(self, seed: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._stream = random.Random(seed).getstate()

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Return what Ray Tune decides about ``trial``."""
        elsewhere = random.getstate()
        random.setstate(self._stream)
        try:
            decision: str = super().on_trial_result(tune_controller, trial, result)
            return decision
        finally:
            self._stream = random.getstate()
            random.setstate(elsewhere)


def make_scheduler(sweep: Sweep, space: Space, rounds: int, seed: int) -> Any:
    """Return Ray Tune's scheduler for trials of at most ``rounds`` rounds; ``seed`` seeds its random numbers."""
    scheduler = sweep.scheduler
    if sweep.judge is None:
        return FIFOScheduler()
    judging = {"time_attr": "round", "metric": sweep.judge, "mode": sweep.objectives[sweep.judge]}
    if isinstance(scheduler, Asha):
        return AsyncHyperBandScheduler(
            **judging, max_t=rounds, grace_period=min(scheduler.grace, rounds), reduction_factor=scheduler.reduction
        )
    if isinstance(scheduler, Pbt):
        return _population(judging, scheduler, perturbed(space), seed)
    assert isinstance(scheduler, Median)
    return MedianStoppingRule(
        **judging, grace_period=scheduler.grace, min_samples_required=scheduler.minimum, hard_stop=True
    )


def _population(judging: dict[str, Any], scheduler: Pbt, dimensions: list[Dimension], seed: int) -> Any:
    def inside(config: dict[str, Any]) -> dict[str, Any]:
        params = config["trial"]["params"]
        for dimension in dimensions:
            params[dimension.key] = dimension.rounded(params[dimension.key])
        return config

    return Population(
        seed,
        **judging,
        perturbation_interval=scheduler.every,
        hyperparam_mutations={"trial": {"params": {d.key: (lambda d=d: d.at(random.random())) for d in dimensions}}},
        custom_explore_fn=inside,
        log_config=False,
    )
