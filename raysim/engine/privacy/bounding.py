"""Shortens what a row, patient or hospital adds to a client program's sums to the length that the program declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.strategies.base import Program, Reply


def bounded(reply: Reply, program: Program, people: Callable[[], NDArray[Any]]) -> Reply:
    """The ``reply`` with bounded arrays; ``people()`` gives the patient of each row, ``[n]``."""
    sent = dict(reply.sent)
    for name, send in program.sends.items():
        if send.bound is None:
            continue
        array = np.asarray(sent[name], dtype=np.float64)
        units = array[None] if send.bound.unit == "hospital" else array
        units = units.reshape(len(units), -1)
        if send.bound.unit == "patient":
            _, person = np.unique(people(), return_inverse=True)
            added = np.zeros((person.max(initial=-1) + 1, units.shape[1]))
            np.add.at(added, person, units)
            units = added
        units = shortened(units, send.bound.l2)
        sent[name] = units.reshape(send.shape) if send.bound.unit == "hospital" else units.reshape(-1, *send.shape)
    return replace(reply, sent=sent)


def shortened(units: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Rows ``[n, k]`` of at most this ``length``; those that are not finite are 0."""
    units = np.where(np.isfinite(units).all(axis=1, keepdims=True), units, 0.0)
    norms = np.linalg.norm(units, axis=1)
    within: NDArray[np.float64] = units * np.minimum(1.0, length / np.maximum(norms, 1e-300))[:, None]
    return within
