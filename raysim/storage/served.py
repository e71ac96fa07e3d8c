"""The models of a run, and the model used for each hospital: ``models.safetensors`` and ``serving.json``.

Each parameter vector has a name, called its owner: ``global``, ``cluster/<k>`` or ``personal/<hospital>``. Any other
vector that all hospitals use has the name of its model. A hospital's second personal vector is named
``<model>/<hospital>``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raysim.core import bounded
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.client.initial_model import parameters
from raysim.engine.job import Outcome
from raysim.engine.measuring.recalibrating import Recalibrated
from raysim.engine.messages.memory import MODEL
from raysim.engine.packing import Arrays, pack, unpack
from raysim.strategies.base import OWN, Division, Strategy
from raysim.strategies.shared.personalization import RECALIBRATED
from raysim.training.base import Layout

MODELS = "models.safetensors"
SERVING = "serving.json"
PREPROCESSING = "preprocessing.json"
FORMAT = 1

DIVISION = "division"
"""Prefix of the names of arrays that belong to the rule by which rows are assigned to groups of patients."""

PERSONAL = "personal/"

NOBODY = "(untrained)"
"""Stands in place of a parameter vector's name if a hospital's model is untrained. The hospital's rows are not
scored."""

Owners = str | tuple[str, ...]
"""The name of the parameter vector for a hospital's rows, or one name for each group of its patients."""

ELSEWHERE = f"{RECALIBRATED} for other hospitals"
"""Name of the recalibrated model for hospitals that did not take part in the run."""


class Shift(NamedTuple):
    """A recalibration of a model's outputs: ``intercept + slope * outputs``. ``of`` is the name of the model's
    parameter vector.
    """

    of: str
    intercept: float
    slope: float

    def applied(self, outputs: NDArray[Any]) -> NDArray[np.float64]:
        """Return the recalibrated ``outputs [n]``."""
        return np.asarray(self.intercept + self.slope * outputs.astype(np.float64))


@dataclass(frozen=True, eq=False, repr=False)
class Served:
    """The parameter vectors of a run, and which of them is used for each hospital or for each group of its patients."""

    vectors: Mapping[str, NDArray[Any]]
    """Each parameter vector ``[P]`` by its name, in the run's precision."""
    owners: Mapping[str, Mapping[str, Owners]]
    """The name of the parameter vector that a hospital uses for a model, by model and by hospital. The last model is
    the headline model."""
    others: Owners | None
    """The name of the parameter vector for hospitals that did not take part in the run; None if there is none."""
    division: Division | None = None
    """The rule that assigns rows to groups of patients; None if models are for whole hospitals."""
    shifts: Mapping[str, Shift] = field(default_factory=dict)
    """Each recalibration by its name. In ``owners``, this name stands in place of a parameter vector's name."""

    def of(self, owner: str) -> tuple[NDArray[Any], Shift | None]:
        """Return the parameter vector with the name ``owner``, and the recalibration of its outputs, if any."""
        shift = self.shifts.get(owner)
        return self.vectors[owner if shift is None else shift.of], shift

    def elsewhere(self, model: str) -> Owners | None:
        """Return the name of the parameter vector of ``model`` for hospitals that did not take part in the run.

        The result is None if there is no such vector. If models belong to groups of patients, it has a name for each
        group.
        """
        if self.others is None or model == RECALIBRATED:
            return self.others
        plain = tuple(self.shifts[owner].of if owner in self.shifts else owner for owner in _each(self.others))
        return plain[0] if isinstance(self.others, str) else plain

    @property
    def headline(self) -> str:
        """The name of the run's headline model."""
        return list(self.owners)[-1]


def served(federation: Federation, outcome: Outcome, precision: str) -> Served:
    """Return the models of the run's last evaluation."""
    used = dataclasses.replace(outcome, models=outcome.models.astype(precision))
    states = {hospital: {MODEL: theta.astype(precision)} for hospital, theta in outcome.own_models.items()}
    names = _names(outcome)
    vectors = {names[row]: used.models[row] for row in _stored_rows(outcome)}
    owners: dict[str, dict[str, Owners]] = {}
    for model, rows in reversed(outcome.serve.items()):
        if model == RECALIBRATED:
            continue
        theirs: dict[str, Owners] = {}
        untrained = outcome.untrained.get(model)
        for hospital, name in enumerate(federation.hospitals):
            if untrained is not None and untrained[hospital]:
                theirs[name] = NOBODY
                continue
            owning = []
            for row in np.atleast_1d(rows[hospital]).tolist():
                owner = names[row] if row >= 0 and outcome.private is None else f"{PERSONAL}{name}"
                if owner.startswith(PERSONAL):
                    theta = parameters(used, row, hospital, states)
                    # The name exists already only if a strategy uses two personal models for a hospital.
                    if not np.array_equal(vectors.get(owner, theta), theta, equal_nan=True):
                        owner = f"{model}/{name}"
                    vectors[owner] = theta
                owning.append(owner)
            theirs[name] = owning[0] if rows.ndim == 1 else tuple(owning)
        owners[model] = theirs
    ordered = {model: owners[model] for model in outcome.serve if model in owners}
    plain = Served(vectors, ordered, _others(outcome, ordered), outcome.division)
    return plain if outcome.recalibrated is None else _shifted(plain, outcome.recalibrated)


