"""Evaluation of models: which models are measured in a round, and the federation's metrics from hospitals'
measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.evaluation import EvaluationSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.measuring import group_gaps, subgroups
from raysim.engine.measuring.gaps_within import gaps
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.measurement import FigureNoise, Gathered, Measured, Measurement, noisy_stays
from raysim.engine.measuring.recalibrating import Recalibrated, Recalibrating, gathered
from raysim.metrics.error_counts import merged
from raysim.metrics.measures import pooled_auroc
from raysim.metrics.score_counts import ScoreCounts, in_order
from raysim.metrics.segments import ranges
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.discrimination.sketches import SUMS
from raysim.statistics.patient_groups.within import merged as merged_sums
from raysim.strategies.base import Floats, Ids
from raysim.traffic.ledger import LOSS_SCALARS, MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.statistics.clinical.recalibration import Prior


class Recorded(Protocol):
    """An object whose traffic ledger can be replaced."""

    ledger: Ledger


class Row(Protocol):
    """The parts of a row of ``rounds.csv`` that evaluation fills in."""

    round: int
    metrics: dict[str, dict[str, float]]
    training_loss: float | None


PAIR_SUMS = 8
"""The size of a hospital's message with sums over pairs of rows, in units of 4 bytes."""


class Evaluation:
    """Evaluates one job's models."""

    gathered: Gathered
    rearranging: group_gaps.Rearranging | None
    """The permutations of patients' group labels for tests of gaps between groups; None means no tests."""

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
        all_rows: Ids | None = None,
    ) -> None:
        """Set up the evaluation of a job.

        - ``order [N]``: indices that sort the hospitals of all processes by id.
        - ``rounds``: the smallest number of rounds that the run can have.
        - ``noise``: if given, only the metrics of one model are computed, from sums with privacy noise.
        - ``sizes [N]``: the hospitals' numbers of training rows, or of patients if patients are protected, with privacy
          noise; None means that exact numbers are public.
        - ``all_rows [N]``: the hospitals' numbers of rows, if ``federation`` has only some of these rows.
        """
        self._noise, self._sizes, self._all_rows = noise, sizes, all_rows
        grouping = None if noise else subgroups.grouping(federation, section.groups, section.age_bands)
        self.gathered, self.rearranging = Gathered(grouping=grouping), None
        if tests_groups and grouping is not None:
            self.rearranging = group_gaps.rearranging(grouping, federation, section.part)
        self._section = section
        self._counted: str | None = None
        self._federation = federation
        self._task, self._totals, self._bounds = federation.task, federation.totals, federation.bounds
        self._order, self._rounds, self._traffic = order, rounds, traffic

    @property
    def _next_noise(self) -> FigureNoise | None:
        """Return the privacy noise for the next metrics, different in each evaluation."""
        if self._noise is None:
            return None
        turn = self._traffic.ledger.times(MEASURED)
        return replace(self._noise, noise=replace(self._noise.noise, turn=turn))

    @property
    def takes_losses(self) -> bool:
        """Whether training losses are measured."""
        return self._noise is None

    def _asked(self, serve: Mapping[str, Ids]) -> Mapping[str, Ids]:
        """Return those models of ``serve`` that are evaluated. With privacy noise on metrics, this is only the last of
        the models that the server stores.

        A model stored at a hospital is trained without noise, so noise on its metrics would not protect any patient.
        """
        if self._noise is None:
            return serve
        return dict([(name, rows) for name, rows in serve.items() if (rows >= 0).all()][-1:])

    def check_served(self, serve: Mapping[str, Ids], name: str, *, private: bool) -> None:
        """Raise ``ConfigError`` if metrics have privacy noise that would protect nobody.

        This is the case if hospitals store the strategy's models, or a part of each model (``private`` is true).
        """
        if self._noise is not None and (private or not self._asked(serve)):
            raise ConfigError(
                f"privacy.statistics.{MEASURED}: models of strategy '{name}' stay at hospitals without noise, so "
                "noise on their figures protects nobody; declare metrics public, or choose another strategy"
            )

    def due(self, round: int) -> bool:
        """Return whether models are evaluated, or training losses measured, after ``round``, which is not the last
        round.
        """
        if self._evaluated(round):
            return True
        return self._section.loss_points > 0 and round % max(1, self._rounds // self._section.loss_points) == 0

    def after(self, round: int, serve: Mapping[str, Ids]) -> Measurement:
        """Return which metrics and losses hospitals compute for the models in ``serve`` after a ``round``."""
        serve, losses_of = self._asked(serve) if self._evaluated(round) else {}, self._tracked(serve)
        return Measurement(serve, losses_of=losses_of, part=self._section.part, noise=self._next_noise)

    def at_the_end(
        self, serve: Mapping[str, Ids], counted: str | None = None, recalibrating: Recalibrating | None = None
    ) -> Measurement:
        """Return which metrics and losses hospitals compute for the final models in ``serve``.

        If ``counted`` names a model, hospitals also send how many of their validation rows have each score under this
        model.
        """
        if recalibrating is None:
            self._counted = counted
        clinical = self._section.clinical
        return Measurement(
            self._asked(serve) if recalibrating is None else serve,
            losses_of=self._tracked(serve) if recalibrating is None else {},
            part=self._section.part,
            noise=self._next_noise,
            last=True,
            thresholds=None if clinical is None else clinical.counted_at,
            counted=counted,
            recalibrating=recalibrating,
            groups=self.gathered.grouping,
            rearranging=None if counted is not None else self.rearranging,
            predictions=self._section.predictions,
        )

    def begin(self, measured: Sequence[Measured], constant: float) -> None:
        """Record the losses before training. ``constant`` is the loss of the best constant prediction."""
        losses = self.mean_losses(measured)
        self.gathered.losses = TrainingLosses(losses, constant=constant)
        self._enter_measured(0, LOSS_SCALARS * len(losses))

    def enter(self, row: Row, measured: Sequence[Measured], *, ledger_round: int | None = None) -> dict[str, Floats]:
        """Fill in a round's metrics and training loss from what hospitals have measured.

        The traffic ledger records the hospitals' messages under ``ledger_round``; None means the round of ``row``.
        Return the metrics of each model as an array ``[N, len(task.figures)]``, one row per hospital, sorted by id.
        """
        figures: dict[str, Floats] = {}
        ledger_round = row.round if ledger_round is None else ledger_round
        for model in measured[0].figures:
            figures[model] = np.concatenate([each.figures[model] for each in measured])[self._order]
            stays = self._all_rows
            if stays is None:
                stays = noisy_stays(self._federation, self._sizes, figures[model])
            row.metrics[model] = self._task.summarise(figures[model], stays)
            self.gathered.untrained[model] = np.concatenate([each.untrained[model] for each in measured])[self._order]
            if self._noise is not None:
                noisy = np.concatenate([each.noisy_sums[model] for each in measured])[self._order]
                row.metrics[model] |= self._noise.sums.together(noisy.sum(axis=0))
            histograms = [each.histograms[model] for each in measured if model in each.histograms]
            if histograms:
                pooled, bound = pooled_auroc(histograms)
                row.metrics[model] |= {"pooled_auroc": pooled, "pooled_auroc_bound": bound}
            pairs = [each.pairs[model] for each in measured if model in each.pairs]
            if pairs:
                sums = zip(*pairs, strict=True)
                self.gathered.pairs[model] = PairSums(*(np.concatenate(each)[self._order] for each in sums))
                self.gathered.sketches[model] = np.concatenate([each.sketches[model] for each in measured])[self._order]
            errors = [each.errors[model] for each in measured if model in each.errors]
            if errors:
                self.gathered.errors[model] = merged(errors, self._order)
                self._enter_measured(ledger_round, self.gathered.errors[model].scalars)
            self._enter_scores(model, row, measured, ledger_round)
            row.metrics[model] |= self._by_group(model, measured)
            row.metrics[model] |= self._within(model, figures[model], measured, ledger_round)
        if figures:
            # Sums over pairs, which exist only at the end, are four numbers of 8 bytes; sketches are
            # numbers of 4 bytes.
            scalars = len(self._task.figures) * len(figures) + (PAIR_SUMS + SUMS) * len(self.gathered.pairs)
            self._enter_measured(ledger_round, scalars if self._noise is None else self._noise.sums.width)
        for loss in self.mean_losses(measured).values():
            row.training_loss = loss
            self._enter_measured(ledger_round, LOSS_SCALARS)
        return figures

    def predictions(self, measured: Sequence[Measured]) -> dict[str, NDArray[Any]]:
        """Return each model's outputs for all rows of the federation, in order of the rows; empty if not requested."""
        outputs: dict[str, NDArray[Any]] = {}
        for model in measured[0].predictions:
            # The hospitals of each actor are consecutive, in the order of ids.
            stacked = np.concatenate([each.predictions[model] for each in measured])
            served = np.argsort(self._order)
            outputs[model] = np.empty_like(stacked)
            outputs[model][ranges(self._bounds[served, 0], self._totals[served])] = stacked
        return outputs

    def counts(self, model: str, measured: Sequence[Measured]) -> ScoreCounts:
        """Return each hospital's number of validation rows by score under a ``model``, sorted by hospital id."""
        return in_order([each.validation_scores[model] for each in measured], self._order)

    def recalibrated(self, of: str, measured: Sequence[Measured], prior: Prior | None) -> Recalibrated:
        """Return the recalibrations of the model named ``of`` at all hospitals, sorted by hospital id."""
        return gathered(of, [part.own_shifts for part in measured if part.own_shifts is not None], self._order, prior)

    def _evaluated(self, round: int) -> bool:
        return self._section.every > 0 and round % self._section.every == 0

    def _tracked(self, serve: Mapping[str, Ids]) -> dict[str, Ids]:
        """Return only the entry of ``serve`` for the model whose training loss is measured; empty if no loss was
        measured before training.
        """
        if self.gathered.losses.model is None and serve and self.gathered.losses.before:
            self.gathered.losses = replace(self.gathered.losses, model=list(serve)[-1])
        return {model: rows for model, rows in serve.items() if model == self.gathered.losses.model}

    def mean_losses(self, measured: Sequence[Measured]) -> dict[str, float]:
        """Return the mean loss of each measured model over the rows of all hospitals; NaN if there are no rows."""
        means = {}
        for model in measured[0].loss_sums:
            # In the order of ids, so that the order of processes does not matter.
            sums = np.concatenate([each.loss_sums[model] for each in measured])[self._order].sum(axis=0)
            with np.errstate(all="ignore"):
                means[model] = float(sums[0] / sums[1])
        return means

    def _enter_measured(self, round: int, scalars: int | Ids) -> None:
        self._traffic.ledger.add(round, MEASURED, np.arange(len(self._totals)), scalars)

    def _enter_scores(self, model: str, row: Row, measured: Sequence[Measured], ledger_round: int) -> None:
        """Record the counts of rows by score and the calibration metrics computed from them."""
        for stored, sent in (
            (self.gathered.scores, [each.scores for each in measured]),
            (self.gathered.validation_scores, [each.validation_scores for each in measured]),
        ):
            if model not in sent[0]:
                continue
            counts = in_order([each[model] for each in sent], self._order)
            if counts.rows.any():
                # Counts that the server itself needs are traffic, and have a separate entry.
                if stored is not self.gathered.validation_scores or model != self._counted:
                    self._enter_measured(ledger_round, counts.scalars)
                stored[model] = counts
        if model in self.gathered.scores:
            # Imported only here: the import takes a fifth of a second.
            from raysim.statistics.clinical.clinical_figures import calibration_metrics

            clinical = self._section.clinical
            row.metrics[model] |= calibration_metrics(
                self.gathered.scores[model], 0 if clinical is None else clinical.bins
            )

    def _by_group(self, model: str, measured: Sequence[Measured]) -> dict[str, float]:
        """Record the metrics of groups of patients, if measured, and return the gaps between groups."""
        gaps: dict[str, float] = {}
        if self.gathered.grouping is None:
            return gaps
        levels = dict(self.gathered.grouping.levels)
        for attribute in measured[0].groups.get(model, {}):
            parts = [each.groups[model][attribute] for each in measured]
            merged_figures = subgroups.merged(parts, self._order, self._task)
            self.gathered.groups.setdefault(model, {})[attribute] = merged_figures
            gaps |= subgroups.gaps(attribute, levels[attribute], *merged_figures, self._task)
        return gaps

    def _within(self, model: str, figures: Floats, measured: Sequence[Measured], ledger_round: int) -> dict[str, float]:
        """Record the gaps between groups of patients within the same hospital, if measured, and return them as
        metrics.
        """
        parts = [each.gaps[model] for each in measured if model in each.gaps]
        found, arrangements = self.gathered, self.rearranging
        if not parts or found.grouping is None or arrangements is None:
            return {}
        sums = {name: merged_sums([part[name] for part in parts], self._order) for name, _ in found.grouping.levels}
        found.gaps = gaps(found.grouping, arrangements, sums, found.groups[model], figures, self._task)
        for attribute, each in sums.items():
            self._enter_measured(ledger_round, arrangements.numbers(attribute, each))
        return {
            f"{attribute}_within{end}": value
            for attribute, gap in self.gathered.gaps.items()
            for end, value in (("", gap.estimate), ("_low", gap.low), ("_high", gap.high), ("_p", gap.p))
        }
