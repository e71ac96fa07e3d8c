"""Scores rows with the models of a finished run."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config import plugins, reading
from raysim.core.errors import ConfigError, DataError, nearest
from raysim.core.words import counted, some
from raysim.data.fitted import Preprocessing
from raysim.data.new_rows import FIELD, read_new_rows
from raysim.data.raw_columns import slices
from raysim.data.tables.blank_rows import without_blank_rows
from raysim.metrics.predictions import predictions
from raysim.serving.folder import NAMED, bound_model, check_run, read_preprocessing
from raysim.storage.served import NOBODY, Owners, Served, read_served
from raysim.strategies.base import Strategy
from raysim.training.base import Model

_log = logging.getLogger("raysim.serving")


@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """The models of a finished run, for predictions on the CPU, with the run's preprocessing.

    Each hospital's rows are scored by the model that the run uses for this hospital.
    """

    folder: Path
    preprocessing: Preprocessing
    model: Model
    served: Served

    @staticmethod
    def open(folder: Path) -> Predictor:
        """Read the models of the run in ``folder``. Raises ``ConfigError`` if models or plug-ins are missing."""
        check_run(folder)
        config = reading.resolve(folder / "config.yaml", reads=("model",))
        fitted = read_preprocessing(folder)
        model = bound_model(config, fitted)

        def strategy() -> Strategy:
            return plugins.build_strategy(config.strategy, model=config.model)

        return Predictor(folder, fitted, model, read_served(folder, model.layout, strategy))

    def predict(
        self, table: str | Path | pd.DataFrame, *, hospital: str | None = None, model: str | None = None
    ) -> pd.DataFrame:
        """Return one row for each row of the table that is not blank, in the same order, with these columns:

        - ``hospital``: the row's hospital; empty if no hospital is given and all hospitals share one model;
        - the columns of predictions that :func:`raysim.metrics.predictions.predictions` names;
        - ``scored_by``: the name of the parameters that scored the row, such as ``global`` or ``personal/north``.

        ``hospital`` is the hospital of all rows; None means that the table's column of hospitals is used, if there is
        one. ``model`` is the name of one of the run's models; None means the headline model. Rows of a hospital that
        did not take part in the run are scored by the run's model for such hospitals, and a warning names the hospital.
        If ``table`` is a data frame, the result has its index.

        Raises ``DataError`` for a table that does not fit, and for an unknown hospital if the run has no model
        for it. Raises ``ConfigError`` for a ``model`` that was not used for any hospital.
        """
        served = self._served_by(model)
        table = Path(table) if isinstance(table, str) else table
        remarks: tuple[str, ...] = ()
        if isinstance(table, pd.DataFrame):
            table, remarks = without_blank_rows(table, f"{FIELD}: the data frame")
        rows = read_new_rows(table, self.preprocessing, None if hospital is None else str(hospital))
        for note in (*remarks, *rows.notes):
            _log.warning(note)
        homes = rows.hospitals if rows.hospitals is not None else self._nobodys(served, len(rows))
        X, observed = self.preprocessing.transform(rows.columns)
        owners = self._owners_of_rows(X, observed, homes, served)
        columns = predictions(self._scored(X, owners), self.preprocessing.classes)
        index = table.index if isinstance(table, pd.DataFrame) else None
        return pd.DataFrame({"hospital": homes, **columns, "scored_by": owners}, index)

    def outputs(
        self, X: NDArray[np.float32], observed: NDArray[np.bool_], hospitals: NDArray[Any], model: str | None = None
    ) -> NDArray[Any]:
        """Return logits, ``[n]``, or ``[n, C]`` for more than two classes; for numeric labels, the predictions ``[n]``.

        ``X [n, F]`` has the features, ``observed [n, F]`` says which values were recorded, and ``hospitals [n]`` names
        each row's hospital. Raises ``DataError`` for a hospital unknown to the run, if the run has no model for it.
        """
        return self._scored(X, self._owners_of_rows(X, observed, hospitals, self._served_by(model)))

    def owner(self, hospital: str | None, model: str | None = None) -> str:
        """Return the name of the parameters for a hospital's rows, such as ``global`` or ``personal/north``.

        ``hospital`` None stands for a hospital that did not take part in the run. Raises ``ConfigError`` if there are
        no such parameters, or if groups of patients have models of their own.
        """
        served = self._served_by(model)
        theirs = self.served.owners[served]
        owners: Owners | None
        if hospital is not None:
            if hospital not in theirs:
                hint = nearest(hospital, theirs) if len(theirs) <= 20 else f"known: {some(list(theirs), NAMED)}"
                raise ConfigError(f"--hospital: '{hospital}' is not a hospital of the run; {hint}")
            owners = theirs[hospital]
            if owners == NOBODY:
                raise ConfigError(f"--hospital: {self._untrained(hospital, served)}")
        else:
            # A named model must be the same for all hospitals; otherwise use the model for unknown hospitals.
            alike = set(theirs.values())
            others = self.served.elsewhere(served)
            owners = others if model is None or alike == {others} else None
        if owners is None:
            raise ConfigError(
                f"--hospital: there is no single {served} model for all hospitals; name one hospital of "
                f"{some(list(theirs), NAMED)}"
            )
        if not isinstance(owners, str):
            raise ConfigError(
                f"{self.folder}: its models belong to groups of patients, and each row's values decide its group; use "
                "raysim predict"
            )
        return owners

    def _served_by(self, model: str | None) -> str:
        if model is None:
            return self.served.headline
        if model not in self.served.owners:
            raise ConfigError(
                f"--model: '{model}' was not used at any hospital in {self.folder}; "
                f"{nearest(model, self.served.owners)}"
            )
        return model

    def _owners_of_rows(
        self, X: NDArray[np.float32], observed: NDArray[np.bool_], hospitals: NDArray[Any], served: str
    ) -> NDArray[Any]:
        names, which = np.unique(hospitals.astype(str), return_inverse=True)
        owners, strangers, n = np.empty(len(X), dtype=object), [], 0
        for k, name in enumerate(names.tolist()):
            rows = np.flatnonzero(which == k)
            theirs = self._owners(name, served)
            if name and name not in self.served.owners[served]:
                strangers.append(name)
                n += len(rows)
            if isinstance(theirs, str):
                owners[rows] = theirs
            else:
                owners[rows] = np.array(theirs, dtype=object)[self._groups(X[rows], observed[rows], name)]
        if strangers:
            by = self.served.elsewhere(served)
            verb = "is" if n == 1 else "are"
            _log.warning(
                f"{FIELD}: {counted(n, 'row')} of hospitals that were not in the run ({some(strangers, NAMED)}) "
                f"{verb} scored by {by if isinstance(by, str) else 'the models of their groups of patients'}"
            )
        return owners

    def _scored(self, X: NDArray[np.float32], owners: NDArray[Any]) -> NDArray[Any]:
        """Return the outputs ``[n]`` or ``[n, C]``, each row scored with the parameters that ``owners [n]`` names."""
        like = self.model.logits(next(iter(self.served.vectors.values())), X[:1])
        each = dict.fromkeys(owners.tolist())
        # Shifts use double precision, as in the evaluation of the run.
        kind = np.float64 if any(owner in self.served.shifts for owner in each) else like.dtype
        outputs = np.empty((len(X), *like.shape[1:]), kind)
        for owner in each:
            theta, shift = self.served.of(owner)
            rows = np.flatnonzero(owners == owner)
            for at in slices(len(rows)):
                scores = self.model.logits(theta, X[rows[at]])
                outputs[rows[at]] = scores if shift is None else shift.applied(scores)
        return outputs

    def _owners(self, hospital: str, served: str) -> Owners:
        theirs = self.served.owners[served].get(hospital, self.served.elsewhere(served))
        if theirs is None:
            names = list(self.served.owners[served])
            raise DataError(
                f"{FIELD}: hospital '{hospital}' was not in the run, and each {served} model belongs to one hospital; "
                f"{nearest(hospital, names) if len(names) <= 20 else f'known: {some(names, NAMED)}'}"
            )
        if theirs == NOBODY:
            raise DataError(f"{FIELD}: {self._untrained(hospital, served)}")
        return theirs

    def _untrained(self, hospital: str, served: str) -> str:
        others = [m for m, owners in self.served.owners.items() if owners.get(hospital, NOBODY) != NOBODY]
        remedy = f"use --model {others[-1]}" if others else "leave its rows out, or use another run"
        return f"the {served} model of hospital '{hospital}' was never trained, so it cannot score rows; {remedy}"

    def _groups(self, X: NDArray[np.float32], observed: NDArray[np.bool_], hospital: str) -> NDArray[np.int64]:
        if self.served.division is None:
            raise ConfigError(f"{self.folder}: does not describe the groups that its models belong to; repeat the run")
        hospitals = list(self.served.owners[self.served.headline])
        number = hospitals.index(hospital) if hospital in hospitals else len(hospitals)
        return np.asarray(self.served.division.assign(X, observed, number), np.int64)

    def _nobodys(self, served: str, n: int) -> NDArray[Any]:
        """Return empty hospital names, one for each of ``n`` rows of a table without hospitals.

        Raises ``DataError`` if hospitals do not share one model.
        """
        owners: Sequence[Owners] = list(set(self.served.owners[served].values()))
        if len(owners) > 1 or self.served.elsewhere(served) != owners[0]:
            raise DataError(
                f"{FIELD}: no column '{self.preprocessing.hospital}' names the hospital of each row; add it, or name "
                "the hospital of all rows (--hospital)"
            )
        return np.full(n, "")
