"""What hospitals tell with noise beside updates: which noise that is, and how often it was told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import OF_LABELS
from raysim.core.errors import ConfigError
from raysim.engine.messages import FigureNoise, StatisticNoise
from raysim.metrics.summed import Classes, Errors, TwoClasses
from raysim.privacy.events import Event
from raysim.privacy.noisy_sums import total_of
from raysim.strategies.base import Floats, Ids, Question, Size, Summed
from raysim.strategies.shared.label_counts import LabelCounts, LabelSums
from raysim.traffic.ledger import MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.engine.job import Job

Asked = Callable[[Question], Sequence[Floats]]
"""How the server asks all hospitals before anything else."""


def statistic_noise(section: PrivacySection | None, question: Question) -> StatisticNoise | None:
    """The noise on answers to a question; None: they are exact. Raises ``ConfigError`` where these are no sums."""
    noise = noise_on(section, question.kind)
    if noise is None or section is None:
        return None
    if not isinstance(question, Summed):
        raise ConfigError(
            f"privacy.statistics.{question.kind}: what hospitals tell is no sum over rows, and noise would not hide a "
            f"{section.unit} in it; take it out"
        )
    if getattr(question, "privacy_epsilon", None) is not None:
        raise ConfigError(
            f"privacy.statistics.{question.kind}: strategy.privacy_epsilon adds noise to the same answers; keep one of "
            "the two"
        )
    return noise


def first_noise(section: PrivacySection | None, hospitals: int, question: Question) -> StatisticNoise | None:
    """The same before anything else: each of so many ``hospitals`` adds a share where only their sum is learned."""
    noise = statistic_noise(section, question)
    if noise is None or not isinstance(question, LabelSums):
        return noise
    return replace(noise, mechanism=noise.mechanism.in_shares(hospitals))


def noise_on(section: PrivacySection | None, kind: str) -> StatisticNoise | None:
    """The noise on what is told of a ``kind`` of egress; None: it is exact."""
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
    """The noise on figures of a label of so many ``classes`` (0: a real one); None: they are exact."""
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
    """What a run cannot report because figures are told with noise, a line each: said before anything starts."""
    if section is None or MEASURED not in section.noisy:
        return []
    return [
        f"privacy.statistics.{MEASURED}: figures of the headline model alone, from noisy sums; no training losses, "
        "no figures by group, of calibration or at thresholds, and no intervals of single hospitals"
    ]


@dataclass(frozen=True, eq=False)
class FirstAnswers:
    """What hospitals tell with noise before anything else; a run that goes on keeps it, and does not ask again."""

    sizes: Ids | None = None
    """How many units they train on, ``[N]``; None: as many as there are, which is public.

    It is one at least: a hospital that has none takes part like any other, for that is not to be known.
    """
    labels: Floats | None = None
    """How many of each class there are at all hospitals together, ``[C]``; None: not asked, or exact."""

    @staticmethod
    def of(job: Job, ask: Asked, earlier: Mapping[str, Any] | None = None) -> FirstAnswers:
        """What hospitals answer to ``ask``; a run that goes on has the ``earlier`` answers, as :attr:`memory` was.

        Seeded noise is the same each time, so that these are then asked again, and nobody can have changed them.
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


def events(section: PrivacySection, ledger: Ledger) -> dict[str, Event]:
    """What has been told with noise, by kind as the ledger has it, each with how often a hospital told it at most."""
    by_kind: dict[str, Event] = {}
    for kind in dict.fromkeys(kind for _, kind, _, _ in ledger.entries):
        noise = noise_on(section, kind)
        if noise is not None:
            by_kind[kind] = replace(noise.mechanism.event, count=ledger.times(kind))
    return by_kind
