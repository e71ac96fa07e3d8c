"""Importances of keys at the end of a sweep; they depend on its trials only and take seconds.

A worker of the running Ray computes them while the driver evaluates the recommended trial on test rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.core import host
from raysim.core.importing import search_only, search_path
from raysim.tune.choice import Choice
from raysim.tune.spaces import Space

Importances = tuple[list[str], NDArray[np.float64]]
"""The result of :func:`raysim.tune.page.importance.importances`."""


class BackgroundImportances:
    """A computation of the importances of a ``choice``, in a worker of the running Ray on this process's node."""

    def __init__(self, choice: Choice, space: Space) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._choice, self._space = choice, space
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        worker = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_computed)
        self._ref = worker.remote(search_path(), ray.put(choice), space)

    def end(self) -> Importances | None:
        """Wait for the worker and return the result; if the worker failed, compute it in this process."""
        import ray

        try:
            computed: Importances | None = ray.get(self._ref)
        except ray.exceptions.RayError:
            return importances_of(self._choice, self._space)
        return computed


def importances_of(choice: Choice, space: Space) -> Importances | None:
    """Compute the importances in this process."""
    from raysim.tune.page.importance import importances

    return importances(choice, space)


def _computed(folders: Sequence[str], choice: Choice, space: Space) -> Importances | None:
    """Compute the importances in a worker; the result is bitwise equal to that of this process."""
    search_only(folders)
    host.limit_threads(1)
    return importances_of(choice, space)
