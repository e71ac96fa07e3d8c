"""Checks, made before a run starts, that the settings of a job allow its privacy guarantee."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from raysim.config.sections.privacy import PREPROCESSING, PrivacySection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.core.installed import is_own
from raysim.data.federation import Federation
from raysim.engine.guarantee import Guarantee, PrivacyParameters
from raysim.engine.privacy.calibration import bit_noise, calibrated, largest_clip, parameters_of
from raysim.engine.privacy.noisy_statistics import noise_on
from raysim.engine.privacy.release_kinds import check_kinds
from raysim.privacy import accountant
from raysim.privacy.scaler import ScalerNoise
from raysim.strategies.shared.weights import Weighted
from raysim.traffic.ledger import MEASURED
from raysim.training.kernels.clipped import Clippable

if TYPE_CHECKING:
    from raysim.engine.job import Job


MOST_BITS = 2.0**14
"""The largest allowed standard deviation of the noise on the number of updates within the clipping bound. It is 1/32 of
the largest number that a secure sum can store."""


def check_privacy(job: Job, federation: Federation) -> Guarantee | None:
    """Return the privacy guarantee of ``job``; None if it has none. Raises ``ConfigError`` if a setting of ``job`` or a
    property of ``federation`` makes the guarantee impossible.
    """
    section = job.privacy
    if section is None:
        return None
    accountant.library()
    _check_strategy(job)
    check_kinds(section, job)
    _check_cohorts(job)
    parameters = parameters_of(job, federation)
    if section.delta < accountant.LEAST_DELTA:
        raise ConfigError(
            f"privacy.delta: {section.delta:g} is below {accountant.LEAST_DELTA:g}, the least at which epsilon can be "
            "computed; raise it"
        )
    if section.delta >= 1 / max(parameters.units, 1):
        raise ConfigError(
            f"privacy.delta: {section.delta:g} must be below 1 / {parameters.units} (1 / the number of units), because "
            f"this delta allows all rows of one {section.unit} to be published; lower it"
        )
    if section.against == "server" and section.effective_mode == "central":
        raise ConfigError(
            "privacy.against: server sees all sums before the noise that privacy.mode: central adds; name outsider or "
            "peer"
        )
    if section.against == "peer" and section.effective_mode in ("pooled", "distributed") and parameters.fewest < 2:
        raise ConfigError(
            "privacy.against: peer knows its share of the noise, and only one hospital has training rows; name "
            "outsider or server"
        )
    _check_system(job)
    _check_attacks(job)
    _check_importance(job)
    _check_figures(job, federation)
    _check_preprocessing(job, federation)
    if section.effective_mode == "distributed" and section.weights == "capped":
        raise ConfigError(
            "privacy.weights: capped makes shares of the noise unequal, which privacy.mode: distributed cannot use; "
            "use uniform"
        )
    if section.effective_mode == "distributed" and (job.secure is None or parameters.rate < 1):
        raise ConfigError(
            "privacy.mode: distributed needs secure aggregation over all hospitals, as one update "
            "carries only a share of the noise; write secure: {} and selection: all, or privacy.mode: central"
        )
    if section.unit != "hospital" and not job.strategy.uses_programs():
        _check_descent(job, federation)
    guarantee = calibrated(job, section, parameters)
    _check_size(guarantee.section, parameters)
    if (
        job.compression is not None
        and job.compression.on_common_grid
        and section.effective_mode in ("pooled", "distributed")
    ):
        # Imported only here: most runs do not need it.
        from raysim.engine.privacy.grid_checks import check_grid

        check_grid(job.compression, guarantee.section, parameters)
    return guarantee


def _check_attacks(job: Job) -> None:
    """Raise ``ConfigError`` for robust rules and attacks that need each hospital's update, and for compression that
    undoes clipping.
    """
    section, adversary = job.privacy, job.adversary
    assert section is not None
    if job.aggregation is not None and job.aggregation.of_single:
        raise ConfigError(
            f"aggregation.name: '{job.aggregation.name}' needs single updates, and privacy.unit: {section.unit} is "
            "guaranteed only for their sums; leave one of the two out"
        )
    if job.aggregation is not None and section.effective_mode == "pooled":
        raise ConfigError(
            f"aggregation.name: '{job.aggregation.name}' is for updates of hospitals, and privacy.mode: pooled has one "
            "sum of gradients; leave one of the two out"
        )
    compression = job.compression
    # A common choice of entries, and rounding to a fine grid, are post-processing of a noisy sum.
    after = (
        section.effective_mode in ("pooled", "distributed")
        and compression is not None
        and (compression.of_common_entries or compression.on_common_grid)
    )
    if compression is not None and compression.name != "none" and section.effective_mode != "local" and not after:
        shared = " (random_k with common indices, and grid without feedback, can)"
        which = shared if section.effective_mode in ("pooled", "distributed") else ""
        raise ConfigError(
            f"compression.name: '{compression.name}' can lengthen updates beyond privacy.clip or weaken the noise, so "
            f"it cannot be combined with privacy.mode: {section.effective_mode}{which}; leave one of the two out"
        )
    if adversary is not None and adversary.effective_knowledge != "own":
        raise ConfigError(
            f"adversary.knowledge: '{adversary.effective_knowledge}' combines single updates, and privacy.unit: "
            f"{section.unit} is guaranteed only for their sums; choose an attack with knowledge own"
        )


def _check_importance(job: Job) -> None:
    """Raise ``ConfigError`` if feature importances are configured: they reveal values of rows, and get no noise."""
    if job.privacy is not None and job.evaluation.importance:
        raise ConfigError(
            f"evaluation.importance: {job.evaluation.importance} reveals values of columns and figures of permuted "
            f"rows, which privacy.unit: {job.privacy.unit} does not cover; leave one of the two out"
        )


def _check_figures(job: Job, federation: Federation) -> None:
    """Raise ``ConfigError`` if metrics get noise, but the declared range of labels or the settings of ``evaluation`` do
    not fit.
    """
    section, evaluation = job.privacy, job.evaluation
    if section is None or MEASURED not in section.noisy:
        return
    named = f"privacy.statistics.{MEASURED}"
    statistic = section.noise_of(MEASURED)
    declared = None if statistic is None else statistic.range
    if declared is not None and federation.classes:
        raise ConfigError(
            f"{named}.range: {list(declared)} is for a label that is a number, and data.label has "
            f"{len(federation.classes)} classes; remove the key"
        )
    if declared is None and not federation.classes:
        raise ConfigError(
            f"{named}.range: not set, but data.label is a number, and the noise on errors is scaled by the "
            "label's range; declare the least and the greatest label, such as [0, 30]"
        )
    if evaluation.groups:
        raise ConfigError(
            f"{named}: the figures of evaluation.groups ({', '.join(evaluation.groups)}) would have no noise; leave "
            f"{named} or evaluation.groups out"
        )
    if evaluation.predictions:
        raise ConfigError(
            f"{named}: evaluation.predictions: true reveals the models' outputs for every row; leave {named} or "
            "evaluation.predictions out"
        )


def _check_preprocessing(job: Job, federation: Federation) -> None:
    """Raise ``ConfigError`` if features were scaled by statistics whose noise differs from what the guarantee
    requires.
    """
    noise = noise_on(job.privacy, PREPROCESSING)
    if noise is None or not federation.preprocessing_scalars:
        return
    # Without a section secure, data are prepared without secure aggregation, even if a strategy hides its own sums.
    ways = [ScalerNoise(noise.mechanism, noise.unit, noise.rows, shared).named for shared in (False, True)]
    if federation.preprocessing_noise not in ways[: 1 if job.secure is None else 2]:
        made = f"with noise of {federation.preprocessing_noise}" if federation.preprocessing_noise else "without noise"
        raise ConfigError(
            f"privacy.statistics.preprocessing: the data were prepared {made}, but this run asks for {ways[0]}; "
            "prepare them with this configuration"
        )


def _check_system(job: Job) -> None:
    """Raise ``ConfigError`` if hospitals can be absent or fail in a way that the guarantee does not cover."""
    section = job.privacy
    if job.system is None or section is None or section.own_steps:
        return
    if section.effective_mode in ("pooled", "distributed"):
        raise ConfigError(
            "system: hospitals that drop out do not add their share of the noise, but privacy.mode: "
            f"{section.effective_mode} needs all shares; leave one of the two out, or use secure.drop, which enlarges "
            "the shares"
        )
    rounds = job.system.rounds
    for key, usual in (("retries", 0), ("over_selection", 0.0), ("minimum_cohort", 1), ("late", "drop")):
        if getattr(rounds, key) != usual:
            raise ConfigError(
                f"system.rounds.{key}: {getattr(rounds, key)} makes hospitals' participation depend on each other, and "
                f"privacy.unit: {section.unit} needs independent sampling; set it to {usual}"
            )


def _check_descent(job: Job, federation: Federation) -> None:
    """Raise ``ConfigError`` for a model whose gradients cannot be clipped for each patient.

    In mode ``pooled``, weight decay and optimisers other than SGD also raise it.
    """
    section, work = job.privacy, job.work
    assert section is not None
    model = work.model.bind(federation, "cpu", work.precision)
    why = model.unclippable if isinstance(model, Clippable) else "does not say how"
    if why is not None:
        raise ConfigError(
            f"model.name: gradients of '{work.model.name or work.model.class_path}' are not clipped by patient, "
            f"because this model {why}, so privacy.unit: {section.unit} cannot be guaranteed; choose another model"
        )
    if section.effective_mode == "pooled" and work.optimizer.name != "sgd":
        raise ConfigError(
            f"training.optimizer: {work.optimizer.name} takes several steps at a hospital, but privacy.mode: "
            "pooled takes one step over all hospitals; use sgd, and a strategy with an optimiser at the server"
        )
    if section.effective_mode == "pooled" and work.optimizer.weight_decay:
        raise ConfigError(
            f"training.weight_decay: {work.optimizer.weight_decay:g} is not for privacy.mode: pooled, whose sum may "
            "hold only gradients of patients; set it to 0"
        )


def _check_strategy(job: Job) -> None:
    section, strategy = job.privacy, job.strategy
    assert section is not None
    needs = strategy.needs
    fitting = needs.kind != "refused" and (section.unit == "hospital" or needs.kind == "programs" or not needs.why)
    fitting = fitting or (section.own_steps and needs.own_steps)
    if not fitting or strategy.asynchrony() is not None:
        why = needs.why or "merges updates as they arrive"
        raise ConfigError(
            f"strategy.name: '{job.name}' {why}, which privacy.mode: {section.effective_mode} does not cover, so "
            f"privacy.unit: {section.unit} cannot be guaranteed; choose another strategy or leave privacy out"
        )
    if section.unit == "hospital" and isinstance(strategy, Weighted) and strategy.weights != "uniform":
        raise ConfigError(
            f"strategy.weights: '{strategy.weights}' makes a hospital's weight depend on other hospitals, which "
            f"privacy.unit: {section.unit} does not allow; set strategy.weights: uniform; hospitals can then be "
            "weighted by rows with privacy.weights: capped"
        )


def _check_cohorts(job: Job) -> None:
    section, selection = job.privacy, job.selection
    if section is None or not job.strategy.uses_selection():
        return
    name, rate = type(selection).__name__, selection.rate()
    if section.unit == "hospital" and rate is None:
        raise ConfigError(
            f"selection.name: with privacy.unit: hospital, epsilon can be computed only if each hospital is sampled "
            f"independently, which '{name}' does not do; set selection to {' or '.join(_of_coins())}"
        )
    if section.effective_mode == "pooled" and rate != 1.0:
        raise ConfigError(
            f"selection.name: '{name}' leaves hospitals out, but privacy.mode: pooled needs patients of all hospitals; "
            "set selection to all, and privacy.rate for the share of patients"
        )
    if selection.uses_losses:
        raise ConfigError(
            f"selection.name: '{name}' uses hospitals' losses, which privacy.unit: {section.unit} does not cover; "
            "choose another selection"
        )


def _of_coins() -> list[str]:
    """Return the names of raysim's client selections that sample each hospital independently (Poisson sampling)."""
    own = {name: entry for name, entry in registry.entries("selections").items() if is_own(entry)}
    return [name for name, entry in own.items() if entry.load()().rate() is not None]