def _shifted(plain: Served, recalibrated: Recalibrated) -> Served:
    """Return ``plain`` with one more model, which is recalibrated at each hospital.

    Hospitals that did not take part use the mean recalibration if they use the same parameter vector as all
    participants. Otherwise their model is not recalibrated.
    """
    shifts: dict[str, Shift] = {}

    def shifted(owners: Owners, whose: str, a: float, b: float) -> Owners:
        """Return names for recalibrated versions of the vectors ``owners``, and store their intercept ``a`` and slope
        ``b``. The names begin with ``whose``.
        """
        if owners == NOBODY:
            return NOBODY
        names = []
        for k, owner in enumerate(_each(owners)):
            names.append(whose if isinstance(owners, str) else f"{whose}/{k}")
            shifts[names[-1]] = Shift(owner, a, b)
        return names[0] if isinstance(owners, str) else tuple(names)

    values = zip(recalibrated.shifts.intercept.tolist(), recalibrated.shifts.slope.tolist(), strict=True)
    theirs = {
        hospital: shifted(owners, f"{RECALIBRATED}/{hospital}", a, b)
        for (hospital, owners), (a, b) in zip(plain.owners[recalibrated.of].items(), values, strict=True)
    }
    others = plain.others
    if (
        others is not None
        and recalibrated.prior is not None
        and set(plain.owners[recalibrated.of].values()) == {others}
    ):
        others = shifted(others, ELSEWHERE, recalibrated.prior.mean, 1.0)
    return dataclasses.replace(plain, owners={**plain.owners, RECALIBRATED: theirs}, others=others, shifts=shifts)


def _names(outcome: Outcome) -> dict[int, str]:
    names = {0: "global"} | {row: f"cluster/{row - 1}" for row in range(1, len(outcome.models))}
    for model, rows in outcome.serve.items():
        row = int(rows.flat[0])
        if row > 0 and (rows == row).all() and model not in ("cluster", "personal"):
            names[row] = model
    return names


def _stored_rows(outcome: Outcome) -> list[int]:
    rows = {row for rows in outcome.serve.values() for row in np.unique(rows[rows != OWN]).tolist()}
    if outcome.mixture is not None and any((rows == OWN).any() for rows in outcome.serve.values()):
        mixed = outcome.mixture > 0
        rows |= set(np.flatnonzero(mixed[mixed.sum(axis=1) > 1].any(axis=0)).tolist())
    return sorted(rows)


def _others(outcome: Outcome, owners: Mapping[str, Mapping[str, Owners]]) -> Owners | None:
    """Return the name of the parameter vector for hospitals that did not take part.

    The last model with a single vector for all hospitals is used, else the global model. The result is None if there is
    neither, or if each hospital has private parameters.
    """
    if outcome.private is not None:
        return None
    for model in reversed(list(owners)):
        theirs = set(owners[model].values()) - {NOBODY}
        if len(theirs) == 1 and not str(alike := theirs.pop()).startswith(PERSONAL):
            return alike
    everybody = {owner for theirs in owners.values() for owner in theirs.values()}
    return "global" if "global" in everybody else None


