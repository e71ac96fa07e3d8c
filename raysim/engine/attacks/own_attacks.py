"""Attacks that single Byzantine hospitals make on their training rows and on the updates they send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.adversaries import rows, updates
from raysim.adversaries.who import ON_ROWS, ON_UPDATES
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.data.fitted import Numeric
from raysim.engine.messages.steps import HospitalStep, Leaving
from raysim.strategies.base import Floats

if TYPE_CHECKING:
    from raysim.config.sections.adversary import AdversarySection


@dataclass(frozen=True)
class FeatureScale:
    """How preprocessing scaled a feature and filled its missing values."""

    mean: float = 0.0
    """The feature's mean before preprocessing, divided by the feature's scale; 0 if the feature was not scaled."""
    gap: float | None = None
    """The scaled value that replaces missing values. None means that no value is missing, or that the feature was not
    scaled."""
    flag: int | None = None
    """The index of the column that is 1 where the feature is missing. None means that values equal to ``gap`` count as
    missing."""

    @staticmethod
    def of(federation: Federation, feature: int) -> FeatureScale:
        """Return how preprocessing scaled the feature in column ``feature``."""
        fitted, name = federation.preprocessing, federation.features[feature]
        column = next((each for each in fitted.columns if each.name == name), None)
        if not isinstance(column, Numeric) or fitted.method == "none":
            return FeatureScale()
        mean, gap, flag = column.mean / column.scale, (column.fill - column.mean) / column.scale, f"{name}_missing"
        if flag in federation.features:
            return FeatureScale(mean, gap, federation.features.index(flag))
        return FeatureScale(mean, None if bool(federation.observed[:, feature].all()) else gap)

    def recorded(self, X: NDArray[Any], feature: int) -> NDArray[np.bool_] | None:
        """Return a mask ``[n]`` of the rows ``X [n, d]`` in which ``feature`` is not missing; None marks all rows."""
        if self.flag is not None:
            return np.asarray(X[:, self.flag] == 0)
        return None if self.gap is None else X[:, feature] != X.dtype.type(self.gap)


UNITS = 88.4
"""The default factor of the attack ``units``: it converts creatinine from mg/dl to µmol/l."""


class Tampering(HospitalStep):
    """The hospital's side of an attack or of a privacy audit: it changes the update right after training."""

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """Return what a hospital sends in place of its trained update ``delta [P]``, with magnitudes below
        ``limit``.
        """
        raise NotImplementedError

    def forward(self, leaving: Leaving) -> None:
        leaving.update = self.update(leaving.hospital, leaving.update, leaving.limit)
        leaving.keep_private()


@dataclass(frozen=True, eq=False)
class OwnAttack(Tampering):
    """An attack that each Byzantine hospital makes without knowing other hospitals' updates."""

    section: AdversarySection
    bad: frozenset[int]
    """The ids of the Byzantine hospitals."""
    seed: int
    round: int
    hospitals: int
    classes: int
    feature: int | None
    """The index of the feature that the attack changes; None if it changes no feature."""
    measured: FeatureScale = FeatureScale()
    """How preprocessing scaled the feature that the attack changes."""

    @property
    def _kind(self) -> str:
        # A lying hospital that has entered a cluster flips the sign of its updates.
        return "sign_flip" if self.section.attack == "signature_lie" else self.section.attack

    @property
    def changes_rows(self) -> bool:
        """Whether the attack changes the training rows of Byzantine hospitals."""
        return self._kind in ON_ROWS

    @property
    def changes(self) -> bool:
        """Whether the attack changes the updates of Byzantine hospitals after training."""
        return not self.changes_rows

    def rows(self, hospital: int, X: NDArray[Any], y: NDArray[Any]) -> rows.Rows:
        """Return the features and labels on which ``hospital`` trains in place of ``X [n, d]`` and ``y [n]``."""
        if hospital not in self.bad or self._kind not in ON_ROWS:
            return X, y
        section = self.section
        # The attack changes the same rows in all rounds.
        rng = stream(self.seed, "attacked rows", hospital)
        if self._kind == "label_flip":
            return rows.label_flip(X, y, self.classes, section.rows, rng)
        if self.feature is None:
            raise ValueError("the attack needs a feature, but none is set; set adversary.feature")
        if self._kind == "backdoor":
            return rows.backdoor(X, y, self.feature, section.value, section.label, section.rows, rng)
        if section.stuck:
            return rows.stuck(X, y, self.feature)
        factor = UNITS if section.factor is None else section.factor
        # The value was in the wrong unit before it was scaled: (factor v - mean) / scale.
        offset = (factor - 1.0) * self.measured.mean
        return rows.units(X, y, self.feature, factor, offset, self.measured.recorded(X, self.feature))

    def update(self, hospital: int, delta: Floats, limit: float) -> Floats:
        """Return what ``hospital`` sends in place of its trained update ``delta [P]``, with magnitudes below
        ``limit``.
        """
        if hospital not in self.bad or self._kind not in ON_UPDATES:
            return delta
        section, sent = self.section, delta
        if self._kind == "sign_flip":
            sent = updates.sign_flip(delta, 1.0 if section.factor is None else section.factor)
        elif self._kind == "scale":
            sent = updates.scale(delta, float(self.hospitals) if section.factor is None else section.factor)
        elif self._kind == "gaussian":
            rng = stream(self.seed, "attack", self.round, hospital)
            sent = updates.gaussian(delta, section.mean, section.std, rng)
        else:
            sent = updates.zero(delta)
        return within(sent, limit)


def within(vector: Floats, limit: float) -> Floats:
    """Clip the entries of ``vector`` to magnitudes below ``limit``, the largest value that sums can store."""
    if not np.isfinite(limit):
        return vector
    most = np.nextafter(limit, 0.0)
    return np.clip(vector, -most, most)
