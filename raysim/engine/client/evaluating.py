"""Evaluation of models at the hospitals of one process: model outputs, metrics and losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import TrainingDiverged
from raysim.core.streams import stream
from raysim.data.federation import PARTS, Federation
from raysim.engine.client.failure_context import check_rows, named
from raysim.engine.client.initial_model import Parameters, parameters
from raysim.engine.measuring.divisions import Groups
from raysim.engine.measuring.losses import weighted_losses
from raysim.engine.measuring.measurement import Measured
from raysim.engine.measuring.recalibrating import OwnShifts
from raysim.engine.measuring.scoring import PartRows, joined
from raysim.engine.measuring.served_model import ServedModel
from raysim.engine.measuring.untrained import Rows
from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.engine.messages.plan import RoundPlan, Work
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.noisy_answers import noisy_figures
from raysim.metrics.score_counts import score_counts
from raysim.metrics.segments import Segments
from raysim.strategies.base import MIXTURE, OWN, Floats, Ids, Mask
from raysim.training.base import Model

VALIDATION = "validation"
"""The name of the part of the rows on which decision thresholds are chosen."""


class Evaluating:
    """Evaluates models at the hospitals with ids ``served [h]``, which one process runs.

    ``federation(folder, pooled)`` and ``model(work)`` return cached federations and models.
    """

    def __init__(
        self,
        served: Ids,
        federation: Callable[[str, bool], Federation],
        model: Callable[[Work], Model],
        groups: Groups,
        contributions: Contributions,
    ) -> None:
        self.served, self._federation, self.model = served, federation, model
        self._groups, self._contributions = groups, contributions
        self._initials: dict[str, Floats] = {}
        self._part_rows = lru_cache(maxsize=4)(self._gathered)

    def measure(self, plan: RoundPlan, states: HospitalStates, result: Measured) -> None:
        """Evaluate models as the ``plan`` requests, and add the results to ``result``."""
        asked, folder, seed = plan.measured, plan.work.federation, plan.work.seed
        for name, rows_of in asked.losses_of.items():
            result.loss_sums[name] = self._loss_sums(plan, states, rows_of)
        for name, rows_of in asked.serve.items():
            federation, rows = self._federation(folder, False), self._part_rows(folder, asked.part)
            outputs = self._scores_of_all(plan, asked.part, rows_of, states)
            if asked.noise is not None:
                hospitals, among = self.served.tolist(), self._contributions
                sums = noisy_figures(federation, among, hospitals, asked.part, seed, asked.noise, outputs, rows)
                result.noisy_sums[name], result.figures[name] = sums, asked.noise.sums.figures(sums)
                result.untrained[name] = np.zeros(len(hospitals), dtype=np.bool_)
                if asked.predictions:  # only an auditor asks for them
                    result.predictions[name] = self._predictions(plan, rows_of, states, result.untrained[name])
                continue
            ranked, lost, held = outputs, self._untrained(plan, rows_of, states), None
            if asked.recalibrating is not None:
                held = self._held_back(plan, rows_of, states)
                # Untrained models are not recalibrated.
                result.own_shifts = OwnShifts.fitted(asked.recalibrating, *held.of(~lost), lost)
                outputs = result.own_shifts.applied(ranked, rows.offsets)
            model = ServedModel(name, self.served, rows, outputs, ranked, lost)
            model.enter(asked, seed, result)
            counted = asked.last and model.scores_rows and (asked.thresholds is not None or asked.counted == name)
            if counted and asked.part != VALIDATION:
                held = held or self._held_back(plan, rows_of, states)
                if result.own_shifts is not None:
                    held = held._replace(outputs=result.own_shifts.applied(held.outputs, held.offsets))
                result.validation_scores[name] = score_counts(*held.of(~lost))
            if asked.predictions:
                predictions = self._predictions(plan, rows_of, states, lost)
                if result.own_shifts is not None:
                    bounds = np.concatenate([[0], np.cumsum(federation.totals[self.served])])
                    predictions = result.own_shifts.applied(predictions, bounds)
                result.predictions[name] = predictions

    def _predictions(self, plan: RoundPlan, rows_of: Ids, states: HospitalStates, lost: Mask) -> NDArray[Any]:
        """Return the model outputs for all rows of this process's hospitals, concatenated by hospital. ``lost [h]``
        marks hospitals whose model is untrained; their outputs are NaN.
        """
        federation, model = self._federation(plan.work.federation, False), self.model(plan.work)
        return np.concatenate(
            [
                np.full_like(outputs, np.nan) if nobodys else outputs
                for hospital, nobodys in zip(self.served.tolist(), lost.tolist(), strict=True)
                for each in PARTS
                for outputs in [self._scores(plan, each, model, federation, hospital, rows_of[hospital], states)]
            ]
        )

    def _held_back(self, plan: RoundPlan, rows_of: Ids, states: HospitalStates) -> Rows:
        rows = self._part_rows(plan.work.federation, VALIDATION)
        return Rows(self._scores_of_all(plan, VALIDATION, rows_of, states), rows.y, rows.offsets)

    def _untrained(self, plan: RoundPlan, rows_of: Ids, states: HospitalStates) -> Mask:
        federation = self._federation(plan.work.federation, False)

        def initial() -> NDArray[Any]:
            return self._initial(plan.work).astype(plan.models.dtype)

        def has_rows(hospital: int, group: int) -> bool:
            return len(self._groups.rows(federation, plan.division, hospital, plan.measured.part, group)) > 0

        return untrained(plan, rows_of, self.served, states, initial, has_rows)

    def _initial(self, work: Work) -> Floats:
        key = repr((work.federation, work.model, work.precision, work.seed))
        if key not in self._initials:
            self._initials = {key: self.model(work).initial(stream(work.seed, "initial"))}
        return self._initials[key]

    def _scores_of_all(self, plan: RoundPlan, part: str, rows_of: Ids, states: HospitalStates) -> NDArray[Any]:
        """Return the model outputs for the rows of ``part``, concatenated over this process's hospitals."""
        together = self._scored_together(plan, part, rows_of, states)
        if together is not None:
            return together
        federation, model, scores = self._federation(plan.work.federation, False), self.model(plan.work), []
        for hospital in self.served.tolist():
            with named(federation, hospital, f"evaluating in round {plan.round}"):
                scores.append(self._scores(plan, part, model, federation, hospital, rows_of[hospital], states))
        return np.concatenate(scores)

    def _loss_sums(self, plan: RoundPlan, states: HospitalStates, rows_of: Ids) -> NDArray[np.float64]:
        """Return an array ``[h, 2]``: for each hospital, the sum of the losses of its rows, and its number of rows.
        Losses are weighted by class as in training.
        """
        work, part = plan.work, plan.measured.loss_part
        federation, model = self._federation(work.federation, False), self.model(work)
        sums = np.zeros((len(self.served), 2))
        outputs = self._scored_together(plan, part, rows_of, states)
        if outputs is not None:
            rows = self._part_rows(work.federation, part)
            segments = Segments(rows.offsets, np.diff(rows.offsets))
            sums[:, 0] = segments.sums(weighted_losses(model, work.class_weights, outputs, rows.y))
            sums[:, 1] = segments.lengths
            return sums
        for i, hospital in enumerate(self.served.tolist()):
            y = federation.y[federation.rows(hospital, part)]
            if len(y):
                with named(federation, hospital, f"measuring its losses in round {plan.round}"):
                    z = self._scores(plan, part, model, federation, hospital, rows_of[hospital], states)
                    losses = weighted_losses(model, work.class_weights, z, y)
                sums[i] = losses.sum(), len(y)
        return sums

    def _gathered(self, folder: str, part: str) -> PartRows:
        return PartRows.of(self._federation(folder, False), self.served.tolist(), part)

    def _scored_together(self, plan: RoundPlan, part: str, rows_of: Ids, states: HospitalStates) -> NDArray[Any] | None:
        """Return the outputs ``[n]`` of the server's models for the rows of ``part`` at this process's hospitals,
        computed together for speed. Return None if hospitals have to be evaluated one at a time.
        """
        logits = getattr(self.model(plan.work), "logits_of_many", None)
        if logits is None or plan.private is not None or rows_of.ndim != 1:
            return None
        served = rows_of[self.served]
        if len(served) == 0 or served.min() < 0:
            return None
        rows = self._part_rows(plan.work.federation, part)
        outputs: NDArray[Any] = joined(logits, plan.models, served, rows)
        if not np.isfinite(outputs).all():
            for hospital, start, end in zip(self.served.tolist(), rows.offsets, rows.offsets[1:], strict=False):
                _check_finite(plan, rows.federation, hospital, part, outputs[start:end])
        return outputs

    def _scores(
        self,
        plan: RoundPlan,
        part: str,
        model: Model,
        federation: Federation,
        hospital: int,
        served: Any,
        states: HospitalStates,
    ) -> NDArray[Any]:
        """Return the model outputs for a hospital's rows of ``part``. ``served`` is the index of the model that the
        hospital uses, or one index for each group of rows.
        """
        rows, each = federation.rows(hospital, part), np.atleast_1d(served)
        scores = model.logits(parameters(plan, int(each[0]), hospital, states), federation.X[rows])
        for group in range(1, len(each)):
            inside = self._groups.rows(federation, plan.division, hospital, part, group)
            if len(inside):
                theta = parameters(plan, int(each[group]), hospital, states)
                scores[inside - rows.start] = model.logits(theta, federation.X[inside])
        _check_finite(plan, federation, hospital, part, scores)
        return scores


