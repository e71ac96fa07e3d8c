"""The command ``raysim export``, an entry point of the group ``raysim.commands``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import Verbose, greet, ungreet


class Format(StrEnum):
    """The file formats in which a model can be written."""

    torch = "torch"
    onnx = "onnx"
    json = "json"
    xgboost = "xgboost"


Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run or comparison.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to create.")]
Hospital = Annotated[
    str | None, typer.Option(metavar="NAME", help="Export this hospital's model; default: the model for all hospitals.")
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help=("The kind of model: global, cluster or personal; default: the run's headline model.")
    ),
]
As = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help=(
            "json (linear models and trees; their default), torch (a program of torch.export; the default for "
            "networks), onnx (needs raysim[onnx]) or xgboost (trees). raysim validate reads json and onnx."
        ),
    ),
]


def export(
    run: Run, out: Out, hospital: Hospital = None, model: Model = None, form: As = None, verbose: Verbose = False
) -> None:
    """Write a run's model for use without raysim.

    For a comparison, the recommended model of the first seed is written.
    """
    greet()
    from raysim.api.comparison_result import run_to_use
    from raysim.serving import export as exporting
    from raysim.serving.predictor import Predictor

    chosen: exporting.Format | None = None if form is None else form.value
    exporting.check_format(chosen)
    run, model, recommended = run_to_use(run, model)
    owner = exporting.export(Predictor.open(run), out, chosen, hospital, model)
    ungreet()
    print(f"model: {owner}" + (f", of {recommended}" if recommended else ""))
    print(f"files: {out}")
