"""Exports a run's model and its preprocessing as a folder that works without raysim.

Networks are exported as a program of ``torch.export`` or as ONNX; linear models also as plain JSON; trees as plain
JSON, as a model of xgboost, or as ONNX. Torch programs, and ONNX models of trees, are rejected if their outputs differ
from those of the run's model. ONNX models of networks are converted from torch programs that were not rejected.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from raysim.config import reading
from raysim.core.atomic import write_json
from raysim.core.errors import ConfigError
from raysim.core.package import __version__
from raysim.data.fitted import Preprocessing
from raysim.serving import prepare
from raysim.serving.outputs import output_names
from raysim.serving.predictor import Predictor
from raysim.serving.trained_on import trained_on
from raysim.storage.served import PREPROCESSING
from raysim.training.base import Exportable, Grows, Model
from raysim.training.kernels.linear import LinearModel

FORMAT = 1


def linear_writer(predictor: Predictor, owner: str) -> Callable[[Path], None]:
    """Return a function that writes a linear model to a path as JSON.

    ``owner`` names the model's parameters, such as ``global`` or ``personal/<hospital>``. For a row's features ``x
    [F]`` the output is ``link^-1(intercept + coefficients . x)``. The link is ``logit`` for two classes, ``softmax``
    for more, ``log`` if the label is a count, and ``identity`` for other numbers. With ``softmax`` each coefficient is
    a list with one entry per class. The coefficients of a recalibrated model include its recalibration.
    """
    theta, shift = predictor.served.of(owner)
    fitted, model = predictor.preprocessing, predictor.model
    tensors = model.layout.split(theta.astype(np.float64))
    weight, bias = tensors["weight"], tensors["bias"]
    if shift is not None:
        weight, bias = shift.slope * weight, shift.intercept + shift.slope * bias
    link = "softmax" if len(fitted.classes) > 2 else "logit" if fitted.classes else getattr(model, "link", "identity")
    one = len(bias) == 1
    tree = {
        "format": FORMAT,
        "link": link,
        "classes": list(fitted.classes),
        "intercept": bias[0] if one else bias.tolist(),
        "coefficients": {
            name: (of[0] if one else of.tolist()) for name, of in zip(fitted.features, weight.T, strict=True)
        },
    }
    return lambda path: write_json(path, tree)


Format = Literal["torch", "onnx", "json", "xgboost"]

FILES = {"torch": "model.pt2", "onnx": "model.onnx", "json": "model.json", "xgboost": "model.xgb.json"}

Write = Callable[[Path], None]


def export(predictor: Predictor, folder: Path, form: Format | None, hospital: str | None, model: str | None) -> str:
    """Write the model of ``hospital`` into the new ``folder``; return the name of its parameters, such as ``global``.

    If ``hospital`` is None, the model for hospitals that did not take part in the run is written. If ``form`` is None,
    it is the model's first available format. ``model`` is the name of one of the run's models; None means the headline
    model. Raises ``ConfigError`` if there is no such model or format, if the architecture cannot be exported, and for a
    folder that exists or cannot be made.
    """
    if folder.exists():
        raise ConfigError(f"--out: {folder} exists; name a new folder")
    owner = predictor.owner(hospital, model)
    form = form or formats(predictor.model)[0]
    write = _writer(predictor, owner, form)
    fitted = predictor.preprocessing
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.absolute().parent))
        try:
            write(making / FILES[form])
            write_json(making / PREPROCESSING, fitted.tree())
            shutil.copyfile(prepare.__file__, making / "prepare.py")
            write_json(
                making / "export.json",
                _described(fitted, owner, form, trees=isinstance(predictor.model, Grows))
                | {"trained_on": trained_on(reading.resolve(predictor.folder / "config.yaml", reads=("model",)))},
            )
            making.chmod(0o777 & ~_umask())
            os.rename(making, folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be written ({error.strerror}); name a writable folder") from None
    return owner


def formats(model: Model) -> tuple[Format, ...]:
    """Return the available formats of a model, the default first. Raises ``ConfigError`` if there is none."""
    if isinstance(model, Grows):
        return ("json", "xgboost", "onnx")
    if isinstance(model, LinearModel):
        return ("json", "torch", "onnx")
    if isinstance(model, Exportable):
        return ("torch", "onnx")
    raise ConfigError(
        f"model: {type(model).__name__} cannot be converted to a torch module; give it a method as_module"
    )


def check_format(form: Format | None) -> None:
    """Raise ``ConfigError`` if the format is ``onnx`` and the package ``onnx`` is missing."""
    if form == "onnx" and find_spec("onnx") is None:
        raise ConfigError("--format: onnx needs the package onnx; pip install 'raysim[onnx]'")


def _writer(predictor: Predictor, owner: str, form: Format) -> Write:
    """Return a function that writes a run's model to a path, with the parameters that ``owner`` names."""
    there = formats(predictor.model)
    if form not in there:
        name = reading.resolve(predictor.folder / "config.yaml", reads=("model",)).model.learner
        raise ConfigError(f"--format: {name} cannot be written as {form}; use {', '.join(there)}")
    if isinstance(predictor.model, Grows):
        from raysim.serving import tree_formats

        return tree_formats.writer(predictor, owner, form)
    if form == "json":
        return linear_writer(predictor, owner)
    from raysim.serving import torch_program

    if form == "onnx" and find_spec("onnxscript") is None:
        raise ConfigError("--format: onnx needs the package onnxscript; pip install 'raysim[onnx]'")
    program = torch_program.exported(predictor, owner)
    write = torch_program.write_onnx if form == "onnx" else torch_program.write_torch
    return lambda path: write(program, path)


def _described(fitted: Preprocessing, owner: str, form: Format, *, trees: bool) -> dict[str, object]:
    return {
        "file": FILES[form],
        "model": owner,
        "features": list(fitted.features),
        "outputs": output_names(fitted),
        "classes": list(fitted.classes),
        "versions": {"raysim": __version__, **{name: version(name) for name in _packages(form, trees)}},
    }


def _packages(form: Format, trees: bool) -> tuple[str, ...]:
    if form == "onnx":
        return ("onnx",) if trees else ("torch", "onnx", "onnxscript")
    return ("torch",) if form == "torch" else ()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
