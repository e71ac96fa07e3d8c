"""What runs and comparisons left in their folders, as data frames, figures and predictions.

Everything is read from the files: a result that a call has just returned and one that :func:`raysim.load` opens later
are the same.
"""

from __future__ import annotations

import json
import logging
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
from raysim.config import learners, plugins, reading
from raysim.config.paths import expanded, shown
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, DataError, RaysimError, nearest
from raysim.core.words import counted, of_type
from raysim.engine.measuring.stopping import Stopped
from raysim.experiment.entries import folder_of
from raysim.report.judgement.card import Card
from raysim.report.sections import training
from raysim.report.tables import labels, read_csv
from raysim.statistics.convergence import Convergence
from raysim.storage.manifest import Manifest

_log = logging.getLogger("raysim")

if TYPE_CHECKING:
    from raysim.experiment.curves.found import Found
    from raysim.serving.predictor import Predictor

Predictions = pd.DataFrame | pd.Series
"""Probabilities of the event for two classes ``[n]``, of each class for more ``[n, C]``, or values of a real label
``[n]``.
"""


class Results:
    """The results in a folder that raysim has written."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = expanded(folder).absolute()

    def __repr__(self) -> str:
        """What it is and its answer: never rows, and no error where files are missing."""
        try:
            return f"<{self._title}: {self._sentences[0]} ({shown(self.folder)})>"
        except (OSError, ValueError, LookupError, RaysimError):
            return f"{type(self).__name__}('{shown(self.folder)}')"

    def __str__(self) -> str:
        """Its answer in sentences, a line each."""
        try:
            return "\n".join([self._title, *self._sentences, f"files: {shown(self.folder)}"])
        except (OSError, ValueError, LookupError, RaysimError):
            return repr(self)

    @property
    def _title(self) -> str:
        """What the results are of."""
        raise NotImplementedError

    @property
    def _sentences(self) -> list[str]:
        """The answer, the shortest first; at least one."""
        raise NotImplementedError

    def table(self, name: str) -> pd.DataFrame:
        """A CSV file of the folder, by its name. Raises ``ConfigError`` where it has none of that name."""
        if not (self.folder / name).is_file():
            tables = [file for file in Manifest.read(self.folder).files if file.endswith(".csv")]
            raise ConfigError(f"{self.folder}: has no table '{name}'; {nearest(name, tables)}")
        return read_csv(self.folder / name)

    @cached_property
    def figures(self) -> Figures:
        """The figures of the folder's page by name; each shows itself in a notebook, and has ``save``."""
        return Figures(self.folder)

    @cached_property
    def config(self) -> Config:
        """The complete configuration that the results were made with."""
        return reading.resolve(self.folder / "config.yaml", reads=())

    @cached_property
    def hospitals(self) -> pd.DataFrame:
        """One row per hospital and model served; in a comparison also per strategy and seed."""
        return self.table("hospitals.csv")


