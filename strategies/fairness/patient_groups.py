"""A privileged group of patients and all others, by sex, ethnicity or age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import one_of

Attribute = Literal["sex", "ethnicity", "age"]
Privileged = str | tuple[float, float]
"""The name of a sex or ethnicity, or an age band: from the first age to below the second."""

OTHERS, PRIVILEGED, UNKNOWN = 0, 1, -1
"""The groups of patients. The attribute of patients in ``UNKNOWN`` was not recorded."""


def check_group(attribute: str, privileged: Privileged) -> None:
    """Raise ``ValueError`` for an unknown attribute, or a group that is not one of this attribute."""
    one_of("attribute", attribute, ("sex", "ethnicity", "age"))
    if attribute != "age":
        if not isinstance(privileged, str):
            raise ValueError(f"privileged: {privileged} is a range of ages; give the name of one {attribute}")
    elif isinstance(privileged, str) or not privileged[0] < privileged[1]:
        raise ValueError(f"privileged: '{privileged}' is not a range of ages, smaller first; write [18, 65]")


def patient_groups(
    patients: Mapping[str, NDArray[Any]], attribute: Attribute, privileged: Privileged
) -> NDArray[np.int64]:
    """Return the group of each patient ``[n]``: ``PRIVILEGED``, ``OTHERS``, or ``UNKNOWN``.

    A patient is ``UNKNOWN`` without a text or a number, or with the text ``unknown``. Raises ``ValueError`` if the data
    lacks the attribute.
    """
    if attribute not in patients:
        attributes = f"it knows their {', '.join(patients)}" if patients else "it knows nothing of them"
        raise ValueError(f"attribute: the data has no attribute {attribute} of patients, {attributes}")
    values = patients[attribute]
    if isinstance(privileged, str):
        inside, unknown = values == privileged, np.isin(np.char.lower(values.astype(str)), ("", "unknown"))
    else:
        inside, unknown = (values >= privileged[0]) & (values < privileged[1]), np.isnan(values)
    return np.where(inside, PRIVILEGED, np.where(unknown, UNKNOWN, OTHERS))


def check_patients(patients: Mapping[str, NDArray[Any]], attribute: Attribute, privileged: Privileged) -> None:
    """Raise ``ValueError`` if the data lacks the attribute, or all patients are in the same group."""
    groups = patient_groups(patients, attribute, privileged)
    if not (groups == PRIVILEGED).any():
        values = patients[attribute]
        values_there = ", ".join(np.unique(values).tolist()) if isinstance(privileged, str) else _range(values)
        raise ValueError(f"privileged: no patient's {attribute} is '{privileged}'; there are {values_there}")
    if not (groups == OTHERS).any():
        raise ValueError(f"privileged: the {attribute} of every patient is '{privileged}'; there is nobody to compare")


def _range(ages: NDArray[Any]) -> str:
    recorded = ages[~np.isnan(ages)]
    return f"ages {recorded.min():g} to {recorded.max():g}" if len(recorded) else "no ages"
