"""The metrics of one model at the hospitals that use it, computed from the model's outputs for their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from raysim.engine.measuring import group_gaps, subgroups
from raysim.engine.measuring.measurement import Measured, Measurement
from raysim.engine.measuring.scoring import PartRows
from raysim.engine.measuring.untrained import Rows, padded, undefined
from raysim.metrics import measures as metrics
from raysim.metrics.error_counts import error_counts
from raysim.metrics.labels import REGRESSION
from raysim.metrics.score_counts import score_counts
from raysim.statistics.discrimination.auroc import pair_sums, placements
from raysim.statistics.discrimination.sketches import sketches
from raysim.strategies.base import Ids, Mask


@dataclass(frozen=True, eq=False)
class ServedModel:
    """The outputs of one model at the hospitals of one process, and the metrics computed from them."""

    name: str
    hospitals: Ids
    """The ids of the hospitals, ``[h]``."""
    rows: PartRows
    outputs: NDArray[Any]
    """The model's outputs for the ``n`` rows, ``[n]`` or ``[n, C]`` for ``C`` classes."""
    ranked: NDArray[Any]
    """The outputs by which a hospital's rows are ranked. They are not recalibrated, because recalibration can create
    ties."""
    untrained: Mask
    """A mask of the hospitals at which the model is untrained, ``[h]``."""

    @property
    def scores_rows(self) -> bool:
        """Whether the model is a classifier with one output per row, as for two classes."""
        return bool(self.rows.federation.classes) and self.outputs.ndim == 1

    def enter(self, asked: Measurement, seed: int, result: Measured) -> None:
        """Add to ``result`` the metrics of this model that ``asked`` requests."""
        name, task = self.name, self.rows.federation.task
        measured = task.measure(self.outputs, self.rows.y, self.rows.offsets)
        if self.ranked is not self.outputs:
            columns = [task.figures.index(figure) for figure in metrics.RANKS]
            measured[:, columns] = task.measure(self.ranked, self.rows.y, self.rows.offsets)[:, columns]
        result.untrained[name] = self.untrained
        result.figures[name] = undefined(measured, self.untrained, task)
        scored = self._trained(self.outputs)
        if asked.last and task is REGRESSION:
            result.errors[name] = error_counts(*scored)
        if asked.last and self.scores_rows:
            ordered, patients = self._trained(self.ranked), self._trained(self.rows.patients).outputs
            result.histograms[name] = metrics.score_histogram(scored.outputs, scored.y)
            result.pairs[name] = pair_sums(*ordered)
            result.sketches[name] = sketches(placements(*ordered), self.hospitals, patients)
            if asked.thresholds is not None:
                result.scores[name] = score_counts(*scored, asked.thresholds)
        if asked.groups is not None:
            self._enter_groups(asked, asked.groups, seed, scored, result)

    def _enter_groups(
        self, asked: Measurement, groups: subgroups.Grouping, seed: int, scored: Rows, result: Measured
    ) -> None:
        federation = self.rows.federation
        trained = self.hospitals[~self.untrained].tolist()
        of_groups = subgroups.measure(groups, federation, trained, asked.part, scored.outputs, scored.y)
        result.groups[self.name] = {
            attribute: replace(of, figures=padded(of.figures, ~self.untrained, federation.task))
            for attribute, of in of_groups.items()
        }
        if asked.rearranging is not None and self.name == asked.headline and self.outputs.ndim == 1:
            result.gaps[self.name] = group_gaps.measure(
                groups,
                asked.rearranging,
                federation,
                self.hospitals.tolist(),
                asked.part,
                self._all(self.outputs).blank(self.untrained),
                self._all(self.ranked).blank(self.untrained),
                self.rows.y,
                seed,
            )

    def _all(self, values: NDArray[Any]) -> Rows:
        return Rows(values, self.rows.y, self.rows.offsets)

    def _trained(self, values: NDArray[Any]) -> Rows:
        """Return those rows of ``values [n, ...]`` that belong to hospitals whose model is trained."""
        return self._all(values).of(~self.untrained)
