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
    """What Byzantine hospitals know: ``own``, ``colluders`` or ``all`` (see
    :data:`raysim.adversaries.who.Knowledge`)."""
    bad: tuple[str, ...]
    """The names of the Byzantine hospitals."""
    honest: dict[str, float]
    """The mean (under the metric's name), ``worst_decile`` and ``gini`` of the main metric over honest hospitals."""
    change: dict[str, float]
    """The values of ``honest`` minus the same values of the run without the attack."""
    harm_in: float
    """How much worse the main metric is than without the attack: the mean over honest hospitals that share a cluster
    with a Byzantine hospital. Without clusters, it is the mean over all honest hospitals."""
    harm_out: float
    """How much worse the main metric is than without the attack: the mean over honest hospitals in clusters without
    Byzantine hospitals. NaN if there are none."""
    largest_bad_share: float
    """The largest share of Byzantine hospitals in any cluster. Without clusters, it is their share of all hospitals."""
    success: float
    """For the attack ``backdoor``: of the rows of other classes than the target class, the share that the model assigns
    to the target class once they contain the trigger, minus this share without the attack. NaN for other attacks."""
    per_hospital: tuple[float, ...]
    """How much worse the main metric is at each hospital than without the attack, in order of hospitals' ids."""
    price: dict[str, float] = field(default_factory=dict)
    """The cost of the robust rule if there is no attack: the values of ``honest`` with the rule, minus the values with
    the average of equally weighted hospitals. Empty if there is no rule."""
