"""Evaluation: which models are measured when, and what hospitals' figures and losses come to for the federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.evaluation import EvaluationSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Round, noisy_stays
from raysim.engine.measuring import group_gaps, subgroups
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.recalibrating import Recalibrated, Recalibrating, gathered
from raysim.engine.messages.plan import FigureNoise, PartialResult
from raysim.metrics.error_counts import ErrorCounts, merged
from raysim.metrics.measures import pooled_auroc
from raysim.metrics.score_counts import ScoreCounts, in_order
from raysim.metrics.segments import ranges
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.discrimination.sketches import SUMS
from raysim.statistics.patient_groups.within import WithinGap
from raysim.statistics.patient_groups.within import merged as merged_sums
from raysim.strategies.base import OWN, Floats, Ids
from raysim.traffic.ledger import LOSS_SCALARS, MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.statistics.clinical.recalibration import Prior


class Recorded(Protocol):
    """What has a ledger, which it may replace."""

    ledger: Ledger


@dataclass(frozen=True, eq=False)
class MeasurementRequest:
    """What hospitals measure in a message, beside training: nothing by default."""

    serve: Mapping[str, Ids] = field(default_factory=dict)
    """The models whose figures are asked for, on the evaluated part."""
    losses_of: Mapping[str, Ids] = field(default_factory=dict)
    """The models whose losses are asked for."""
    loss_part: str = "train"
    """The rows on which losses are asked for."""
    last: bool = False
    """Whether these are the final models, of which more figures are asked for."""
    counted: str | None = None
    """The model whose validation rows are counted for the server's own use; None: none."""
    recalibrating: Recalibrating | None = None
    """How each hospital recalibrates the models before it measures them; None: not at all."""


PAIR_SUMS = 8
"""Numbers of 4 bytes that a hospital's sums over pairs take."""


