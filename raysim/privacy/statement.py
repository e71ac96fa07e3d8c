"""What is said of a run's privacy: the promise, whom it is against, and what it leaves out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysim.privacy import accountant
from raysim.privacy.events import Gaussian
from raysim.privacy.noise import Origin

SHARED = (
    "holds with privacy.noise: system alone, for runs of one seed share their seeded noise, which can be subtracted"
)
"""What is said of the cost of several runs, some of which have one seed, and with it their noise."""


@dataclass(frozen=True)
class Statement:
    """What is promised of a run, to whom, and what is not."""

    unit: str
    """Whose data is hidden."""
    mode: str
    """Who adds the noise."""
    against: str
    """Whom the headline is against."""
    delta: float
    """The chance that the promise leaves open."""
    epsilons: Mapping[str, float] = field(default_factory=dict)
    """By adversary; infinite where it sees what is exact."""
    covered: Mapping[str, float] = field(default_factory=dict)
    """By adversary, of what noise covers alone."""
    covers: tuple[str, ...] = ()
    """The kinds of egress that noise covers."""
    declared_public: tuple[str, ...] = ()
    """What the configuration declares public."""
    not_private: tuple[str, ...] = ()
    """The kinds that are neither."""
    noise_multiplier: float | None = None
    """The deviation of the noise in clips; None where each hospital has its own."""
    clip: float = math.inf
    """The longest update, or gradient of a patient."""
    by_hospital: Mapping[str, tuple[float, float]] | None = None
    """Epsilon and noise multiplier of the hospital with the ``least``, the ``median`` and the ``most`` of each, where
    hospitals have their own."""
    events: Mapping[str, Sequence[tuple[float, float, int]]] | None = None
    """By adversary, what noise covers as events: multiplier, rate, count; None where each hospital has its own."""
    twice: float | None = None
    """Epsilon of a patient who is at two hospitals, whichever, against an outsider; of what noise covers alone."""

    noise: Origin = "system"
    """Where the noise came from."""

    @property
    def epsilon(self) -> float:
        """Against the adversary of the headline."""
        return self.epsilons[self.against]

    def as_json(self) -> dict[str, Any]:
        """For ``summary.json``: what is infinite is ``"inf"``."""
        return {
            "unit": self.unit,
            "mode": self.mode,
            "against": self.against,
            "epsilon": _json(self.epsilon),
            "delta": self.delta,
            "epsilon_of_covered": _json(self.covered[self.against]),
            "epsilons": {adversary: _json(value) for adversary, value in self.epsilons.items()},
            "covers": list(self.covers),
            "declared_public": list(self.declared_public),
            "not_private": list(self.not_private),
            "noise_multiplier": self.noise_multiplier,
            "clip": _json(self.clip),
            **({} if self.by_hospital is None else {"by_hospital": self._hospitals()}),
            **({} if self.twice is None else {"epsilon_at_two_hospitals": _json(self.twice)}),
            "statement": self.sentence(),
        }

    def _hospitals(self) -> dict[str, dict[str, float | str]]:
        names, figures = ("epsilon", "noise_multiplier"), self.by_hospital or {}
        return {which: dict(zip(names, map(_json, values), strict=True)) for which, values in figures.items()}

    def sentence(self) -> str:
        """The promise and its limits in a line."""
        promise = (
            f"epsilon = {_shown(self.epsilon)}, delta = {self.delta:g} for one {self.unit} against the {self.against}"
        )
        if math.isinf(self.epsilon) and math.isfinite(self.covered[self.against]):
            promise += f" ({_shown(self.covered[self.against])} for what noise covers)"
        parts = [f"covers {', '.join(self.covers) or 'nothing'}"]
        if self.declared_public:
            parts.append(f"declared public: {', '.join(self.declared_public)}")
        parts.append(f"not private: {', '.join(self.not_private) or 'nothing else'}")
        return f"{promise}; {'; '.join(parts)}"


def together(statements: Sequence[Statement]) -> tuple[float, float, str]:
    """What it costs to have looked at all these runs: epsilon, delta, and against whom.

    Runs whose noise is that of known events are composed at their delta. Others add up: epsilons, and deltas.
    """
    first = statements[0]
    against = first.against if all(each.against == first.against for each in statements) else "server"
    delta = max(each.delta for each in statements)
    if any(math.isinf(each.epsilons[against]) for each in statements):
        return math.inf, delta, against
    if any(each.events is None for each in statements) or len({each.unit for each in statements}) > 1:
        return sum(each.epsilons[against] for each in statements), sum(each.delta for each in statements), against
    events = [
        Gaussian(multiplier, rate, int(count))
        for each in statements
        for multiplier, rate, count in (each.events or {}).get(against, ())
    ]
    return accountant.epsilon(events, delta), delta, against


def _json(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _shown(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
