"""Client programs under a privacy guarantee: which programs are refused, and the noise that each hospital adds to its
sums.

The sums of one call are one release: the joint contribution of a privacy unit (a hospital, patient or row) to all of
them is clipped to the program's bound. Each round has one call, in which all hospitals take part. The number of
releases is therefore the number of rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from raysim.core.errors import ConfigError
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.steps import HospitalStep, LeavingSums
from raysim.engine.pipeline.shares import sure_to_be_left
from raysim.engine.pipeline.step import Step
from raysim.privacy.noise import Origin, normals
from raysim.strategies.base import Call, FederationView, Program
from raysim.strategies.view import Noise

if TYPE_CHECKING:
    from raysim.config.sections.privacy import PrivacySection
    from raysim.engine.guarantee import Guarantee
    from raysim.engine.job import Job
    from raysim.virtual_time.scheduling import ScheduledCohort

MODES = ("pooled", "distributed")
"""The privacy modes in which each hospital adds a share of the noise to a client program's sums."""


@dataclass(frozen=True)
class ProgramRelease(HospitalStep):
    """The noise that a hospital adds to a client program's sums."""

    unit: Literal["hospital", "patient", "example"]
    """What the noise protects: a hospital, a patient or a row (``example``)."""
    most_rows: int
    """The largest number of rows of one patient that the program uses."""
    multiplier: float
    """The standard deviation of each hospital's noise, divided by the program's clipping norm."""
    noise: Origin
    """The source of random numbers for the noise: the seed (``seeded``) or the operating system (``system``)."""
    seed: int
    round: int

    def forward_sums(self, leaving: LeavingSums) -> None:
        leaving.units += self.units(leaving.program, leaving.layout, leaving.hospital)

    def units(self, program: Program, layout: SumLayout, hospital: int) -> NDArray[np.int64]:
        """Return the noise that a ``hospital`` adds to the sums of ``program``, as integers in fixed point."""
        units = np.zeros(layout.size, np.int64)
        if not self.multiplier:
            return units
        normal = normals(self.noise, (layout.size,), self.seed, "dp_call", self.round, hospital)
        for name, send in layout.summed.items():
            place = layout.places[name]
            # Rounding to the grid lengthens a unit's part by at most half a step for each entry.
            length = bound_of(program) + math.sqrt(layout.size) * 2.0**-send.bits / 2.0
            units[place] = np.rint(self.multiplier * length * normal[place] * 2.0**send.bits)
        return units


def noise_of(guarantee: Guarantee | None) -> Noise | None:
    """Return what strategies may know about the noise of a ``guarantee``; None without a guarantee."""
    return None if guarantee is None else Noise(guarantee.section.clip, guarantee.section.noise_multiplier or 0.0)


def bound_of(program: Program) -> float:
    """Return the clipping norm for what a privacy unit (hospital, patient or row) contributes to all sums of
    ``program``. Infinite if the program declares no bounds.
    """
    bounds = [send.bound.l2 for send in program.sends.values() if send.bound is not None]
    return max(bounds, default=math.inf)


class ProgramNoise(Step):
    """The server's step that makes hospitals add noise to a client program's sums."""

    def __init__(self, guarantee: Guarantee, job: Job) -> None:
        self._section, self._job, self._everyone = guarantee.section, job, guarantee.parameters.hospitals

    def posed(self, view: FederationView, cohort: ScheduledCohort) -> ScheduledCohort:
        raise ConfigError(
            f"privacy.unit: {self._section.unit} cannot be guaranteed, because strategy '{self._job.name}' trains "
            "models "
            "in addition to client programs; choose another strategy or leave privacy out"
        )

    def call_step(self, round: int, call: Call, number: int, name: str) -> ProgramRelease:
        section, secure, hospitals = self._section, self._job.secure, len(call.ids)
        check_hides(section, call, number, name, self._everyone)
        left = hospitals if secure is None else sure_to_be_left(secure, hospitals)
        multiplier = (section.noise_multiplier or 0.0) / math.sqrt(max(left, 1))
        rows, seed = section.rows_per_patient, self._job.work.seed
        return ProgramRelease(section.unit, rows, multiplier, section.noise, seed, round)


def check_hides(section: PrivacySection, call: Call, turns: int, name: str, everyone: int) -> None:
    """Raise ``ConfigError`` if noise on the sums of a client program's ``call`` would not satisfy the privacy
    guarantee.

    ``turns`` is the number of earlier calls in the round, and ``everyone`` the number of hospitals.
    """
    program = call.program
    sends = program.sends.items()
    whole, joints = section.unit == "hospital", {send.joint or each for each, send in sends}
    reasons = {
        **{f"sends '{each}' separately": send.how == "each" for each, send in sends},
        **{f"sends '{each}' without a bound": send.bound is None for each, send in sends},
        **{
            f"bounds '{each}' by {send.bound.unit}": (send.bound.unit == "hospital") != whole
            for each, send in sends
            if send.bound is not None
        },
        **{f"sends '{each}' into several sums": send.groups > 1 for each, send in sends},
        "bounds its sums separately": len(joints) > 1,
        # Memory computed from rows has no noise, and later sums depend on it.
        "stores values computed from rows at hospitals": not whole and bool(program.keeps),
        # With fewer hospitals, each share of the noise would be larger than the share a peer is assumed to
        # know.
        f"calls {len(call.ids)} of {everyone} hospitals": len(call.ids) < everyone,
        "is a second call in the round": turns > 0,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ConfigError(
                f"privacy.unit: {section.unit} cannot be guaranteed, because {name} {reason}; choose another "
                "strategy or "
                "leave privacy out"
            )