class Evaluation:
    """Evaluates one job's models. ``order [N]`` brings the actors' hospitals, joined, into the order of ids."""

    grouping: subgroups.Grouping | None
    """The groups of patients whose figures are asked for at the end, or None."""
    groups: dict[str, dict[str, tuple[Floats, Floats]]]
    """The figures of these groups per model served and attribute, as :func:`subgroups.merged` gives them."""
    rearranging: group_gaps.Rearranging | None
    """The arrangements of groups under which gaps are asked for at the end; None: no gaps."""
    gaps: dict[str, WithinGap]
    """By attribute, the gap within hospitals of the headline model; asked for at the end."""
    losses: TrainingLosses
    """Training losses, beside those of the rounds."""
    pairs: dict[str, PairSums]
    """Per model served, each hospital's sums for the variance of its AUROC; asked for at the end."""
    sketches: dict[str, NDArray[np.float32]]
    """Per model served, sketches for the covariance of a hospital's AUROC with other models', ``[N, SUMS]``; at the
    end.
    """
    scores: dict[str, ScoreCounts]
    """Per model served, each hospital's counts of scores, where these were asked for."""
    validation_scores: dict[str, ScoreCounts]
    """As ``scores``, of validation rows, where there are some and figures are of other rows."""
    errors: dict[str, ErrorCounts]
    """Per model served of a real label, the histogram of all errors; asked for at the end."""
    untrained: dict[str, NDArray[np.bool_]]
    """Per model served, the hospitals ``[N]`` whose model nobody had trained when it was last measured."""

    def __init__(
        self,
        federation: Federation,
        section: EvaluationSection,
        order: Ids,
        rounds: int,
        traffic: Recorded,
        noise: FigureNoise | None = None,
        sizes: Ids | None = None,
        tests_groups: bool = False,
    ) -> None:
        """``rounds``: how many are played for certain, which decides how often training losses are measured.

        With ``noise``, figures are those of the headline model alone, from noisy sums, and nothing else is asked for.
        ``sizes [N]`` are the numbers of training rows that hospitals have released with noise; None: they are public.
        ``tests_groups``: whether gaps between groups of patients are tested at the end.
        """
        self._noise, self._sizes = noise, sizes
        self.grouping = None if noise else subgroups.grouping(federation, section.groups, section.age_bands)
        self.groups, self.gaps, self.rearranging = {}, {}, None
        if tests_groups and self.grouping is not None:
            self.rearranging = group_gaps.rearranging(self.grouping, federation, section.part)
        self.losses = TrainingLosses()
        self.pairs, self.sketches = {}, {}
        self.scores, self.validation_scores, self.errors = {}, {}, {}
        self.untrained = {}
        self._counted: str | None = None
        self._bins = 0 if section.clinical is None else section.clinical.bins
        self._federation = federation
        self._task, self._totals, self._bounds = federation.task, federation.totals, federation.bounds
        self._every, self._order, self._rounds, self._traffic = section.every, order, rounds, traffic
        self._loss_points = section.loss_points

    @property
    def noise(self) -> FigureNoise | None:
        """The noise of the next figures, drawn again for each evaluation; None: figures are exact."""
        if self._noise is None:
            return None
        turn = self._traffic.ledger.times(MEASURED)
        return replace(self._noise, noise=replace(self._noise.noise, turn=turn))

    @property
    def takes_losses(self) -> bool:
        """Whether training losses are measured."""
        return self._noise is None

    def _asked(self, serve: Mapping[str, Ids]) -> Mapping[str, Ids]:
        """The models among ``serve`` whose figures are asked for: all, or where figures cost privacy, the last of those
        that the server has.

        A model that stays at a hospital is trained without noise, so noisy figures of it would hide no patient.
        """
        if self._noise is None:
            return serve
        return dict([(name, rows) for name, rows in serve.items() if (rows >= 0).all()][-1:])

    def check_served(self, serve: Mapping[str, Ids], name: str, *, private: bool) -> None:
        """Raise ``ConfigError`` where noise on figures would hide nobody, because models of the strategy called
        ``name``, or a ``private`` part of each, stay at hospitals.
        """
        if self._noise is not None and (private or not self._asked(serve)):
            raise ConfigError(
                f"privacy.statistics.{MEASURED}: models of strategy '{name}' stay at hospitals without noise, so that "
                "noise on their figures hides nobody; declare metrics public, or choose another strategy"
            )

    def due(self, round: int) -> bool:
        """Whether anything is measured after a ``round`` that is not the last."""
        if self._evaluated(round):
            return True
        return self._loss_points > 0 and round % max(1, self._rounds // self._loss_points) == 0

    def after(self, round: int, serve: Mapping[str, Ids]) -> MeasurementRequest:
        """What is measured of the models that ``serve`` after a ``round`` in which something is due."""
        return MeasurementRequest(self._asked(serve) if self._evaluated(round) else {}, self._tracked(serve))

    def at_the_end(self, serve: Mapping[str, Ids], counted: str | None = None) -> MeasurementRequest:
        """What is measured of the final models; the server needs the counts of the one that is ``counted``."""
        self._counted = counted
        return MeasurementRequest(self._asked(serve), self._tracked(serve), last=True, counted=counted)

    def begin(self, partials: Sequence[PartialResult], constant: float) -> None:
        """Enter the losses before training; ``constant`` is the loss of the best constant prediction."""
        losses = self.mean_losses(partials)
        self.losses = TrainingLosses(losses, constant=constant)
        self._enter_measured(0, LOSS_SCALARS * len(losses))

    def enter(
        self, row: Round, partials: Sequence[PartialResult], *, ledger_round: int | None = None
    ) -> dict[str, Floats]:
        """Enter a round's metrics and training loss, as far as these were asked for.

        The ledger has them in round ``ledger_round``; None: in that of ``row``.

        Returns hospitals' figures per model served, in id order ``[N, len(task.figures)]``.
        """
        figures: dict[str, Floats] = {}
        ledger_round = row.round if ledger_round is None else ledger_round
        for model in partials[0].figures:
            figures[model] = np.concatenate([partial.figures[model] for partial in partials])[self._order]
            row.metrics[model] = self._task.summarise(figures[model], self._stays(figures[model]))
            self.untrained[model] = np.concatenate([partial.untrained[model] for partial in partials])[self._order]
            if self._noise is not None:
                noisy = np.concatenate([partial.noisy_sums[model] for partial in partials])[self._order]
                row.metrics[model] |= self._noise.sums.together(noisy.sum(axis=0))
            histograms = [partial.histograms[model] for partial in partials if model in partial.histograms]
            if histograms:
                pooled, bound = pooled_auroc(histograms)
                row.metrics[model] |= {"pooled_auroc": pooled, "pooled_auroc_bound": bound}
            pairs = [partial.pairs[model] for partial in partials if model in partial.pairs]
            if pairs:
                sums = zip(*pairs, strict=True)
                self.pairs[model] = PairSums(*(np.concatenate(each)[self._order] for each in sums))
                self.sketches[model] = np.concatenate([partial.sketches[model] for partial in partials])[self._order]
            errors = [partial.errors[model] for partial in partials if model in partial.errors]
            if errors:
                self.errors[model] = merged(errors, self._order)
                self._traffic.ledger.add(
                    ledger_round, MEASURED, np.arange(len(self._totals)), self.errors[model].scalars
                )
            self._enter_scores(model, row, partials, ledger_round)
            row.metrics[model] |= self._by_group(model, partials)
            row.metrics[model] |= self._within(model, figures[model], partials, ledger_round)
        if figures:
            # Sums over pairs, of which there are some at the end only, are four of 8 bytes, and sketches of 4 bytes.
            scalars = len(self._task.figures) * len(figures) + (PAIR_SUMS + SUMS) * len(self.pairs)
            self._enter_measured(ledger_round, scalars if self._noise is None else self._noise.sums.width)
        for loss in self.mean_losses(partials).values():
            row.training_loss = loss
            self._enter_measured(ledger_round, LOSS_SCALARS)
        return figures

    def predictions(self, partials: Sequence[PartialResult]) -> dict[str, NDArray[Any]]:
        """Per model served its outputs for all rows of the federation, in order; empty where they are not asked for."""
        outputs: dict[str, NDArray[Any]] = {}
        for model in partials[0].predictions:
            # Actors' hospitals one after the other; within an actor, hospitals are in the order of ids.
            stacked = np.concatenate([partial.predictions[model] for partial in partials])
            served = np.argsort(self._order)
            outputs[model] = np.empty_like(stacked)
            outputs[model][ranges(self._bounds[served, 0], self._totals[served])] = stacked
        return outputs

    def counts(self, model: str, partials: Sequence[PartialResult]) -> ScoreCounts:
        """What hospitals have counted of their validation rows under a ``model``, in the order of ids."""
        return in_order([partial.validation_scores[model] for partial in partials], self._order)

    def recalibrated(self, of: str, partials: Sequence[PartialResult], prior: Prior | None) -> Recalibrated:
        """How hospitals have recalibrated the model ``of``, in the order of ids."""
        return gathered(of, [part.own_shifts for part in partials if part.own_shifts is not None], self._order, prior)

    def _evaluated(self, round: int) -> bool:
        return self._every > 0 and round % self._every == 0

    def _tracked(self, serve: Mapping[str, Ids]) -> dict[str, Ids]:
        """The model among ``serve`` whose training loss is measured; none if losses were not measured before
        training.
        """
        if self.losses.model is None and serve and self.losses.before:
            self.losses = replace(self.losses, model=list(serve)[-1])
        return {model: rows for model, rows in serve.items() if model == self.losses.model}

    def mean_losses(self, partials: Sequence[PartialResult]) -> dict[str, float]:
        """Per model whose losses were asked for, its mean loss over the rows of all hospitals; NaN without rows."""
        means = {}
        for model in partials[0].loss_sums:
            # In the order of ids, so that the order of processes does not matter.
            sums = np.concatenate([partial.loss_sums[model] for partial in partials])[self._order].sum(axis=0)
            with np.errstate(all="ignore"):
                means[model] = float(sums[0] / sums[1])
        return means

    def _stays(self, figures: Floats) -> Ids:
        return noisy_stays(self._federation, self._sizes, figures)

    def _enter_measured(self, round: int, scalars: int) -> None:
        """Enter into the ledger that every hospital has sent ``scalars`` numbers of measurements."""
        self._traffic.ledger.add(round, MEASURED, np.arange(len(self._totals)), scalars)

    def _enter_scores(self, model: str, row: Round, partials: Sequence[PartialResult], ledger_round: int) -> None:
        """Enter the counts of scores, where they were asked for, and the metrics of calibration that follow from
        them.
        """
        for kept, sent in (
            (self.scores, [partial.scores for partial in partials]),
            (self.validation_scores, [partial.validation_scores for partial in partials]),
        ):
            if model not in sent[0]:
                continue
            counts = in_order([each[model] for each in sent], self._order)
            if counts.rows.any():
                # What the server itself needs is traffic, and has its own entry.
                if kept is not self.validation_scores or model != self._counted:
                    self._traffic.ledger.add(ledger_round, MEASURED, np.arange(len(self._totals)), counts.scalars)
                kept[model] = counts
        if model in self.scores:
            # Only now: it takes a fifth of a second to import.
            from raysim.statistics.clinical.clinical_figures import calibration_metrics

            row.metrics[model] |= calibration_metrics(self.scores[model], self._bins)

    def _by_group(self, model: str, partials: Sequence[PartialResult]) -> dict[str, float]:
        """Enter the figures of groups of patients, where they were asked for; returns the gaps between groups."""
        gaps: dict[str, float] = {}
        if self.grouping is None:
            return gaps
        levels = dict(self.grouping.levels)
        for attribute in partials[0].groups.get(model, {}):
            parts = [partial.groups[model][attribute] for partial in partials]
            measured = subgroups.merged(parts, self._order, self._task)
            self.groups.setdefault(model, {})[attribute] = measured
            gaps |= subgroups.gaps(attribute, levels[attribute], *measured, self._task)
        return gaps

    def _within(
        self, model: str, figures: Floats, partials: Sequence[PartialResult], ledger_round: int
    ) -> dict[str, float]:
        """Enter the gaps between groups of patients within hospitals, where they were asked for; returns metrics."""
        measured = [partial.gaps[model] for partial in partials if model in partial.gaps]
        if not measured or self.grouping is None or self.rearranging is None:
            return {}
        sums = {name: merged_sums([part[name] for part in measured], self._order) for name, _ in self.grouping.levels}
        self.gaps = group_gaps.gaps(self.grouping, self.rearranging, sums, self.groups[model], figures, self._task)
        for attribute, each in sums.items():
            numbers = self.rearranging.numbers(attribute, each.counts.shape[1])
            self._traffic.ledger.add(ledger_round, MEASURED, np.arange(len(self._totals)), numbers)
        return {
            f"{attribute}_within{end}": value
            for attribute, gap in self.gaps.items()
            for end, value in (("", gap.estimate), ("_low", gap.low), ("_high", gap.high), ("_p", gap.p))
        }


def existing(serve: dict[str, Ids], remembered: object | None) -> dict[str, Ids]:
    """The models of ``serve`` that exist between rounds: hospitals' own only once these have ``remembered`` some."""
    return {name: rows for name, rows in serve.items() if remembered is not None or not (rows == OWN).all()}
