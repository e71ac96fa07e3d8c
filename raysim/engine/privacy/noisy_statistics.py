"""Noisy statistics other than updates: their noise, and how often hospitals release them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import OF_LABELS
from raysim.core.errors import ConfigError
from raysim.engine.measuring.measurement import FigureNoise, StatisticNoise
from raysim.metrics.summed import Classes, Errors, TwoClasses
from raysim.privacy.events import Single
from raysim.privacy.noisy_sums import total_of
from raysim.strategies.base import Floats, Ids, Program, Size, Statistic
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.ledger import MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.engine.job import Job

Asked = Callable[[Statistic, bool], Floats]
"""The type of a function that requests a statistic from hospitals before the first round and returns it, ``[N, ...]``.
If the last argument is true, each hospital adds only a share of the noise, and the server learns only the sum over
hospitals."""


def statistic_noise(section: PrivacySection | None, program: Program) -> StatisticNoise | None:
    """Return the noise on the arrays that each hospital sends separately for a client ``program``; None means that they
    are exact.

    Raises ``ConfigError`` if the configured noise cannot hide a patient or row in these arrays, or if the program adds
    noise itself.
    """
    noises = {send.kind: noise_on(section, send.kind) for send in program.sends.values()}
    kind, noise = next(((kind, noise) for kind, noise in noises.items() if noise is not None), ("", None))
    if noise is None or section is None:
        return None
    if any(send.bound is None or send.bound.l1 is None or send.kind != kind for send in program.sends.values()):
        raise ConfigError(
            f"privacy.statistics.{kind}: hospitals do not send this kind as sums over rows, so noise would not hide a "
            f"{section.unit} in it; remove the key"
        )
    if getattr(program, "privacy_epsilon", None) is not None:
        raise ConfigError(
            f"privacy.statistics.{kind}: strategy.privacy_epsilon adds noise to the same answers; keep one of the two"
        )
    return noise


def noise_on(section: PrivacySection | None, kind: str) -> StatisticNoise | None:
    """Return the noise on messages of this ``kind``; None means that they are exact."""
    if section is None:
        return None
    statistic = section.noise_of(kind)
    if statistic is None:
        return None
    mechanism = statistic.mechanism(section.noise)
    if section.unit == "example":
        return StatisticNoise("example", 1, mechanism)
    return StatisticNoise("patient", section.rows_per_patient, mechanism)


def figure_noise(section: PrivacySection | None, classes: int) -> FigureNoise | None:
    """Return the noise on metrics; None means that metrics are exact. ``classes`` is the label's number of classes, or
    0 if the label is a real number.
    """
    noise = noise_on(section, MEASURED)
    if noise is None or section is None:
        return None
    statistic = section.noise_of(MEASURED)
    if classes:
        return FigureNoise(noise, TwoClasses() if classes == 2 else Classes(classes))
    if statistic is None or statistic.range is None:
        raise ValueError(
            "metrics of a numeric label can have noise only if its range is known; set privacy.statistics.metrics.range"
        )
    return FigureNoise(noise, Errors(*statistic.range))


def left_out(section: PrivacySection | None) -> list[str]:
    """Return lines to print before a run. They say what the run cannot report because its metrics have noise."""
    if section is None or MEASURED not in section.noisy:
        return []
    return [
        f"privacy.statistics.{MEASURED}: only figures of the headline model are computed, from noisy sums; left out "
        "are training losses, figures by group, of calibration or at thresholds, and intervals of single hospitals"
    ]


@dataclass(frozen=True, eq=False)
class FirstAnswers:
    """The noisy statistics that hospitals send before the first round."""

    sizes: Ids | None = None
    """The number of patients or rows on which each hospital trains, with noise, ``[N]``; None means that exact numbers
    are public. Each number is at least 1: a hospital without rows takes part like all others, because its lack of rows
    is secret."""
    labels: Floats | None = None
    """The number of rows of each of the ``C`` classes over all hospitals, with noise, ``[C]``. None if the numbers were
    not requested, or are exact."""

    @staticmethod
    def of(job: Job, classes: int, ask: Asked, earlier: Mapping[str, Any] | None = None) -> FirstAnswers:
        """Request from hospitals, by calling ``ask``, the statistics that need noise: each hospital's number of
        patients or rows, and its number of rows of each class.

        A resumed run takes these statistics from ``earlier``, a value of :attr:`memory`, if noise comes from the
        operating system. If noise is seeded, ``earlier`` is ignored: hospitals compute the same answers again, so a
        tampered checkpoint cannot change them.
        """
        section, sizes, labels = job.privacy, None, None
        if earlier is not None and section is not None and section.noise == "system":
            return FirstAnswers(earlier.get("sizes"), earlier.get("labels"))
        if section is not None and section.sizes == "noisy":
            sizes = np.maximum(np.rint(ask(Size(noisy=True), False).ravel()), 1.0).astype(np.int64)
        if job.work.class_weights == "balanced" and noise_on(section, LabelCounts.name) is not None:
            program = LabelCounts(classes, noisy=True)
            if job.secure is None:
                counts = np.maximum(ask(program, False)[:, 0], 0.0).sum(axis=0)
            else:
                sent = list(ask(program, True)[:, 0])
                counts = total_of(sent, job.secure.of_setup(OF_LABELS), job.work.seed)
            labels = np.maximum(np.rint(counts), 1.0)
        return FirstAnswers(sizes, labels)

    @property
    def memory(self) -> dict[str, Any]:
        """Return the noisy statistics as plain values and arrays, which checkpoints store."""
        return {"sizes": self.sizes, "labels": self.labels}


def events(section: PrivacySection, ledger: Ledger) -> dict[str, Single]:
    """Return the noisy releases in ``ledger`` by kind of message, except those of updates. The count of a kind is the
    largest number of times that any hospital sent it.
    """
    by_kind: dict[str, Single] = {}
    for kind in dict.fromkeys(entry.kind for entry in ledger.entries):
        noise = noise_on(section, kind)
        if noise is not None:
            by_kind[kind] = replace(noise.mechanism.event, count=ledger.times(kind))
    return by_kind
