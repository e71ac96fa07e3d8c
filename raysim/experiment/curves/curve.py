"""``raysim curve``: how strategies perform over the values of one hyper-parameter, as a table and a plot.

The configuration is that of a comparison with one more section:

.. code-block:: yaml

    curve: {field: clusters, values: [3, 4, 5], figure: log_loss}

A strategy that has the setting ``field``, and leaves it unset, is run with each of the values, and becomes a curve.
Every other strategy is run once, and becomes a horizontal line. The plot shows the mean and the variance of the metric
``figure`` over hospitals.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
from pydantic import Field, field_validator
from rich.console import Console

from raysim.config import plugins, reading
from raysim.config.checking import validated
from raysim.config.reading import Source
from raysim.config.schema import Config
from raysim.core import bounded
from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section
from raysim.report.terminal.progress import phase
from raysim.storage.manifest import Manifest, check_plain

if TYPE_CHECKING:
    from raysim.engine.job import Result
    from raysim.experiment.curves.found import Found
    from raysim.metrics.labels import TaskKind
    from raysim.report.svg import Figure

SECTION = "curve.json"
FILE = "curve.csv"
DRAWING = "plots/curve.svg"
ANSWER = "curve_answer.json"
"""Name of the file with the curve's findings."""

Lines = Mapping[str, tuple[str, float | None]]
"""For each strategy label, the name of the strategy's line in the plot, and the strategy's value of the hyper-parameter
(None for a horizontal line).
"""


class Curve(Section):
    """The section ``curve``: the strategies' setting ``field``, its ``values``, and the metric ``figure`` of hospitals
    to plot.

    ``scale`` is the scale of the axes of mean and variance.
    """

    field: str
    values: tuple[float | int, ...] = Field(min_length=1)
    figure: str = default("curve.figure")
    scale: Literal["linear", "log"] = default("curve.scale")

    @field_validator("values")
    @classmethod
    def _each_once(cls, values: tuple[float | int, ...]) -> tuple[float | int, ...]:
        written = [f"{value:g}" for value in values]
        repeated = next((text for text in written if written.count(text) > 1), None)
        if repeated is not None:  # labels distinguish values by this text
            raise ValueError(f"{repeated} appears twice when written with six digits; name each value once")
        return values


def begin(
    source: Source,
    overrides: Sequence[str],
    out: Path | None,
    console: Console,
    *,
    of: Path | None = None,
    in_process: bool,
    verbose: bool,
) -> Path:
    """Run a comparison over the values of a curve, and write ``curve.csv`` and the plot. Returns the comparison's
    folder.

    If ``of`` is given, nothing is run: the table and the plot are made from the finished comparison in this folder.
    """
    from raysim.experiment import scores
    from raysim.experiment.unseen.folds import refuse

    config, curve, lines = read(source, overrides)
    refuse(config, "curve")
    config = scores.asked(config)
    if of is not None:
        check_plain(of)
        part = config.evaluation.part
        hospitals = _finished(of, curve, lines, part)
        write_curve(Manifest.read(of), hospitals, curve, lines, part, _titles(config))
        return of
    return _run(config, curve, lines, out, console, in_process=in_process, verbose=verbose)


def go_on(folder: Path, config: Config, console: Console, *, in_process: bool, verbose: bool) -> Path:
    """Resume an interrupted ``raysim curve`` in ``folder``, and return the folder."""
    config = reading.resolve(config, reads=reading.COMPARISON)
    curve, lines = _begun(folder / SECTION)
    return _run(config, curve, lines, folder, console, in_process=in_process, verbose=verbose, again=True)


def _begun(path: Path) -> tuple[Curve, Lines]:
    try:
        tree = bounded.read_json(path)
        lines = {str(label): (str(line), value) for label, (line, value) in tree["lines"].items()}
        if not all(value is None or isinstance(value, int | float) for _, value in lines.values()):
            raise ValueError("the value of a line of the plot is not a number")
        return validated(Curve, tree["curve"], "curve"), lines
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be used ({error}); run raysim curve again") from None


def _run(
    config: Config,
    curve: Curve,
    lines: Lines,
    out: Path | None,
    console: Console,
    *,
    in_process: bool,
    verbose: bool,
    again: bool = False,
) -> Path:
    from raysim.experiment import scores
    from raysim.experiment.comparison import write_comparison
    from raysim.experiment.runs import Experiment
    from raysim.experiment.stacked_tables import per_hospital

    with phase(console, "reading data"):
        experiment = Experiment.comparing(config, out, again=again)
    figures = figures_of(next(iter(experiment.federations.values())).task, config.evaluation.part)
    if curve.figure not in figures:
        raise ConfigError(
            f"curve.figure: '{curve.figure}' is not a metric of single hospitals; name one of {', '.join(figures)}"
        )

    def begin(out: Manifest) -> None:
        out.json(SECTION, {"curve": curve.model_dump(mode="json"), "lines": lines})

    def conclude(results: Sequence[Result], out: Manifest) -> None:
        hospitals = per_hospital(results, config.evaluation.part)
        titles = {result.label: result.title or result.label for result in results}
        plot, answer = write_curve(out, hospitals, curve, lines, config.evaluation.part, titles)
        with tempfile.TemporaryDirectory() as scratch:
            known = scores.entered(results, config.evaluation, out.folder, Path(scratch))
            write_comparison(out, config, results, [plot], found=answer.headline, scores=known)

    experiment.run(console, in_process=in_process, verbose=verbose, begin=begin, conclude=conclude, kind="curve")
    return experiment.folder


