"""The privacy statement of a run: the guarantee, its adversary, and its gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysim.privacy import accountant, quick
from raysim.privacy.events import Written, read
from raysim.privacy.noise import Origin

SHARED = (
    "holds only with privacy.noise: system, because runs with the same seed have the same noise, which can be "
    "subtracted"
)
"""The end of a sentence on the joint epsilon of several runs, if their noise comes from the same seed."""


@dataclass(frozen=True)
class Statement:
    """The privacy guarantee of a run: its privacy unit, its adversary, and what it does not cover."""

    unit: str
    """The privacy unit, whose data is hidden: ``hospital``, ``patient``, or ``example`` (one row)."""
    mode: str
    """Where noise is added: ``central`` (by the server, to the sum of a round), ``distributed`` (by hospitals, in
    shares, to a secure sum), ``local`` (by each hospital, to its own updates or steps) or ``pooled`` (once, to the sum
    over all hospitals' patients)."""
    against: str
    """The adversary for whom :attr:`epsilon` is stated: ``outsider``, ``peer`` or ``server``."""
    delta: float
    epsilons: Mapping[str, float] = field(default_factory=dict)
    """The epsilon for each adversary. It is infinite if hospitals sent messages that neither have noise nor are
    declared public, or if this adversary sees sums of updates without noise."""
    covered: Mapping[str, float] = field(default_factory=dict)
    """For each adversary, the epsilon of the messages in :attr:`covers`, as if hospitals had sent nothing else."""
    covers: tuple[str, ...] = ()
    """The kinds of messages with noise."""
    declared_public: tuple[str, ...] = ()
    """The kinds of messages that the configuration declares public."""
    unreleased: tuple[str, ...] = ()
    """The kinds of messages that are declared public or have configured noise, but that no hospital has sent."""
    not_private: tuple[str, ...] = ()
    """The kinds of messages that hospitals sent without noise and that are not declared public."""
    noise_multiplier: float | None = None
    """The standard deviation of the noise, in multiples of ``clip``; None if each hospital has its own multiplier."""
    clip: float = math.inf
    """The norm to which updates, or the gradients of patients or rows, are clipped."""
    by_hospital: Mapping[str, tuple[float, float]] | None = None
    """Three statistics over hospitals: the smallest (``least``), the ``median`` and the largest (``most``). Each value
    is a pair: the statistic of hospitals' epsilons, and of their noise multipliers. None unless each hospital adds
    noise to its own gradient steps."""
    releases: Mapping[str, Sequence[Sequence[Written]]] | None = None
    """For each adversary, the noisy releases to which a privacy unit may contribute: one list for all hospitals, or one
    for each hospital. None if unknown."""
    at_two_hospitals: float | None = None
    """The largest epsilon against an outsider of a patient with rows at two hospitals; only messages with noise count.
    None if the privacy unit is not a patient."""

    noise: Origin = "system"
    """Where the noise's random numbers come from: a seed (``seeded``), or the operating system (``system``)."""

    further: tuple[Statement, ...] = ()
    """The guarantees of further runs on the same data: the run without its attack, and the trials of tuning."""

    @property
    def epsilon(self) -> float:
        """Return the epsilon for the adversary ``against``."""
        return self.epsilons[self.against]

    def as_json(self) -> dict[str, Any]:
        """Return the guarantee for ``summary.json``, in which infinite numbers are ``"inf"``."""
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
            "unreleased": list(self.unreleased),
            "not_private": list(self.not_private),
            "noise_multiplier": self.noise_multiplier,
            "clip": _json(self.clip),
            **({} if self.by_hospital is None else {"by_hospital": self._hospitals()}),
            **({} if self.at_two_hospitals is None else {"epsilon_at_two_hospitals": _json(self.at_two_hospitals)}),
            **({} if not self.further else {"all_plays": self._together()}),
            "statement": self.sentence(),
        }

    def _hospitals(self) -> dict[str, dict[str, float | str]]:
        names, figures = ("epsilon", "noise_multiplier"), self.by_hospital or {}
        return {which: dict(zip(names, map(_json, values), strict=True)) for which, values in figures.items()}

    @property
    def all_runs(self) -> tuple[Statement, ...]:
        """Return the guarantees of this run and of others on the same data, such as trials of tuning."""
        return (self, *(run for each in self.further for run in each.all_runs))

    def _together(self) -> dict[str, float | int | str]:
        epsilon, delta, against = together([self])
        return {"plays": len(self.all_runs), "epsilon": _json(epsilon), "delta": delta, "against": against}

    def sentence(self) -> str:
        """Return the guarantee, and what it does not cover, as one sentence."""
        guarantee = (
            f"epsilon = {_as_text(self.epsilon)}, delta = {self.delta:g} for one {self.unit} against the {self.against}"
        )
        if math.isinf(self.epsilon) and math.isfinite(self.covered[self.against]):
            guarantee += f" (epsilon = {_as_text(self.covered[self.against])} for what noise covers)"
        parts = [f"covers {', '.join(self.covers) or 'nothing'}"]
        if self.declared_public:
            parts.append(f"declared public: {', '.join(self.declared_public)}")
        if self.unreleased:
            parts.append(f"named but never released: {', '.join(self.unreleased)}")
        parts.append(f"not private: {', '.join(self.not_private) or 'nothing else'}")
        return f"{guarantee}; {'; '.join(parts)}"


def together(statements: Sequence[Statement]) -> tuple[float, float, str]:
    """Return the joint epsilon and delta of several runs, and the adversary for whom they hold.

    The ``further`` runs of each statement are included. If all releases are known, they are composed at the largest
    delta. If each hospital has its own noise, the result is the largest epsilon of a hospital. If releases are unknown,
    or if runs have different numbers of hospitals, epsilons and deltas are added. For different privacy units epsilon
    is infinite, because noise that hides a patient does not hide a hospital.
    """
    statements = [run for each in statements for run in each.all_runs]
    first = statements[0]
    against = first.against if all(each.against == first.against for each in statements) else "server"
    delta = max(each.delta for each in statements)
    units = {each.unit for each in statements}
    if len(units) > 1 or any(math.isinf(each.epsilons[against]) for each in statements):
        return math.inf, delta, against
    known = [each.releases[against] for each in statements if each.releases is not None]
    hospitals = {len(each) for each in known} - {1}
    if len(known) < len(statements) or len(hospitals) > 1:
        return sum(each.epsilons[against] for each in statements), sum(each.delta for each in statements), against
    of_each = {
        tuple(values for each in known for values in each[hospital if len(each) > 1 else 0])
        for hospital in range(max(hospitals, default=1))
    }
    bound = accountant.epsilon if len(of_each) == 1 else quick.least_epsilon
    return max(bound([read(values) for values in of_one], delta) for of_one in of_each), delta, against


def _json(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _as_text(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
