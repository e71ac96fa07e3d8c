"""Runs ``raysim study``: reads a study's file, and writes its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from raysim.config.plugins import build_source, build_strategy
from raysim.config.reading import checked, read_tree
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, DataError
from raysim.core.plain_yaml import dumped
from raysim.data.sources.pooled import Pooled
from raysim.report.terminal.progress import phase
from raysim.storage.manifest import Manifest
from raysim.storage.results import choose_folder
from raysim.study.grid import cells, check_feasible, measure
from raysim.study.predictors import importances
from raysim.study.settings import Study, read_study

DECIDED = ("clients", "partition", "silo", "smallest")
"""Keys of a pooled source that say how rows are assigned to clients. They are not allowed in a
study, in which the grid assigns rows."""

READ = ("name", "data")

PASSED_OVER = ("minimum", "largest", "split", "preprocessing", "missing_flags")


def begin(path: Path, overrides: Sequence[str], out: Path | None, console: Console) -> Path:
    """Execute the study of the file ``path``, and write tables, plots and a page. Returns the folder."""
    tree = read_tree(path, overrides)
    study = read_study(tree)
    config = checked({key: value for key, value in tree.items() if key != "study"})
    _check_read(config)
    source = _source(config)
    strategy = build_strategy(study.strategy, "study.strategy") if study.strategy is not None else None
    folder = choose_folder(out, config.name)
    with phase(console, "reading data"):
        _, y, classes, note = source.pool()
        y = y[source.sample(y, classes)]
    if len(present := np.unique(y)) < 2:
        raise DataError(f"data: all {len(y):,} rows are of one class ('{classes[present[0]]}'); check the label")
    rows = track(
        measure(y, len(classes), study, strategy),
        "dividing",
        len(cells(study)),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    table = pd.DataFrame(list(rows))
    check_feasible(table)
    with phase(console, "fitting the models that predict the skew"):
        shares = importances(table, study.candidates, study.target)
    with phase(console, "drawing pictures"):
        _write(folder, config, study, table, shares, note)
    return folder


def _check_read(config: Config) -> None:
    for key in sorted(config.model_fields_set - {*READ}):
        instead = "; study.seeds are the seeds of its partitions" if key in ("seed", "seeds") else ""
        raise ConfigError(f"{key}: has no effect in a study, which trains no model{instead}; remove the key")
    for key in PASSED_OVER:
        if key in config.data.model_fields_set:
            raise ConfigError(f"data.{key}: has no effect in a study, which only divides labels; remove the key")


def _source(config: Config) -> Pooled:
    """Return the study's data source.

    Raises ``ConfigError`` if its data are already divided among hospitals, or if the configuration sets a key of
    :data:`DECIDED`.
    """
    source = build_source(config.data)
    if not isinstance(source, Pooled):
        raise ConfigError(
            f"data.source: '{config.data.source}' already has hospitals, but a study divides pooled data; use a "
            "pooled source, such as digits or fashion_mnist"
        )
    for key in DECIDED:
        if key in config.data.options():
            raise ConfigError(f"data.{key}: the study's grid sets this key; remove it from data")
    return source


def _write(folder: Path, config: Config, study: Study, table: pd.DataFrame, shares: pd.DataFrame, note: str) -> None:
    from raysim.study.page import study_page

    read = config.model_dump(mode="json", exclude_none=True, include={*READ}, exclude={"data": {*PASSED_OVER}})
    section = study.model_dump(mode="json", by_alias=True, exclude_none=True)
    text = dumped(read | {"study": section})
    out = Manifest.begin(folder, "study")
    out.text("config.yaml", text)
    out.csv("study.csv", table)
    out.csv("importances.csv", shares)
    page = study_page(config.name, table, shares, study, note, text)
    out.text("report.html", page.html())
    for figure in page.figures():
        out.text(figure.file, figure.standalone())
