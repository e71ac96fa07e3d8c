"""Measurements: what a message requests from hospitals, and what the hospitals of one process return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.engine.measuring.group_gaps import Rearranging
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.subgroups import GroupFigures, Grouping
from raysim.metrics.error_counts import ErrorCounts
from raysim.metrics.score_counts import ScoreCounts
from raysim.metrics.summed import SummedFigures
from raysim.privacy.noisy_sums import Mechanism
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.patient_groups.within import AttributeSums, WithinGap
from raysim.strategies.base import Floats, Ids, Mask

if TYPE_CHECKING:
    from raysim.config.sections.privacy import RowUnit
    from raysim.engine.measuring.recalibrating import OwnShifts, Recalibrating


@dataclass(frozen=True)
class StatisticNoise:
    """The noise that protects a privacy unit (a row or a patient) in the statistics that hospitals send about their
    rows.
    """

    unit: RowUnit
    """The protected unit."""
    rows: int
    """The largest number of rows of a unit that are used in the sums."""
    mechanism: Mechanism
    """The noise mechanism for sums over units."""
    turn: int = 0
    """How often the same kind of statistic was sent before in this round. This number is part of the key of the noise,
    so that the noise differs each time."""


@dataclass(frozen=True)
class FigureNoise:
    """The noise that protects a privacy unit (a row or a patient) in hospitals' evaluation metrics."""

    noise: StatisticNoise
    """The noise on the sums over rows from which the figures are computed."""
    sums: SummedFigures
    """The computation of these sums, and of the figures from them."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """What the server asks hospitals to evaluate, in addition to training; by default nothing."""

    serve: Mapping[str, Ids] = field(default_factory=dict)
    """The models to evaluate: ``{model used: model rows or OWN, [N] or [N, G]}``."""
    untrained: tuple[int, ...] = ()
    """The untrained model rows. Hospitals that use them have no figures."""
    losses_of: Mapping[str, Ids] = field(default_factory=dict)
    """The models whose losses are measured, in the same form as ``serve``."""
    loss_part: str = "train"
    """The part of the rows on which losses are measured."""
    part: str = "test"
    """The part of the rows on which models are evaluated."""
    noise: FigureNoise | None = None
    """The noise on the sums from which all figures are computed; None means exact figures."""
    last: bool = False
    """Whether the models are final. Hospitals then also send histograms of scores and sums over pairs of rows. For a
    real label they send histograms of errors instead."""
    thresholds: tuple[float, ...] | None = None
    """The probabilities at which each hospital also counts scores; None: no counts."""
    counted: str | None = None
    """The model whose scores on validation rows are counted even without ``thresholds``; None: no model."""
    recalibrating: Recalibrating | None = None
    """How each hospital recalibrates the models before evaluating them; None means no recalibration."""
    groups: Grouping | None = None
    """The groups of patients whose figures are also measured; None means no groups."""
    rearranging: Rearranging | None = None
    """The permutations of these groups for testing the headline model's gaps; None means no tests."""
    predictions: bool = False
    """Whether hospitals also send the models' outputs for all rows of all parts."""

    @property
    def headline(self) -> str:
        """The name of the main model, which is the last of the models to evaluate."""
        return list(self.serve)[-1]


NOTHING = Measurement()
"""The empty measurement: hospitals only train."""


@dataclass(eq=False)
class Measured:
    """The evaluation results of one process's hospitals, by name of the model."""

    figures: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The figures of the hospitals in the order of the process, ``[h, columns]``."""
    untrained: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """The hospitals at which the model is untrained, ``[h]``. At these hospitals the model has no figures."""
    loss_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The sum of rows' losses and the number of rows, by hospital, ``[h, 2]``; empty if not requested."""
    histograms: dict[str, Any] = field(default_factory=dict)
    """The histograms of scores over the hospitals."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """The sums over pairs of rows of each hospital, ``[h]``."""
    sketches: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Sketches for the covariance between the AUROCs of this and of other models at each hospital, ``[h, SUMS]``."""
    noisy_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The noisy sums from which figures are computed, ``[h, width]``; empty if figures are exact."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """The counts of scores at the hospitals."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """The counts of absolute errors at the hospitals, for a real label."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """The counts of the scores of validation rows, with which thresholds are chosen for figures on other rows."""
    groups: dict[str, dict[str, GroupFigures]] = field(default_factory=dict)
    """The figures of groups of patients, by attribute."""
    gaps: dict[str, dict[str, AttributeSums]] = field(default_factory=dict)
    """The headline model's sums for the gaps between groups within hospitals, by attribute."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """The outputs for all rows of the hospitals, ``[n]`` or ``[n, C]``."""
    own_shifts: OwnShifts | None = None
    """The recalibrations that the hospitals have fitted; None without recalibration."""

    def join(self, other: Measured) -> None:
        """Add the results of ``other``, which are for further models at the same hospitals."""
        for name, further in vars(other).items():
            if isinstance(further, dict):
                getattr(self, name).update(further)


@dataclass(eq=False, kw_only=True)
class Gathered:
    """The evaluation results of all hospitals, merged at the server and sorted by hospital id."""

    grouping: Grouping | None = None
    """The groups of patients whose figures were measured; None means no groups."""
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = field(default_factory=dict)
    """The figures of these groups by model used and attribute, from :func:`subgroups.merged`."""
    gaps: dict[str, WithinGap] = field(default_factory=dict)
    """The gap of the headline model within hospitals, by attribute; empty if not requested."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    """Training losses that are not stored in the rounds."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """For each model used, each hospital's sums over pairs of test rows, ``[N]``; only for two classes."""
    sketches: dict[str, NDArray[Any]] = field(default_factory=dict)
    """For each model used, sketches for the covariance between its AUROC and other models' AUROC at each hospital,
    ``[N, SUMS]``; see :mod:`raysim.statistics.discrimination.sketches`."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """For each model used, the histogram of all hospitals' errors on test rows; only for a real label."""
    untrained: dict[str, Mask] = field(default_factory=dict)
    """For each model used, the hospitals ``[N]`` at which it is untrained. The figures of these hospitals are
    undefined."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """For each model used, each hospital's counts of scores ``[N]``; empty if not requested."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """The counts of the scores of validation rows, with which thresholds are chosen. Empty without validation rows, or
    if figures are measured on validation rows themselves."""


def noisy_stays(federation: Federation, sizes: Ids | None, figures: Floats) -> Ids:
    """Return the number of rows of each hospital, or a noisy public estimate.

    If a privacy guarantee hides the numbers of training rows, ``sizes [N]`` has noisy numbers instead. The estimate is
    then ``sizes`` plus the number of evaluated rows in ``figures [N, len(task.figures)]``.
    """
    if sizes is None:
        return federation.totals
    return sizes + np.nan_to_num(figures[:, federation.task.figures.index("n")]).astype(np.int64)