class RunResult(Results):
    """One strategy with one seed: the folder of ``raysim run``, or of a run inside of a comparison."""

    @property
    def _title(self) -> str:
        return f"{self.strategy}, seed {self.seed}"

    @property
    def _sentences(self) -> list[str]:
        return self.answer.sentences

    @property
    def strategy(self) -> str:
        """The strategy's label in tables."""
        return plugins.label(self.config.strategy)

    @property
    def seed(self) -> int:
        """The seed."""
        return self.config.seed

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``; undefined values are None."""
        tree: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return tree

    @cached_property
    def models(self) -> dict[str, dict[str, float]]:
        """Every federation-level metric of every model served, the headline model last; undefined is NaN."""
        models = self.summary["models"]
        return {model: {name: _figure(value) for name, value in metrics.items()} for model, metrics in models.items()}

    @cached_property
    def metrics(self) -> pd.Series:
        """Every federation-level metric of the headline model, by its name; undefined is NaN."""
        model = self.summary["model"]
        return pd.Series(self.models[model], name=model, dtype=float)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per round: time, cohort, traffic, training loss, and ``<model>_<metric>`` where it was evaluated."""
        return self.table("rounds.csv")

    @cached_property
    def coefficients(self) -> pd.DataFrame:
        """Of a linear model, one row per model and feature: ``coefficient``, ``per_unit``, and where the strategy
        estimates them ``se``, ``low``, ``high`` of the first, and ``se_robust``, ``low_robust``, ``high_robust``.
        """
        return self.table("coefficients.csv")

    @property
    def convergence(self) -> Convergence | None:
        """Whether the training loss has converged; None where no loss was measured."""
        summary = self.summary
        if summary["convergence"] is None:
            return None
        names = ("training_loss_before", "training_loss", "training_loss_fall")
        before, last, fall = (_figure(summary[name]) for name in names)
        if math.isnan(last) and len(self.rounds):  # JSON has no infinity, and the table has
            last = float(self.rounds["training_loss"].iloc[-1])
        return Convergence(summary["convergence"], tuple(summary["convergence_notes"]), before, last, fall)

    @property
    def _stopped(self) -> Stopped | None:
        """How early stopping ended the run; None without it."""
        summary = self.summary
        if "stop_reason" not in summary:
            return None
        early, model = summary["stop_reason"] == "patience", summary["validation_loss_of"]
        before, loss = (_figure(summary[name]) for name in ("validation_loss_before", "validation_loss"))
        last = summary["stopped_at"] if early else summary["rounds"]
        return Stopped(before, model, early, last, summary["served_round"], loss)

    @property
    def training(self) -> str:
        """A sentence on how far the run is trained; empty where no loss was measured."""
        strategy = plugins.build_strategy(self.config.strategy, model=self.config.model)
        by_steps = strategy.uses_training()
        return training.sentence(self.convergence, self.summary["rounds"], self._stopped, by_steps=by_steps)

    @cached_property
    def answer(self) -> Answer:
        """The answer: what the model may be used for, and the facts that forbid a use."""
        return Answer(json.loads((self.folder / "answer.json").read_text()))

    @cached_property
    def clinical(self) -> pd.DataFrame:
        """One row per model served, hospital (empty: all together) and clinical figure."""
        return self.table("clinical.csv")

    def predict(
        self, rows: pd.DataFrame | str | os.PathLike[str], hospital: str | None = None, *, model: str | None = None
    ) -> Predictions:
        """Predictions for new rows ``[n]``: a data frame with the columns of the training data, or a file.

        Returns, with the index of ``rows``: for two classes, a series with the probability of the event; for more, a
        frame with one column per class; for a real label, a series in its unit. A hospital's rows are scored by the
        model that serves it; the hospital is in the table's column, or is ``hospital`` for all rows. ``model``: one of
        :attr:`models`; None: the headline. Raises ``DataError`` for rows that do not fit the run.
        """
        with search_path_restored():
            table = rows if isinstance(rows, pd.DataFrame) else _file(rows)
            scored = self._predictor.predict(table, hospital=hospital, model=model)
        if isinstance(rows, pd.DataFrame):
            scored.index = rows.index
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
            self._title,
            html.table(pd.DataFrame(self.models).T.rename_axis("model served")),
            [self.training],
            self.folder,
        )


class Answer(dict[str, Any]):
    """The answer of a comparison or a run, ``answer.json``; as text, its sentences."""

    @property
    def recommended(self) -> str | None:
        """The recommended strategy (and model); None where nothing is recommended, as of a run."""
        label: str | None = self["recommended"]
        return label

    @property
    def sentences(self) -> list[str]:
        """The headline, and all other sentences."""
        headline = str(self["headline"])
        return [headline, *(each for each in self["reasons"] if each != headline)]

    @property
    def card(self) -> Card:
        """The decision card."""
        return Card.read(self)

    def __str__(self) -> str:
        return "\n".join(self["reasons"])


