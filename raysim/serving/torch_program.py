"""Converts a run's model to a program of ``torch.export``, and to ONNX with torch."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from raysim.core.errors import ConfigError
from raysim.serving.outputs import TRIED, check_same
from raysim.serving.predictor import Predictor
from raysim.storage.served import Shift
from raysim.training.base import Exportable


class Scores(nn.Module):
    """A torch module that computes a model's predictions from float32 features ``[n, F]``.

    Predictions are probabilities, or values of a numeric label: ``[n]``, or ``[n, C]`` for more than two classes.
    """

    def __init__(self, module: nn.Module, classes: int, precision: torch.dtype, shift: Shift | None = None) -> None:
        """``shift`` is a recalibration of the module's outputs, which must be logits of two classes."""
        super().__init__()
        self.module, self._classes, self._precision = module, classes, precision
        self._shift = None if shift is None else (shift.intercept, shift.slope)

    def forward(self, features: Tensor) -> Tensor:
        z: Tensor = self.module(features.to(self._precision))
        if not self._classes:
            return z
        if self._shift is not None:
            z = self._shift[0] + self._shift[1] * z
        return torch.sigmoid(z) if self._classes == 2 else torch.softmax(z, dim=1)


def exported(predictor: Predictor, owner: str) -> torch.export.ExportedProgram:
    """Convert a run's model to a torch program. Raises ``ConfigError`` if this is impossible.

    ``owner`` names the model's parameters, such as ``global`` or ``personal/<hospital>``.
    """
    model, fitted = cast(Exportable, predictor.model), predictor.preprocessing
    theta, shift = predictor.served.of(owner)
    scores = Scores(model.as_module(theta), len(fitted.classes), getattr(torch, str(theta.dtype)), shift).eval()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(TRIED, len(fitted.features))).astype(np.float32)
    try:
        with _quiet(), torch.no_grad():
            rows = torch.export.Dim("rows", min=0)
            program = torch.export.export(scores, (torch.from_numpy(X),), dynamic_shapes=({0: rows},))
            got = program.module()(torch.from_numpy(X)).numpy()
    except Exception as error:  # torch has no specific exception for failed exports
        reason = " ".join(str(error).split())[:160]
        raise ConfigError(
            f"model: {type(model).__name__} cannot be exported ({type(error).__name__}: {reason}); use raysim predict"
        ) from None
    check_same(predictor, owner, X, got)
    return program


def write_torch(program: torch.export.ExportedProgram, path: Path) -> None:
    content = io.BytesIO()  # torch's own file writer ends the process if the disk is full
    torch.export.save(program, content)
    path.write_bytes(content.getvalue())


def write_onnx(program: torch.export.ExportedProgram, path: Path) -> None:
    with _quiet():
        written = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=["features"], output_names=["scores"]
        )
    if written is None:
        raise ConfigError("--format: PyTorch cannot write this model as onnx; use --format torch")
    written.save(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
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
