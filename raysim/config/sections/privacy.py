"""The section ``privacy``: the privacy guarantee, its unit, and the noise that it needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import FiniteFloat, field_validator, model_validator

from raysim.core.defaults import default
from raysim.core.errors import ConfigError
from raysim.core.section import Section
from raysim.privacy.events import Gaussian, Laplace
from raysim.privacy.noise import Origin
from raysim.privacy.noisy_sums import Mechanism

Adversary = Literal["outsider", "peer", "server"]
"""The adversaries: an outsider observes the models of all rounds; a peer, which is a hospital, also knows its own
contribution; the server observes every message."""


RowUnit = Literal["patient", "example"]
"""The units that can be hidden within a hospital: all rows of a patient, or each row."""

LEAST_NOISE, MOST_NOISE = 1e-6, 1e9
"""The smallest and largest allowed noise multiplier other than 0. Between them epsilon can be computed, and the noise
fits into sums.
"""

DEFAULT_EPSILON = 0.2
"""The default epsilon of each kind of statistic that is released with noise."""

SIZE = "size"
"""The name under which the egress ledger lists hospitals' numbers of rows."""

METRICS = "metrics"
"""The name of models' metrics in the egress ledger."""

PREPROCESSING = "preprocessing"
"""The name, in the egress ledger, of the statistics by which features are scaled."""

MODES = {
    "hospital": ("central", "distributed", "local"),
    "patient": ("pooled", "local"),
    "example": ("pooled", "local"),
}
"""The modes in which noise can be added, by unit; the first is the default."""


class AdaptiveClip(Section):
    """``privacy.adaptive``: the clip is multiplied by ``exp(-rate (share - quantile))`` each round.

    ``share`` is the noisy share of updates that are shorter than the clip; see :mod:`raysim.privacy.clip`.
    """

    quantile: float = default("privacy.adaptive.quantile", gt=0, lt=1)
    rate: FiniteFloat = default("privacy.adaptive.rate", ge=0)
    bits: float | None = default("privacy.adaptive.bits", gt=0)

    @model_validator(mode="after")
    def _bounded(self) -> AdaptiveClip:
        if self.bits == math.inf and self.rate:
            raise ConfigError(
                f"privacy.adaptive.bits: {self.bits} adds too much noise for the clip to adapt; give a lower number"
            )
        return self


class NoisyStatistic(Section):
    """``privacy.statistics.KIND``: noise on the sums from which this statistic is computed.

    The noise is Laplace noise, which costs ``epsilon`` per release, or normal noise, whose standard deviation is
    ``noise_multiplier`` times the largest change that one privacy unit can cause.
    """

    epsilon: FiniteFloat | None = default("privacy.statistics.*.epsilon", ge=1e-6)
    noise_multiplier: FiniteFloat | None = default("privacy.statistics.*.noise_multiplier", ge=1e-6)
    range: tuple[FiniteFloat, FiniteFloat] | None = default("privacy.statistics.*.range")

    @field_validator("range")
    @classmethod
    def _ascending(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] < value[1]:
            raise ValueError(f"{list(value)} is not ascending; give the least and the greatest value, such as [0, 30]")
        return value

    def mechanism(self, origin: Origin) -> Mechanism:
        """Return the noise mechanism that these keys describe."""
        if self.noise_multiplier is not None:
            return Mechanism(Gaussian(self.noise_multiplier), origin)
        return Mechanism(Laplace(1.0 / self.pure), origin)

    @property
    def pure(self) -> float:
        """Return the epsilon that one release with Laplace noise costs; 0 if the noise is normal."""
        if self.noise_multiplier is not None:
            return 0.0
        return DEFAULT_EPSILON if self.epsilon is None else self.epsilon


class AuditSection(Section):
    """``privacy.audit``: artificial units that ``raysim audit`` adds to the data, to bound epsilon from below."""

    canaries: int = default("privacy.audit.canaries", ge=0)


