"""The results of sweeps, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from raysim.api import html
from raysim.api.results import Predictions, Results, RunResult, stacked
from raysim.core.errors import ConfigError
from raysim.core.words import counted
from raysim.storage.manifest import Manifest


class SweepResult(Results):
    """All trials of a sweep, the Pareto-optimal ones, and a recommendation, from the folder of ``raysim sweep``."""

    @property
    def _title(self) -> str:
        return counted(self.summary["trials"], "trial")

    @property
    def _sentences(self) -> list[str]:
        return self.answer.splitlines()

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``; undefined values are None."""
        tree: dict[str, Any] = self._json("summary.json")
        return tree

    @property
    def ended(self) -> bool:
        """Whether all trials have ended; else :func:`raysim.resume` continues the sweep."""
        over = sum(int(self.summary[state]) for state in ("completed", "stopped", "failed"))
        return over == int(self.summary["trials"])

    @property
    def failed(self) -> int:
        """The number of trials that ended with an error."""
        return int(self.summary["failed"])

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial: its state, its values of the searched keys, and every metric on validation rows."""
        return self.table("trials.csv")

    @cached_property
    def pareto(self) -> pd.DataFrame:
        """The Pareto-optimal trials, sorted by crowding distance (gap to neighbours on the front), largest first."""
        return self.table("pareto.csv")

    @property
    def recommended(self) -> Mapping[str, Any]:
        """The recommended trial's values of the searched keys, as ``overrides`` of :func:`raysim.run`.

        Raises ``ConfigError`` if no trial is recommended.
        """
        return dict(self._recommended["params"])

    @property
    def reasons(self) -> list[str]:
        """Sentences on why the recommended trial was chosen, and what is lost by choosing it."""
        return list(self._recommended["reason"])

    @property
    def answer(self) -> str:
        """Sentences on the recommended trial and the reasons for it, one per line."""
        recommended = self.summary["recommended"]
        return "no trial is recommended" if recommended is None else "\n".join(recommended["reason"])

    @cached_property
    def runs(self) -> dict[int, RunResult]:
        """The runs that evaluate the recommended trial on test rows, by seed."""
        runs = [RunResult(manifest.folder) for manifest in Manifest.read(self.folder).below()]
        return {run.seed: run for run in runs}

    @cached_property
    def metrics(self) -> pd.Series:
        """Every metric of the recommended trial on test rows, averaged over seeds."""
        return pd.DataFrame([run.metrics for run in self._tested.values()]).mean(skipna=False)

    @cached_property
    def hospitals(self) -> pd.DataFrame:
        """One row per seed, hospital and model of the recommended trial, with metrics on test rows."""
        return stacked({(seed,): run.hospitals for seed, run in self._tested.items()}, ["seed"])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """One row per seed and training round of the recommended trial's runs."""
        return stacked({(seed,): run.rounds for seed, run in self._tested.items()}, ["seed"])

    def predict(
        self, rows: pd.DataFrame | str | os.PathLike[str], hospital: str | None = None, *, seed: int | None = None
    ) -> Predictions:
        """Predict new rows with the model of the recommended trial, trained with ``seed`` (default: the first seed).

        All other arguments are those of :meth:`RunResult.predict`.
        """
        runs = self._tested
        if seed is not None and seed not in runs:
            raise ConfigError(f"seed: {seed} was not run; name one of {list(runs)}")
        return runs[next(iter(runs)) if seed is None else seed].predict(rows, hospital)

    @property
    def _recommended(self) -> Mapping[str, Any]:
        recommended: Mapping[str, Any] | None = self.summary["recommended"]
        if recommended is None:
            raise ConfigError(
                f"{self.folder}: no trial is recommended, because no completed trial has a value for "
                "every objective; name other objectives"
            )
        return recommended

    @property
    def _tested(self) -> dict[int, RunResult]:
        if not self.runs:
            raise ConfigError(
                f"{self.folder}: the recommended trial has not been run on test rows; continue with 'raysim resume "
                f"{self.folder}'"
            )
        return self.runs

    def _repr_html_(self) -> str:
        table = self.pareto.to_html(float_format=lambda value: f"{value:.4g}", na_rep="undefined", border=0)
        return html.page(self._title, table, self._sentences, self.folder)
