"""What hospitals are asked to measure in a message, and what those of one process answer."""

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
    """How hospitals hide a unit (a row or a patient) in answers about their rows."""

    unit: RowUnit
    """Who is hidden."""
    rows: int
    """The most rows of a unit that are used."""
    mechanism: Mechanism
    """Which noise the sums over units get."""
    turn: int = 0
    """How often the same kind was sent before in this round: each time has noise of its own."""


@dataclass(frozen=True)
class FigureNoise:
    """How hospitals hide a unit in their figures."""

    noise: StatisticNoise
    """The noise on the sums."""
    sums: SummedFigures
    """Which sums, and the figures that follow from them."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """What hospitals measure in a message, beside training: nothing by default."""

    serve: Mapping[str, Ids] = field(default_factory=dict)
    """The models to evaluate: ``{model served: model rows or OWN, [N] or [N, G]}``."""
    untrained: tuple[int, ...] = ()
    """The rows of the models that nobody has trained yet: hospitals that they serve have no figures."""
    losses_of: Mapping[str, Ids] = field(default_factory=dict)
    """The models whose losses are asked for, likewise."""
    loss_part: str = "train"
    """The part of the rows that they are asked for on."""
    part: str = "test"
    """The rows that models are evaluated on."""
    noise: FigureNoise | None = None
    """The noise on the sums that all figures then come from; None: figures are exact."""
    last: bool = False
    """Whether these are the final models, of which histograms of scores and sums over pairs of rows are asked for too,
    or of a real label histograms of errors."""
    thresholds: tuple[float, ...] | None = None
    """The probabilities at which counts of scores per hospital are asked for too; None: no counts."""
    counted: str | None = None
    """The model of which counts of validation rows are asked for in any case; None: none."""
    recalibrating: Recalibrating | None = None
    """How each hospital recalibrates the models that it evaluates; None: it takes them as they are."""
    groups: Grouping | None = None
    """The groups of patients whose figures are asked for too."""
    rearranging: Rearranging | None = None
    """The arrangements of these groups under which the headline model's gaps are asked for too; None: no gaps."""
    predictions: bool = False
    """Whether the models' outputs for all rows of all parts are asked for too."""

    @property
    def headline(self) -> str:
        """The headline model of those to evaluate, the last one."""
        return list(self.serve)[-1]


NOTHING = Measurement()
"""What hospitals measure where they only train."""


@dataclass(eq=False)
class Measured:
    """What the hospitals of one process have measured, by model served."""

    figures: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """The figures of the hospitals in the order of the process, ``[h, columns]``."""
    untrained: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """At which of these hospitals nobody has trained the model, ``[h]``: it has no figures there."""
    loss_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Where losses are asked for, the sum of rows' losses and their number, by hospital: ``[h, 2]``."""
    histograms: dict[str, Any] = field(default_factory=dict)
    """The histogram of its scores."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """The sums over pairs of rows of the hospitals, ``[h]`` each."""
    sketches: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Sketches for the covariance of its AUROC with other models' at the hospitals, ``[h, SUMS]``."""
    noisy_sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Where figures are noisy, the sums that they come from, ``[h, width]``."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """The counts of scores of the hospitals."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """Of a real label, the counts of absolute errors of the hospitals."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """As ``scores``, of validation rows, on which thresholds are chosen, where figures are of other rows."""
    groups: dict[str, dict[str, GroupFigures]] = field(default_factory=dict)
    """By attribute, the figures of groups of patients."""
    gaps: dict[str, dict[str, AttributeSums]] = field(default_factory=dict)
    """Of the headline model, by attribute, sums for the gaps between groups within hospitals."""
    predictions: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Its outputs for all rows of the hospitals, ``[n]`` or ``[n, C]``."""
    own_shifts: OwnShifts | None = None
    """How the hospitals recalibrate, where they do."""

    def join(self, other: Measured) -> None:
        """Take over what ``other`` has of further models; both come from one process."""
        for name, further in vars(other).items():
            if isinstance(further, dict):
                getattr(self, name).update(further)


@dataclass(eq=False, kw_only=True)
class Gathered:
    """What the server has put together of all hospitals' measurements; hospitals are in the order of their ids."""

    grouping: Grouping | None = None
    """The groups of patients whose figures were asked for, or None."""
    groups: dict[str, dict[str, tuple[Floats, Floats]]] = field(default_factory=dict)
    """The figures of these groups per model served and attribute, as :func:`subgroups.merged` gives them."""
    gaps: dict[str, WithinGap] = field(default_factory=dict)
    """By attribute, the gap within hospitals of the model served last; empty where it was not asked for."""
    losses: TrainingLosses = field(default_factory=TrainingLosses)
    """Training losses, beside those of the rounds."""
    pairs: dict[str, PairSums] = field(default_factory=dict)
    """Per model served, each hospital's sums over pairs of test rows, ``[N]`` each; only for labels of two classes."""
    sketches: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Per model served, sketches for the covariance of a hospital's AUROC with other models', ``[N, SUMS]``; see
    :mod:`raysim.statistics.discrimination.sketches`."""
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    """Per model served of a real label, the histogram of all hospitals' errors on test rows."""
    untrained: dict[str, Mask] = field(default_factory=dict)
    """Per model served, the hospitals ``[N]`` whose model nobody has trained: all its figures are undefined there."""
    scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """Per model served, each hospital's counts of scores ``[N]``, where these were asked for."""
    validation_scores: dict[str, ScoreCounts] = field(default_factory=dict)
    """As ``scores``, of validation rows, on which thresholds are chosen; empty where there are none, or where figures
    are of validation rows themselves."""


def noisy_stays(federation: Federation, sizes: Ids | None, figures: Floats) -> Ids:
    """How many rows each hospital has, ``[N]``. Where training rows are known with noise alone, as ``sizes [N]``, these
    plus the rows behind ``figures [N, len(task.figures)]``.
    """
    if sizes is None:
        return federation.totals
    return sizes + np.nan_to_num(figures[:, federation.task.figures.index("n")]).astype(np.int64)
