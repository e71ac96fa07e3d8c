"""The effect of an attack, as figures of the honest hospitals."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttackFigures:
    """The figures of one run; NaN if undefined, or if there is no run without attack to compare with."""

    attack: str
    """The attack's name."""
    knowledge: str
    """What Byzantine hospitals know."""
    bad: tuple[str, ...]
    """The names of the Byzantine hospitals."""
    honest: dict[str, float]
    """Mean, worst decile and Gini over honest hospitals."""
    change: dict[str, float]
    """These figures minus the figures of the run without attack."""
    harm_in: float
    """The mean loss of the honest hospitals that share a cluster with a Byzantine hospital; without clusters, of all
    honest hospitals."""
    harm_out: float
    """The mean loss of the other honest hospitals; NaN if there are none."""
    largest_bad_share: float
    """The largest share of Byzantine hospitals in a cluster."""
    success: float
    """For a backdoor, the share of triggered rows that are predicted as the attack's class, minus this share without
    attack."""
    per_hospital: tuple[float, ...]
    """Each hospital's loss, in order of ids."""
    price: dict[str, float] = field(default_factory=dict)
    """The cost of the rule without attack: its figures minus those of the uniform average; empty without a rule."""
