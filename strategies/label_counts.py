"""How many training rows of each class a hospital has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from strategies.base import FederationView, Floats, HospitalRows


@dataclass(frozen=True)
class LabelCounts:
    """Rows of each class, ``[C]``."""

    kind: ClassVar[str] = "label_counts"

    def answer(self, rows: HospitalRows) -> Floats:
        return np.bincount(rows.y, minlength=rows.classes).astype(np.float64)


def ask_label_counts(view: FederationView, privacy_epsilon: float | None) -> Floats:
    """Every hospital's label counts, ``[N, C]``, with Laplace noise of scale ``1 / ε`` on each, clipped at 0.

    ``privacy_epsilon`` is the ε of differential privacy for one row more or less (None: exact counts). The noise is the
    hospital's; it is drawn here, from a stream of that hospital, because a question has no randomness of its own.
    """
    counts: Floats = np.stack(view.ask(LabelCounts()))
    if privacy_epsilon is None:
        return counts
    drawn = [
        view.rng("label noise", i).laplace(scale=1.0 / privacy_epsilon, size=counts.shape[1])
        for i in range(len(counts))
    ]
    noisy: Floats = np.maximum(counts + np.stack(drawn), 0.0)
    return noisy
