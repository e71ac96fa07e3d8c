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
    """The noise that protects a patient or a row in the statistics that hospitals send."""

    unit: RowUnit
    """The unit that the noise protects: a patient or a row (``example``)."""
    rows: int
    """The largest number of rows of one patient that are used."""
    mechanism: Mechanism
    """The mechanism that adds Laplace or normal noise to sums."""
    turn: int = 0
    """The number of earlier messages with the statistic: in this round or, for metrics, in the whole run. It is part of
    the key of the noise, so that each message has new noise."""


@dataclass(frozen=True)
class FigureNoise:
    """The noise that protects a patient or a row in hospitals' evaluation metrics."""

    noise: StatisticNoise
    sums: SummedFigures
    """The computation of sums from rows, and of metrics from these sums."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """What the server asks hospitals to evaluate, in addition to training; by default nothing."""

    serve: Mapping[str, Ids] = field(default_factory=dict)
    """The models to evaluate, by name. An array ``[N]`` has the index of the server's model that each hospital uses; an
    array ``[N, G]`` has an index for each group of the hospital's rows. ``OWN`` means the model that the hospital
    stores, and ``MIXTURE`` its mixture of server models."""
    untrained: tuple[int, ...] = ()
    """The indices of the server's untrained models. Hospitals that use them have no metrics."""
    losses_of: Mapping[str, Ids] = field(default_factory=dict)
    """The models whose mean losses are measured, in the same form as ``serve``."""
    loss_part: str = "train"
    """The part of the rows (train, validation or test) on which losses are measured."""
    part: str = "test"
    """The part of the rows (train, validation or test) on which models are evaluated."""
    noise: FigureNoise | None = None
    """The noise on the sums from which all metrics are computed; None means exact metrics."""
    last: bool = False
    """Whether the models are final. For two classes, hospitals then also send histograms of scores and sums over pairs
    of rows; for a label that is a real number, histograms of errors."""
    thresholds: tuple[float, ...] | None = None
    """Thresholds of the predicted probability: for each of them, a hospital counts the rows that reach it. None means
    no counts."""
    counted: str | None = None
    """The name of a model for which hospitals count validation rows by score, even if ``thresholds`` is None; None
    means no such model."""
    recalibrating: Recalibrating | None = None
    groups: Grouping | None = None
    rearranging: Rearranging | None = None
    """The permutations of patients' group labels for tests of the main model's gaps between groups; None means no
    tests."""
    predictions: bool = False
    """Whether hospitals also send the models' outputs for all their training, validation and test rows."""

    @property
    def headline(self) -> str:
        """The name of the main model: the last of the models to evaluate."""
        return list(self.serve)[-1]


NOTHING = Measurement()
"""A request to evaluate nothing."""


@dataclass(eq=False)
class Measured:
    """The evaluation results of one process's hospitals, by name of the model."""

    figures: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The metrics of each of the ``h`` hospitals, ``[h, columns]``."""
    untrained: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """A mask of the hospitals at which the model is untrained, ``[h]``."""
    loss_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """For each hospital, the sum of its rows' losses and the number of these rows, ``[h, 2]``."""
    histograms: dict[str, Any] = field(default_factory=dict)
    """The histogram of scores over the evaluated rows of the process's hospitals whose model is trained."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """Each hospital's sums over pairs of an event and a non-event, ``[h]``."""
    sketches: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Each hospital's randomly weighted sums, ``[h, SUMS]``, from which the covariance between the AUROCs of two models
    is estimated."""
    noisy_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The noisy sums of each hospital from which its metrics are computed, ``[h, width]``; empty if metrics are exact.
    """
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """The hospitals' numbers of rows by absolute error; only for a label that is a real number."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """Each hospital's numbers of validation rows by score, from which thresholds are chosen."""
    groups: dict[str, dict[str, GroupFigures]] = field(default_factory=dict)
    """The metrics of groups of patients, by attribute of patients, such as sex."""
    gaps: dict[str, dict[str, AttributeSums]] = field(default_factory=dict)
    """The main model's sums for the gaps between groups of patients within hospitals, by attribute of patients."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Each model's outputs for all ``n`` rows of the process's hospitals, ``[n]`` or ``[n, C]`` for ``C`` classes."""
    own_shifts: OwnShifts | None = None

    def join(self, other: Measured) -> None:
        """Add the results of ``other``, which are for further models at the same hospitals."""
        for name, further in vars(other).items():
            if isinstance(further, dict):
                getattr(self, name).update(further)


@dataclass(eq=False, kw_only=True)
class Gathered:
    """The evaluation results of all hospitals, merged at the server and sorted by hospital id."""

    grouping: Grouping | None = None
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = field(default_factory=dict)
    """The metrics of groups of patients, by model and by attribute of patients; see :func:`subgroups.merged`."""
    gaps: dict[str, WithinGap] = field(default_factory=dict)
    """The main model's gap between groups of patients within hospitals, by attribute of patients."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """For each model, each hospital's sums over pairs of an event and a non-event, ``[N]``; only for two classes."""
    sketches: dict[str, NDArray[Any]] = field(default_factory=dict)
    """For each model, each hospital's randomly weighted sums ``[N, SUMS]``, from which the covariance between the
    AUROCs of two models is estimated."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """For each model, the histogram of all hospitals' absolute errors; only for a label that is a real number."""
    untrained: dict[str, Mask] = field(default_factory=dict)
    """For each model, a mask ``[N]`` of the hospitals at which it is untrained."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """For each model, each hospital's numbers of rows by score, ``[N]``."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """For each model, each hospital's numbers of validation rows by score. Empty without validation rows, or if metrics
    are measured on validation rows."""


def noisy_stays(federation: Federation, sizes: Ids | None, figures: Floats) -> Ids:
    """Return the number of rows of each hospital or, if it is secret, a public size.

    ``sizes [N]`` are noisy numbers of training rows, or of training patients if patients are protected. None means that
    exact numbers of rows are public. The public size is ``sizes`` plus the number of evaluated rows in ``figures [N,
    len(task.figures)]``. It omits other rows, and adds rows to patients if patients are protected.
    """
    if sizes is None:
        return federation.totals
    return sizes + np.nan_to_num(figures[:, federation.task.figures.index("n")]).astype(np.int64)
