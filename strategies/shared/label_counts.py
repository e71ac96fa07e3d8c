"""The numbers of a hospital's training rows of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from raysim.strategies.base import FederationView, Floats, HospitalRows
from raysim.strategies.questions import one_of_each


@dataclass(frozen=True)
class LabelCounts:
    """The number of rows of each class, ``[C]``, with Laplace noise of scale ``1 / privacy_epsilon`` on each, clipped
    at 0.

    ``privacy_epsilon`` is the ε of differential privacy for adding or removing one row; with None the counts are exact.
    """

    kind: ClassVar[str] = "label_counts"
    privacy_epsilon: float | None = None

    def answer(self, rows: HospitalRows) -> Floats:
        counts = np.bincount(rows.y, minlength=rows.classes).astype(np.float64)
        if self.privacy_epsilon is None:
            return counts
        return np.maximum(counts + rows.rng.laplace(scale=1.0 / self.privacy_epsilon, size=len(counts)), 0.0)

    def added(self, rows: HospitalRows) -> Floats:
        return one_of_each(rows.y, rows.classes)

    def bounds(self, nobody: HospitalRows) -> tuple[float, float]:
        return 1.0, 1.0

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        return np.maximum(sums, 0.0)


class LabelSums(LabelCounts):
    """Label counts of which the server learns only the sum over hospitals. Noisy counts are not clipped at 0."""

    def from_sums(self, sums: Floats, nobody: HospitalRows) -> Floats:
        return sums


LEAST_EPSILON = 1e-6
"""The smallest ε: its noise is as wide as a million rows. Much smaller values would overflow."""


def check_epsilon(epsilon: float | None) -> None:
    """Raise ``ValueError`` for an ε without a valid noise distribution."""
    if epsilon is not None and not LEAST_EPSILON <= epsilon < np.inf:
        raise ValueError(
            f"privacy_epsilon: {epsilon} is not at least {LEAST_EPSILON:g} and finite; leave it out for exact counts"
        )


def check_classes(field: str, classes: int, remedy: str) -> None:
    """Raise ``ValueError`` naming ``field`` for a label that is a number (``classes`` 0)."""
    if not classes:
        raise ValueError(f"{field} needs the classes of a label, and this label is a number; {remedy}")


def ask_label_counts(view: FederationView, privacy_epsilon: float | None) -> Floats:
    """Ask every hospital for its label counts, ``[N, C]``."""
    counts: Floats = np.stack(view.ask(LabelCounts(privacy_epsilon)))
    return counts
