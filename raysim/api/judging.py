"""Python functions that evaluate existing models, and predictions from any framework."""

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
    """Evaluate and compare models by their predictions, as ``raysim judge`` does; nothing is trained.

    - ``predictions``: a data frame with one row per model, seed and test row, and with columns ``hospital``, ``row``
      (or ``patient``), ``label``, ``model``, ``seed`` and ``probability`` (or ``margin``, the log-odds); or a CSV or
      Parquet file with these columns.
    - ``reference``: the model with which the other models are compared.
    - ``tried``: how many models were tried, not counting ``reference`` and models with a ``role``. None: the number of
      such models in the table.
    - ``predicts``: the predicted event in words, for the report. ``event``: the value of the label that is the event,
      if it is not 1.
    - ``logits``, ``percent``: whether probabilities are given as logits, or in percent.
    - ``common``: whether to use only the rows that all models have.
    - ``name``: the title of the report. ``out``: the folder to write into; None: a new folder below ``runs/``.

    Raises :class:`raysim.RaysimError` for a table that cannot be evaluated.
    """
    from raysim.experiment.judging.reading import read
    from raysim.experiment.judging.run import judge as judged
    from raysim.experiment.judging.table import Reading

    if not isinstance(predictions, pd.DataFrame | str | os.PathLike):
        raise ConfigError(
            f"predictions: a {type(predictions).__name__} is neither a data frame nor the path of a file; give one of "
            "the two"
        )
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
    """Evaluate an existing model at every hospital, without training, as ``raysim validate`` does.

    - ``model``: a folder of ``raysim export``, an ONNX file, or the name of a column with the model's predictions.
    - ``config``: a YAML file, a mapping or a ``Config``. Its section ``data`` names the hospitals' rows. None: the
      synthetic federation.
    - ``data``: a data frame with the rows. ``overrides`` replace values of ``config``.
    - ``out``: the folder to write into; None: a new folder below ``runs/``.

    Raises :class:`raysim.RaysimError` if the model cannot be used or does not fit the rows.
    """
    from raysim.experiment.validation.run import validate as validated

    with search_path_restored():
        return validated(os.fspath(model), configuration(config, data=data, overrides=overrides), out=path_of(out))
