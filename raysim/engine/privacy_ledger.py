"""What a finished run has cost: every kind of message that left hospitals, and the epsilon that all together come to.

A kind is covered by noise, declared public in the configuration, or exact. One exact kind makes epsilon infinite, and
is named. Exact kinds count against every adversary, for results are published with what hospitals have told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from raysim.config.privacy import UPDATES, Adversary, PrivacySection
from raysim.data.federation import Federation
from raysim.engine.promises import Terms, by_hospital, multipliers, settled, spent
from raysim.privacy import accountant
from raysim.privacy.events import Gaussian, Laplace, Repeated
from raysim.traffic.ledger import Ledger

if TYPE_CHECKING:
    from raysim.engine.job import Job


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
    """Epsilon of a patient who is at two hospitals, where that is another; of what noise covers alone."""

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


def statement(job: Job, federation: Federation, ledger: Ledger) -> Statement | None:
    """What ``job``, played on a federation, has cost by its ``ledger``; None without ``privacy``."""
    if job.privacy is None:
        return None
    terms = Terms.of(job, federation)
    section = settled(job.privacy, terms)
    released = {kind: None for _, kind, _, _ in ledger.entries}
    covers = tuple(kind for kind in UPDATES if kind in released)
    public = {_plain(name) for name in section.declared_public}
    told = {kind: rounds for kind in section.statistics if (rounds := _rounds(ledger, (kind,)))}
    covers += tuple(told)
    exact = tuple(kind for kind in released if kind not in covers and _plain(kind) not in public)
    counts = [Laplace(1.0 / section.statistics[kind].epsilon, rounds) for kind, rounds in told.items()]
    covered, multiplier, hospitals = {}, section.noise_multiplier, None
    spent_by: dict[str, list[tuple[float, float, int]]] | None = None
    if section.own_steps:
        noise, each = multipliers(section, terms), by_hospital(section, terms, _joined(ledger, len(terms.patients)))
        there = np.array(terms.patients) > 0
        of_counts = sum(event.count / event.multiplier for event in counts)
        covered = dict.fromkeys(get_args(Adversary), float(each.max(initial=0.0)) + of_counts)
        hospitals = {
            name: (float(figure(each[there])), float(figure(noise[there])))
            for name, figure in (("least", np.min), ("median", np.median), ("most", np.max))
        }
    else:
        rounds = _rounds(ledger, UPDATES)
        if section.way == "local":
            rounds = int(_joined(ledger, len(federation.hospitals)).max(initial=0))
        spent_by = {}
        for adversary in get_args(Adversary):
            events = spent(section, terms, adversary, multiplier or 0.0, rounds)
            exposed = events is None and rounds > 0
            covered[adversary] = math.inf if exposed else accountant.epsilon([*(events or []), *counts], section.delta)
            spent_by[adversary] = [(event.multiplier, event.rate, event.count) for event in events or []]
    return Statement(
        unit=section.unit,
        mode=section.way,
        against=section.headline,
        delta=section.delta,
        epsilons={adversary: math.inf if exact else value for adversary, value in covered.items()},
        covered=covered,
        covers=covers,
        declared_public=section.declared_public,
        not_private=exact,
        noise_multiplier=multiplier,
        clip=section.clip,
        by_hospital=hospitals,
        events=None if counts else spent_by,
        twice=_twice(section, covered, rounds) if section.way == "pooled" else None,
    )


def _twice(section: PrivacySection, covered: Mapping[str, float], rounds: int) -> float:
    """What pooled rounds cost a patient who is at two hospitals, against an outsider."""
    if not rounds:
        return 0.0
    event = Repeated(section.noise_multiplier or 0.0, section.sampling, 2, rounds)
    return accountant.epsilon([event], section.delta)


def _rounds(ledger: Ledger, kinds: Sequence[str]) -> int:
    """In how many rounds, that before the first among them, something of ``kinds`` was told."""
    return len({round for round, kind, _, _ in ledger.entries if kind in kinds})


def _joined(ledger: Ledger, hospitals: int) -> NDArray[np.int64]:
    """How many rounds each hospital has sent an update in, ``[N]``."""
    rounds: dict[int, set[int]] = {}
    for round, kind, ids, _ in ledger.entries:
        if kind in UPDATES:
            for hospital in ids.tolist():
                rounds.setdefault(hospital, set()).add(round)
    return np.array([len(rounds.get(hospital, ())) for hospital in range(hospitals)], dtype=np.int64)


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


def _plain(kind: str) -> str:
    """A kind as it is compared: ``sizes`` names ``size``."""
    return kind.removesuffix("s")


def _json(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _shown(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.4g}"
