"""The source of trials' values, behind Ray Tune's searcher interface."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from raysim.tune.search import ProposalSource


class Proposals(Searcher):  # type: ignore[misc]
    """A searcher that gives the trials of ``numbers`` to Ray Tune in order, as ``{trial: {number, params}}``."""

    def __init__(self, source: ProposalSource, numbers: Sequence[int], names: Sequence[str]) -> None:
        super().__init__()
        self._source = source
        self._left = list(numbers)
        self._names = names
        self._running: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        if not self._left:
            finished: str = Searcher.FINISHED
            return finished
        number = self._left.pop(0)
        self._running[trial_id] = number
        return {"trial": {"number": number, "params": self._source.propose(number)}}

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        failed = error or not result or bool(result.get("failed"))
        values = None if failed or result is None else [float(result.get(name, math.nan)) for name in self._names]
        self._source.learn(self._running.pop(trial_id), values)

    def __getstate__(self) -> dict[str, Any]:
        """Return no state; Ray Tune writes its searcher to disk, but a resumed sweep reads the journal."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing; a resumed sweep reads the journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing; a resumed sweep reads the journal."""