def to_store(served: Served, layout: Layout) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the tensors for ``models.safetensors``, and the content of ``serving.json``."""
    arrays: Arrays = {}
    tree = {
        "format": FORMAT,
        "hospitals": list(served.owners[served.headline]),
        "models": {model: _written(theirs) for model, theirs in served.owners.items()},
        "other_hospitals": served.others,
        "division": _packed(served.division, arrays),
        **({"shifts": {owner: list(shift) for owner, shift in served.shifts.items()}} if served.shifts else {}),
    }
    return named_tensors(served.vectors, layout) | arrays, tree


def named_tensors(vectors: Mapping[str, NDArray[Any]], layout: Layout) -> dict[str, NDArray[Any]]:
    """Return the tensors of all parameter vectors by the name ``<owner>/<parameter>``."""
    return {
        f"{owner}/{name}": np.ascontiguousarray(tensor)
        for owner, theta in vectors.items()
        for name, tensor in layout.split(theta).items()
    }


def read_served(folder: Path, layout: Layout, strategy: Callable[[], Strategy]) -> Served:
    """Read the models in a run's folder, as :func:`to_store` wrote them.

    ``strategy`` returns the run's strategy. It is called only if models belong to groups of patients, because the
    strategy's module defines the class of the rule that assigns rows to groups. Raises ``ConfigError`` if a file is
    missing, or if this version cannot read it.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        tree = bounded.read_json(folder / SERVING)
        if tree["format"] != FORMAT:
            raise ValueError(f"its format is {tree['format']}, and this version reads {FORMAT}")
        tensors = load_file(folder / MODELS)
        owners = {model: _by_hospital(written, tree["hospitals"]) for model, written in tree["models"].items()}
        others = None if tree["other_hospitals"] is None else _owners(tree["other_hospitals"])
        named = {owner for theirs in owners.values() for each in theirs.values() for owner in _each(each)} - {NOBODY}
        shifts = {owner: _shift(*written) for owner, written in tree.get("shifts", {}).items()}
        whole = (named | set(_each(others or ()))) - shifts.keys() | {shift.of for shift in shifts.values()}
        vectors = {
            owner: np.concatenate([tensors[f"{owner}/{name}"].ravel() for name in layout.names])
            for owner in sorted(whole)
        }
        for owner, theta in vectors.items():
            if theta.dtype.kind != "f" or theta.shape != (layout.size,):
                has = f"{theta.size} numbers of type {theta.dtype}"
                raise ValueError(f"'{owner}' has {has}, but the model needs {layout.size} floating-point numbers")
        division = tree["division"]
        cut = None if division is None else _unpacked(division, tensors, strategy())
        return Served(vectors, owners, others, cut, shifts)
    except OSError as error:
        raise ConfigError(
            f"{folder}: has no models to score with ({error.strerror or error}); name the folder of a finished run"
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise ConfigError(f"{folder / SERVING}: cannot be used ({error}); run again with this version") from None


def _written(theirs: Mapping[str, Owners]) -> Any:
    owners = set(theirs.values())
    return owners.pop() if len(owners) == 1 else dict(theirs)


def _by_hospital(written: Any, hospitals: Iterable[str]) -> dict[str, Owners]:
    theirs = written if isinstance(written, dict) else dict.fromkeys(hospitals, written)
    return {hospital: _owners(owner) for hospital, owner in theirs.items()}


def _owners(written: str | list[str]) -> Owners:
    return written if isinstance(written, str) else tuple(written)


def _shift(of: Any, intercept: Any, slope: Any) -> Shift:
    shift = Shift(str(of), float(intercept), float(slope))
    if not (np.isfinite(shift.intercept) and 0 < shift.slope < np.inf):
        raise ValueError(
            f"the recalibration of '{shift.of}' has intercept {shift.intercept} and slope {shift.slope}; both must be "
            "finite, and the slope above 0"
        )
    return shift


def _each(owners: Owners) -> Iterable[str]:
    return (owners,) if isinstance(owners, str) else owners


def _packed(division: Division | None, arrays: Arrays) -> Any:
    """Return JSON values of the rule that divides rows into groups, and add the rule's arrays to ``arrays``.

    If the rule's fields cannot be stored, the result has only the name of the rule's class, and the reason.
    """
    if division is None:
        return None
    division_arrays: Arrays = {}
    name = type(division).__qualname__
    try:
        value = pack(division, DIVISION, division_arrays, typed=True)
    except TypeError as error:
        return {"class": name, "not_kept": str(error)}
    arrays |= division_arrays
    return {"class": name, "value": value}


def _unpacked(tree: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], strategy: Strategy) -> Division:
    """Return the rule that divides rows into groups, as :func:`_packed` stored it.

    The rule's class must be in a module that defines the strategy's class or one of its base classes, so that no stored
    file decides which module is imported.
    """
    name = tree["class"]
    if "not_kept" in tree:
        raise ValueError(f"the rule {name} for groups of rows could not be stored: {tree['not_kept']}")
    for module in dict.fromkeys(sys.modules.get(cls.__module__) for cls in type(strategy).__mro__):
        cls = getattr(module, name, None)
        if dataclasses.is_dataclass(cls) and callable(getattr(cls, "assign", None)):
            division: Division = unpack(tree["value"], arrays, cls)
            return division
    raise ValueError(f"the rule for groups of rows has the class {name}, which the strategy's modules do not define")
