"""Judges predictions of any framework, and models that exist already, from Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pandas as pd

from raysim.api.request import Overrides, configuration, path_of, search_path_restored
from raysim.config.paths import expanded
from raysim.core.errors import ConfigError

if TYPE_CHECKING:
    from raysim.config.reading import Source
    from raysim.experiment.judging.run import Judged
    from raysim.experiment.validation.run import Validated


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

    if not isinstance(predictions, pd.DataFrame | str | os.PathLike):
        raise ConfigError(f"predictions: a {type(predictions).__name__} is neither a data frame nor the path of a file")
    table, remarks = (predictions, ()) if isinstance(predictions, pd.DataFrame) else read(expanded(predictions))
    how, folder = Reading(logits, percent, event, common), path_of(out)
    return judged(table, reference, tried=tried, reading=how, predicts=predicts, name=name, out=folder, remarks=remarks)


def validate(
    model: str | os.PathLike[str],
    config: Source | None = None,
    *,
    data: pd.DataFrame | None = None,
    overrides: Overrides | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Validated:
    """Judge a model that exists at every hospital, without training, as ``raysim validate`` does.

    - ``model``: a folder of ``raysim export``, an ONNX file, or the name of a column of the table.
    - ``config``: a YAML file, a mapping with its content, or a ``Config``, whose section ``data`` names the hospitals'
      rows; ``data``: a data frame with them. ``overrides`` are laid over ``config``.
    - ``out``: the folder, a new one below ``runs/`` where None.

    Raises :class:`raysim.RaysimError`, in one line, for what is no model, or does not fit the rows.
    """
    from raysim.experiment.validation.run import validate as validated

    with search_path_restored():
        return validated(os.fspath(model), configuration(config, data=data, overrides=overrides), out=path_of(out))