class ComparisonResult(Results):
    """Strategies over seeds: the folder of ``raysim compare``."""

    @property
    def _title(self) -> str:
        labels, seeds = zip(*self.runs, strict=True)
        strategies = counted(len(set(labels)), "strategy", "strategies")
        return f"{self.config.name}: {strategies} x {counted(len(set(seeds)), 'seed')}"

    @property
    def _sentences(self) -> list[str]:
        return self.answer.sentences

    @cached_property
    def comparison(self) -> pd.DataFrame:
        """One row per strategy and model served: figures over seeds, and their differences from the reference."""
        return self.table("comparison.csv")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The rows of :attr:`comparison` of headline models, by strategy."""
        return self.comparison.drop_duplicates("strategy", keep="last").set_index("strategy")

    @cached_property
    def runs(self) -> dict[tuple[str, int], RunResult]:
        """The runs by strategy and seed, in the order in which they were played."""
        runs = [RunResult(manifest.folder) for manifest in Manifest.read(self.folder).below()]
        labels = {folder_of(label): label for label in learners.labels(self.config)}
        return {_of_run(run, labels): run for run in runs}

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row per strategy, model served and seed: every federation-level metric."""
        return pd.DataFrame(
            {"strategy": strategy, "model": model, "seed": seed, **metrics}
            for (strategy, seed), run in self.runs.items()
            for model, metrics in run.models.items()
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The rounds of all runs, with ``strategy`` and ``seed`` in front."""
        return stacked({key: run.rounds for key, run in self.runs.items()}, ["strategy", "seed"])

    @cached_property
    def answer(self) -> Answer:
        """The answer: a recommendation, and sentences that give the reasons."""
        return Answer(json.loads((self.folder / "answer.json").read_text()))

    def run(self, strategy: str | None = None, seed: int | None = None) -> RunResult:
        """The run of ``strategy`` (default: the recommended one, else the reference) with ``seed`` (default: the
        first).

        Raises ``ConfigError`` where there is none.
        """
        strategy = strategy or self._recommended[0]
        for (label, each), run in self.runs.items():
            if label == strategy and seed in (None, each):
                return run
        compared = list(dict.fromkeys(label for label, _ in self.runs))
        if strategy in compared:
            raise ConfigError(f"seed: {seed} was not run; name one of {sorted({each for _, each in self.runs})}")
        raise ConfigError(f"strategy: '{strategy}' is not among those compared; {nearest(strategy, compared)}")

    def predict(
        self,
        rows: pd.DataFrame | str | os.PathLike[str],
        hospital: str | None = None,
        *,
        strategy: str | None = None,
        seed: int | None = None,
    ) -> Predictions:
        """Predictions of :meth:`run` for new rows, by default with the recommended model and the first seed.

        See :meth:`RunResult.predict`. A warning of the logger ``raysim`` says whose model scores. Raises
        ``ConfigError`` where nothing is recommended and no ``strategy`` is named.
        """
        if strategy is not None:
            return self.run(strategy, seed).predict(rows, hospital)
        run, model = self.recommended_run(seed)
        _log.warning(f"rows are scored by the recommended model: {run.strategy}, {model}, seed {run.seed}")
        return run.predict(rows, hospital, model=model)

    def recommended_run(self, seed: int | None = None) -> tuple[RunResult, str]:
        """The run of the recommended strategy with ``seed`` (default: the first), and the model that is recommended.

        Raises ``ConfigError`` where nothing is recommended.
        """
        strategy, model = self._recommended
        if self.answer.recommended is None or model is None:
            raise ConfigError(
                f"strategy: {shown(self.folder)} recommends none ({self.answer['headline']}); name one, or one of its "
                "runs, to score with it all the same"
            )
        return self.run(strategy, seed), model

    @property
    def _recommended(self) -> tuple[str, str | None]:
        """The recommended strategy and model; where none is, the reference and its headline model."""
        table = self.comparison
        rows = zip(labels(table), table["strategy"], table["model"], strict=True)
        by_name = {name.removesuffix(" *"): (str(strategy), str(model)) for name, strategy, model in rows}
        return by_name.get(self.answer.recommended or "", (self.config.reference, None))

    def _repr_html_(self) -> str:
        return html.page(self.config.name, html.table(self.metrics), self.answer["reasons"], self.folder)


def _of_run(run: RunResult, labels: Mapping[str, str]) -> tuple[str, int]:
    """Its strategy and seed: of a folder that is among ``labels`` these are known, where YAML takes long to read."""
    label = labels.get(run.folder.parent.name)
    return (run.strategy, run.seed) if label is None else (label, int(run.folder.name.removeprefix("seed-")))


def _file(rows: Any) -> Path:
    """The file of new rows. Raises ``DataError`` for what is neither a file nor a data frame."""
    if not isinstance(rows, str | os.PathLike):
        raise DataError(
            f"table: {of_type(rows)} is neither a data frame nor a file; put each row into a frame: "
            "pandas.DataFrame([row])"
        )
    return expanded(rows)


def _figure(value: float | None) -> float:
    """A figure of a JSON file, NaN for null."""
    return math.nan if value is None else value


class CurveResult(ComparisonResult):
    """A comparison along a hyper-parameter: the folder of ``raysim curve``; its picture is ``figures["curve"]``."""

    @cached_property
    def curve(self) -> pd.DataFrame:
        """One row per line, value and seed: mean and variance over hospitals of the figure that is drawn."""
        return self.table("curve.csv")

    @cached_property
    def found(self) -> Found:
        """Which value is best for each strategy, whether intervals demonstrate it, and whether it is at an edge."""
        from raysim.experiment.curves.found import Found

        return Found.read(json.loads((self.folder / "curve_answer.json").read_text()))


def stacked(tables: Mapping[tuple[Any, ...], pd.DataFrame], names: Sequence[str]) -> pd.DataFrame:
    """All tables in one, with their keys in front as columns that are called ``names``."""
    blocks = []
    for key, table in tables.items():
        block = table.copy()
        for i, (name, value) in enumerate(zip(names, key, strict=True)):
            block.insert(i, name, value)
        blocks.append(block)
    return pd.concat(blocks, ignore_index=True)
