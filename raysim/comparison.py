"""Strategies side by side: means and spreads over seeds, and paired differences against a reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from raysim.equity import paired_difference, paired_interval
from raysim.errors import ConfigError
from raysim.experiment import Experiment, Result
from raysim.results import hospitals_table, rounds_table, write_config, write_csv
from raysim.streams import stream

if TYPE_CHECKING:
    import pandas as pd

LEADING = ("auroc", "worst_decile", "gini", "std", "size_bias")
"""The metrics of CHiP-FL's Table 2, in its order."""

PAIRED = ("auroc", "worst_decile", "size_bias_abs")
"""Metrics whose difference against the reference is reported."""


def check_reference(experiment: Experiment) -> None:
    """Raise ``ConfigError`` where the reference is none of the strategies compared."""
    labels = [entry.label for entry in experiment.entries]
    if experiment.config.reference not in labels:
        raise ConfigError(
            f"reference: '{experiment.config.reference}' is not among the strategies compared; "
            f"name one of {', '.join(labels)}"
        )


def comparison_table(results: Sequence[Result], reference: str) -> pd.DataFrame:
    """A row a strategy and model served: every metric's mean over seeds and ``_std`` (ddof 1), and differences.

    ``<metric>_difference`` (``_std``) is the mean over seeds of the paired difference against the reference's headline
    model; ``_low`` and ``_high`` its 95 % bootstrap interval over hospitals, each hospital's AUROC averaged over seeds.
    """
    import pandas as pd

    seeds = sorted({result.seed for result in results})
    by_key = {(result.label, result.seed): result for result in results}
    base_model = next(list(result.outcome.metrics)[-1] for result in results if result.label == reference)
    rows = []
    for label in dict.fromkeys(result.label for result in results):
        for model in by_key[label, seeds[0]].outcome.metrics:
            row: dict[str, object] = {"strategy": label, "model": model}
            runs = [by_key[label, seed] for seed in seeds]
            names = runs[0].outcome.metrics[model]
            for name in [*LEADING, *(name for name in names if name not in LEADING)]:
                values = np.array([run.outcome.metrics[model].get(name, np.nan) for run in runs])
                row[name] = _mean(values)
                row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
            if (label, model) != (reference, base_model):
                bases = [by_key[reference, seed] for seed in seeds]
                row |= _differences(runs, model, bases, base_model)
            row["seconds"] = _mean(np.array([run.outcome.seconds for run in runs]))
            row["bytes_down"] = _mean(np.array([sum(r.bytes_down for r in run.outcome.rounds) for run in runs]))
            row["bytes_up"] = _mean(np.array([sum(r.bytes_up for r in run.outcome.rounds) for run in runs]))
            row["seeds"] = len(seeds)
            rows.append(row)
    return pd.DataFrame(rows)


def all_hospitals(results: Sequence[Result], part: str) -> pd.DataFrame:
    """The hospitals' tables of all runs, with ``strategy`` and ``seed`` in front."""
    return _stacked(results, [hospitals_table(result.federation, result.outcome, part) for result in results])


def all_rounds(results: Sequence[Result]) -> pd.DataFrame:
    """The round tables of all runs, with ``strategy`` and ``seed`` in front."""
    return _stacked(results, [rounds_table(result.outcome.rounds) for result in results])


def write_tables(folder: Path, experiment: Experiment, table: pd.DataFrame, hospitals: pd.DataFrame) -> list[Path]:
    """Write ``comparison.csv``, ``hospitals.csv`` and ``config.yaml``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "comparison.csv", table)
    write_csv(folder / "hospitals.csv", hospitals)
    write_config(folder, experiment.config.frozen(), next(iter(experiment.federations.values())))
    return [folder / name for name in ("comparison.csv", "hospitals.csv", "config.yaml")]


def _differences(runs: Sequence[Result], model: str, bases: Sequence[Result], base_model: str) -> dict[str, float]:
    row: dict[str, float] = {}
    for name in PAIRED:
        ours = [run.outcome.metrics[model][name] for run in runs]
        theirs = [base.outcome.metrics[base_model][name] for base in bases]
        difference = paired_difference(ours, theirs)
        row[f"{name}_difference"], row[f"{name}_difference_std"] = difference.mean, difference.std
    a, rows = _hospital_auroc(runs, model)
    b, _ = _hospital_auroc(bases, base_model)
    for figure in ("auroc", "worst_decile"):
        rng = stream(0, "bootstrap")  # the same draws for every strategy
        low, high = paired_interval(a, b, rows, rng, figure=figure)
        row[f"{figure}_low"], row[f"{figure}_high"] = low, high
    return row


def _hospital_auroc(runs: Sequence[Result], model: str) -> tuple[np.ndarray, np.ndarray]:
    """Each hospital's AUROC and test rows, averaged over seeds where defined, both ``[H]``."""
    from raysim.metrics import FIGURES

    figures = np.stack([run.outcome.figures[model] for run in runs])
    auroc, rows = figures[:, :, FIGURES.index("auroc")], figures[:, :, FIGURES.index("n")]
    defined = np.isfinite(auroc)
    count = defined.sum(axis=0)
    mean = np.where(defined, auroc, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan), rows.mean(axis=0)


def _stacked(results: Sequence[Result], tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    for result, table in zip(results, tables, strict=True):
        table.insert(0, "strategy", result.label)
        table.insert(1, "seed", result.seed)
    return pd.concat(tables, ignore_index=True)


def _mean(values: np.ndarray) -> float:
    defined = values[np.isfinite(values)]
    return float(defined.mean()) if len(defined) else float("nan")
