"""Guarantees for patients: what hospitals do in a round to hide patients, and how the server processes the sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import PrivacySection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.guarantee import PrivacyParameters
from raysim.engine.job import Job
from raysim.engine.messages.update_sums import of_entry, weighed
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.privacy.calibration import multipliers
from raysim.engine.privacy.guard import Guard
from raysim.engine.privacy.patient_release import PatientRelease
from raysim.engine.privacy.release import Release, check_patient_problem
from raysim.privacy.noise import grid_units, with_rounding
from raysim.strategies.base import FederationView, Floats, Ids, LocalProblem, Mask, State
from raysim.virtual_time.scheduling import ScheduledCohort

if TYPE_CHECKING:
    from raysim.engine.pipeline.secure_sums import SecureSums


class PatientNoise(Guard):
    """Noise that hospitals add to hide their patients, either in each training step or as shares of the noise on sums
    of gradients.

    A patient is at one hospital, and a hospital contributes to one sum. All sums of a round together therefore cost as
    much privacy as one sum.
    """

    def __init__(
        self,
        section: PrivacySection,
        parameters: PrivacyParameters,
        job: Job,
        federation: Federation,
        size: int,
        private: Mask | None,
        secure: SecureSums | None = None,
    ) -> None:
        super().__init__(section, job.work.seed, secure)
        self._parameters, self._job, self._size = parameters, job, size
        model = job.work.model.bind(federation, "cpu", job.work.precision)
        self._contrasts = bool(getattr(model, "clips_contrast", False))
        self._share = np.zeros(len(parameters.patients))
        self._proximal_steps: Floats | None = None
        if section.effective_mode == "pooled" and private is not None and private.any():
            raise ConfigError(
                f"privacy.mode: pooled takes no steps at hospitals, but strategy '{job.name}' trains a part of each "
                "model there; set privacy.mode to local, or choose another strategy"
            )

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort. In mode ``pooled``, hospitals send gradients. The weight of each gradient is minus the
        step size of its sum (:meth:`_steps`).
        """
        problem, pooled = cohort.problem, self._section.effective_mode == "pooled"
        if problem is None:
            return cohort
        check_patient_problem(
            problem,
            self._job.name,
            self._section.unit,
            pooled=pooled,
            contrasts=self._contrasts,
            epochs=self._job.work.epochs,
        )
        sent = problem.sent
        if not pooled or sent is None:
            return cohort
        into = np.zeros(len(cohort.ids), dtype=np.int64) if sent.sum_index is None else sent.sum_index
        patients = np.array(self._parameters.patients, dtype=np.float64)[cohort.ids]
        step = self._steps(problem, np.bincount(into, weights=patients, minlength=sent.sums).astype(np.float64))
        self._share = self._shares(cohort.ids, into, step, sent.sums)
        self._proximal_steps = self._steps_of_proximal_terms(problem, cohort.state, into, patients, sent.sums)
        return replace(cohort, problem=weighed(problem, -step[into]))

    def release(self) -> Release:
        """Return the clipping and noise that hospitals apply before sending their updates."""
        section, parameters = self._section, self._parameters
        pooled, count = section.effective_mode == "pooled", len(parameters.patients)
        patients = PatientRelease(
            pooled=pooled,
            unit="example" if section.unit == "example" else "patient",
            clip=section.clip,
            rows=section.rows_per_patient,
            rate=np.full(count, section.sampling) if pooled else np.array(parameters.rates),
            multiplier=self._share if pooled else multipliers(section, parameters),
            expected=np.array(parameters.rates) * np.array(parameters.patients),
            steps=(1,) * count if pooled else replace(parameters, epochs=1).steps,
            noise=section.noise,
        )
        return Release(patients=patients)

    def noised(self, round: int, problem: LocalProblem, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of a round after adding the steps that proximal terms cause. Hospitals have already added the
        privacy noise.
        """
        return units if self._proximal_steps is None else units + grid_units(self._proximal_steps)

    def _shares(self, ids: Ids, into: Ids, step: Floats, sums: int) -> Floats:
        """Return, for each hospital, the standard deviation of its share of the noise, divided by the clipping
        bound.
        """
        share, multiplier = np.zeros(len(self._parameters.patients)), self._section.noise_multiplier or 0.0
        if not multiplier:
            return share
        for g in range(sums):
            members, secure = ids[into == g], self._job.secure
            left = len(members) if secure is None else sure_to_be_left(secure, len(members))
            if len(members) and step[g]:
                rounded = with_rounding(self._section.clip, self._size, float(step[g])) / self._section.clip
                share[members] = multiplier * rounded / math.sqrt(left)
        return share

    def _steps(self, problem: LocalProblem, patients: Floats) -> Floats:
        """Return the step size of each sum: the learning rate over the expected number of sampled patients."""
        expected = self._section.sampling * np.maximum(patients, 1.0)
        return np.asarray(self._rate(problem) / expected)

    def _rate(self, problem: LocalProblem) -> float:
        rate = problem.training.learning_rate
        return self._job.work.optimizer.learning_rate if rate is None else rate

    def _steps_of_proximal_terms(
        self, problem: LocalProblem, state: State, into: Ids, patients: Floats, sums: int
    ) -> Floats | None:
        """Return the steps ``[G, P]`` that proximal terms cause in the models.

        None if all proximal terms pull towards the model from which training starts.
        """
        moved = np.zeros((sums, self._size))
        total = np.maximum(np.bincount(into, weights=patients, minlength=sums), 1.0)
        for term in problem.objective.proximal:
            for j, g in enumerate(into.tolist()):
                weight = float(of_entry(term.weight, j)) * patients[j] / total[g]
                if weight and term.towards[j] != problem.start[j]:
                    moved[g] -= weight * (state.models[problem.start[j]] - state.models[term.towards[j]])
        return self._rate(problem) * moved if moved.any() else None
