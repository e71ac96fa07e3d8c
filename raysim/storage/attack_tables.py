"""The figures of an attack as JSON and a table."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from raysim.adversaries.attack_effect import AttackFigures
    from raysim.data.federation import Federation
    from raysim.engine.job import Outcome

ATTACK = "attack.csv"
"""Name of the file of :func:`table`."""


def as_json(figures: AttackFigures) -> dict[str, Any]:
    """Return the figures as plain values; undefined is None."""
    tree = dataclasses.asdict(figures)
    tree.pop("per_hospital")
    return {
        name: {key: _defined(entry) for key, entry in value.items()} if isinstance(value, dict) else _defined(value)
        for name, value in tree.items()
    }


def table(federation: Federation, outcome: Outcome, figures: AttackFigures) -> pd.DataFrame:
    """Return a row for each hospital: whether it is Byzantine, its cluster, and the cost of the attack to it."""
    import pandas as pd

    bad = set(figures.bad)
    return pd.DataFrame(
        {
            "hospital": federation.hospitals,
            "bad": [name in bad for name in federation.hospitals],
            "cluster": [0] * len(federation.hospitals) if outcome.cluster is None else outcome.cluster,
            "harm": figures.per_hospital,
        }
    )


def _defined(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
