"""Judges predictions of any framework, from Python."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from raysim.experiment.judging.run import Judged


def judge(
    predictions: pd.DataFrame | str | os.PathLike[str],
    reference: str,
    *,
    tried: int | None = None,
    predicts: str = "the label",
    event: str | None = None,
    logits: bool = False,
    percent: bool = False,
    common: bool = False,
    name: str = "predictions",
    out: str | os.PathLike[str] | None = None,
) -> Judged:
    """Judge predictions as a comparison judges its own, as ``raysim judge`` does.

    - ``predictions``: a row a model, seed and test row, with columns ``hospital``, ``row``, ``label``, ``model``,
      ``seed`` and ``probability``; or a CSV or Parquet file with them.
    - ``reference``: the model that the others are compared with.
    - ``tried``: how many models were tried beside it, shown or not; None: those of the table.
    - ``predicts``: what the event is, in words. ``event``: the value of the label that is the event, where it is not 1.
    - ``logits``, ``percent``: how probabilities are written. ``common``: judge the rows that all models have.
    - ``name``: of the page; ``out``: the folder, a new one below ``runs/`` where None.

    Raises :class:`raysim.RaysimError`, in one line, for a table that cannot be judged.
    """
    from raysim.experiment.judging.reading import read
    from raysim.experiment.judging.run import judge as judged
    from raysim.experiment.judging.table import Reading

    table, remarks = (predictions, ()) if isinstance(predictions, pd.DataFrame) else read(Path(predictions))
    reading = Reading(logits, percent, event, common)
    folder = None if out is None else Path(out)
    return judged(
        table, reference, tried=tried, reading=reading, predicts=predicts, name=name, out=folder, remarks=remarks
    )