def figures_of(task: TaskKind, part: str) -> list[str]:
    """Return the columns of ``hospitals.csv`` that a curve can show. ``part`` is the evaluated part of the rows, such
    as ``test``.
    """
    return [f"{name}_{part}" if name in ("n", *task.counts) else name for name in task.figures]


def read(source: Source, overrides: Sequence[str]) -> tuple[Config, Curve, dict[str, tuple[str, float | None]]]:
    """Read the configuration of a curve.

    Returns the comparison's configuration, the section ``curve``, and the :data:`Lines` of the plot.
    """
    tree = reading.read_tree(source, overrides)
    if "curve" not in tree:
        raise ConfigError("curve: the configuration has no such section; give it a field and values")
    if tree.get("models"):
        raise ConfigError("models: raysim curve varies one key and uses a single model; give model instead of models")
    curve = validated(Curve, tree.pop("curve"), "curve")
    expanded: list[Any] = []
    lines: dict[str, tuple[str, float | None]] = {}
    for k, section in enumerate(reading.checked(tree).strategies):
        line = plugins.label(section)
        settings = section.frozen()
        curved = curve.field not in settings and curve.field in plugins.strategy_keys(section, f"strategies.{k}")
        values: Sequence[float | int | None] = curve.values if curved else (None,)
        for value in values:
            label = line if value is None else f"{line}, {curve.field} {value:g}"
            expanded.append({**settings, "label": label} | ({} if value is None else {curve.field: value}))
            lines[label] = (line, value)
    if not any(value is not None for _, value in lines.values()):
        if "." in curve.field:
            raise ConfigError(
                f"curve.field: '{curve.field}' is not a key of a strategy; vary other keys with raysim sweep and "
                "searcher: grid"
            )
        raise ConfigError(
            f"strategies: each strategy lacks the key {curve.field} or sets it; list a strategy that has the key, "
            "without setting it"
        )
    return reading.resolve({**tree, "strategies": expanded}, reads=reading.COMPARISON), curve, lines


def write_curve(
    out: Manifest, hospitals: pd.DataFrame, curve: Curve, lines: Lines, part: str, titles: Mapping[str, str]
) -> tuple[Figure, Found]:
    """Write the table, plot and findings of a curve; return the plot and the findings.

    ``hospitals`` is the content of the comparison's ``hospitals.csv``.
    """
    from raysim.experiment.curves.found import found
    from raysim.report.figures.curve import curve_figure

    evaluated = hospitals[hospitals[f"n_{part}"] > 0]
    table = curve_table(evaluated, curve, lines)
    out.csv(FILE, table)
    names = {line: titles[label].removesuffix(label.removeprefix(line)) for label, (line, _) in lines.items()}
    plot = curve_figure(table, curve.field, curve.figure, curve.scale, names)
    out.text(DRAWING, plot.standalone())
    answer = found(evaluated, curve.field, curve.figure, lines, names)
    out.json(ANSWER, answer.as_json())
    return plot, answer


def _titles(config: Config) -> dict[str, str]:
    from raysim.experiment.entries import entries

    return {entry.label: entry.title for entry in entries(reading.compared(config))}


def _finished(folder: Path, curve: Curve, lines: Lines, part: str) -> pd.DataFrame:
    """Read the ``hospitals.csv`` of a finished comparison.

    Raises ``ConfigError`` if the comparison does not have the curve's strategies and values.
    """
    from raysim.report.tables import read_csv

    try:
        hospitals = read_csv(folder / "hospitals.csv")
    except OSError:
        raise ConfigError(f"--of: {folder} has no hospitals.csv; name the folder of a finished comparison") from None
    if not {"strategy", "seed", "model"} <= set(hospitals):
        raise ConfigError(f"--of: {folder} holds no comparison; name the folder of a finished comparison")
    if f"n_{part}" not in hospitals:
        raise ConfigError(
            f"evaluation.part: {folder} was not evaluated on {part} rows; name the part that was evaluated"
        )
    if curve.figure not in hospitals.select_dtypes("number"):
        raise ConfigError(
            f"curve.figure: '{curve.figure}' is not a numeric column of {folder / 'hospitals.csv'}; name such a column"
        )
    absent = [label for label in lines if label not in set(hospitals["strategy"])]
    if absent:
        raise ConfigError(f"--of: {folder} has no strategy '{absent[0]}'; give the configuration that it was made with")
    return hospitals


def curve_table(hospitals: pd.DataFrame, curve: Curve, lines: Lines) -> pd.DataFrame:
    """Return the ``mean`` and ``variance`` of the metric over hospitals, with one row per strategy, value and seed.

    Every hospital has equal weight. A strategy is represented by its headline model. The column ``hospitals`` counts
    the hospitals at which the metric is defined.
    """
    rows = []
    for label, (line, value) in lines.items():
        rows_of = hospitals[hospitals["strategy"] == label]
        headline = rows_of[rows_of["model"] == rows_of["model"].iloc[-1]]
        for seed, run in headline.groupby("seed", sort=False):
            figure = run[curve.figure].dropna().astype(float)
            rows.append(
                {
                    "line": line,
                    curve.field: value,
                    "seed": seed,
                    "mean": figure.mean(),
                    "variance": figure.var(ddof=0),
                    "hospitals": len(figure),
                }
            )
    return pd.DataFrame(rows)
