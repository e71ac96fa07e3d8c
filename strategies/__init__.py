"""The mathematics: one published way of federating per file, on plain arrays. ``base`` holds the interface."""

from strategies.base import (
    OWN,
    POOLED,
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

__all__ = [
    "OWN",
    "POOLED",
    "FederationView",
    "HospitalRows",
    "LocalProblem",
    "Pull",
    "Question",
    "Selection",
    "State",
    "Strategy",
    "Update",
]
