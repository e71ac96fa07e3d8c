"""raysim: federated learning across hospitals, simulated on Ray."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LocalProblem", "Strategy"]

if TYPE_CHECKING:
    from raysim.strategies.base import LocalProblem, Strategy


def __getattr__(name: str) -> Any:
    # Lazily, because the command line must answer before numpy has been imported.
    if name in __all__:
        import raysim.strategies.base

        return getattr(raysim.strategies.base, name)
    raise AttributeError(f"module 'raysim' has no attribute '{name}'")
