"""Evaluation: which models are measured when, and what hospitals' figures come to for the federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.schema import EvaluationSection
from raysim.data.federation import Federation
from raysim.engine import subgroups
from raysim.engine.messages import PartialResult
from raysim.metrics.measures import pooled_auroc
from raysim.strategies.base import OWN, Floats, Ids


class Evaluation:
    """Of one job's models. ``order [N]`` brings actors' hospitals, back to back, into the order of ids."""

    grouping: subgroups.Grouping | None
    """The groups of patients whose figures are asked for at the end, or None."""
    groups: dict[str, dict[str, tuple[Floats, Floats]]]
    """Their figures per model served and attribute, as :func:`subgroups.merged` gives them."""

    def __init__(self, federation: Federation, section: EvaluationSection, order: Ids) -> None:
        self.grouping = subgroups.grouping(federation, section.groups, section.age_bands)
        self.groups = {}
        self._task, self._totals, self._bounds = federation.task, federation.totals, federation.bounds
        self._every, self._order = section.every, order

    def due(self, round: int) -> bool:
        """Whether the models that ``round`` made are evaluated, beside those of the last one."""
        return round > 0 and self._every > 0 and round % self._every == 0

    def measured(self, partials: Sequence[PartialResult]) -> tuple[dict[str, Floats], dict[str, dict[str, float]]]:
        """Per model served: hospitals' figures in id order ``[N, len(task.figures)]``, and the federation's metrics."""
        figures: dict[str, Floats] = {}
        metrics: dict[str, dict[str, float]] = {}
        for model in partials[0].figures:
            figures[model] = np.concatenate([partial.figures[model] for partial in partials])[self._order]
            metrics[model] = self._task.summarise(figures[model], self._totals)
            histograms = [partial.histograms[model] for partial in partials if model in partial.histograms]
            if histograms:
                metrics[model]["pooled_auroc"], metrics[model]["pooled_auroc_bound"] = pooled_auroc(histograms)
            metrics[model] |= self._by_group(model, partials)
        return figures, metrics

    def predictions(self, partials: Sequence[PartialResult]) -> dict[str, NDArray[Any]]:
        """Per model served its outputs for all rows of the federation, in their order; nothing where none are asked."""
        outputs: dict[str, NDArray[Any]] = {}
        for model in partials[0].predictions:
            # Back to back as actors' hospitals are, whose rows lie in the order of ids.
            told = np.concatenate([partial.predictions[model] for partial in partials])
            served = np.argsort(self._order)
            rows = np.concatenate([np.arange(self._bounds[h, 0], self._bounds[h, 3]) for h in served.tolist()])
            outputs[model] = np.empty_like(told)
            outputs[model][rows] = told
        return outputs

    def scalars(self, models: int) -> int:
        """How many numbers each hospital tells for the evaluation of so many models."""
        return len(self._task.figures) * models

    def _by_group(self, model: str, partials: Sequence[PartialResult]) -> dict[str, float]:
        """Note the figures of groups of patients, where they were asked for; returns the gaps between groups."""
        gaps: dict[str, float] = {}
        for attribute in partials[0].groups.get(model, {}):
            parts = [partial.groups[model][attribute] for partial in partials]
            measured = subgroups.merged(parts, self._order, self._task)
            self.groups.setdefault(model, {})[attribute] = measured
            gaps |= subgroups.gaps(attribute, *measured, self._task)
        return gaps


def existing(serve: dict[str, Ids], remembered: object | None) -> dict[str, Ids]:
    """The models of ``serve`` that exist between rounds: hospitals' own only once these have ``remembered`` some."""
    return {name: rows for name, rows in serve.items() if remembered is not None or not (rows == OWN).all()}
