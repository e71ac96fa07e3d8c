"""The figures of results, drawn from their tables when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.figure import Figure

from raysim.experiment.stacked_tables import for_plots
from raysim.metrics.labels import reporting
from raysim.report.plots import frontier, models


class Figures(Mapping[str, Figure]):
    """Figures of matplotlib by name, each drawn anew when it is asked for; no display and no ``pyplot`` is touched."""

    def __init__(self, drawn: Mapping[str, Callable[[], Figure]]) -> None:
        self._drawn = drawn

    def __getitem__(self, name: str) -> Figure:
        return self._drawn[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._drawn)

    def __len__(self) -> int:
        return len(self._drawn)

    def __repr__(self) -> str:
        return f"figures: {', '.join(self)}"


def by_model(rounds: pd.DataFrame, metrics: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """``rounds.csv`` with one row per model served and round: ``model, round, training_loss`` and its ``metrics``.

    Rounds that were not evaluated are left out.
    """
    blocks = []
    for model, names in metrics.items():
        columns = {f"{model}_{name}": name for name in names if f"{model}_{name}" in rounds}
        block = rounds[["round", "training_loss", *columns]].rename(columns=columns)
        evaluated = block[list(columns.values())].notna().any(axis="columns")
        block.insert(0, "model", model)
        blocks.append(block[evaluated])
    return pd.concat(blocks, ignore_index=True)


def of_run(hospitals: pd.DataFrame, rounds: pd.DataFrame, strategy: str, seed: int, part: str) -> Figures:
    """The figures of one run, from its ``hospitals.csv`` and its rounds by :func:`by_model`."""
    named, played = (table.assign(strategy=strategy, seed=seed) for table in (hospitals, rounds))
    return Figures(_of_runs(named, played, part))


def of_comparison(hospitals: pd.DataFrame, rounds: pd.DataFrame, table: pd.DataFrame, part: str) -> Figures:
    """The figures of a comparison, from ``hospitals.csv``, all runs' rounds by :func:`by_model`, and
    ``comparison.csv``.
    """
    return Figures(
        _of_runs(hospitals, rounds, part)
        | {
            "worst_decile_vs_size_bias": lambda: frontier.worst_decile_vs_size_bias(table),
            "frontier_3d": lambda: frontier.frontier_3d(table),
        }
    )


def _of_runs(hospitals: pd.DataFrame, rounds: pd.DataFrame, part: str) -> dict[str, Callable[[], Figure]]:
    shown = for_plots(hospitals, part)
    return {
        f"{reporting(hospitals).headline}_by_size": lambda: models.auroc_by_size(shown),
        "curves": lambda: models.curves(rounds),
    }
