"""The section ``aggregation``: a robust rule instead of the average of hospitals' updates."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section
from raysim.robust.breakdown import WEIGHTED

RuleName = Literal[
    "mean",
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "bulyan",
    "geometric_median",
    "centred_clipping",
    "norm_bound",
    "fltrust",
]


USED = {
    "radius": ("centred_clipping",),
    "passes": ("centred_clipping",),
    "bound": ("norm_bound",),
    "kept": ("multi_krum",),
    "root": ("fltrust",),
}
"""The rules that use each key."""


class AggregationSection(Section):
    """The section ``aggregation``: the rule ``name`` that combines updates.

    A share ``assumed`` of the hospitals is assumed to be Byzantine. ``before`` is a step before the rule. With
    ``weights: capped`` a hospital's weight is its number of training rows, but at most ``cap``; by default all weights
    are equal.
    """

    name: RuleName = default("aggregation.name")
    assumed: float = default("aggregation.assumed", ge=0, lt=1)
    before: Literal["none", "nnm", "bucketing"] = default("aggregation.before")
    weights: Literal["uniform", "capped"] = default("aggregation.weights")
    cap: int = default("aggregation.cap", ge=1)
    radius: float | None = default("aggregation.radius", gt=0)
    passes: int = default("aggregation.passes", ge=1)
    bound: float = default("aggregation.bound", gt=0)
    kept: int | None = default("aggregation.kept", ge=1)
    root: str | None = default("aggregation.root")

    @property
    def of_single(self) -> bool:
        """Whether the rule needs the updates of several hospitals. False for ``norm_bound`` without a step before it,
        which each hospital can apply to its own update.
        """
        return self.name != "norm_bound" or self.before != "none"

    @property
    def by_secure_sums(self) -> bool:
        """Whether the rule can be computed under secure aggregation of weighted updates."""
        return self.name == "geometric_median" and self.before == "none"

    @model_validator(mode="after")
    def _fitting(self) -> AggregationSection:
        self.refuse_idle("aggregation", "name", USED)
        self.refuse_idle("aggregation", "weights", {"cap": ("capped",)})
        if self.name == "fltrust" and self.root is None:
            raise ConfigError("aggregation.root: 'fltrust' needs a hospital whose update is trusted; name one")
        if self.weights == "capped" and (self.name not in WEIGHTED or self.before != "none"):
            raise ConfigError(
                f"aggregation.weights: 'capped' needs aggregation.name: {' or '.join(WEIGHTED)} and "
                f"aggregation.before: none, not '{self.name}' and '{self.before}'; write uniform"
            )
        return self
