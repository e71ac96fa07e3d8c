"""Runs and comparisons from Python."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.api.request import (
    Overrides,
    Strategies,
    StrategyLike,
    alone_on_ray,
    configuration,
    console_or_warnings,
    importable,
    path_of,
    search_path_restored,
    tree_of,
)
from raysim.config import reading
from raysim.config.paths import expanded
from raysim.config.reading import Source
from raysim.config.schema import Config
from raysim.report.terminal.progress import phase, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from raysim.api.comparison_result import ComparisonResult, CurveResult
    from raysim.api.results import RunResult
    from raysim.api.sweep_result import SweepResult
    from raysim.engine.job import Result
    from raysim.storage.manifest import Manifest
    from raysim.storage.resume import Ticket


READING = "reading data"


def run(
    config: Source | None = None,
    *,
    strategy: StrategyLike | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> RunResult:
    """Train one strategy, evaluate it, and write its results and report to a folder, as ``raysim run`` does.

    - ``config``: a YAML file, a mapping with its content, a ``Config``, or None for the synthetic federation.
    - ``strategy``: a registered name, the content of a section ``strategy``, a strategy object, or its class. If the
      class is defined in a notebook or a function, another process cannot resume the run.
    - ``data``: a data frame. The section ``data`` of ``config`` names its columns for the hospital and the label.
    - ``seed`` and ``overrides`` replace values of ``config``. ``overrides`` maps dotted keys to values
      (``{"training.rounds": 5}``), or is a list in the form of ``--set`` (``["training.rounds=5"]``).
    - ``out``: the folder to write into, by default ``runs/<name>/<time>-<id>``.
    - ``in_process``: run without Ray, for a debugger; the results are the same.
    - ``verbose``: print progress, and messages of Ray and MLflow. ``console``: where progress is printed, also without
      ``verbose``.

    Raises :class:`raysim.RaysimError` for errors that a user can correct.
    """
    asked = configuration(config, strategy=strategy, data=data, seed=seed, overrides=overrides)
    return execute_run(
        asked, path_of(out), console_or_warnings(console, verbose), in_process=in_process, verbose=verbose
    )


def compare(
    config: Source | None = None,
    *,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> ComparisonResult:
    """Train several strategies, each with several seeds, and compare them, as ``raysim compare`` does.

    ``strategies``: a list, or a mapping from labels to strategies, each as for :func:`run`. ``seed``: the only seed to
    run; by default there are three, unless ``config`` sets ``seed``, ``seeds`` or folds. All other arguments are the
    same as for :func:`run`.
    """
    asked = configuration(config, strategies=strategies, data=data, seed=seed, overrides=overrides)
    return execute_comparison(
        asked, path_of(out), console_or_warnings(console, verbose), in_process=in_process, verbose=verbose
    )


def curve(
    config: Source,
    *,
    strategies: Strategies | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    of: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> CurveResult:
    """Compare strategies over the values of one hyper-parameter, as ``raysim curve`` does.

    The section ``curve`` of ``config`` names the hyper-parameter and its values. ``of`` may name the folder of a
    finished comparison, from which the table and the plot are made without any run. All other arguments are the same as
    for :func:`compare`.
    """
    from raysim.api.comparison_result import CurveResult
    from raysim.experiment.curves.curve import begin

    tree = tree_of(config, strategies=strategies, data=data, seed=seed, overrides=overrides)
    with search_path_restored(), alone_on_ray(in_process):
        output = console_or_warnings(console, verbose)
        folder = begin(tree, (), path_of(out), output, of=path_of(of), in_process=in_process, verbose=verbose)
    return CurveResult(folder)


def sweep(
    config: Source,
    *,
    strategy: StrategyLike | None = None,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    console: Console | None = None,
) -> SweepResult:
    """Search for an accurate and fair configuration in many trials on Ray, as ``raysim sweep`` does.

    The section ``sweep`` of ``config`` names the searched keys and the objectives. ``strategy`` is the same as for
    :func:`run`; a strategy's class must be importable by other processes. After a keyboard interrupt, :func:`resume`
    continues the sweep.
    """
    from raysim.api.sweep_result import SweepResult
    from raysim.storage.results import choose_folder
    from raysim.tune.sweep import begin

    tree = tree_of(config, strategy=strategy, data=data, seed=seed, overrides=overrides)
    if not isinstance(tree.get("strategy", ""), str | Mapping):
        tree["strategy"] = importable(tree["strategy"])
    with search_path_restored(), alone_on_ray(in_process=False):
        folder = choose_folder(path_of(out), reading.checked({k: v for k, v in tree.items() if k != "sweep"}).name)
        begin(tree, (), folder, console_or_warnings(console, verbose), verbose=verbose)
    return SweepResult(folder)


def execute_run(
    config: Config, out: Path | None, console: Console, *, in_process: bool, verbose: bool, again: bool = False
) -> RunResult:
    """Train and evaluate the strategy of a configuration; with ``again``, resume the stopped run in folder ``out``."""
    with search_path_restored(), alone_on_ray(in_process):
        with phase(console, READING):
            from raysim.experiment import idle_keys
            from raysim.experiment.runs import Experiment
            from raysim.experiment.scores import unread
            from raysim.experiment.unseen.folds import refuse

            config = reading.resolve(config)
            refuse(config, "run")
            ignored = idle_keys.check_run(config)
            experiment = Experiment(config, [config], [config.seed], out, again=again)
        for line in (*ignored, *unread(config, "run")):
            say(console, line)
        experiment.run(console, in_process=in_process, verbose=verbose)
        from raysim.api.results import RunResult

        return RunResult(experiment.folder)


def execute_comparison(
    config: Config, out: Path | None, console: Console, *, in_process: bool, verbose: bool, again: bool = False
) -> ComparisonResult:
    """Compare the strategies of a configuration; with ``again``, resume the stopped comparison in folder ``out``."""

    def conclude(results: Sequence[Result], out: Manifest) -> None:
        from raysim.experiment import comparison, pairs
        from raysim.experiment.unseen import files, rows

        left, asked = pairs.sentences(experiment.unpaired), experiment.config
        left += rows.notes(experiment.left_out)
        with tempfile.TemporaryDirectory() as scratch:
            found = scores.entered(results, asked.evaluation, out.folder, Path(scratch))
            unseen = files.write(out, asked, results, experiment.left_out)
            comparison.write_comparison(out, asked, results, unseen=unseen, scores=found, before=left)

    with search_path_restored(), alone_on_ray(in_process):
        with phase(console, READING):
            from raysim.experiment import scores
            from raysim.experiment.runs import Experiment

            config = scores.asked(reading.over_seeds(reading.resolve(config, reads=reading.COMPARISON)))
            experiment = Experiment.comparing(config, out, again=again)
        experiment.run(console, in_process=in_process, verbose=verbose, conclude=conclude)
        from raysim.api.comparison_result import ComparisonResult

        return ComparisonResult(experiment.folder)


def resume(
    folder: str | os.PathLike[str],
    *,
    failed: bool = False,
    in_process: bool = False,
    verbose: bool = False,
    console: Console | None = None,
) -> RunResult | ComparisonResult | CurveResult | SweepResult:
    """Continue a stopped run, comparison, curve or sweep, as ``raysim resume`` does.

    ``failed``: whether to repeat the failed trials of a sweep, even of a finished one. Apart from this, finished
    results do not change.
    """
    from raysim.storage.resume import read_ticket
    from raysim.tune.sweep import is_sweep

    path = expanded(folder).absolute()
    if is_sweep(path):
        return resume_sweep(path, failed=failed, verbose=verbose, console=console)
    return resume_with(path, read_ticket(path), in_process=in_process, verbose=verbose, console=console)


def resume_with(
    path: Path, ticket: Ticket, *, in_process: bool, verbose: bool, console: Console | None
) -> RunResult | ComparisonResult | CurveResult:
    """Do the same as :func:`resume` for the folder ``path``, whose ``resume.json`` has the content ``ticket``."""
    from raysim.api.comparison_result import CurveResult
    from raysim.core.importing import standing_here
    from raysim.experiment.curves.curve import go_on
    from raysim.experiment.pending_mlflow import send_pending

    output, working = console_or_warnings(console, verbose), Path(ticket.working)
    # Relative paths start from the original working directory; modules are also searched in the current one.
    with (
        alone_on_ray(in_process),
        search_path_restored(),
        standing_here((working, path)),
        contextlib.chdir(working if working.is_dir() else "."),
    ):
        config = reading.resolve(path / "config.yaml", reads=())
        if ticket.finished:
            message = f"{path}: finished, {send_pending(path, config.tracking) or 'nothing to resume'}"
            output.print(message, soft_wrap=True, highlight=False, markup=False)
            return _result(ticket.kind, path)
        if ticket.kind == "run":
            return execute_run(config, path, output, in_process=in_process, verbose=verbose, again=True)
        if ticket.kind == "curve":
            return CurveResult(go_on(path, config, output, in_process=in_process, verbose=verbose))
        return execute_comparison(config, path, output, in_process=in_process, verbose=verbose, again=True)


def _result(kind: str, folder: Path) -> RunResult | ComparisonResult | CurveResult:
    from raysim.api.comparison_result import ComparisonResult, CurveResult
    from raysim.api.results import RunResult

    made: Mapping[str, type[RunResult | ComparisonResult]]
    made = {"run": RunResult, "compare": ComparisonResult, "curve": CurveResult}
    return made[kind](folder)


def resume_sweep(
    folder: str | os.PathLike[str], *, failed: bool = False, verbose: bool = False, console: Console | None = None
) -> SweepResult:
    """Continue a stopped sweep, or return the results of a finished one. ``failed`` repeats failed trials."""
    from raysim.api.sweep_result import SweepResult
    from raysim.tune.sweep import go_on

    with search_path_restored(), alone_on_ray(in_process=False):
        go_on(expanded(folder), console_or_warnings(console, verbose), failed=failed, verbose=verbose)
    return SweepResult(folder)
