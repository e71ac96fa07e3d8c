"""The command ``raysim predict``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import Verbose, greet, ungreet

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run or comparison.")]
Table = Annotated[Path, typer.Argument(metavar="TABLE", help="CSV or Parquet file with the columns of the run's data.")]
Out = Annotated[
    Path, typer.Option(metavar="FILE", help=("CSV or Parquet file to write, with one row for each row of the table."))
]
Hospital = Annotated[
    str | None, typer.Option(metavar="NAME", help="The hospital of all rows, in place of the table's column.")
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help=("The kind of model: global, cluster or personal; default: the run's headline model.")
    ),
]


def predict(
    run: Run, table: Table, out: Out, hospital: Hospital = None, model: Model = None, verbose: Verbose = False
) -> None:
    """Score the rows of a table with a run's models.

    Each hospital's rows are scored by the model used for that hospital. For a comparison, the recommended model of the
    first seed is used.
    """
    greet()
    from raysim.api.comparison_result import run_to_use
    from raysim.core.errors import ConfigError
    from raysim.core.words import counted
    from raysim.data.new_rows import FIELD
    from raysim.data.tables.table_files import is_pattern, table_files
    from raysim.serving.predictor import Predictor
    from raysim.storage.tables import check_place, write_table

    check_place(out, "--out")
    given = table.expanduser()
    files = table_files(given, FIELD) if is_pattern(given) else [given]
    if out.exists() and any(file.exists() and out.samefile(file) for file in files):
        what = "the table itself" if len(files) == 1 else "a file of the table"
        raise ConfigError(f"--out: {out} is {what}; name another file")
    run, model, chosen = run_to_use(run, model)
    scored = Predictor.open(run).predict(table, hospital=hospital, model=model)
    write_table(scored, out, "--out")
    by = scored["scored_by"].value_counts()
    ungreet()
    if chosen:
        print(f"scored by {chosen}")
    print(f"{counted(len(scored), 'row')} scored" + (f" by {len(by)} models" if len(by) > 1 else ""))
    print(f"files: {out}")
