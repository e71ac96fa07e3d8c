"""Which defaults train: verdicts and losses over a grid of training keys, on the three kinds of data in
``experiments/defaults/``.

``python -m benchmarks.defaults --out study.csv`` writes a row a kind of data, setting, strategy and number of rounds:
the verdict on the training loss after so many rounds, and that loss. A run of the longest has all shorter ones in it.
``--summary study.csv`` prints for each setting of how many of these runs the loss stands still. ``--decay study.csv``
writes a row a kind of data, strategy, ``weight_decay`` and seed, with the other keys at their defaults: the loss on the
training rows and on the test rows, and prints the means. ``--real study.csv`` does the same for a real-valued label
over learning rates alone, on tables of the same sizes and one with more features than a hospital has rows.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config import plugins, reading
from raysim.core import host
from raysim.core.errors import RaysimError
from raysim.engine.job import Outcome
from raysim.engine.server.coordinator import JobRun
from raysim.experiment.jobs import make_job
from raysim.statistics.convergence import convergence

KINDS = ("few_large", "many_small", "odd_scales")
STRATEGIES = ("fedavg", "local", "centralized")
ROUNDS = (20, 30, 50)
GRID: dict[str, tuple[Any, ...]] = {
    "optimizer": ("sgd", "adam"),
    "learning_rate": (0.01, 0.05, 0.1, 0.3),
    "batch_size": (32, 512),
    "local_epochs": (1, 5),
}


REAL_KINDS = {
    "few_large": ("few_large", ()),
    "many_small": ("many_small", ()),
    "wide": ("many_small", ("data.hospitals=150", "data.rows_per_hospital=12", "data.features=100")),
}
"""Of a real-valued label: the file of ``experiments/defaults/``, and what differs from it."""

REAL_RATES = (0.003, 0.005, 0.01, 0.03, 0.1)

DECAYS = (0.0, 1e-4, 1e-3)
SEEDS = (0, 1, 2)


def settings() -> Iterator[dict[str, Any]]:
    """Every combination of the grid."""
    for values in itertools.product(*GRID.values()):
        yield dict(zip(GRID, values, strict=True))


def rows_of(kind: str, strategy: str, setting: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each number of rounds, of one run of the most."""
    head = {"kind": kind, "strategy": strategy, **setting}
    try:
        outcome = _outcome(kind, strategy, {**setting, "rounds": max(ROUNDS)}, 0)
    except RaysimError:
        yield from ({**head, "rounds": rounds, "verdict": "diverged", "loss": float("nan")} for rounds in ROUNDS)
        return
    curve = outcome.loss_curve
    for rounds in ROUNDS:
        losses = [loss for round, loss in curve.items() if round <= rounds]
        verdict = convergence(losses, outcome.losses.constant).verdict
        yield {**head, "rounds": rounds, "verdict": verdict, "loss": losses[-1]}


def decay_row(kind: str, strategy: str, decay: float, seed: int) -> dict[str, Any]:
    """The losses of one run with this ``weight_decay``; that on test rows weighs hospitals by them."""
    outcome = _outcome(kind, strategy, {"weight_decay": decay}, seed)
    curve = outcome.loss_curve
    served = list(outcome.metrics.values())[-1]
    head = {"kind": kind, "strategy": strategy, "weight_decay": decay, "seed": seed}
    return {**head, "training_loss": curve[max(curve)], "test_loss": served["log_loss"], "auroc": served["auroc"]}


def real_row(kind: str, strategy: str, rate: float, seed: int) -> dict[str, Any]:
    """The verdict of one run of a real-valued label, and its losses: at the end, and the least one."""
    head = {"kind": kind, "strategy": strategy, "learning_rate": rate, "seed": seed}
    file, changes = REAL_KINDS[kind]
    changes = ("data.task=regression", "model.name=linear_regression", *changes)
    try:
        outcome = _outcome(file, strategy, {"learning_rate": rate, "rounds": max(ROUNDS)}, seed, changes)
    except RaysimError:
        return {**head, "verdict": "diverged", "loss": float("nan"), "least": float("nan"), "mae": float("nan")}
    losses = list(outcome.loss_curve.values())
    verdict = convergence(losses, outcome.losses.constant).verdict
    mae = list(outcome.metrics.values())[-1]["mae"]
    return {**head, "verdict": verdict, "loss": losses[-1], "least": min(losses), "mae": mae}


