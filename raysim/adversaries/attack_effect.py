"""The effect of an attack on the metrics of honest hospitals."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AttackFigures:
    """The effect of an attack on the metrics of one run.

    A value is NaN if it is undefined, or if it needs the same run without the attack and this run was not made.
    """

    attack: str
    knowledge: str
    """What Byzantine hospitals know: ``own``, ``colluders`` or ``all`` (see
    :data:`raysim.adversaries.who.Knowledge`)."""
    bad: tuple[str, ...]
    honest: dict[str, float]
    """The mean (under the metric's name), ``worst_decile`` and ``gini`` of the main metric over honest hospitals."""
    change: dict[str, float]
    """The values of ``honest`` minus the same values of the run without the attack."""
    harm_in: float
    """How much the attack worsens the main metric: the mean over honest hospitals that share a cluster with a Byzantine
    hospital. Without clusters, it is the mean over all honest hospitals."""
    harm_out: float
    """How much the attack worsens the main metric: the mean over honest hospitals in clusters without Byzantine
    hospitals. NaN if there are none."""
    largest_bad_share: float
    """The largest share of Byzantine hospitals in any cluster. Without clusters, it is their share of all hospitals."""
    success: float
    """For the attack ``backdoor``: the share of honest hospitals' evaluated rows that the model assigns to the target
    class once they contain the trigger, minus the same share without the attack. Rows of the target class do not count.
    NaN for other attacks."""
    per_hospital: tuple[float, ...]
    """How much the attack worsens the main metric at each hospital, in order of hospitals' ids."""
    price: dict[str, float] = field(default_factory=dict)
    """The cost of the robust rule without an attack: the metrics in ``honest`` with the rule, minus the same metrics
    with the strategy's average. Strategies with the setting ``weights`` average with equal weights. Empty if there is
    no rule, or no run without the attack."""
