"""Plots and importances of keys at the end of a sweep, which follow from its trials alone and take seconds.

Workers of a Ray that still stands compute them while the driver plays the recommended trial on test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from raysim.core import host
from raysim.strategies.shared.importing import search_only, search_path
from raysim.tune.choice import Choice
from raysim.tune.spaces import Space

T = TypeVar("T")

Pictures = Mapping[str, bytes]
"""PNG by name."""

Importances = tuple[list[str], NDArray[np.float64]]
"""See :func:`raysim.tune.page.importance.importances`."""


def pictures(choice: Choice) -> Pictures:
    """Every pair of objectives, and three of them in 3-D; nothing of one objective or an empty set."""
    if len(choice.sweep.names) < 2 or not choice.front.any():
        return {}
    from raysim.tune import plots

    return {name: plots.png(draw()) for name, draw in plots.all_figures(choice).items()}


@dataclass(frozen=True)
class DrawnChoice:
    """The plots and importances of a choice."""

    pictures: Pictures
    importances: Importances | None


class Drawing:
    """Draws a ``choice`` in workers of the Ray that this process is connected to, on its node."""

    def __init__(self, choice: Choice, space: Space) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._choice, self._space = choice, space
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        worker = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_computed)
        shared, folders = ray.put(choice), search_path()
        self._importances = worker.remote(folders, _importances, shared, space)
        self._pictures = worker.remote(folders, pictures, shared)

    def end(self) -> DrawnChoice:
        """Wait for the workers and return the results; what a worker could not do is computed here."""
        return DrawnChoice(
            _or_here(self._pictures, lambda: pictures(self._choice)),
            _or_here(self._importances, lambda: _importances(self._choice, self._space)),
        )


def drawn(choice: Choice, space: Space) -> DrawnChoice:
    """As :class:`Drawing`, in this process."""
    return DrawnChoice(pictures(choice), _importances(choice, space))


def _importances(choice: Choice, space: Space) -> Importances | None:
    from raysim.tune.page.importance import importances

    return importances(choice, space)


def _or_here(ref: Any, again: Callable[[], T]) -> T:
    """The result of a worker, or of ``again()`` in this process where the worker failed."""
    import ray

    try:
        computed: T = ray.get(ref)
    except ray.exceptions.RayError:
        return again()
    return computed


def _computed(folders: Sequence[str], what: Any, *of: Any) -> Any:
    """Runs in a worker, which computes the same bits as this process would."""
    search_only(folders)
    host.limit_threads(1)
    return what(*of)
