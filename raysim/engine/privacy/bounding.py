"""Clips what a row, patient or hospital adds to a client program's sums. The program declares the largest norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.engine.messages.steps import HospitalStep, LeavingSums
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import Call, Program, Reply


@dataclass(frozen=True)
class Bounding(HospitalStep):
    """The step in which a hospital clips its reply to a client program."""

    unit: str | None
    """The privacy unit (row or patient) that is clipped; None means the unit that the program declares."""

    def forward_sums(self, leaving: LeavingSums) -> None:
        leaving.reply = bounded(leaving.reply, leaving.program, leaving.people, self.unit)


@dataclass(frozen=True)
class Bounds(Step):
    """The server's step that makes hospitals clip replies to client programs. If ``unit`` is given, it replaces the
    privacy unit (row or patient) that the program declares.
    """

    unit: str | None

    def call_step(self, round: int, call: Call, number: int, name: str) -> Bounding | None:
        return Bounding(self.unit) if any(send.bound is not None for send in call.program.sends.values()) else None


def bounded(reply: Reply, program: Program, people: Callable[[], NDArray[Any]], unit: str | None = None) -> Reply:
    """Return a client program's ``reply`` with the contribution of each row, patient or hospital clipped to the
    declared norm.

    ``people()`` returns the patient of each row, ``[n]``. If ``unit`` is given, it replaces the privacy unit (row or
    patient) that the program declares.
    """
    sent, together = dict(reply.sent), dict[str, list[str]]()
    for name, send in program.sends.items():
        if send.bound is not None:
            together.setdefault(f"joint {send.joint}" if send.joint else f"alone {name}", []).append(name)
    for names in together.values():
        first = program.sends[names[0]]
        assert first.bound is not None
        of_hospital = first.bound.unit == "hospital"
        arrays = [np.asarray(sent[name], dtype=np.float64) for name in names]
        # A hospital may have no rows.
        widths = [math.prod(program.sends[name].shape) for name in names]
        parts = [
            array.reshape(1 if of_hospital else len(array), width) for array, width in zip(arrays, widths, strict=True)
        ]
        units = parts[0] if len(parts) == 1 else np.hstack(parts)
        if not of_hospital and (unit or first.bound.unit) == "patient":
            _, person = np.unique(people(), return_inverse=True)
            if len(person) > person.max(initial=-1) + 1:
                added = np.zeros((person.max(initial=-1) + 1, units.shape[1]))
                np.add.at(added, person, units)
                units = added
        units = shortened(units, first.bound.l2)
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        for name, part in zip(names, np.split(units, ends, axis=1), strict=True):
            shape = program.sends[name].shape
            sent[name] = part.reshape(shape if of_hospital else (-1, *shape))
    return replace(reply, sent=sent)


def shortened(units: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Clip each row of ``units [n, k]`` to the 2-norm ``length``. Rows that are not finite become 0."""
    units = np.where(np.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
    norms = np.linalg.norm(units, axis=1)
    return np.asarray(units * np.minimum(1.0, length / np.maximum(norms, 1e-300))[:, None])
