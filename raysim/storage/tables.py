"""Write a table to a file that a user names: CSV or Parquet by its extension, completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from raysim.core.atomic import replacing
from raysim.core.csv_files import write_csv
from raysim.core.errors import ConfigError
from raysim.storage.manifest import spare

CSV, PARQUET = ".csv", (".parquet", ".pq")


def check_place(path: Path, option: str) -> None:
    """Raise ``ConfigError`` if no table can be written to ``path``, or if ``path`` is a result file.

    The error names the command-line ``option`` with which the user gave the path.
    """
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; name a .csv or .parquet file")
    if not path.name.lower().endswith((CSV, *PARQUET)):
        raise ConfigError(f"{option}: {path} is not .csv or .parquet; name such a file")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option}: {path} is in a folder that does not exist; make it, or name another")
    spare(path, option)


def write_table(table: pd.DataFrame, path: Path, option: str) -> None:
    """Write ``table``, without its index, to ``path``, replacing any file. Raises ``ConfigError`` if this fails."""
    try:
        with replacing(path) as temporary:
            temporary.touch()  # Python's error explains why a file cannot be made
            if path.name.lower().endswith(PARQUET):
                table.to_parquet(temporary, index=False)
            else:
                write_csv(table, temporary, many_rows=True)
    except OSError as error:
        raise ConfigError(
            f"{option}: {path} cannot be written ({error.strerror or error}); name another file"
        ) from None