def _check_finite(plan: RoundPlan, federation: Federation, hospital: int, part: str, outputs: NDArray[Any]) -> None:
    """Raise an error if ``outputs [n]`` of the model are not all finite. If metrics have privacy noise, no error is
    raised, because it would reveal something about the hospital's rows.
    """
    if plan.measured.noise is not None or np.isfinite(outputs).all():
        return
    check_rows(federation, hospital, part, f"evaluating in round {plan.round}")
    raise TrainingDiverged(
        f"training.learning_rate: the model's outputs for the {part} rows of hospital "
        f"'{federation.hospitals[hospital]}' are not finite in round {plan.round}; lower it or scale the features"
    )


def untrained(
    plan: RoundPlan,
    rows_of: Ids,
    hospitals: Ids,
    states: HospitalStates,
    initial: Callable[[], Parameters],
    has_rows: Callable[[int, int], bool],
) -> Mask:
    """Return a mask ``[h]`` of the ``hospitals [h]`` that use an untrained model.

    ``rows_of [N]`` has the model that each hospital uses: an index of the server's models, ``OWN`` for the model that
    the hospital stores, or ``MIXTURE`` for its mixture of the server's models. With shape ``[N, G]``, it has one model
    for each of ``G`` groups of rows. A hospital then counts as untrained if the model of any group with rows is
    untrained. ``initial()`` returns the initial parameters ``[P]`` of all models.
    """
    served = rows_of[hospitals]
    fresh = np.zeros(len(plan.models), dtype=np.bool_)
    fresh[list(plan.measured.untrained)] = True
    if plan.private is None and served.ndim == 1 and (served >= 0).all():
        return np.asarray(fresh[served], dtype=np.bool_)

    def is_fresh(hospital: int, row: int) -> bool:
        own = states.get(hospital, {}).get(MODEL)
        if plan.private is not None and row >= 0:
            # Until a hospital has stored its private part, that part comes from the served model.
            part = (plan.models[row] if own is None else own)[plan.private]
            return np.array_equal(part, initial()[plan.private].astype(part.dtype))
        if row == OWN and own is not None:
            return np.array_equal(own, initial())
        if row in (OWN, MIXTURE) and plan.mixture is not None:
            return bool(fresh[plan.mixture[hospital] > 0].all())
        return bool(fresh[0 if row == OWN else row])

    found = np.zeros(len(hospitals), dtype=np.bool_)
    for i, hospital in enumerate(hospitals.tolist()):
        each = np.atleast_1d(served[i]).tolist()
        found[i] = any(
            is_fresh(hospital, row) and (len(each) == 1 or has_rows(hospital, group)) for group, row in enumerate(each)
        )
    return found
