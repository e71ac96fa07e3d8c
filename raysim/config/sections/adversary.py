"""The section ``adversary``: which hospitals are Byzantine, what they know and what they do."""

from __future__ import annotations

from typing import Literal

from pydantic import FiniteFloat, model_validator

from raysim.adversaries.who import LEVELS, Deviation, Knowledge
from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section

Attack = Literal[
    "label_flip",
    "units",
    "backdoor",
    "sign_flip",
    "scale",
    "gaussian",
    "zero",
    "mimic",
    "alie",
    "ipm",
    "min_max",
    "min_sum",
    "adaptive",
    "signature_lie",
]


USED = {
    "factor": ("sign_flip", "signature_lie", "scale", "units", "ipm", "alie"),
    "mean": ("gaussian",),
    "std": ("gaussian",),
    "rows": ("label_flip", "backdoor"),
    "feature": ("units", "backdoor"),
    "stuck": ("units",),
    "value": ("backdoor",),
    "label": ("backdoor",),
    "deviation": ("min_max", "min_sum"),
    "hospital": ("mimic",),
}
"""The attacks that use each key."""


class AdversarySection(Section):
    """The section ``adversary``: a ``share`` of hospitals, sampled by the run's seed, makes an ``attack``.

    If ``knowledge`` is None, it is the attack's first value in :data:`raysim.adversaries.who.LEVELS`. With ``baseline``
    the same run is repeated without the attack, and the difference is reported.
    """

    attack: Attack = default("adversary.attack")
    share: float = default("adversary.share", ge=0, le=1)
    knowledge: Knowledge | None = default("adversary.knowledge")
    factor: FiniteFloat | None = default("adversary.factor")
    mean: FiniteFloat = default("adversary.mean")
    std: FiniteFloat = default("adversary.std", ge=0)
    rows: float = default("adversary.rows", gt=0, le=1)
    feature: str | None = default("adversary.feature")
    stuck: bool = default("adversary.stuck")
    value: FiniteFloat = default("adversary.value")
    label: int = default("adversary.label", ge=0)
    deviation: Deviation = default("adversary.deviation")
    hospital: str | None = default("adversary.hospital")
    baseline: bool = default("adversary.baseline")

    @property
    def effective_knowledge(self) -> Knowledge:
        """Return what Byzantine hospitals know: ``knowledge``, by default the attack's first value in ``LEVELS``."""
        return LEVELS[self.attack][0] if self.knowledge is None else self.knowledge

    @model_validator(mode="after")
    def _fitting(self) -> AdversarySection:
        self.refuse_idle("adversary", "attack", USED)
        if self.stuck and self.factor is not None:
            raise ConfigError(
                f"adversary.factor: {self.factor:g} is not used where adversary.stuck: true sets the feature to its "
                "mean; remove adversary.factor"
            )
        allowed = LEVELS[self.attack]
        if self.effective_knowledge not in allowed:
            raise ConfigError(
                f"adversary.knowledge: '{self.knowledge}' does not fit attack '{self.attack}'; "
                f"write {' or '.join(allowed)}, or leave it out"
            )
        if self.attack in ("units", "backdoor") and self.feature is None:
            raise ConfigError(f"adversary.feature: attack '{self.attack}' changes a feature; name one")
        return self
