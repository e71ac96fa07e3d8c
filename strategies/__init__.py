"""The mathematics: one published way of federating per file, on plain arrays. ``base`` holds the interface.

``psi`` is what strategies and the engine's non-IID metrics have in common.
"""

from raysim.strategies.base import (
    MIXTURE,
    OWN,
    POOLED,
    Draw,
    FederationView,
    HospitalRows,
    LocalProblem,
    Pull,
    Question,
    Selection,
    State,
    Strategy,
    Update,
)
from raysim.strategies.shared import psi

__all__ = [
    "MIXTURE",
    "OWN",
    "POOLED",
    "Draw",
    "FederationView",
    "HospitalRows",
    "LocalProblem",
    "Pull",
    "Question",
    "Selection",
    "State",
    "Strategy",
    "Update",
    "psi",
]
