"""Reads the folder of a finished run to use its models: its configuration, preprocessing and model family."""

from __future__ import annotations

from pathlib import Path

from raysim.config.schema import Config
from raysim.core import bounded
from raysim.core.errors import ConfigError
from raysim.core.words import some
from raysim.data.fitted import Preprocessing
from raysim.engine.messages.plan import ModelSpec
from raysim.storage import manifest
from raysim.storage.manifest import Manifest, check_plain
from raysim.storage.served import MODELS, PREPROCESSING, SERVING
from raysim.training.base import Model
from raysim.training.models import build_model

REMEDY = "name the folder of a finished run"

NAMED = 12


def is_comparison(folder: Path) -> bool:
    """Return whether ``folder`` contains the results of a comparison or curve."""
    check_plain(folder)
    return (folder / manifest.NAME).is_file() and Manifest.read(folder).kind in ("compare", "curve")


def check_run(folder: Path) -> None:
    """Raise ``ConfigError`` unless ``folder`` is the folder of a finished run."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; {REMEDY}")
    check_plain(folder)
    if not (folder / manifest.NAME).exists():
        raise ConfigError(f"{folder}: holds no run; {REMEDY}")
    kind = Manifest.read(folder).kind
    if kind != "run":
        runs = [path.parent.relative_to(folder).as_posix() for path in sorted(folder.glob(f"runs/*/seed-*/{SERVING}"))]
        if runs:
            raise ConfigError(f"{folder}: holds several runs; name the folder of one: {some(runs, NAMED)}")
        raise ConfigError(f"{folder}: holds a {kind}, which stores no models; {REMEDY}")
    if not all((folder / name).exists() for name in (MODELS, SERVING, PREPROCESSING)):
        raise ConfigError(f"{folder}: the run has no models yet; finish it with 'raysim resume {folder}'")


def read_preprocessing(folder: Path) -> Preprocessing:
    """Read the preprocessing from a run's ``preprocessing.json``. Raises ``ConfigError`` if it cannot be used."""
    try:
        return Preprocessing.of(bounded.read_json(folder / PREPROCESSING))
    except OSError as error:
        raise ConfigError(f"{folder}: has no preprocessing ({PREPROCESSING}: {error.strerror}); {REMEDY}") from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{folder / PREPROCESSING}: cannot be used ({error}); run again with this version") from None


def bound_model(config: Config, fitted: Preprocessing) -> Model:
    """Build the model that a configuration names, for the features and classes of ``fitted``, on the CPU."""
    spec = ModelSpec.of(config.model)
    return build_model(
        spec.class_path or spec.name or "",
        len(fitted.features),
        len(fitted.classes),
        options=spec.options,
        init=spec.init,
        levels=lambda: fitted.levels,
        precision=config.training.precision,
    )
