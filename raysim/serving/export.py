"""A run's model as a folder that works without raysim: ``torch.export`` or ONNX, with its preprocessing.

The exported model is tried first, and not written if its outputs differ from those of the run's model.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from raysim.core.atomic import write_json
from raysim.core.errors import ConfigError
from raysim.core.package import __version__
from raysim.data.fitted import Preprocessing
from raysim.metrics.predictions import predictions
from raysim.serving import prepare
from raysim.serving.predictor import Predictor
from raysim.storage.served import PREPROCESSING, Shift
from raysim.training.base import Exportable

Format = Literal["torch", "onnx"]

FILES = {"torch": "model.pt2", "onnx": "model.onnx"}
TRIED = 64
"""Random rows on which the written model is compared with the run's own."""

TOLERANCE = 1e-5
"""The largest difference of their outputs: in single precision, with sums in another order."""


class Scores(nn.Module):
    """Features ``[n, F]``, float32, to probabilities: ``[n]`` of the event, ``[n, C]``; or predictions ``[n]``."""

    def __init__(self, module: nn.Module, classes: int, precision: torch.dtype, shift: Shift | None = None) -> None:
        """``shift`` recalibrates the module's outputs, the logits of two classes; None: they stay."""
        super().__init__()
        self.module, self._classes, self._precision = module, classes, precision
        self._shift = None if shift is None else (shift.intercept, shift.slope)

    def forward(self, features: Tensor) -> Tensor:
        """See the class."""
        z: Tensor = self.module(features.to(self._precision))
        if not self._classes:
            return z
        if self._shift is not None:
            z = self._shift[0] + self._shift[1] * z
        return torch.sigmoid(z) if self._classes == 2 else torch.softmax(z, dim=1)


def export(predictor: Predictor, folder: Path, form: Format, hospital: str | None, model: str | None) -> str:
    """Write the model of ``hospital`` (None: the one of all hospitals) into ``folder``; returns its owner.

    ``model`` is the model served, the headline where None. Raises ``ConfigError`` where there is no such model, where
    its architecture cannot be exported, and for a folder that exists or cannot be made.
    """
    if folder.exists():
        raise ConfigError(f"--out: {folder} exists; name a new folder")
    owner = predictor.owner(hospital, model)
    program = exported(predictor, owner)
    fitted = predictor.preprocessing
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.absolute().parent))
        try:
            if form == "onnx":
                _write_onnx(program, making / FILES[form])
            else:
                _write_torch(program, making / FILES[form])
            write_json(making / PREPROCESSING, fitted.tree())
            shutil.copyfile(prepare.__file__, making / "prepare.py")
            write_json(making / "export.json", _described(fitted, owner, form))
            making.chmod(0o777 & ~_umask())
            os.rename(making, folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be written ({error.strerror}); name a folder that can be") from None
    return owner


def exported(predictor: Predictor, owner: str) -> torch.export.ExportedProgram:
    """The model with the vector of ``owner`` as a program. Raises ``ConfigError`` where it cannot be made one."""
    model, fitted = predictor.model, predictor.preprocessing
    theta, shift = predictor.served.of(owner)
    if not isinstance(model, Exportable):
        raise ConfigError(
            f"model: {type(model).__name__} says nothing on how it becomes a torch module; give it a method as_module"
        )
    scores = Scores(model.as_module(theta), len(fitted.classes), getattr(torch, str(theta.dtype)), shift).eval()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(TRIED, len(fitted.features))).astype(np.float32)
    try:
        with _quiet(), torch.no_grad():
            rows = torch.export.Dim("rows", min=0)
            program = torch.export.export(scores, (torch.from_numpy(X),), dynamic_shapes=({0: rows},))
            got = program.module()(torch.from_numpy(X)).numpy()
    except Exception as error:  # torch has no exception of its own for what it cannot export
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(
            f"model: {type(model).__name__} cannot be exported ({type(error).__name__}: {reason}); use raysim predict"
        ) from None
    logits = model.logits(theta, X)
    columns = predictions(logits if shift is None else shift.applied(logits), fitted.classes)
    outputs = [columns[name] for name in output_names(fitted)]
    expected = outputs[0] if len(outputs) == 1 else np.column_stack(outputs)
    if not np.allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        apart = float(np.nanmax(np.abs(got - expected)))
        raise ConfigError(
            f"model: {type(model).__name__} gives other numbers when it is exported (up to {apart:.2g} apart); "
            "use raysim predict"
        )
    return program


def output_names(fitted: Preprocessing) -> list[str]:
    """The names of the outputs in the table of ``raysim predict``, in order."""
    if not fitted.classes:
        return ["prediction"]
    if len(fitted.classes) == 2:
        return ["probability"]
    return [f"probability_{name}" for name in fitted.classes]


def check_format(form: Format) -> None:
    """Raise ``ConfigError`` where a package is missing that writes this format; before long work."""
    if form == "onnx":
        for package in ("onnx", "onnxscript"):
            if find_spec(package) is None:
                raise ConfigError(f"--format: onnx needs the package {package}; pip install 'raysim[onnx]'")


def _write_torch(program: torch.export.ExportedProgram, path: Path) -> None:
    content = io.BytesIO()  # on a full disk torch's own writer ends the process
    torch.export.save(program, content)
    path.write_bytes(content.getvalue())


def _write_onnx(program: torch.export.ExportedProgram, path: Path) -> None:
    with _quiet():
        written = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["features"], output_names=["scores"]
        )
    if written is None:
        raise ConfigError("--format: torch wrote no ONNX model; use --format torch")
    written.save(str(path))


def _described(fitted: Preprocessing, owner: str, form: Format) -> dict[str, object]:
    return {
        "file": FILES[form],
        "model": owner,
        "features": list(fitted.features),
        "outputs": output_names(fitted),
        "classes": list(fitted.classes),
        "versions": {"raysim": __version__, **{name: version(name) for name in _packages(form)}},
    }


def _packages(form: Format) -> tuple[str, ...]:
    return ("torch", "onnx", "onnxscript") if form == "onnx" else ("torch",)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's own warnings of its exporters say nothing that a user can mend."""
    import warnings

    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
