"""From the sweep's scheduler to Ray Tune's."""

from __future__ import annotations

from typing import Any

from tune.settings import Asha, Median, Sweep


def make_scheduler(sweep: Sweep, rounds: int) -> Any:
    """Ray Tune's scheduler for trials of ``rounds`` rounds."""
    from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, MedianStoppingRule

    scheduler = sweep.scheduler
    if sweep.judge is None:
        return FIFOScheduler()
    judging = {"time_attr": "round", "metric": sweep.judge, "mode": sweep.objectives[sweep.judge]}
    if isinstance(scheduler, Asha):
        return AsyncHyperBandScheduler(
            **judging, max_t=rounds, grace_period=min(scheduler.grace, rounds), reduction_factor=scheduler.reduction
        )
    assert isinstance(scheduler, Median)
    return MedianStoppingRule(
        **judging, grace_period=scheduler.grace, min_samples_required=scheduler.minimum, hard_stop=True
    )
