"""The results of a comparison in its folder: runs, tables and the recommended model."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from raysim.api import html
from raysim.api.results import Answer, Predictions, Results, RunResult, stacked
from raysim.config import learners
from raysim.config.paths import display_path
from raysim.core.errors import ConfigError, nearest
from raysim.core.words import counted
from raysim.experiment.entries import folder_of
from raysim.report.tables import labels
from raysim.serving.folder import is_comparison
from raysim.storage.manifest import Manifest

if TYPE_CHECKING:
    from raysim.experiment.curves.found import Found

_log = logging.getLogger("raysim")


def run_to_use(folder: Path, model: str | None) -> tuple[Path, str | None, str]:
    """Return the run's folder and the model that a command uses, and a description of the choice.

    For the folder of a comparison, this is the recommended run; for the folder of a run, the description is empty. The
    model None means the run's main model.
    """
    if not is_comparison(folder):
        return folder, model, ""
    run, recommended = ComparisonResult(folder).recommended_run()
    chosen = f"the recommended strategy: {run.strategy}, {model or recommended}, seed {run.seed}"
    return run.folder, model or (None if recommended == run.metrics.name else recommended), chosen


class ComparisonResult(Results):
    """The results of several strategies, each run with several seeds, as ``raysim compare`` writes them to a folder."""

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
        """One row per strategy and model: metrics as means over seeds, and differences from the reference strategy."""
        return self.table("comparison.csv")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The rows of :attr:`comparison` for each strategy's main model, indexed by strategy."""
        return self.comparison.drop_duplicates("strategy", keep="last").set_index("strategy")

    @cached_property
    def runs(self) -> dict[tuple[str, int], RunResult]:
        """The single runs by strategy and seed, in the order of execution. Additional runs, trained without some
        hospitals, are not included.
        """
        below = [manifest.folder for manifest in Manifest.read(self.folder).below()]
        runs = [RunResult(folder) for folder in below if folder.is_relative_to(self.folder / "runs")]
        labels = {folder_of(label): label for label in learners.labels(self.config)}
        return {_of_run(run, labels): run for run in runs}

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """One row per strategy, model and seed, with every metric of the whole federation."""
        return pd.DataFrame(
            {"strategy": strategy, "model": model, "seed": seed, **metrics}
            for (strategy, seed), run in self.runs.items()
            for model, metrics in run.models.items()
        )

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per training round of every run; the first columns are ``strategy`` and ``seed``."""
        return stacked({key: run.rounds for key, run in self.runs.items()}, ["strategy", "seed"])

    @cached_property
    def answer(self) -> Answer:
        """The conclusions of the comparison: the recommended model, and the reasons."""
        return Answer(self._json("answer.json"))

    def run(self, strategy: str | None = None, seed: int | None = None) -> RunResult:
        """Return the run of ``strategy`` with ``seed``; raises ``ConfigError`` if there is none.

        The default is the recommended strategy (the reference strategy if nothing is recommended) and the first seed.
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
        """Predict new rows with one run's model, by default the recommended model of the first seed.

        ``strategy`` and ``seed`` choose another run; all other arguments are those of :meth:`RunResult.predict`. Raises
        ``ConfigError`` if nothing is recommended and no ``strategy`` is named.
        """
        if strategy is not None:
            return self.run(strategy, seed).predict(rows, hospital)
        run, model = self.recommended_run(seed)
        _log.warning(f"rows are scored by the recommended model: {run.strategy}, {model}, seed {run.seed}")
        return run.predict(rows, hospital, model=model)

    def recommended_run(self, seed: int | None = None) -> tuple[RunResult, str]:
        """Return the recommended strategy's run with ``seed`` (default: the first), and the recommended model's name.

        Raises ``ConfigError`` if nothing is recommended.
        """
        strategy, model = self._recommended
        if self.answer.recommended is None or model is None:
            raise ConfigError(
                f"strategy: {display_path(self.folder)} recommends no model ({self.answer.sentences[0]}); name a "
                "strategy, or the folder of one of its runs"
            )
        return self.run(strategy, seed), model

    @property
    def _recommended(self) -> tuple[str, str | None]:
        """The recommended strategy and model; if nothing is recommended, the reference strategy and None."""
        table = self.comparison
        rows = zip(labels(table), table["strategy"], table["model"], strict=True)
        by_name = {name.removesuffix(" *"): (str(strategy), str(model)) for name, strategy, model in rows}
        return by_name.get(self.answer.recommended or "", (self.config.reference, None))

    def _repr_html_(self) -> str:
        return html.page(self.config.name, html.table(self.metrics), self.answer["reasons"], self.folder)


class CurveResult(ComparisonResult):
    """A comparison of strategies over the values of one hyper-parameter, as ``raysim curve`` writes it to a folder.

    The plot is ``figures["curve"]``.
    """

    @cached_property
    def curve(self) -> pd.DataFrame:
        """The plotted metric's mean and variance over hospitals, one row per strategy, hyper-parameter value and
        seed."""
        return self.table("curve.csv")

    @cached_property
    def found(self) -> Found:
        """The best value of the hyper-parameter for each strategy, and whether confidence intervals demonstrate that it
        is best.

        The result also tells whether the best value is the lowest or highest value tried.
        """
        from raysim.experiment.curves.found import Found

        return Found.read(self._json("curve_answer.json"))


def _of_run(run: RunResult, labels: Mapping[str, str]) -> tuple[str, int]:
    label = labels.get(run.folder.parent.name)
    return (run.strategy, run.seed) if label is None else (label, int(run.folder.name.removeprefix("seed-")))
