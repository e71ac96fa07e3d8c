"""Ray Tune's scheduler for a sweep."""

from __future__ import annotations

import random
from typing import Any

from raysim.core.errors import ConfigError
from raysim.tune.settings import Asha, Median, Pbt, Sweep
from raysim.tune.spaces import Dimension, Space


def make_scheduler(sweep: Sweep, space: Space, rounds: int, seed: int) -> Any:
    """Return Ray Tune's scheduler for trials of at most ``rounds`` rounds; ``seed`` seeds its random numbers."""
    from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, MedianStoppingRule

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


def perturbed(space: Space) -> list[Dimension]:
    """Return the searched keys that population-based training may change while a trial runs.

    They are the learning rate and the strategy's continuous settings, without keys that have a condition. Raises
    ``ConfigError`` if the space has no such key.
    """
    trials = [
        dimension
        for dimension in space
        if dimension.continuous
        and not dimension.when
        and (dimension.key.startswith("strategy.") or dimension.key == "training.learning_rate")
    ]
    if not trials:
        raise ConfigError(
            "sweep.space: scheduler pbt changes training.learning_rate and continuous keys of strategy while trials "
            "run, and the space has none of these; add for example training.learning_rate: {loguniform: [0.01, 0.1]}"
        )
    return trials


def _population(judging: dict[str, Any], scheduler: Pbt, dimensions: list[Dimension], seed: int) -> Any:
    from raysim.tune.population import Population

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
