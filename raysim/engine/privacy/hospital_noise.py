"""A guarantee for hospitals: updates are clipped and have fixed weights, and noise is added to their sums.

Either the server or the hospitals add the noise.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import PrivacySection
from raysim.core.errors import ConfigError
from raysim.core.exact import FRACTION_BITS
from raysim.engine.guarantee import PrivacyParameters
from raysim.engine.job import Job
from raysim.engine.messages.update_sums import number_rows, sum_count, weighed
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.privacy.calibration import bit_noise, largest_clip
from raysim.engine.privacy.guard import Guard
from raysim.engine.privacy.release import FixedWeights, Release, check_sent, fixed_weights
from raysim.privacy.clip import next_clip, update_multiplier
from raysim.privacy.noise import grid_units, normals, with_rounding
from raysim.strategies.base import FederationView, Floats, LocalProblem, Mask, State, Strategy
from raysim.virtual_time.scheduling import ScheduledCohort

if TYPE_CHECKING:
    from raysim.engine.pipeline.secure_sums import SecureSums


class HospitalNoise(Guard):
    """Noise that hides each hospital's contribution to the sums of clipped updates with fixed weights."""

    def __init__(
        self,
        section: PrivacySection,
        parameters: PrivacyParameters,
        job: Job,
        strategy: Strategy,
        size: int,
        private: Mask | None,
        secure: SecureSums | None = None,
    ) -> None:
        super().__init__(section, job.work.seed, secure)
        self._parameters, self._rate, self._job, self._strategy = parameters, parameters.rate, job, strategy
        self._size, self._clip, self._hospitals = size, section.clip, parameters.rate * parameters.hospitals
        self._largest = largest_clip(parameters, section.noise_multiplier or 0.0)
        self._travels = np.ones(size, dtype=np.bool_) if private is None else ~private
        self._weights: FixedWeights | None = None
        self._problem: LocalProblem | None = None

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        """Return the cohort with weights that do not depend on which hospitals take part. A cohort without hospitals
        also gets a local problem, because the server may add noise even then.
        """
        problem = cohort.problem
        if problem is None:
            problem = self._strategy.problem(view, cohort.state, cohort.ids)
        if problem.sent is None:
            return cohort
        check_sent(problem, self._job.name)
        if problem.spread and self._section.adaptive is not None:
            raise ConfigError(
                "privacy.adaptive: changes the clip, but the weights of hospitals under strategy "
                f"'{self._job.name}' depend on the clip; remove privacy.adaptive"
            )
        self._weights, self._problem = self._fixed(view, cohort.state), problem
        return replace(cohort, problem=weighed(problem, self._weights.weight[cohort.ids]))

    def release(self) -> Release:
        """Return the clipping and noise that hospitals apply to their updates before sending them."""
        section, own_noise, bit, among = self._section, 0.0, 0.0, None
        if section.effective_mode in ("local", "distributed"):
            shares = self._shares
            vectors = self._size * max(2, 0 if self._problem is None else sum_count(self._problem, self._size))
            own_noise = self._multiplier * with_rounding(
                self._clip, vectors, float(shares[shares > 0].min(initial=1.0))
            )
            if section.effective_mode == "distributed":
                everybody = math.sqrt(max(self._parameters.left, 1))
                bit, among = self._bit_noise / everybody, self._among
        return Release(self._clip, own_noise, among, section.noise, section.sends_bits, bit)

    @property
    def _among(self) -> Floats:
        """Return the ratio of the noise that a whole sum needs to the share that each hospital adds, ``[N]``. With
        these shares, every sum that the server learns has enough noise.
        """
        secure, weights = self._job.secure, self._weights
        if secure is None or weights is None:
            raise RuntimeError("the weights of the round have not been set, or sums are not secure")
        left = {m: float(sure_to_be_left(secure, m)) if m else 1.0 for m in np.unique(weights.members).tolist()}
        return np.sqrt([left[m] for m in weights.members.tolist()])

    @property
    def _bit_noise(self) -> float:
        """Return the standard deviation of the noise on the number of updates within the clipping bound; 0 if hospitals
        send no bits.
        """
        adaptive = self._section.adaptive
        if adaptive is None or not self._section.sends_bits or not self._section.noise_multiplier:
            return 0.0
        return bit_noise(adaptive, self._hospitals)

    @property
    def _multiplier(self) -> float:
        """Return the noise multiplier of updates. It is larger than the configured one if noisy bits adapt the clipping
        bound.
        """
        multiplier, bits = self._section.noise_multiplier or 0.0, self._bit_noise
        return update_multiplier(multiplier, bits) if bits else multiplier

    @property
    def memory(self) -> Any:
        """Return the clipping bound of the next round if it is adaptive; else None."""
        return None if self._section.adaptive is None else {"clip": self._clip}

    def resume(self, memory: Any) -> None:
        """Continue with the clipping bound in ``memory``. Raises ``ValueError`` for a bound that no run can reach."""
        if self._section.adaptive is None:
            return
        clip = float(memory["clip"])
        if not 0 < clip <= self._largest:
            raise ValueError(f"its clip is {clip:g}; it must be above 0 and at most {self._largest:g}")
        self._clip = clip

    def noised(self, round: int, problem: LocalProblem, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of a ``round`` for the strategy, with noise if the server adds it. Also update the clipping
        bound for the next round if it is adaptive.
        """
        adaptive, central, bit_sum = self._section.adaptive, self._section.effective_mode == "central", 0.0
        if self._section.sends_bits:
            bit_sum = float(units[-1, 0]) * 2.0**-FRACTION_BITS
            units = units[:-1]
        if central:
            units = units + self._units(round, problem, self._multiplier)
        if adaptive is not None and self._section.sends_bits:
            if central and (bits := self._bit_noise):
                bit_sum += bits * float(normals(self._section.noise, (1,), self._job.work.seed, "dp_bits", round)[0])
            share = min(max(0.5 + bit_sum / self._hospitals, 0.0), 1.0)
            self._clip = min(next_clip(self._clip, share, adaptive.quantile, adaptive.rate), self._largest)
        return units

    @property
    def _shares(self) -> Floats:
        if self._weights is None:
            raise RuntimeError("the weights of the round have not been set")
        return self._weights.shares

    def _units(self, round: int, problem: LocalProblem, multiplier: float) -> NDArray[np.int64]:
        """Return the server's noise on the sums of a ``round``, as integers in fixed point. The first rows are for sums
        of updates; later rows are for further numbers that hospitals send.
        """
        weights = self._weights
        if weights is None:
            raise RuntimeError("the weights of the round have not been set")
        sums, rows = len(weights.shares), number_rows(problem, self._size)
        shares = np.append(weights.shares, np.full(rows, weights.extra))
        if not multiplier:
            return np.zeros((len(shares), self._size), dtype=np.int64)
        least, scalars = float(shares[shares > 0].min(initial=1.0)), self._size * len(shares)
        deviation = multiplier * with_rounding(self._clip, scalars, least)
        travels = np.tile(self._travels, (len(shares), 1))
        travels[sums : sums + rows] = True
        normal = normals(self._section.noise, (len(shares), self._size), self._job.work.seed, "dp", round)
        return grid_units(normal * (deviation * shares)[:, None] * travels)

    def _fixed(self, view: FederationView, state: State) -> FixedWeights:
        everyone = view.trainable
        whole = self._strategy.problem(view, state, everyone)
        return fixed_weights(whole, everyone, view.sizes, self._rate, self._section)
