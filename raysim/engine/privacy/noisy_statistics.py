"""Statistics that hospitals send with noise beside updates: which noise, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from raysim.strategies.base import Floats, Ids, Question, Size, Summed
from raysim.strategies.shared.label_counts import LabelCounts, LabelSums
from raysim.traffic.ledger import MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.engine.job import Job

Asked = Callable[[Question], Sequence[Floats]]
"""Asks all hospitals a question, before the first round."""


def statistic_noise(section: PrivacySection | None, question: Question) -> StatisticNoise | None:
    """The noise on answers to a question; None: they are exact. Raises ``ConfigError`` where they are not sums."""
    noise = noise_on(section, question.kind)
    if noise is None or section is None:
        return None
    if not isinstance(question, Summed):
        raise ConfigError(
            f"privacy.statistics.{question.kind}: what hospitals send is no sum over rows, and noise would not hide a "
            f"{section.unit} in it; take it out"
        )
    if getattr(question, "privacy_epsilon", None) is not None:
        raise ConfigError(
            f"privacy.statistics.{question.kind}: strategy.privacy_epsilon adds noise to the same answers; keep one of "
            "the two"
        )
    return noise


def first_noise(section: PrivacySection | None, hospitals: int, question: Question) -> StatisticNoise | None:
    """The noise on answers before the first round: each of ``hospitals`` adds a share where only the sum is opened."""
    noise = statistic_noise(section, question)
    if noise is None or not isinstance(question, LabelSums):
        return noise
    return replace(noise, mechanism=noise.mechanism.in_shares(hospitals))


def noise_on(section: PrivacySection | None, kind: str) -> StatisticNoise | None:
    """The noise on a ``kind`` of egress; None: it is exact."""
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
    """The noise on figures, for a label of ``classes`` (0: a real label); None: they are exact."""
    noise = noise_on(section, MEASURED)
    if noise is None or section is None:
        return None
    statistic = section.noise_of(MEASURED)
    if classes:
        return FigureNoise(noise, TwoClasses() if classes == 2 else Classes(classes))
    if statistic is None or statistic.range is None:
        raise ValueError("no range of the label is declared")
    return FigureNoise(noise, Errors(*statistic.range))


def left_out(section: PrivacySection | None) -> list[str]:
    """Lines, printed before the start, on what a run cannot report because figures are sent with noise."""
    if section is None or MEASURED not in section.noisy:
        return []
    return [
        f"privacy.statistics.{MEASURED}: figures of the headline model alone, from noisy sums; no training losses, "
        "no figures by group, of calibration or at thresholds, and no intervals of single hospitals"
    ]


@dataclass(frozen=True, eq=False)
class FirstAnswers:
    """What hospitals send with noise before the first round; a resumed run keeps it, and does not ask again."""

    sizes: Ids | None = None
    """How many units they train on, ``[N]``; None: as many as there are, which is public.

    At least one each: a hospital without any takes part like the others, as nobody is to know that it has none.
    """
    labels: Floats | None = None
    """How many of each class there are at all hospitals together, ``[C]``; None: not asked, or exact."""

    @staticmethod
    def of(job: Job, ask: Asked, earlier: Mapping[str, Any] | None = None) -> FirstAnswers:
        """Ask hospitals by ``ask``. A resumed run takes the ``earlier`` answers, which :attr:`memory` gave.

        Seeded noise is the same each time: then hospitals are asked again, so that nobody can have changed the answers.
        """
        section, sizes, labels = job.privacy, None, None
        if earlier is not None and section is not None and section.noise == "system":
            return FirstAnswers(earlier.get("sizes"), earlier.get("labels"))
        if section is not None and section.sizes == "noisy":
            sizes = np.maximum(np.rint(np.concatenate(ask(Size()))), 1.0).astype(np.int64)
        if job.work.class_weights == "balanced" and noise_on(section, LabelCounts.kind) is not None:
            if job.secure is None:
                counts = np.stack(ask(LabelCounts())).sum(axis=0)
            else:
                counts = total_of(ask(LabelSums()), job.secure.of_setup(OF_LABELS), job.work.seed)
            labels = np.maximum(np.rint(counts), 1.0)
        return FirstAnswers(sizes, labels)

    @property
    def memory(self) -> dict[str, Any]:
        """As plain values and arrays."""
        return {"sizes": self.sizes, "labels": self.labels}


def events(section: PrivacySection, ledger: Ledger) -> dict[str, Single]:
    """The noisy releases in a ledger by kind, each with the largest number of times that a hospital made it."""
    by_kind: dict[str, Single] = {}
    for kind in dict.fromkeys(kind for _, kind, _, _ in ledger.entries):
        noise = noise_on(section, kind)
        if noise is not None:
            by_kind[kind] = replace(noise.mechanism.event, count=ledger.times(kind))
    return by_kind