def real_summary(table: pd.DataFrame) -> str:
    """By kind and rate: of how many runs the loss stands still, falls, and grows, and the mean error on test rows."""
    lines = [
        ["kind", "learning rate", "converged", "falling", "diverged", *STRATEGIES],
        ["---"] * (5 + len(STRATEGIES)),
    ]
    for (kind, rate), runs in table.groupby(["kind", "learning_rate"], sort=False):
        verdicts = runs["verdict"].value_counts()
        errors = runs.groupby("strategy")["mae"].mean()
        counts = [str(verdicts.get(verdict, 0)) for verdict in ("converged", "falling", "diverged")]
        lines.append([str(kind), str(rate), *counts, *(f"{errors[strategy]:.3g}" for strategy in STRATEGIES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _outcome(kind: str, strategy: str, training: dict[str, Any], seed: int, changes: tuple[str, ...] = ()) -> Outcome:
    overrides = [*changes, *(f"training.{key}={value}" for key, value in training.items())]
    overrides += [f"strategy={strategy}", f"seed={seed}"]
    config = reading.resolve(Path(f"experiments/defaults/{kind}.yaml"), overrides, reads=())
    federation = plugins.build_federation(config, plugins.build_source(config.data), config.seed)
    made = plugins.build_strategy(config.strategy), plugins.build_selection(config.selection)
    job = make_job(config, *made, federation.folder, config.seed)
    *_, outcome = JobRun(LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu"), job).events()
    assert isinstance(outcome, Outcome)
    return outcome


def summary(table: pd.DataFrame) -> str:
    """In how many of the runs of each setting the loss stood still, by number of rounds, as a table in Markdown."""
    still = table.assign(still=table["verdict"] == "converged")
    counts = still.pivot_table(index=list(GRID), columns="rounds", values="still", aggfunc="sum")
    head = [name.removeprefix("local_").replace("_", " ") for name in GRID]
    lines = [[*head, *(f"{rounds} rounds" for rounds in counts.columns)], ["---"] * (len(GRID) + len(counts.columns))]
    lines += [[*map(str, setting), *map(str, counts.loc[setting])] for setting in counts.index]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _written(path: Path, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """``rows`` as a table; ``path`` holds those that are there, for a study may be stopped."""
    made: list[dict[str, Any]] = []
    with host.threads(1):
        for row in rows:
            made.append(row)
            pd.DataFrame(made).to_csv(path, index=False)
    return pd.DataFrame(made)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path)
    parser.add_argument("--decay", type=Path)
    parser.add_argument("--real", type=Path)
    given = parser.parse_args()
    if given.out is not None:
        grid = itertools.product(settings(), KINDS, STRATEGIES)
        _written(given.out, (row for setting, kind, strategy in grid for row in rows_of(kind, strategy, setting)))
    if given.decay is not None:
        decays = itertools.product(SEEDS, KINDS, STRATEGIES, DECAYS)
        table = _written(given.decay, (decay_row(k, strategy, decay, seed) for seed, k, strategy, decay in decays))
        means = table.groupby(["kind", "strategy", "weight_decay"], sort=False).mean()
        print(means.drop(columns="seed").round(4).to_string())
    if given.real is not None:
        rates = itertools.product(SEEDS, REAL_KINDS, REAL_RATES, STRATEGIES)
        table = _written(given.real, (real_row(kind, strategy, rate, seed) for seed, kind, rate, strategy in rates))
        print(real_summary(table))
    if given.summary is not None:
        print(summary(pd.read_csv(given.summary)))


if __name__ == "__main__":
    main()
