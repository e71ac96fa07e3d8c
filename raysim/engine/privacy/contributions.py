"""Contribution bounding: at most a given number of each patient's rows is used. These rows are sampled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.data.contribution import Contribution, choose_rows, shuffled
from raysim.data.federation import Federation

if TYPE_CHECKING:
    from raysim.config.sections.privacy import RowUnit


class Contributions:
    """A cache of the rows that hospitals use if a privacy guarantee limits the number of rows per patient."""

    def __init__(self) -> None:
        self._chosen: dict[tuple[str, int, str, int, int, str], Contribution] = {}

    def of(
        self, federation: Federation, hospital: int, unit: RowUnit, most: int, seed: int, part: str = "train"
    ) -> Contribution:
        """Return the rows of a hospital's ``part`` that are used: at most ``most`` of each patient, sampled with
        ``seed``.
        """
        key = (str(federation.folder), hospital, unit, most, seed, part)
        if key not in self._chosen:
            people = people_of(federation, hospital, unit, part)
            self._chosen[key] = choose_rows(people, shuffled(people, seed), most)
        return self._chosen[key]


def people_of(federation: Federation, hospital: int, unit: RowUnit, part: str = "train") -> NDArray[np.int64]:
    """Return the patient of each row of a hospital's ``part``. If ``unit`` is ``example``, each row counts as its own
    patient. Raises ``ConfigError`` if patients are unknown.
    """
    rows = federation.rows(hospital, part)
    if unit == "example":
        return np.arange(rows.stop - rows.start)
    try:
        return federation.people[rows]
    except FileNotFoundError:
        raise ConfigError(
            "privacy.unit: patient, but data.split.by divides rows by a column that is not the patient; leave "
            "data.split.by out, or set privacy.unit: example"
        ) from None


def patient_counts(federation: Federation, unit: RowUnit) -> tuple[int, ...]:
    """Return the number of patients with training rows at each hospital. If ``unit`` is ``example``, return the number
    of training rows instead.
    """
    return tuple(len(np.unique(people_of(federation, h, unit))) for h in range(len(federation.hospitals)))
