"""Ray Tune's population-based training with a separate stream of random numbers."""

from __future__ import annotations

import random
from typing import Any

from ray.tune.schedulers import PopulationBasedTraining


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
