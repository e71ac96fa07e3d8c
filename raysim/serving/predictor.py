"""Scores rows with the models of a finished run, each hospital's by what served that hospital."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from raysim.config import plugins, reading
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, DataError, nearest
from raysim.data.fitted import Preprocessing
from raysim.data.new_rows import FIELD, read_new_rows
from raysim.engine.messages import ModelSpec
from raysim.metrics.predictions import predictions
from raysim.storage.served import PREPROCESSING, Owners, Served, read_served
from raysim.strategies.base import Strategy
from raysim.training.base import Model
from raysim.training.models import build_model

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Predictor:
    """A run's models, bound to its features and classes on the CPU, with its preprocessing and who is served by what.

    ``folder`` is the run's, for errors.
    """

    folder: Path
    preprocessing: Preprocessing
    model: Model
    served: Served

    @staticmethod
    def open(folder: Path) -> Predictor:
        """Of the run in ``folder``. Raises ``ConfigError`` where it left no models, or its plug-ins are not there."""
        config = reading.resolve(folder / "config.yaml", reads=("model",))
        fitted = read_preprocessing(folder)
        model = bound_model(config, fitted)

        def strategy() -> Strategy:
            return plugins.build_strategy(config.strategy)

        return Predictor(folder, fitted, model, read_served(folder, model.layout, strategy))

    def predict(
        self, table: Path | pd.DataFrame, *, hospital: str | None = None, model: str | None = None
    ) -> pd.DataFrame:
        """``hospital`` and what :func:`raysim.metrics.predictions.predictions` names, a row for each of the table.

        ``hospital``: whose rows these are, in place of what a column of the table says. ``model``: the model served,
        the headline where None. Raises ``DataError`` for a table that does not fit and for a hospital that the run
        did not know, where no model is everybody's.
        """
        import pandas as pd

        served = self._served_by(model)
        rows = read_new_rows(table, self.preprocessing)
        homes = self._homes(rows.hospitals if hospital is None else np.full(len(rows), hospital), served, len(rows))
        X, observed = self.preprocessing.transform(rows.columns)
        said = predictions(self.outputs(X, observed, homes, served), self.preprocessing.classes)
        return pd.DataFrame({"hospital": homes, **said})

    def outputs(
        self, X: NDArray[np.float32], observed: NDArray[np.bool_], hospitals: NDArray[Any], model: str | None = None
    ) -> NDArray[Any]:
        """What the model served says of prepared rows ``X [n, F]`` of ``hospitals [n]``: ``[n]`` or ``[n, C]``.

        Raises ``DataError`` for a hospital that the run did not know, where no model is everybody's.
        """
        served = self._served_by(model)
        names, which = np.unique(hospitals.astype(str), return_inverse=True)
        owners = np.empty(len(X), dtype=object)
        for k, name in enumerate(names.tolist()):
            rows = np.flatnonzero(which == k)
            theirs = self._owners(name, served)
            if isinstance(theirs, str):
                owners[rows] = theirs
            else:
                owners[rows] = np.array(theirs, dtype=object)[self._groups(X[rows], observed[rows], name)]
        said: NDArray[Any] | None = None
        for owner in dict.fromkeys(owners.tolist()):
            rows = np.flatnonzero(owners == owner)
            part = self.model.logits(self.served.vectors[owner], X[rows])
            if said is None:
                said = np.empty((len(X), *part.shape[1:]), part.dtype)
            said[rows] = part
        return self.model.logits(next(iter(self.served.vectors.values())), X) if said is None else said

    def owner(self, hospital: str | None, model: str | None = None) -> str:
        """Whose vector serves a hospital (None: one that the run did not know).

        Raises ``ConfigError`` where there is none, or one for each group of rows.
        """
        served = self._served_by(model)
        theirs = self.served.others if hospital is None else self._owners(hospital, served)
        if theirs is None:
            names = self.served.owners[served]
            raise ConfigError(
                f"--hospital: the {served} model is not one for all hospitals; name one of {_some(list(names))}"
            )
        if not isinstance(theirs, str):
            raise ConfigError(
                f"{self.folder}: its models belong to groups of patients, who are told apart by their rows; "
                "use raysim predict"
            )
        return theirs

    def _served_by(self, model: str | None) -> str:
        if model is None:
            return self.served.headline
        if model not in self.served.owners:
            raise ConfigError(
                f"--model: '{model}' served nobody in {self.folder}; {nearest(model, self.served.owners)}"
            )
        return model

    def _owners(self, hospital: str, served: str) -> Owners:
        theirs = self.served.owners[served].get(hospital, self.served.others)
        if theirs is None:
            names = self.served.owners[served]
            raise DataError(
                f"{FIELD}: hospital '{hospital}' is not one of the run's, whose {served} models are hospitals' own; "
                f"{nearest(hospital, names) if len(names) <= 20 else f'known: {_some(list(names))}'}"
            )
        return theirs

    def _groups(self, X: NDArray[np.float32], observed: NDArray[np.bool_], hospital: str) -> NDArray[np.int64]:
        """The group of patients of each row ``[n]``."""
        if self.served.division is None:
            raise ConfigError(f"{self.folder}: says nothing on the groups that its models belong to; run it again")
        known = list(self.served.owners[self.served.headline])
        number = known.index(hospital) if hospital in known else len(known)
        return np.asarray(self.served.division.assign(X, observed, number), np.int64)

    def _homes(self, hospitals: NDArray[Any] | None, served: str, n: int) -> NDArray[Any]:
        """The hospital of each row ``[n]``: none, where the table says nothing and one model serves everybody."""
        if hospitals is not None:
            return hospitals
        owners = set(self.served.owners[served].values())
        if len(owners) > 1 or self.served.others not in owners:
            raise DataError(
                f"{FIELD}: no column '{self.preprocessing.hospital}' names the hospital of each row; add it, or say "
                "whose rows they are (--hospital)"
            )
        return np.full(n, "")


def read_preprocessing(folder: Path) -> Preprocessing:
    """What a run's ``preprocessing.json`` says. Raises ``ConfigError`` where it cannot be used."""
    try:
        return Preprocessing.of(json.loads((folder / PREPROCESSING).read_text()))
    except OSError as error:
        raise ConfigError(
            f"{folder}: no preprocessing ({PREPROCESSING}: {error.strerror}); name the folder of a finished run"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder / PREPROCESSING}: cannot be used ({error}); run again with this version") from None


def bound_model(config: Config, fitted: Preprocessing) -> Model:
    """The model that a configuration names for these features and classes, on the CPU."""
    spec = ModelSpec.of(config.model)
    return build_model(
        spec.class_path or spec.name or "",
        len(fitted.features),
        len(fitted.classes),
        options=spec.options,
        init=spec.init,
        precision=config.training.precision,
    )


def _some(names: list[str]) -> str:
    """The first few names.

    >>> _some(["a", "b"])
    'a, b'
    """
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
