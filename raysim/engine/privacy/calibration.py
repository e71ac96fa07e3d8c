"""Calibration of privacy guarantees: the noise that a guarantee needs, and the epsilon of noisy rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.config.sections.privacy import AdaptiveClip, PrivacySection, plain
from raysim.core.errors import ConfigError
from raysim.core.exact import largest_entry
from raysim.data.federation import Federation
from raysim.engine.guarantee import Guarantee, PrivacyParameters
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.privacy.contributions import patient_counts
from raysim.privacy import accountant, quick
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.strategies.base import Ids
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.ledger import MEASURED

if TYPE_CHECKING:
    from raysim.engine.job import Job

AGREE = 1e-3
"""The largest allowed relative difference between a configured epsilon and the epsilon that results from a configured
noise multiplier.
"""


_RESOLVED: dict[tuple[str, PrivacyParameters], PrivacySection] = {}
"""A cache of the privacy sections for which this process has computed the noise, by section and parameters."""


def parameters_of(job: Job, federation: Federation, sizes: Ids | None = None) -> PrivacyParameters:
    """Return the parameters of ``job`` that determine the privacy of its releases on a federation. Raises
    ``ConfigError`` if the guarantee protects patients, but the data do not say which rows belong to which patient.

    ``sizes [N]`` are the hospitals' noisy numbers of patients or rows, if known.
    """
    rate = job.selection.rate() if job.strategy.uses_selection() else 1.0
    unit = None if job.privacy is None else job.privacy.unit
    noisy = job.privacy is not None and job.privacy.sizes == "noisy"
    hospitals = len(federation.hospitals) if noisy else int(np.count_nonzero(federation.sizes("train")))
    left = hospitals if job.secure is None else sure_to_be_left(job.secure, hospitals)
    least = 2 if job.secure is None else job.secure.minimum
    patients: tuple[int, ...] = ()
    if unit is not None and unit != "hospital":
        patients = patient_counts(federation, unit) if sizes is None else tuple(sizes.tolist())
    return PrivacyParameters(
        rounds=job.rounds,
        rate=1.0 if rate is None else rate,
        hospitals=hospitals,
        patients=patients,
        batch=job.work.optimizer.batch_size,
        epochs=job.work.epochs,
        secure=job.secure is not None,
        left=left,
        fewest=min(least, left) if job.strategy.needs.kind == "clusters" else left,
        sampled=not job.strategy.uses_programs(),
        asked=tuple(_asked(job).items()),
    )


def guarantee_of(job: Job, federation: Federation, sizes: Ids | None = None) -> Guarantee | None:
    """Return the privacy guarantee of ``job`` on a federation; None if the job has no section ``privacy``.

    ``sizes [N]`` are the hospitals' noisy numbers of patients or rows, if known.
    """
    known = job.guarantee
    if known is not None and sizes is None and all(map(_same, known.parts, _parts(job))):
        return known
    return None if job.privacy is None else calibrated(job, job.privacy, parameters_of(job, federation, sizes))


def calibrated(job: Job, section: PrivacySection, parameters: PrivacyParameters) -> Guarantee:
    """Return the guarantee that ``section`` describes, with its epsilon and noise computed. Raises the errors of
    :func:`resolved`.
    """
    asked = section.model_dump_json(), parameters
    if asked not in _RESOLVED:
        _RESOLVED[asked] = resolved(section, parameters)
    return Guarantee(_RESOLVED[asked], parameters, _parts(replace(job, privacy=_RESOLVED[asked])))


def _parts(job: Job) -> tuple[Any, ...]:
    """Return all parts of a job on which the noise of its guarantee depends."""
    work = job.work
    numbers = (work.federation, work.optimizer.batch_size, work.epochs, job.rounds, job.evaluation.every)
    return (*numbers, job.strategy, job.selection, job.privacy, job.secure, job.stop)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, (int, str)) and bool(one == other))


def releases_of_updates(
    section: PrivacySection, parameters: PrivacyParameters, adversary: str, multiplier: float, rounds: int
) -> list[Gaussian] | None:
    """Return the noisy releases of updates as an ``adversary`` observes them; None if the adversary observes exact
    sums.

    ``rounds`` is the number of rounds with updates; in mode ``local``, the largest number of rounds in which one
    hospital took part. The function does not apply to mode ``local`` if patients or rows are protected.
    """
    if section.unit == "hospital" and section.effective_mode == "local":
        # A hospital's message may change to any other clipped message: the sensitivity is twice the clip.
        return _events(multiplier / 2.0, 1.0, rounds)
    if section.effective_mode == "central":
        return None if adversary == "server" else _events(multiplier, parameters.rate, rounds)
    # Each hospital adds a share of the noise, and a sum has at least ``fewest`` shares. Without secure aggregation the
    # server sees single messages, each with one share. A peer knows its own share.
    sharing = max(parameters.fewest, 1)
    of_server = 1.0 if parameters.secure else 1 / max(parameters.left, 1)
    left = {"outsider": 1.0, "peer": (sharing - 1) / sharing, "server": of_server}[adversary]
    rate = parameters.rate if section.unit == "hospital" else section.sampling if parameters.sampled else 1.0
    return _events(multiplier * math.sqrt(left), rate, rounds)


def _events(multiplier: float, rate: float, rounds: int) -> list[Gaussian]:
    return [Gaussian(multiplier, rate, rounds)] if rounds else []


@dataclass(frozen=True)
class OtherReleases:
    """The privacy cost of noisy releases other than updates, split into Laplace and normal noise."""

    laplace: float = 0.0
    """The sum of the epsilons of all Laplace noise."""
    gaussians: tuple[Gaussian, ...] = ()

    @staticmethod
    def of(events: Sequence[Event]) -> OtherReleases:
        """Return ``events``, split by the kind of noise."""
        laplace = sum(event.count / event.multiplier for event in events if isinstance(event, Laplace))
        return OtherReleases(laplace, tuple(event for event in events if isinstance(event, Gaussian)))

    @property
    def normal(self) -> float:
        """Return the privacy cost of all normal noise: the sum of ``1 / multiplier^2``."""
        return sum(event.count / event.multiplier**2 for event in self.gaussians)

    def left(self, epsilon: float) -> float:
        """Return the part of ``epsilon`` that remains after the releases with Laplace noise."""
        return epsilon - self.laplace


def planned(section: PrivacySection, parameters: PrivacyParameters) -> list[Event]:
    """Return the planned noisy releases other than updates."""
    return [
        replace(statistic.mechanism(section.noise).event, count=times(kind, parameters))
        for kind, statistic in section.noisy.items()
    ]


def times(kind: str, parameters: PrivacyParameters) -> int:
    """Return the planned number of times that a hospital sends noisy statistics of this ``kind``."""
    return {plain(each): count for each, count in parameters.asked}.get(plain(kind), 1)


def _asked(job: Job) -> Counter[str]:
    asked = Counter({**job.strategy.asks(job.rounds), MEASURED: _evaluations(job)})
    if job.work.class_weights == "balanced":
        asked[LabelCounts.name] += 1
    return +asked


def _evaluations(job: Job) -> int:
    every, last = job.evaluation.every, job.rounds - 1
    between = last // every if every > 0 and last > 0 else 0
    # A run that stops early evaluates the models of its last round and of its best round.
    return between + (1 if job.stop is None else 2)


def _affordable(section: PrivacySection, parameters: PrivacyParameters) -> OtherReleases:
    """Return the planned noisy releases other than updates. Raises ``ConfigError`` if they cost the whole of a
    configured epsilon.
    """
    others = OtherReleases.of(planned(section, parameters))
    if section.epsilon is not None and section.noise_multiplier is None:
        cost = accountant.epsilon(others.gaussians, section.delta) + others.laplace
        if cost >= section.epsilon:
            often = f" (with metrics {times(MEASURED, parameters)} times)" if MEASURED in section.noisy else ""
            raise ConfigError(
                f"privacy.statistics: noisy statistics cost epsilon {cost:.4g}{often}, which leaves "
                f"nothing of privacy.epsilon: {section.epsilon:g} for training; give more noise"
                + (", or a larger evaluation.every (0: once)" if often else "")
            )
    return others


def multipliers(section: PrivacySection, parameters: PrivacyParameters) -> NDArray[np.float64]:
    """Return the noise multiplier of each hospital's training steps in mode ``local``. It is the standard deviation of
    the noise divided by the clipping bound.
    """
    if section.noise_multiplier is not None:
        return np.full(len(parameters.patients), section.noise_multiplier)
    if section.epsilon is None:
        raise ValueError("neither epsilon nor noise_multiplier is set")
    others = _affordable(section, parameters)
    try:
        each = [
            quick.calibrated(
                others.left(section.epsilon), rate, parameters.rounds * steps, section.delta, others.normal
            )
            if patients and parameters.rounds
            else 0.0
            for patients, rate, steps in zip(parameters.patients, parameters.rates, parameters.steps, strict=True)
        ]
    except ValueError:
        raise ConfigError(
            f"privacy.epsilon: no noise gives an epsilon as small as {section.epsilon:g} at privacy.delta: "
            f"{section.delta:g}; raise one of them"
        ) from None
    return np.array(each) if section.equal_epsilon else np.full(len(each), max(each, default=0.0))


def by_hospital(
    section: PrivacySection, parameters: PrivacyParameters, joined: NDArray[np.int64], events: Sequence[Event]
) -> NDArray[np.float64]:
    """Return the epsilon of each hospital's patients in mode ``local``. ``joined [N]`` has the number of rounds in
    which each hospital has taken part.

    ``events`` are the noisy releases other than updates.
    """
    noise, others = multipliers(section, parameters), OtherReleases.of(events)
    return np.array(
        [
            quick.epsilon(float(s), rate, int(rounds) * steps, section.delta, others.normal) + others.laplace
            if patients
            else 0.0
            for s, rate, rounds, steps, patients in zip(
                noise, parameters.rates, joined, parameters.steps, parameters.patients, strict=True
            )
        ]
    )


def epsilon_at_two_hospitals(
    section: PrivacySection, parameters: PrivacyParameters, joined: NDArray[np.int64], events: Sequence[Event]
) -> float:
    """Return the largest epsilon of a patient who is at two hospitals, in mode ``local``.

    ``joined [N]`` has the number of rounds in which each hospital has taken part. ``events`` are the noisy releases
    other than updates.
    """
    others = OtherReleases.of(events)
    steps = [
        (float(s), rate, int(rounds) * count)
        for s, rate, rounds, count, patients in zip(
            multipliers(section, parameters),
            parameters.rates,
            joined,
            parameters.steps,
            parameters.patients,
            strict=True,
        )
        if patients
    ]
    return quick.epsilon_at_several(steps, 2, section.delta, others.normal) + 2.0 * others.laplace


def resolved(section: PrivacySection, parameters: PrivacyParameters) -> PrivacySection:
    """Return the section with mode, adversary, epsilon and noise multiplier filled in. A missing epsilon or multiplier
    is computed from the other.

    A missing value stays None if it differs between hospitals, depends on hospitals' noisy sizes, or is infinite or 0.
    Without rounds, a missing multiplier stays None. Raises ``ConfigError`` if epsilon and multiplier are both given and
    disagree, or if epsilon is outside the range for which noise can be computed.
    """
    mode, adversary = section.effective_mode, section.headline
    if section.against is None and parameters.secure and mode in ("pooled", "distributed"):
        adversary = "server"
    fixed: dict[str, Any] = {"mode": mode, "against": adversary}
    epsilon, multiplier = section.epsilon, section.noise_multiplier
    if multiplier is None and epsilon is not None and not accountant.LOW <= epsilon <= accountant.HIGH:
        raise ConfigError(
            f"privacy.epsilon: {epsilon:g} is outside the range {accountant.LOW:g} to {accountant.HIGH:g}, in which "
            "noise can be calibrated; choose a value in it, or give noise_multiplier instead"
        )
    if section.own_steps and section.sizes == "noisy":
        return section.model_copy(update=fixed)  # the rest follows from the sizes that hospitals have not sent yet
    others = _affordable(section, parameters)
    if multiplier is None and epsilon is not None and parameters.rounds:
        if section.own_steps:
            noise = multipliers(section, parameters)
            return section.model_copy(
                update=fixed | ({} if section.equal_epsilon else {"noise_multiplier": noise.max()})
            )
        multiplier = accountant.calibrated(
            lambda each: [
                *(releases_of_updates(section, parameters, adversary, each, parameters.rounds) or []),
                *others.gaussians,
            ],
            others.left(epsilon),
            section.delta,
        )
    elif multiplier is not None:
        if section.own_steps:
            everybody = np.full(len(parameters.patients), parameters.rounds)
            reached = float(by_hospital(section, parameters, everybody, planned(section, parameters)).max(initial=0.0))
        else:
            events = releases_of_updates(section, parameters, adversary, multiplier, parameters.rounds)
            exposed = events is None
            reached = math.inf if exposed else accountant.epsilon([*(events or []), *others.gaussians], section.delta)
            reached += others.laplace
        if epsilon is not None and not math.isclose(reached, epsilon, rel_tol=AGREE):
            raise ConfigError(
                f"privacy.noise_multiplier: {multiplier:g} gives epsilon {reached:.4g}, and privacy.epsilon is "
                f"{epsilon:g}; keep one of the two"
            )
        if epsilon is None and math.isfinite(reached) and reached > 0:
            epsilon = reached
    return section.model_copy(update=fixed | {"epsilon": epsilon, "noise_multiplier": multiplier})


def bit_noise(adaptive: AdaptiveClip, hospitals: float) -> float:
    """Return the standard deviation of the noise on the number of updates within the clipping bound. ``hospitals`` is
    the expected number of hospitals in a round.
    """
    return hospitals / 20.0 if adaptive.bits is None else adaptive.bits


def largest_clip(parameters: PrivacyParameters, multiplier: float) -> float:
    """Return the largest clipping bound with which noisy sums fit into the integers that store them."""
    return largest_entry(1.0) * parameters.rate / 16.0 / max(1.0, multiplier)
