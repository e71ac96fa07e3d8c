"""A table as a file that a user names: CSV or Parquet by how its name ends, written whole or not at all."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.core.errors import ConfigError
from raysim.storage.atomic import replacing

if TYPE_CHECKING:
    import pandas as pd

CSV, ZIPPED, PARQUET = ".csv", ".csv.gz", (".parquet", ".pq")


def check_place(path: Path, option: str) -> None:
    """Raise ``ConfigError`` naming ``option`` where ``path`` cannot be a table's; before long work."""
    if path.is_dir():
        raise ConfigError(f"{option}: {path} is a folder; name a .csv, .csv.gz or .parquet file")
    if not path.name.lower().endswith((CSV, ZIPPED, *PARQUET)):
        raise ConfigError(f"{option}: {path} is not .csv, .csv.gz or .parquet; name such a file")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option}: {path} is in a folder that does not exist; make it, or name another")


def write_table(table: pd.DataFrame, path: Path, option: str) -> None:
    """Write ``table``, without its index; a file that was there is replaced. Raises ``ConfigError``."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    rows = pa.Table.from_pandas(table, preserve_index=False)
    name = path.name.lower()
    try:
        opened = gzip.open if name.endswith(ZIPPED) else open
        with replacing(path) as temporary, opened(temporary, "wb") as file:
            if name.endswith(PARQUET):
                parquet.write_table(rows, file)
            else:
                csv.write_csv(rows, file)
    except OSError as error:
        raise ConfigError(f"{option}: {path} cannot be written ({error.strerror}); name another file") from None
