"""The number of a hospital's training rows in each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raysim.strategies.base import Context, Counts, FederationView, Floats, Ids, statistics_of


@dataclass(frozen=True)
class LabelCounts(Counts):
    """The number of a hospital's training rows in each of C ``classes``, ``[1, C]``.

    ``privacy_epsilon`` is the ε of differential privacy for adding or removing one row: each number has Laplace noise
    of scale ``1 / privacy_epsilon``. None: no Laplace noise.
    """

    classes: int
    noisy: bool = False
    privacy_epsilon: float | None = None
    name = "label_counts"

    @property
    def table(self) -> tuple[int, int]:
        return 1, self.classes

    def places(self, at: Context) -> Ids:
        return at.rows.y[:, None]

    def value(self, at: Context) -> Floats:
        counts = super().value(at)
        if self.privacy_epsilon is None:
            return counts
        return counts + at.rng().laplace(scale=1.0 / self.privacy_epsilon, size=counts.size)


LEAST_EPSILON = 1e-6
"""The smallest allowed ε of the Laplace noise on label counts; with much smaller ε the noise would overflow."""


def check_epsilon(epsilon: float | None) -> None:
    """Raise ``ValueError`` if ``epsilon`` is infinite, or so small that the Laplace noise could overflow."""
    if epsilon is not None and not LEAST_EPSILON <= epsilon < np.inf:
        raise ValueError(
            f"privacy_epsilon: {epsilon} is not at least {LEAST_EPSILON:g} and finite; leave it out for exact counts"
        )


def check_classes(field: str, classes: int, remedy: str) -> None:
    """Raise ``ValueError`` if the label is a number (``classes`` is 0). The message names ``field``, and the
    ``remedy``."""
    if not classes:
        raise ValueError(f"{field} needs the classes of a label, but this label is a number; {remedy}")


def label_counts(view: FederationView, privacy_epsilon: float | None) -> Floats:
    """Return the number of training rows of each class at each hospital, ``[N, C]``; never negative."""
    program = LabelCounts(view.classes, view.noisy(LabelCounts.name), privacy_epsilon)
    return np.maximum(statistics_of(view, program)[:, 0], 0.0)