class PrivacySection(Section):
    """The section ``privacy``: a guarantee with hospitals, patients, or rows as units.

    For hospitals, every update is clipped to ``clip``, and the noise is normal with standard deviation
    ``noise_multiplier`` times ``clip``. ``mode`` says who adds it: the server to the sum of a round (``central``),
    hospitals in shares to a secure sum (``distributed``), or each hospital to its own update (``local``).

    For patients or rows, the gradient of each patient or row is clipped. The noise is added in the steps of each
    hospital (``local``), or once a round to the sum over all hospitals (``pooled``).

    Give ``epsilon`` or ``noise_multiplier``. If a configuration has both, they must agree.
    """

    unit: Literal["hospital", "patient", "example"] = default("privacy.unit")
    mode: Literal["central", "distributed", "pooled", "local"] | None = default("privacy.mode")
    epsilon: FiniteFloat | None = default("privacy.epsilon", gt=0)
    noise_multiplier: FiniteFloat | None = default("privacy.noise_multiplier", ge=0)
    delta: float = default("privacy.delta", gt=0, lt=1)
    against: Adversary | None = default("privacy.against")
    clip: float = default("privacy.clip", gt=0)
    adaptive: AdaptiveClip | None = None
    audit: AuditSection | None = None
    weights: Literal["uniform", "capped"] = default("privacy.weights")
    cap: int | None = default("privacy.cap", ge=1)
    declared_public: tuple[str, ...] = default("privacy.declared_public")
    sizes: Literal["public", "noisy"] = default("privacy.sizes")
    statistics: dict[str, NoisyStatistic] = default("privacy.statistics")
    noise: Literal["seeded", "system"] = default("privacy.noise")
    rate: float | None = default("privacy.rate", gt=0, le=1)
    rows_per_patient: int = default("privacy.rows_per_patient", ge=1)
    equal_epsilon: bool = default("privacy.equal_epsilon")

    @field_validator("declared_public")
    @classmethod
    def _names_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if plain(name) in map(plain, UPDATES):
                raise ValueError(
                    f"'{name}' is computed from patients' data in training, so it cannot be declared public; remove it"
                )
        if (repeated := _repeated(value)) is not None:
            raise ValueError(f"'{repeated}' is named twice; name it once")
        return value

    @field_validator("statistics")
    @classmethod
    def _names_kinds_once(cls, value: dict[str, NoisyStatistic]) -> dict[str, NoisyStatistic]:
        if (repeated := _repeated(value)) is not None:
            raise ValueError(f"'{repeated}' is named twice, with and without an s; keep one of the two")
        return value

    @field_validator("noise_multiplier")
    @classmethod
    def _computable(cls, value: float | None) -> float | None:
        if value and not LEAST_NOISE <= value <= MOST_NOISE:
            raise ValueError(f"{value:g} is neither 0 nor from {LEAST_NOISE:g} to {MOST_NOISE:g}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> PrivacySection:
        if self.epsilon is None and self.noise_multiplier is None:
            raise ConfigError("privacy: has neither epsilon nor noise_multiplier; give one of them, such as epsilon: 2")
        if self.mode is not None and self.mode not in MODES[self.unit]:
            raise ConfigError(
                f"privacy.mode: {self.mode} is not for privacy.unit: {self.unit}; use {' or '.join(MODES[self.unit])}"
            )
        if self.rate is not None and self.effective_mode != "pooled":
            raise ConfigError(
                f"privacy.rate: {self.rate:g} is the sampling probability of patients, which only privacy.mode: "
                "pooled uses; remove the key"
            )
        self.refuse_idle("privacy", "unit", {"rows_per_patient": ("patient",)})
        if not (self.own_steps or self.equal_epsilon):
            raise ConfigError(
                "privacy.equal_epsilon: false needs privacy.unit: patient or example and privacy.mode: local, not "
                f"{self.unit} and {self.effective_mode}; remove the key"
            )
        self._check_statistics()
        if self.adaptive is not None and (self.unit != "hospital" or self.effective_mode == "local"):
            raise ConfigError(
                "privacy.adaptive: is for privacy.unit: hospital and privacy.mode: central or distributed, not for "
                f"{self.unit} and {self.effective_mode}; remove the key"
            )
        if self.unit != "hospital" and self.weights == "capped":
            raise ConfigError(
                f"privacy.weights: capped is for privacy.unit: hospital, not for {self.unit}; remove the key"
            )
        if self.weights == "capped" and self.cap is None:
            raise ConfigError(
                "privacy.weights: capped counts rows up to privacy.cap, which is not set; set privacy.cap"
            )
        if self.weights != "capped" and self.cap is not None:
            raise ConfigError(
                f"privacy.cap: {self.cap} has an effect only with privacy.weights: capped; set privacy.weights, or "
                "remove privacy.cap"
            )
        return self

    def _check_statistics(self) -> None:
        if self.unit == "hospital" and self.sizes == "noisy":
            raise ConfigError(
                "privacy.sizes: noisy adds noise that protects single patients, but privacy.unit is hospital; set "
                "privacy.sizes: public, or privacy.unit: patient"
            )
        if self.sizes == "public" and any(plain(kind) == SIZE for kind in self.statistics):
            raise ConfigError(
                "privacy.statistics.sizes: needs privacy.sizes: noisy, but sizes are public; set "
                "privacy.sizes: noisy, or remove privacy.statistics.sizes"
            )
        for kind, statistic in self.noisy.items():
            named = f"privacy.statistics.{kind}"
            if self.unit == "hospital":
                raise ConfigError(
                    f"{named}: cannot be combined with privacy.unit: hospital, because noise for a whole hospital "
                    "would hide the whole statistic; declare the kind public, or set privacy.unit: patient"
                )
            if plain(kind) in map(plain, WITHOUT_NOISE):
                raise ConfigError(
                    f"{named}: '{kind}' is never released with noise; declare it public, or remove the key"
                )
            if statistic.epsilon is not None and statistic.noise_multiplier is not None:
                raise ConfigError(
                    f"{named}.noise_multiplier: {statistic.noise_multiplier:g} sets normal noise, and "
                    f"epsilon: {statistic.epsilon:g} sets Laplace noise; keep one of the two"
                )
            if statistic.range is not None and plain(kind) != plain(METRICS):
                raise ConfigError(
                    f"{named}.range: {list(statistic.range)} is a range of the label, which only the noisy statistic "
                    f"'{METRICS}' uses; remove the key"
                )
            if any(plain(kind) == plain(public) for public in self.declared_public):
                raise ConfigError(
                    f"privacy.declared_public: '{kind}' is released with noise by {named}; keep it in one of the two"
                )
            if self.epsilon is not None and statistic.pure and self.of_statistics >= self.epsilon:
                raise ConfigError(
                    f"{named}.epsilon: {statistic.pure:g} leaves nothing of privacy.epsilon: "
                    f"{self.epsilon:g} for training; lower {named}.epsilon"
                )

    @property
    def noisy(self) -> dict[str, NoisyStatistic]:
        """Return the noise on each kind of statistic, by name. The kind ``metric`` has the name ``metrics``."""
        named = {
            METRICS if plain(kind) == plain(METRICS) else kind: statistic
            for kind, statistic in self.statistics.items()
            if plain(kind) != SIZE
        }
        if self.sizes == "public":
            return named
        given = [statistic for kind, statistic in self.statistics.items() if plain(kind) == SIZE]
        return {SIZE: given[0] if given else NoisyStatistic()} | named

    def noise_of(self, kind: str) -> NoisyStatistic | None:
        """Return the noise on a ``kind`` of egress (data that leaves a hospital); None if it is sent without noise."""
        return next((each for name, each in self.noisy.items() if plain(name) == plain(kind)), None)

    @property
    def sends_bits(self) -> bool:
        """Whether each hospital also sends one bit: whether its update was shorter than the clipping norm."""
        return self.adaptive is not None and self.adaptive.bits != math.inf

    @property
    def hides_sizes(self) -> bool:
        """Whether hospitals' numbers of rows are released only with noise."""
        return self.sizes == "noisy"

    @property
    def effective_mode(self) -> str:
        """Return ``mode``, or the unit's default mode if it is not set."""
        return self.mode or MODES[self.unit][0]

    @property
    def own_steps(self) -> bool:
        """Whether each hospital adds noise to its own gradient steps (DP-SGD)."""
        return self.unit != "hospital" and self.effective_mode == "local"

    @property
    def of_statistics(self) -> float:
        """Return the sum of the epsilons of all statistics with Laplace noise, if each kind is released once."""
        return sum(statistic.pure for statistic in self.noisy.values())

    @property
    def sampling(self) -> float:
        """Return the probability with which each patient (or row) is sampled in a round of mode ``pooled``."""
        return 0.05 if self.rate is None else self.rate

    @property
    def headline(self) -> Adversary:
        """Return the adversary for whom the run's epsilon is reported first."""
        return self.against or ("server" if self.effective_mode == "local" else "outsider")


def plain(kind: str) -> str:
    """Return the name of a kind of egress (data that leaves a hospital) without a final ``s``."""
    return kind.removesuffix("s")


def _repeated(kinds: Iterable[str]) -> str | None:
    named = set[str]()
    for kind in kinds:
        if plain(kind) in named:
            return kind
        named.add(plain(kind))
    return None


UPDATES = ("update", "variate")
"""The kinds of egress that a guarantee always covers."""

WITHOUT_NOISE = (*UPDATES, "validation_loss", "predictions", "rows")
"""The kinds of egress that ``privacy.statistics`` cannot name."""