def _check_size(section: PrivacySection, parameters: PrivacyParameters) -> None:
    """Raise ``ConfigError`` if the clipping bound or the noise is too large for the integers that store sums. Raise it
    also if the noise on hospitals' bits for adaptive clipping is too small.
    """
    multiplier = section.noise_multiplier or 0.0
    if section.adaptive is not None:
        expected = parameters.rate * parameters.hospitals
        bits = bit_noise(section.adaptive, expected)
        if multiplier and not 2.0 * bits > multiplier:
            more = (
                f", or sample more hospitals (now {expected:g} expected in a round)"
                if section.adaptive.bits is None
                else ""
            )
            raise ConfigError(
                f"privacy.adaptive.bits: noise of {bits:g} on the number of updates within the clip is too little for "
                f"privacy.noise_multiplier: {multiplier:.4g}; set more than {multiplier / 2:.4g}{more}"
            )
        if section.effective_mode == "distributed" and MOST_BITS < bits < math.inf:
            raise ConfigError(
                f"privacy.adaptive.bits: noise of {bits:g} is more than sums can hold; give at most {MOST_BITS:g}"
            )
    if math.isinf(section.clip):
        if multiplier:
            raise ConfigError(
                f"privacy.clip: {section.clip} sets no bound, so noise of privacy.noise_multiplier: {multiplier:g} "
                "times the clip would be infinite; give a number"
            )
        return
    largest = largest_clip(parameters, multiplier)
    if section.unit == "hospital" and section.clip > largest:
        raise ConfigError(f"privacy.clip: {section.clip:g} is more than sums can hold; give at most {largest:.3g}")
