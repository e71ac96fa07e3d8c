"""The section ``system``: the speed, connection and reliability of each simulated hospital.

The hospitals work on a virtual clock, so that the speed of the simulating machine changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from raysim.core.defaults import default
from raysim.core.section import Section
from raysim.core.words import as_yaml

DRAWS: dict[str, Any] = {
    "uniform": lambda rng, n, low, high: rng.uniform(low, high, n),
    "loguniform": lambda rng, n, low, high: np.exp(rng.uniform(np.log(low), np.log(high), n)),
    "lognormal": lambda rng, n, median, sigma: median * np.exp(sigma * rng.standard_normal(n)),
    "choice": lambda rng, n, *values: rng.choice(np.array(values), n),
}
"""The distributions by name: functions that return ``n`` random values. For a larger ``n``, the first values are the
same.
"""

FORMS = ", ".join(f"{{{name}: [...]}}" for name in DRAWS)

MEGABIT = 125_000
"""The number of bytes in a megabit."""


def _amount(value: Any) -> Any:
    if not isinstance(value, Mapping):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{as_yaml(value)} is not a number or one of {FORMS}")
        return value
    name, parameters = next(iter(value.items()), ("", ()))
    if len(value) != 1 or name not in DRAWS:
        raise ValueError(f"{dict(value)} is not a number or one of {FORMS}")
    if not isinstance(parameters, list | tuple) or not all(isinstance(p, int | float) for p in parameters):
        raise ValueError(f"{{{name}: {parameters}}} does not hold a list of numbers; write {{{name}: [1, 2]}}")
    if name != "choice" and len(parameters) != 2:
        raise ValueError(f"{name} takes two numbers, not {len(parameters)}: {list(parameters)}")
    if name != "choice" and not all(map(math.isfinite, parameters)):
        raise ValueError(f"{name} takes two finite numbers, not {list(parameters)}")
    if name == "choice" and not parameters:
        raise ValueError("choice takes at least one number")
    if name in ("uniform", "loguniform") and parameters[0] > parameters[1]:
        raise ValueError(f"{name} takes the smaller number first, but {parameters[0]} is above {parameters[1]}")
    if name in ("loguniform", "lognormal") and not parameters[0] > 0:
        raise ValueError(f"the first number of {name} is {parameters[0]}; it must be greater than 0")
    return {name: [float(p) for p in parameters]}


Amount = Annotated[float | dict[str, list[float]], BeforeValidator(_amount)]


class Hospital(Section):
    """Speed, network and availability of one hospital. None means the value for all hospitals."""

    rows_per_second: float | None = default("system.hospitals.*.rows_per_second", gt=0)
    downlink: float | None = default("system.hospitals.*.downlink", gt=0)
    uplink: float | None = default("system.hospitals.*.uplink", gt=0)
    latency: float | None = default("system.hospitals.*.latency", ge=0, allow_inf_nan=False)
    availability: float | None = default("system.hospitals.*.availability", gt=0, le=1)
    dropout: float | None = default("system.hospitals.*.dropout", ge=0, lt=1)


LIMITS: dict[str, tuple[str, Any]] = {
    "rows_per_second": ("greater than 0", lambda v: v > 0),
    "downlink": ("greater than 0", lambda v: v > 0),
    "uplink": ("greater than 0", lambda v: v > 0),
    "latency": ("at least 0 and finite", lambda v: (v >= 0) & np.isfinite(v)),
    "availability": ("in (0, 1]", lambda v: (v > 0) & (v <= 1)),
    "dropout": ("in [0, 1)", lambda v: (v >= 0) & (v < 1)),
}
"""The allowed range of each quantity of a hospital: in words, and as a function that tests values."""

PERFECT = {
    "rows_per_second": np.inf,
    "downlink": np.inf,
    "uplink": np.inf,
    "latency": 0.0,
    "availability": 1.0,
    "dropout": 0.0,
}
"""The default of each quantity of a hospital."""


class RoundsSection(Section):
    """The section ``system.rounds``: when the server ends a round. Asynchronous strategies ignore it.

    - ``deadline``: the number of seconds after which the server stops waiting. With ``late: drop`` a later update is
      dropped. With ``late: discount`` it is used in the round in which it arrives. Its weight is divided by 1 plus the
      number of rounds by which it is late (J. Jiang, B. Cui, C. Zhang, L. Yu: *Heterogeneity-aware Distributed
      Parameter Servers*, SIGMOD 2017).
    - ``over_selection``: the share x of additional hospitals that are sampled. The round ends when 1 / (1 + x) of all
      sampled hospitals have sent their updates (K. Bonawitz et al.: *Towards Federated Learning at Scale*, MLSys 2019,
      where x is .3).
    - ``minimum_cohort``: the smallest number of updates of a round. With fewer, the server repeats the round up to
      ``retries`` times; after that the round changes nothing.
    """

    deadline: float | None = default("system.rounds.deadline", gt=0)
    late: Literal["drop", "discount"] = default("system.rounds.late")
    over_selection: float = default("system.rounds.over_selection", ge=0, allow_inf_nan=False)
    minimum_cohort: int = default("system.rounds.minimum_cohort", ge=1)
    retries: int = default("system.rounds.retries", ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> RoundsSection:
        if self.late == "discount" and self.over_selection:
            raise ValueError(
                f"late: discount cannot be combined with over_selection: {self.over_selection}, which avoids "
                "late updates; keep one of them"
            )
        if self.late == "discount" and self.deadline is None:
            raise ValueError("late: discount, but without a deadline no hospital is late; set deadline")
        return self


class SystemSection(Section):
    """The section ``system``: hospitals that need time and may be unreliable.

    Each quantity is one number for all hospitals, or ``{distribution: [parameters]}``, from which each hospital's value
    is sampled with the run's seed.

    - ``rows_per_second``: the speed of training, in rows times epochs per second. ``downlink`` and ``uplink`` are in
      Mbit/s; ``latency`` is in seconds, before each message. If one of these is not set, it costs no time: the speed is
      infinite, or the latency 0.
    - ``availability``: the probability that a sampled hospital is available; or ``trace``: a CSV with the columns
      ``hospital, from, to``. Its rows are intervals, in virtual seconds, in which a hospital is available; they repeat
      every ``trace_period`` seconds. A hospital that becomes unavailable while it trains is lost for that round.
    - ``dropout``: the probability of dropping out of a round, at a uniformly distributed moment of the hospital's work.
    - ``table``: a CSV with the column ``hospital``, which names all hospitals, and any of the quantities. An empty
      field means the value for all hospitals. ``hospitals``: other values for some hospitals, by name.
    - ``wait``: the number of seconds until the server tries again if too few hospitals are available or too few updates
      arrive. With ``trace`` the server instead waits until an interval of the trace begins.
    - ``target``: values of metrics. The time until the headline model reaches them is reported.
    """

    rows_per_second: Amount | None = default("system.rows_per_second")
    downlink: Amount | None = default("system.downlink")
    uplink: Amount | None = default("system.uplink")
    latency: Amount | None = default("system.latency")
    availability: Amount | None = default("system.availability")
    dropout: Amount | None = default("system.dropout")
    trace: Path | None = default("system.trace")
    trace_period: float | None = default("system.trace_period", gt=0, allow_inf_nan=False)
    table: Path | None = default("system.table")
    hospitals: dict[str, Hospital] = default("system.hospitals")
    wait: float = default("system.wait", gt=0, allow_inf_nan=False)
    rounds: RoundsSection = Field(default_factory=RoundsSection)
    target: dict[str, FiniteFloat] = default("system.target")

    @field_validator(*LIMITS)
    @classmethod
    def _possible(cls, value: Any, info: Any) -> Any:
        words, fits = LIMITS[info.field_name]
        if isinstance(value, dict):
            ((name, parameters),) = value.items()
            # A lognormal's second parameter is not a value of the quantity.
            bounds = parameters[:1] if name == "lognormal" else parameters
        else:
            bounds = [] if value is None else [value]
        for bound in bounds:
            if not fits(np.float64(bound)):
                raise ValueError(f"{bound:g} is not {words}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> SystemSection:
        if self.trace is not None and self.availability is not None:
            raise ValueError("trace: cannot be combined with availability; keep one of them")
        if self.trace_period is not None and self.trace is None:
            raise ValueError("trace_period: there is no trace to repeat; set trace")
        timed = (self.rows_per_second, self.downlink, self.uplink, self.latency, self.table)
        if self.rounds.deadline is not None and not self.hospitals and all(each is None for each in timed):
            raise ValueError(
                f"rounds.deadline: {self.rounds.deadline:g} s are never exceeded, because nothing takes time; set "
                "rows_per_second, downlink, uplink or latency"
            )
        return self
