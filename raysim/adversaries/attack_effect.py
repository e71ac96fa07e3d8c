"""The effect of an attack on the metrics of honest hospitals."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttackFigures:
    """The effect of an attack on the metrics of one run.

    A value is NaN if it is undefined, or if the same run without the attack was not made.
    """

    attack: str
    """The name of the attack."""
    knowledge: str
    """What Byzantine hospitals know."""
    bad: tuple[str, ...]
    """The names of the Byzantine hospitals."""
    honest: dict[str, float]
    """The headline metric's mean, worst decile and Gini coefficient over honest hospitals."""
    change: dict[str, float]
    """The values of ``honest`` minus the same values of the run without attack."""
    harm_in: float
    """The mean decrease of the headline metric at honest hospitals that share a cluster with a Byzantine hospital.
    Without clusters it is the mean over all honest hospitals."""
    harm_out: float
    """The mean decrease of the headline metric at all other honest hospitals; NaN if there are none."""
    largest_bad_share: float
    """The largest share of Byzantine hospitals in a cluster."""
    success: float
    """The success of a backdoor: the share of test rows of other classes that the trigger changes to the target class,
    minus this share without attack."""
    per_hospital: tuple[float, ...]
    """The decrease of the headline metric at each hospital, in order of ids."""
    price: dict[str, float] = field(default_factory=dict)
    """The cost of the robust rule without attack: the values of ``honest`` under the rule minus the values under the
    uniform average. Empty without a rule."""
