"""Scaling of a federation's labels, so that a fit does not depend on their unit.

Hospitals round their sums to multiples of a step, and no sum may exceed a limit. Labels of linear regressions are
therefore multiplied by a power of two before the fit, so that the largest absolute label is below 1. For counts, the
limit is raised.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from raysim.strategies.base import Answers, Call, Context, FederationView, Ids, Program, Reply, Send, State
from raysim.strategies.regressions.exact import asked

EXPONENTS = 256
"""The number of binary exponents that a hospital can send: -128 to 127."""


@dataclass(frozen=True)
class LabelSize(Program):
    """The binary exponent of a hospital's largest absolute label, as a one-hot vector."""

    name: str = "label_size"

    @property
    def sends(self) -> Mapping[str, Send]:
        return {"exponents": Send((EXPONENTS,), kind="label sizes", bits=0)}

    def run(self, at: Context) -> Reply:
        exponent = int(np.frexp(np.abs(at.rows.y).max(initial=0.0))[1])
        counts = np.zeros(EXPONENTS)
        counts[int(np.clip(exponent + EXPONENTS // 2, 0, EXPONENTS - 1))] = 1.0
        return Reply({"exponents": counts})


@dataclass(frozen=True, eq=False)
class ScaledState(State):
    """The state of a regression, with the ``scale`` of numeric labels."""

    scale: float | None = None
    """The power of two that scales labels to absolute values below 1; None if the label has classes, and before the
    first round."""


S = TypeVar("S", bound=ScaledState)


def with_scale(view: FederationView, own: S, ids: Ids) -> Generator[Call, Answers, S]:
    """Return a copy of the state ``own`` with its ``scale``.

    Unless ``scale`` is known, hospitals ``ids`` send the magnitudes of numeric labels. A label with classes has no
    ``scale``.
    """
    if own.scale is not None or view.classes:
        return own
    answers = yield from asked(Call(LabelSize(), {}, ids), own)
    return replace(own, scale=scale_of(answers))


def scale_of(answers: Answers) -> float:
    """Return the power of two that scales all labels to absolute values below 1.

    ``answers`` has the magnitudes of hospitals' labels (:class:`LabelSize`).
    """
    exponents = np.flatnonzero(answers.sums["exponents"])
    return float(2.0 ** (EXPONENTS // 2 - exponents[-1])) if len(exponents) else 1.0
