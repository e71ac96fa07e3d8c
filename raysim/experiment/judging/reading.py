"""Reads the table that is judged."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from raysim.core.errors import ConfigError


def read(path: Path) -> pd.DataFrame:
    """The table at ``path``: Parquet by its name, else CSV. Raises ``ConfigError`` where it cannot be read."""
    if not path.is_file():
        raise ConfigError(f"{path}: is not a file; name a CSV or Parquet file of predictions")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        # Names of hospitals and models are texts as written: NA is one, and 007 is not 7.
        texts = dict.fromkeys(("hospital", "model", "strategy", "label", "role"), str)
        return pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=_EMPTY)
    except (OSError, ValueError, UnicodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read as a table ({str(error).splitlines()[0]}); write CSV or Parquet"
        ) from None


_EMPTY = {name: [""] for name in ("hospital", "model", "strategy", "label")} | {
    name: ["", "nan", "NaN", "NA"] for name in ("probability", "margin")
}
