"""The hospitals that one process serves: they train, evaluate and answer questions on their own rows.

A :class:`HospitalGroup` is pure: it holds nothing but mapped data and compiled models, which can be loaded again. A
call that is repeated after a crash gives the same result, and several runs can share the group. What hospitals remember
between rounds comes with each call and is returned with its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ResourceError
from raysim.core.streams import stream
from raysim.data.federation import PARTS, Federation
from raysim.engine.client import programs
from raysim.engine.client.answer_cache import AnswerCache
from raysim.engine.client.failure_context import named, of_full_memory
from raysim.engine.client.initial_model import parameters, with_private
from raysim.engine.client.local_training import CohortTraining
from raysim.engine.measuring.divisions import Groups
from raysim.engine.measuring.losses import weighted_losses
from raysim.engine.measuring.recalibrating import OwnShifts
from raysim.engine.measuring.scoring import PartRows, joined
from raysim.engine.measuring.served_model import ServedModel
from raysim.engine.measuring.untrained import Rows, untrained
from raysim.engine.messages.memory import MODEL, HospitalStates
from raysim.engine.messages.plan import Inquiry, PartialResult, RoundPlan, Work
from raysim.engine.privacy.contributions import Contributions
from raysim.engine.privacy.noisy_answers import noisy_answer, noisy_figures
from raysim.metrics.score_counts import score_counts
from raysim.metrics.segments import Segments
from raysim.strategies.base import POOLED, Floats, HospitalRows, Ids, Mask
from raysim.training.base import Model

VALIDATION = "validation"
"""The part of the rows on which thresholds are chosen."""

CHUNK_BYTES = 30 * 2**20
"""Bytes of the parameters that one call of a kernel trains on a CPU."""


Open = Callable[[str, bool], Federation]


def mapped(folder: str, pooled: bool) -> Federation:
    """The federation of a folder that this process can read. It is mapped: rows that are not touched use no memory."""
    return Federation.open(folder)


class HospitalGroup:
    """``served [h]``: ids of the hospitals of this process. The group with ``pools`` also trains on pooled rows.

    ``open(folder, pooled)`` gives a federation that has at least the rows of ``served``, or all that is trained on.
    """

    def __init__(self, served: Ids, *, pools: bool, device: str, open: Open = mapped) -> None:
        self.served = served
        self._pools = pools
        self._device = device
        # By id: a set of a million ids is slow to look into.
        self._serves = np.zeros(int(served.max(initial=-1)) + 1, np.bool_)
        self._serves[served] = True
        self._models: dict[str, Model] = {}
        self._initials: dict[str, Floats] = {}
        self._made = programs.MadeOfRows()
        self._groups, self._contributions, self._answers = Groups(), Contributions(), AnswerCache()
        self._federation = lru_cache(maxsize=16)(open)
        self._part_rows = lru_cache(maxsize=4)(self._gathered)

    def round(self, plan: RoundPlan, kept: HospitalStates | None) -> tuple[PartialResult, HospitalStates]:
        """Evaluate the server's models, then train the cohort's hospitals from them.

        Returns the partial result and what these hospitals remember.

        Raises :class:`TrainingDiverged` or :class:`HospitalFailed` naming the hospital and the round.
        """
        began = time.perf_counter()
        kept = kept or {}
        result = PartialResult()
        if plan.serve:
            self._evaluate(plan, kept, result)
        for name, rows_of in plan.losses_of.items():
            result.loss_sums[name] = self._loss_sums(plan, kept, rows_of)
        if plan.problem is not None:
            kept = self._train(plan, kept, result)
        elif plan.call is not None and (mine := np.flatnonzero(self._are_mine(plan.ids)).tolist()):
            opened, model = partial(self._federation, plan.work.federation), partial(self.model, plan.work)
            kept = programs.run(plan, plan.call, mine, opened, model, kept, result, self._made)
        result.seconds = time.perf_counter() - began
        return result, kept

    def ask(self, inquiry: Inquiry, kept: HospitalStates | None = None) -> list[Floats]:
        """The answers of this process's hospitals that are asked, in the order of ``served``.

        In the models of the inquiry, a hospital's private parameters are those that it has ``kept``, if any.
        """
        return self._answers.to(inquiry, partial(self._answer, inquiry, kept))

    def _answer(self, inquiry: Inquiry, kept: HospitalStates | None) -> list[Floats]:
        work, question, ids = inquiry.work, inquiry.question, inquiry.ids
        federation = self._federation(work.federation, False)
        answers = []
        for hospital in (self.served if ids is None else self.served[np.isin(self.served, ids)]).tolist():
            rows = federation.rows(hospital, "train")
            X, y, observed = federation.X[rows], federation.y[rows], federation.observed[rows]
            noise, contribution = inquiry.noise, None
            if noise is not None:
                contribution = self._contributions.of(federation, hospital, noise.unit, noise.rows, work.seed)
                X, y, observed = X[contribution.rows], y[contribution.rows], observed[contribution.rows]
            with named(federation, hospital, f"answering '{question.kind}'"):
                losses, outputs = np.empty((0, len(y))), []
                if inquiry.models is not None:
                    model, previous = self.model(work), (kept or {}).get(hospital, {}).get(MODEL)
                    models = [with_private(theta, inquiry.private, previous) for theta in inquiry.models]
                    outputs = [model.logits(theta, X) for theta in models]
                    losses = np.stack([weighted_losses(model, work, output, y) for output in outputs])
                seen = HospitalRows(
                    X=X,
                    y=y,
                    observed=observed,
                    classes=len(federation.classes),
                    losses=losses,
                    rng=stream(work.seed, question.kind, inquiry.round, hospital),
                    outputs=outputs,
                    patients=partial(_patients, federation, rows, None if contribution is None else contribution.rows),
                    hospital=hospital,
                )
                if noise is None or contribution is None:
                    answers.append(question.answer(seen))
                else:
                    key = (inquiry.round, hospital, *([noise.turn] if noise.turn else []))
                    answers.append(noisy_answer(question, seen, contribution, noise, work.seed, *key))
        return answers

    def model(self, work: Work) -> Model:
        """The model of a run, built once."""
        key = repr((work.federation, work.model, work.precision))
        if key not in self._models:
            federation = self._federation(work.federation, False)
            try:
                self._models[key] = work.model.bind(federation, self._device, work.precision)
            except RuntimeError as error:
                if not of_full_memory(error):
                    raise
                raise ResourceError(
                    f"resources.gpus_per_actor: the GPU's share has too little memory for the model "
                    f"({str(error).splitlines()[0]}); raise it, take a smaller model or set resources.device: cpu"
                ) from error
        return self._models[key]

    def _train(self, plan: RoundPlan, kept: HospitalStates, result: PartialResult) -> HospitalStates:
        mine = np.flatnonzero(self._are_mine(plan.ids)).tolist()
        if not mine:
            return kept
        chunk = len(mine)
        if self._device == "cpu":
            chunk = max(1, CHUNK_BYTES // (plan.models.shape[1] * plan.models.itemsize))
            if plan.problem is not None and plan.problem.groups is not None:
                # The rows of a group are copied while they are trained on.
                federation = self._federation(plan.work.federation, False)
                rows = int(federation.sizes("train")[plan.ids[mine]].max())
                chunk = min(chunk, max(1, CHUNK_BYTES // max(1, rows * federation.X.shape[1] * 4)))
        folder = plan.work.federation
        visits = CohortTraining(
            plan,
            mine,
            self.model(plan.work),
            lambda pooled: self._federation(folder, pooled),
            kept,
            self._groups,
            self._contributions,
            self._made,
        )
        sent, remembered = visits.train(chunk)
        result.ids, result.units, result.deltas, result.losses = sent.ids, sent.units, sent.deltas, sent.losses
        result.bits = sent.bits
        return remembered

    def _are_mine(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of the entries ``ids [H]`` of a cohort are trained here, ``[H]``."""
        mine: NDArray[np.bool_] = (ids >= 0) & (ids < len(self._serves))
        mine[mine] = self._serves[ids[mine]]
        if self._pools:
            mine |= ids == POOLED
        return mine

    def _evaluate(self, plan: RoundPlan, kept: HospitalStates, result: PartialResult) -> None:
        folder = plan.work.federation
        federation, rows = self._federation(folder, False), self._part_rows(folder, plan.part)
        for name, rows_of in plan.serve.items():
            outputs = self._scores_of_all(plan, plan.part, rows_of, kept)
            if plan.noise is not None:
                hospitals = self.served.tolist()
                sums = noisy_figures(federation, self._contributions, hospitals, plan, plan.noise, outputs, rows)
                result.noisy_sums[name], result.figures[name] = sums, plan.noise.sums.figures(sums)
                result.untrained[name] = np.zeros(len(hospitals), dtype=np.bool_)
                continue
            ranked, lost, held = outputs, self._untrained(plan, rows_of, kept), None
            if plan.recalibrating is not None:
                held = self._held_back(plan, rows_of, kept)
                # Where nobody trained the model there is nothing to recalibrate.
                result.own_shifts = OwnShifts.fitted(plan.recalibrating, *held.of(~lost), lost)
                outputs = result.own_shifts.applied(ranked, rows.offsets)
            model = ServedModel(name, self.served, rows, outputs, ranked, lost)
            model.enter(plan, result)
            counted = plan.histograms and model.scores_rows and (plan.thresholds is not None or plan.counted == name)
            if counted and plan.part != VALIDATION:
                held = held or self._held_back(plan, rows_of, kept)
                if result.own_shifts is not None:
                    held = held._replace(outputs=result.own_shifts.applied(held.outputs, held.offsets))
                result.validation_scores[name] = score_counts(*held.of(~lost))
            if plan.predictions:
                predictions = self._predictions(plan, rows_of, kept, lost)
                if result.own_shifts is not None:
                    bounds = np.concatenate([[0], np.cumsum(federation.totals[self.served])])
                    predictions = result.own_shifts.applied(predictions, bounds)
                result.predictions[name] = predictions

    def _predictions(self, plan: RoundPlan, rows_of: Ids, kept: HospitalStates, lost: Mask) -> NDArray[Any]:
        """The outputs of the models that serve for all rows of all hospitals here, one hospital after the other; NaN
        where they are ``lost [h]``, untrained.
        """
        federation, model = self._federation(plan.work.federation, False), self.model(plan.work)
        return np.concatenate(
            [
                np.full_like(outputs, np.nan) if nobodys else outputs
                for hospital, nobodys in zip(self.served.tolist(), lost.tolist(), strict=True)
                for each in PARTS
                for outputs in [self._scores(plan, each, model, federation, hospital, rows_of[hospital], kept)]
            ]
        )

    def _held_back(self, plan: RoundPlan, rows_of: Ids, kept: HospitalStates) -> Rows:
        """The outputs of the models that serve, and the labels, of the validation rows of all hospitals here."""
        rows = self._part_rows(plan.work.federation, VALIDATION)
        return Rows(self._scores_of_all(plan, VALIDATION, rows_of, kept), rows.y, rows.offsets)

    def _untrained(self, plan: RoundPlan, rows_of: Ids, kept: HospitalStates) -> Mask:
        """At which of this process's hospitals the model that serves was trained by nobody, ``[h]``."""
        federation = self._federation(plan.work.federation, False)

        def initial() -> NDArray[Any]:
            return self._initial(plan.work).astype(plan.models.dtype)

        def has_rows(hospital: int, group: int) -> bool:
            return len(self._groups.rows(federation, plan.division, hospital, plan.part, group)) > 0

        return untrained(plan, rows_of, self.served, kept, initial, has_rows)

    def _initial(self, work: Work) -> Floats:
        """The parameters ``[P]`` that every model of a run begins with; made once."""
        key = repr((work.federation, work.model, work.precision, work.seed))
        if key not in self._initials:
            self._initials = {key: self.model(work).initial(stream(work.seed, "initial"))}
        return self._initials[key]

    def _scores_of_all(self, plan: RoundPlan, part: str, rows_of: Ids, kept: HospitalStates) -> NDArray[Any]:
        """The outputs of the models that serve for a part's rows of all hospitals here, one hospital after the
        other.
        """
        together = self._scored_together(plan, part, rows_of, kept)
        if together is not None:
            return together
        federation, model, scores = self._federation(plan.work.federation, False), self.model(plan.work), []
        for hospital in self.served.tolist():
            with named(federation, hospital, f"evaluating in round {plan.round}"):
                scores.append(self._scores(plan, part, model, federation, hospital, rows_of[hospital], kept))
        return np.concatenate(scores)

    def _loss_sums(self, plan: RoundPlan, kept: HospitalStates, rows_of: Ids) -> NDArray[np.float64]:
        """The sum of the losses that training minimises, and the number of rows, by hospital."""
        work = plan.work
        federation, model = self._federation(work.federation, False), self.model(work)
        sums = np.zeros((len(self.served), 2))
        outputs = self._scored_together(plan, plan.loss_part, rows_of, kept)
        if outputs is not None:
            rows = self._part_rows(work.federation, plan.loss_part)
            segments = Segments(rows.offsets, np.diff(rows.offsets))
            sums[:, 0], sums[:, 1] = segments.sums(weighted_losses(model, work, outputs, rows.y)), segments.lengths
            return sums
        for i, hospital in enumerate(self.served.tolist()):
            y = federation.y[federation.rows(hospital, plan.loss_part)]
            if len(y):
                with named(federation, hospital, f"measuring its losses in round {plan.round}"):
                    z = self._scores(plan, plan.loss_part, model, federation, hospital, rows_of[hospital], kept)
                    losses = weighted_losses(model, work, z, y)
                sums[i] = losses.sum(), len(y)
        return sums

    def _gathered(self, folder: str, part: str) -> PartRows:
        return PartRows.of(self._federation(folder, False), self.served.tolist(), part)

    def _scored_together(self, plan: RoundPlan, part: str, rows_of: Ids, kept: HospitalStates) -> NDArray[Any] | None:
        """The outputs ``[n]`` of the server's models for a part's rows of all hospitals here, many in a call.

        None where hospitals have to be scored one at a time: models that a hospital keeps itself, models that serve
        groups of rows, and models without ``logits_of_many``.
        """
        logits = getattr(self.model(plan.work), "logits_of_many", None)
        if logits is None or plan.private is not None or rows_of.ndim != 1:
            return None
        served = rows_of[self.served]
        if len(served) == 0 or served.min() < 0:
            return None
        return joined(logits, plan.models, served, self._part_rows(plan.work.federation, part))

    def _scores(
        self,
        plan: RoundPlan,
        part: str,
        model: Model,
        federation: Federation,
        hospital: int,
        served: Any,
        kept: HospitalStates,
    ) -> NDArray[Any]:
        """The outputs for a hospital's rows of a part ``[n]``, of the model that serves it, or of one per group
        ``[G]``.
        """
        rows = federation.rows(hospital, part)
        if np.ndim(served) == 0:
            return model.logits(parameters(plan, int(served), hospital, kept), federation.X[rows])
        scores = model.logits(parameters(plan, int(served[0]), hospital, kept), federation.X[rows])
        for group in range(1, len(served)):
            inside = self._groups.rows(federation, plan.division, hospital, part, group)
            if len(inside):
                theta = parameters(plan, int(served[group]), hospital, kept)
                scores[inside - rows.start] = model.logits(theta, federation.X[inside])
        return scores


def _patients(federation: Federation, rows: slice, contributed: NDArray[np.int64] | None) -> dict[str, NDArray[Any]]:
    """The patients' attributes of a hospital's ``rows``, or of those among them that are ``contributed``."""
    theirs = {name: values[rows] for name, values in federation.patients.items()}
    return theirs if contributed is None else {name: values[contributed] for name, values in theirs.items()}
