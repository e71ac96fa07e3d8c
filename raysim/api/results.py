"""The results of runs in their folders, as data frames, figures and predictions.

Everything is read from the files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from raysim.api import html
from raysim.api.drawings import Figures
from raysim.api.request import search_path_restored
from raysim.config import plugins, reading
from raysim.config.paths import display_path, expanded
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, DataError, RaysimError, nearest
from raysim.core.words import of_type
from raysim.engine.measuring.stopping import Stopped
from raysim.report.judgement.card import Card
from raysim.report.supplement import training
from raysim.report.tables import read_csv
from raysim.statistics.convergence import Convergence
from raysim.storage.manifest import Manifest

if TYPE_CHECKING:
    from raysim.serving.predictor import Predictor

Predictions = pd.DataFrame | pd.Series
"""Predictions for ``n`` rows. With two classes they are probabilities of the event ``[n]``, with ``C`` classes
probabilities of each class ``[n, C]``, and with a real-valued label its values ``[n]``.
"""


class Results:
    """Results in a folder; the base class of the results of all commands."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = expanded(folder).absolute()

    def __repr__(self) -> str:
        """Return the title, the first sentence of the conclusions and the folder."""
        try:
            return f"<{self._title}: {self._sentences[0]} ({display_path(self.folder)})>"
        except (OSError, ValueError, LookupError, RaysimError):
            return f"{type(self).__name__}('{display_path(self.folder)}')"

    def __str__(self) -> str:
        """Return the title, the sentences of the conclusions and the folder, one per line."""
        try:
            return "\n".join([self._title, *self._sentences, f"files: {display_path(self.folder)}"])
        except (OSError, ValueError, LookupError, RaysimError):
            return repr(self)

    @property
    def _title(self) -> str:
        raise NotImplementedError

    @property
    def _sentences(self) -> list[str]:
        """The sentences of the conclusions, the headline first; there is at least one."""
        raise NotImplementedError

    def table(self, name: str) -> pd.DataFrame:
        """Read the CSV file with this name in the folder. Raises ``ConfigError`` if there is none."""
        if not (self.folder / name).is_file():
            tables = [file for file in Manifest.read(self.folder).files if file.endswith(".csv")]
            raise ConfigError(f"{self.folder}: has no table '{name}'; {nearest(name, tables)}")
        return read_csv(self.folder / name)

    def _json(self, name: str) -> Any:
        """Read the JSON file with this name in the folder. Raises ``ConfigError`` if there is none."""
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            raise ConfigError(
                f"{self.folder}: has no {name}; finish a stopped run with raysim resume, or repeat the run with this "
                "version of raysim"
            ) from None

    @cached_property
    def figures(self) -> Figures:
        """The figures of the folder's report page, by name. ``save`` writes one to a file."""
        return Figures(self.folder)

    @cached_property
    def config(self) -> Config:
        """The complete configuration with which the results were made."""
        return reading.resolve(self.folder / "config.yaml", reads=())

    @cached_property
    def hospitals(self) -> pd.DataFrame:
        """Metrics with one row per hospital and model; in a comparison, one per strategy, model, seed and hospital."""
        return self.table("hospitals.csv")


