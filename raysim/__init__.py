"""raysim: federated learning across hospitals, simulated on Ray."""

import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "strategies")):
    raise ImportError(
        "raysim/strategies is no folder: this checkout has lost its links; bring them back on a file system that has "
        "links ('git config core.symlinks true', then 'git checkout .'), or install a wheel of raysim"
    )

if TYPE_CHECKING:
    # What an author of a strategy or selection needs.
    from raysim.strategies.base import (
        LAST,
        MIXTURE,
        OWN,
        POOLED,
        Asynchrony,
        Contrast,
        Division,
        Draw,
        FederationView,
        HospitalRows,
        LocalProblem,
        Objective,
        Pull,
        Question,
        RowGroups,
        Selection,
        State,
        Strategy,
        Training,
        Unfit,
        Update,
        Upload,
        Variates,
        Visit,
        choose,
        shares,
    )

__all__ = [
    "LAST",
    "MIXTURE",
    "OWN",
    "POOLED",
    "Asynchrony",
    "Contrast",
    "Division",
    "Draw",
    "FederationView",
    "HospitalRows",
    "LocalProblem",
    "Objective",
    "Pull",
    "Question",
    "RowGroups",
    "Selection",
    "State",
    "Strategy",
    "Training",
    "Unfit",
    "Update",
    "Upload",
    "Variates",
    "Visit",
    "choose",
    "shares",
]


def __getattr__(name: str) -> Any:
    # Lazily, because the command line must answer before numpy has been imported.
    if name in __all__:
        import raysim.strategies.base

        return getattr(raysim.strategies.base, name)
    raise AttributeError(f"module 'raysim' has no attribute '{name}'")
