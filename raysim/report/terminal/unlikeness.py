"""The heterogeneity of hospitals, in words and as a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from raysim.data import heterogeneity
from raysim.strategies.shared.psi import EPSILON, Smoothing

if TYPE_CHECKING:
    from raysim.data.federation import Federation


@dataclasses.dataclass(frozen=True)
class Unlikeness:
    """How much hospitals' training rows differ in labels, features and number."""

    rows: tuple[tuple[str, str], ...]
    """For each measure, its name and its values as text."""
    sentence: str
    """A clause on how much labels and features differ; may be empty."""

    def table(self) -> Table:
        """Return a table with one row for each measure."""
        title = "differences between hospitals (training rows)"
        table = Table(
            title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False
        )
        for row in self.rows:
            table.add_row(*row)
        return table


def unlikeness(federation: Federation, epsilon: Smoothing = EPSILON) -> Unlikeness:
    """Measure how much hospitals' training rows differ in labels, features and number.

    ``epsilon`` is added to the share of rows in each class or bin before the population stability index (PSI) is
    computed. If ``epsilon`` is ``counts``, half a row is added to each number of rows instead.
    """
    rows, words = [], []
    sizes = federation.sizes("train")
    weights = sizes / max(int(sizes.sum()), 1)
    if federation.classes:
        counts = heterogeneity.label_counts(federation)
        metrics = heterogeneity.label_metrics(counts, epsilon)
        word = unlike(metrics["wpsi"])
        words.append(f"their labels {word}" if word else "")
        rows.append(("labels", f"{word + ': ' if word else ''}{_listed(metrics)}"))
        psi = heterogeneity.label_psi(counts, epsilon=epsilon)
        among = psi.hospital[np.isfinite(psi.hospital)]
        if len(among):
            low, middle = _short(among.min()), _short(np.median(among))
            highest = _highest(psi.hospital, federation.hospitals)
            rows.append(("PSI of hospitals", f"lowest {low}, median {middle}; highest: {highest}"))
        by_class = np.nansum(psi.terms * weights[:, None], axis=0)
        rows.append(("PSI of classes", f"weighted, highest: {_highest(by_class, federation.classes)}"))
    else:
        rows.append(("labels", _listed(heterogeneity.label_spread(federation))))
    features = heterogeneity.federation_feature_psi(federation, epsilon=epsilon)
    by_feature = np.nansum(features.terms * weights[:, None], axis=0)
    word = unlike(float(by_feature.max(initial=-math.inf)))
    words.append(f"the most different feature '{federation.features[int(by_feature.argmax())]}' {word}" if word else "")
    total = f"the sum over features, weighted: {_short(features.weighted)}"
    named = _highest(by_feature, federation.features)
    rows.append(("features", f"{word + ': ' if word else ''}most different: {named}; {total}"))
    smoothing = "half a row in every bin" if epsilon == "counts" else f"epsilon {epsilon:g}"
    rows.append(("PSI smoothed by", smoothing))
    rows.append(("sizes", _listed(dataclasses.asdict(heterogeneity.quantity(sizes)))))
    parts = ", ".join(filter(None, words))
    return Unlikeness(tuple(rows), f"hospitals differ: {parts}" if parts else "")


LITTLE, MUCH = 0.1, 0.25
"""A population stability index (PSI) below ``LITTLE`` is usually called small; from ``MUCH`` on, large.

N. Siddiqi: *Credit Risk Scorecards*, Wiley 2006.
"""


def unlike(psi: float) -> str:
    """Describe a population stability index (PSI) by a word, and say for which PSI this word is used.

    The text is empty if the PSI is undefined.

    >>> unlike(0.02), unlike(0.1), unlike(0.4), unlike(float("nan"))
    ('little (PSI below 0.1)', 'somewhat (PSI below 0.25)', 'much (PSI from 0.25)', '')
    """
    if not math.isfinite(psi):
        return ""
    if psi < LITTLE:
        return f"little (PSI below {LITTLE:g})"
    return f"somewhat (PSI below {MUCH:g})" if psi < MUCH else f"much (PSI from {MUCH:g})"


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in figures.items())


def _highest(values: NDArray[np.float64], names: Sequence[str]) -> str:
    order = [k for k in np.argsort(-values, kind="stable") if np.isfinite(values[k])]
    return ", ".join(f"{names[k]} {_short(values[k])}" for k in order[:5])


def _short(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "undefined"
