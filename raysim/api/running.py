"""Runs and comparisons from Python."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysim.api.request import Strategies, StrategyLike, configuration, manners, path_of, silent_or
from raysim.api.results import ComparisonResult, RunResult
from raysim.config import reading
from raysim.config.reading import Source
from raysim.config.schema import Config

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from raysim.engine.job import Result
    from raysim.storage.manifest import Manifest


def run(
    config: Source | None = None,
    *,
    strategy: StrategyLike | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Train one strategy, and record and report it, as ``raysim run`` does.

    - ``config``: a YAML file, what could stand in one, a ``Config``, or None for the synthetic federation.
    - ``strategy``: a registered name, what stands in a section ``strategy``, or a strategy or its class. One that was
      defined in a notebook or a function trains like any other, and cannot be resumed by another process.
    - ``data``: a data frame; what is in the section ``data`` says which of its columns are the hospital and the label.
    - ``seed`` and ``overrides``, which are values by dotted key (``{"training.rounds": 5}``), are laid over ``config``.
    - ``out``: the folder to write into, by default ``runs/<name>/<time>-<id>``.
    - ``in_process``: without Ray, for a debugger; the results are the same.
    - ``verbose``: show progress, and what Ray and MLflow say. ``console``: where progress is shown, whatever else is.

    Raises :class:`raysim.RaysimError` for what a user can mend.
    """
    asked = configuration(config, strategy=strategy, data=data, seed=seed, overrides=overrides)
    return play_run(asked, path_of(out), silent_or(console, verbose), in_process=in_process, verbose=verbose)


def compare(
    config: Source | None = None,
    *,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> ComparisonResult:
    """Compare strategies over seeds, as ``raysim compare`` does.

    ``strategies`` are those to compare, each as :func:`run` takes one; a mapping has them by label. ``seed`` is the
    only one that is run. All else is as for :func:`run`.
    """
    asked = configuration(config, strategies=strategies, data=data, seed=seed, overrides=overrides)
    return play_comparison(asked, path_of(out), silent_or(console, verbose), in_process=in_process, verbose=verbose)


def play_run(
    config: Config, out: Path | None, console: Console, *, in_process: bool, verbose: bool, again: bool = False
) -> RunResult:
    """Run a configuration; with ``again``, the run in folder ``out`` goes on."""
    from raysim.experiment.runs import Experiment

    with manners():
        config = reading.resolve(config)
        experiment = Experiment(config, [config], [config.seed], out, again=again)
        experiment.play(console, in_process=in_process, verbose=verbose)
        return RunResult(experiment.folder)


def play_comparison(
    config: Config, out: Path | None, console: Console, *, in_process: bool, verbose: bool, again: bool = False
) -> ComparisonResult:
    """Compare what a configuration lists; with ``again``, the comparison in folder ``out`` goes on."""
    from raysim.experiment import comparison
    from raysim.experiment.runs import Experiment

    def conclude(results: Sequence[Result], out: Manifest) -> None:
        comparison.write_comparison(out, config, results)

    with manners():
        config = reading.resolve(config, reads=reading.COMPARISON)
        experiment = Experiment(config, reading.compared(config), config.seeds or (config.seed,), out, again=again)
        reading.check_reference(config.reference, [entry.label for entry in experiment.entries])
        experiment.play(console, in_process=in_process, verbose=verbose, conclude=conclude)
        return ComparisonResult(experiment.folder)


def resume(
    folder: str | os.PathLike[str],
    *,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> RunResult | ComparisonResult:
    """Go on with a run or comparison that was stopped, as ``raysim resume`` does; one that is finished stays."""
    from raysim.experiment.unsent import send_kept
    from raysim.storage.resume import read_ticket
    from raysim.strategies.shared.importing import standing_here

    path, shown = Path(folder).absolute(), silent_or(console, verbose)
    ticket = read_ticket(path)
    working = Path(ticket.working)
    # Relative paths of the configuration mean what they meant when it was started; code comes from here all the same.
    with manners(), standing_here((working, path)), contextlib.chdir(working if working.is_dir() else "."):
        config = reading.resolve(path / "config.yaml", reads=())
        if ticket.finished:
            said = f"{path}: finished, {send_kept(path, config.tracking) or 'nothing to resume'}"
            shown.print(said, soft_wrap=True, highlight=False, markup=False)
            return RunResult(path) if ticket.kind == "run" else ComparisonResult(path)
        if ticket.kind == "run":
            return play_run(config, path, shown, in_process=in_process, verbose=verbose, again=True)
        return play_comparison(config, path, shown, in_process=in_process, verbose=verbose, again=True)
