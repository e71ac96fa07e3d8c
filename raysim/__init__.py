"""raysim: federated learning across hospitals, simulated on Ray."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from raysim.core.package import __version__ as __version__

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "strategies")):
    raise ImportError(
        "raysim/strategies is not a folder: this checkout has lost its symbolic links. Restore them on a file system "
        "that has such links ('git config core.symlinks true', then 'git checkout .'), or install a wheel of raysim"
    )

if TYPE_CHECKING:
    from raysim.api.describing import describe
    from raysim.api.judging import judge, validate
    from raysim.api.loading import load
    from raysim.api.running import compare, curve, resume, run, sweep
    from raysim.config.schema import Config
    from raysim.core.errors import RaysimError

    # The names that authors of strategies or selections need.
    from raysim.strategies.base import (
        LAST,
        MIXTURE,
        OWN,
        POOLED,
        Answers,
        Asynchrony,
        Bound,
        Call,
        Calls,
        Context,
        Division,
        Draw,
        FederationView,
        Keep,
        LocalModel,
        LocalProblem,
        LocalTraining,
        Objective,
        Program,
        Proximal,
        Reply,
        RowGroups,
        Rows,
        Selection,
        Send,
        State,
        Strategy,
        Training,
        TrainLocally,
        Unfit,
        Update,
        Upload,
        choose,
        shares,
    )
    from raysim.strategies.shared.encoders import patient_encoder

__all__ = [
    "LAST",
    "MIXTURE",
    "OWN",
    "POOLED",
    "Answers",
    "Asynchrony",
    "Bound",
    "Call",
    "Calls",
    "Config",
    "Context",
    "Division",
    "Draw",
    "FederationView",
    "Keep",
    "LocalModel",
    "LocalProblem",
    "LocalTraining",
    "Objective",
    "Program",
    "Proximal",
    "RaysimError",
    "Reply",
    "RowGroups",
    "Rows",
    "Selection",
    "Send",
    "State",
    "Strategy",
    "TrainLocally",
    "Training",
    "Unfit",
    "Update",
    "Upload",
    "choose",
    "compare",
    "curve",
    "describe",
    "judge",
    "load",
    "patient_encoder",
    "resume",
    "run",
    "shares",
    "sweep",
    "validate",
]


_HOMES = {
    "Config": "raysim.config.schema",
    "RaysimError": "raysim.core.errors",
    "compare": "raysim.api.running",
    "curve": "raysim.api.running",
    "describe": "raysim.api.describing",
    "judge": "raysim.api.judging",
    "load": "raysim.api.loading",
    "patient_encoder": "raysim.strategies.shared.encoders",
    "resume": "raysim.api.running",
    "run": "raysim.api.running",
    "sweep": "raysim.api.running",
    "validate": "raysim.api.judging",
}


def __getattr__(name: str) -> Any:
    # Lazily, because the command line must answer before numpy has been imported.
    if name in __all__:
        return getattr(import_module(_HOMES.get(name, "raysim.strategies.base")), name)
    raise AttributeError(f"module 'raysim' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
