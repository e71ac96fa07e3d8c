"""Noise that hides each patient in a hospital's statistics and metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.data.federation import Federation
from raysim.engine.measuring.measurement import FigureNoise, StatisticNoise
from raysim.engine.measuring.scoring import PartRows
from raysim.engine.messages.steps import HospitalStep, LeavingSums
from raysim.engine.privacy.contributions import Contributions
from raysim.privacy.noisy_sums import Bounds, noisy_sum
from raysim.strategies.base import Floats

if TYPE_CHECKING:
    from raysim.config.sections.privacy import RowUnit


@dataclass(frozen=True)
class StatisticRelease(HospitalStep):
    """The step in which a hospital adds noise to a statistic, which consists of sums over the hospital's rows."""

    noise: StatisticNoise
    seed: int
    round: int

    @property
    def unit(self) -> RowUnit:
        """The privacy unit that the noise protects: a patient or a row."""
        return self.noise.unit

    @property
    def most_rows(self) -> int:
        """The largest number of rows of one patient that are used."""
        return self.noise.rows

    def forward_sums(self, leaving: LeavingSums) -> None:
        sent, turn = dict(leaving.reply.sent), [self.noise.turn] if self.noise.turn else []
        for name, send in leaving.layout.each.items():
            if send.bound is None or send.bound.l1 is None:
                raise ValueError(f"'{name}' is not a bounded sum over rows")
            rows, bounds = np.asarray(sent[name], np.float64), Bounds(send.bound.l1, send.bound.l2)
            how, key = self.noise.mechanism, (self.round, leaving.hospital, *turn)
            flat = rows.reshape(len(rows), math.prod(send.shape))
            total = noisy_sum(flat, leaving.people(), how, bounds, self.seed, f"dp {send.kind}", *key)
            sent[name] = total.reshape(send.shape)
        leaving.reply = replace(leaving.reply, sent=sent)


def noisy_figures(
    federation: Federation,
    contributions: Contributions,
    hospitals: Sequence[int],
    part: str,
    seed: int,
    asked: FigureNoise,
    outputs: NDArray[Any],
    rows: PartRows,
) -> Floats:
    """Return an array ``[h, width]`` of noisy sums over the rows of each hospital, from which its metrics are
    computed.
    """
    noise, bounds = asked.noise, Bounds(asked.sums.absolute, asked.sums.euclidean)
    sums = []
    for i, hospital in enumerate(hospitals):
        contribution = contributions.of(federation, hospital, noise.unit, noise.rows, seed, part)
        # One hospital at a time, because each row may add a long vector.
        theirs = rows.offsets[i] + contribution.rows
        added, key = asked.sums.added(outputs[theirs], rows.y[theirs]), (noise.turn, hospital)
        sums.append(noisy_sum(added, contribution.patient, noise.mechanism, bounds, seed, "dp metrics", *key))
    return np.array(sums)