class RunResult(Results):
    """The results of one strategy with one seed, from the folder of ``raysim run`` or of a run in a comparison."""

    @property
    def _title(self) -> str:
        return f"{self.strategy}, seed {self.seed}"

    @property
    def _sentences(self) -> list[str]:
        return self.answer.sentences

    @property
    def strategy(self) -> str:
        """The name of the strategy in tables and figures."""
        return plugins.label(self.config.strategy)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.config.seed

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``; undefined values are None."""
        tree: dict[str, Any] = self._json("summary.json")
        return tree

    @cached_property
    def models(self) -> dict[str, dict[str, float]]:
        """The metrics of the whole federation, by the names of model and metric; undefined metrics are NaN.

        A strategy can have several models, such as a global and a personalized one. The main model comes last.
        """
        models = self.summary["models"]
        return {model: {name: _figure(value) for name, value in metrics.items()} for model, metrics in models.items()}

    @cached_property
    def metrics(self) -> pd.Series:
        """The metrics of the whole federation for the main model, by name; undefined metrics are NaN."""
        model = self.summary["model"]
        return pd.Series(self.models[model], name=model, dtype=float)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per training round: time, number of participants, traffic and training loss.

        In evaluated rounds, columns ``<model>_<metric>`` have the metrics of each model.
        """
        return self.table("rounds.csv")

    @cached_property
    def coefficients(self) -> pd.DataFrame:
        """The coefficients of a linear model, one row per model and feature (and per class, for more than two classes).

        ``coefficient`` is per unit of the scaled feature, and ``per_unit`` per unit of the unscaled column. If the
        strategy estimates errors, ``se``, ``low`` and ``high`` are the standard error and the 95 % interval of
        ``coefficient``; ``se_robust``, ``low_robust`` and ``high_robust`` are robust versions.
        """
        return self.table("coefficients.csv")

    @property
    def convergence(self) -> Convergence | None:
        """Whether the training loss has converged; None if no loss was measured."""
        summary = self.summary
        if summary["convergence"] is None:
            return None
        names = ("training_loss_before", "training_loss", "training_loss_fall")
        before, last, fall = (_figure(summary[name]) for name in names)
        if math.isnan(last) and len(self.rounds):  # the table can contain infinity, JSON cannot
            last = float(self.rounds["training_loss"].iloc[-1])
        return Convergence(summary["convergence"], tuple(summary["convergence_notes"]), before, last, fall)

    @property
    def _stopped(self) -> Stopped | None:
        summary = self.summary
        if "stop_reason" not in summary:
            return None
        early, model = summary["stop_reason"] == "patience", summary["validation_loss_of"]
        before, loss = (_figure(summary[name]) for name in ("validation_loss_before", "validation_loss"))
        last = summary["stopped_at"] if early else summary["rounds"]
        return Stopped(before, model, early, last, summary["served_round"], loss)

    @property
    def training(self) -> str:
        """A sentence on whether training has converged; empty if no loss was measured."""
        strategy = plugins.build_strategy(self.config.strategy, model=self.config.model)
        by_steps = strategy.uses_training()
        return training.sentence(self.convergence, self.summary["rounds"], self._stopped, by_steps=by_steps)

    @cached_property
    def answer(self) -> Answer:
        """The conclusions: what the model may be used for, and findings that forbid a use."""
        return Answer(self._json("answer.json"))

    @cached_property
    def clinical(self) -> pd.DataFrame:
        """One row per model, hospital and clinical metric; an empty ``hospital`` means all hospitals together."""
        return self.table("clinical.csv")

    def predict(
        self, rows: pd.DataFrame | str | os.PathLike[str], hospital: str | None = None, *, model: str | None = None
    ) -> Predictions:
        """Predict new rows, given as a data frame with the training data's columns, or as the path of a file with them.

        The result has the index of ``rows``; blank rows are left out. For two classes it is a series of probabilities
        of the event, and for more classes a frame with one column per class. For a numeric label it is a series in the
        label's unit.

        Each row is predicted with the model of its hospital. The hospital is given by a column of ``rows``, or
        by ``hospital`` for all rows. ``model`` is a name in :attr:`models`; None: the main model. Raises ``DataError``
        for rows that do not fit the run, and ``ConfigError`` for a model that no hospital used.
        """
        with search_path_restored():
            table = rows if isinstance(rows, pd.DataFrame) else _file(rows)
            scored = self._predictor.predict(table, hospital=hospital, model=model)
        classes = self._predictor.preprocessing.classes
        if len(classes) > 2:
            return scored[[f"probability_{name}" for name in classes]].set_axis(list(classes), axis="columns")
        return scored["probability" if classes else "prediction"]

    @cached_property
    def _predictor(self) -> Predictor:
        from raysim.serving.predictor import Predictor

        return Predictor.open(self.folder)

    def _repr_html_(self) -> str:
        return html.page(
            self._title, html.table(pd.DataFrame(self.models).T.rename_axis("model used")), [self.training], self.folder
        )


class Answer(dict[str, Any]):
    """The conclusions of a comparison or run (``answer.json``). ``str`` gives the reasons, one per line."""

    @property
    def recommended(self) -> str | None:
        """The recommended strategy (and model); None for a single run, and if nothing is recommended."""
        label: str | None = self["recommended"]
        return label

    @property
    def sentences(self) -> list[str]:
        """All sentences of the conclusions. The headline comes first; some versions of raysim did not write one."""
        return [each for each in dict.fromkeys([self.get("headline"), *self["reasons"]]) if each is not None]

    @property
    def card(self) -> Card:
        """The decision card: a headline, and one line on each finding that matters for using the model."""
        try:
            return Card.read(self)
        except KeyError as error:
            raise ConfigError(
                f"answer.json: has no {error}, so it does not have the format that this version of raysim reads; "
                "repeat the run with this version"
            ) from None

    def __str__(self) -> str:
        return "\n".join(self["reasons"])


def _file(rows: Any) -> Path:
    if not isinstance(rows, str | os.PathLike):
        raise DataError(
            f"table: {of_type(rows)} is neither a data frame nor a file; make a data frame of the rows: "
            "pandas.DataFrame([row])"
        )
    return expanded(rows)


def _figure(value: float | None) -> float:
    return math.nan if value is None else value


def stacked(tables: Mapping[tuple[Any, ...], pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """Concatenate the rows of all tables. New first columns ``names`` contain the key of the table of each row."""
    blocks = []
    for key, table in tables.items():
        block = table.copy()
        for i, (name, value) in enumerate(zip(names, key, strict=True)):
            block.insert(i, name, value)
        blocks.append(block)
    return pd.concat(blocks, ignore_index=True)
