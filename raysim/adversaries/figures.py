"""What an attack changed, as figures over the hospitals that made none."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttackFigures:
    """Of one run; NaN where undefined or where the run without attack was not played."""

    attack: str
    """Its name."""
    knowledge: str
    """What bad hospitals knew."""
    bad: tuple[str, ...]
    """Their names."""
    honest: dict[str, float]
    """Mean, worst decile and Gini over honest hospitals."""
    change: dict[str, float]
    """The same, less those without attack."""
    harm_in: float
    """The mean loss of honest hospitals that share a cluster with a bad one; without clusters, of all."""
    harm_out: float
    """The mean loss of the other honest hospitals; NaN where there are none."""
    largest_bad_share: float
    """Of the hospitals of a cluster."""
    success: float
    """Of a backdoor: the share of triggered rows that go to its class, less that without attack."""
    per_hospital: tuple[float, ...]
    """Each hospital's loss, in order of ids."""
    price: dict[str, float] = field(default_factory=dict)
    """Those of the rule without attack, less those of the uniform average without rule; empty without a rule."""
